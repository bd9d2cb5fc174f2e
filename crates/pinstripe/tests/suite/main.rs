//! The program as its users meet it: run as a process, from outside.

mod below;
mod cli;
mod common;
mod lfs;
mod mounts;
mod servers;
