//! Tests of a target from outside, as a library and over `net`.

mod busy;
mod common;
mod crash;
mod disk;
mod model;
