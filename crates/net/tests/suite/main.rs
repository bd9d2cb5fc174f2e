//! The suite: what a target and a client may rely on, over every transport.

mod attend;
mod calls;
mod common;
mod cut;
mod fleet;
mod hostile;
mod recovery;
mod trunk;
