//! `msum` beside the genuine programs.

mod common;
mod own;
mod random;
mod same;
