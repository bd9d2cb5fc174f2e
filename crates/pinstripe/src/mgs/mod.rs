//! The management service: which targets a file system has and where they listen.

mod registrar;
mod served;
mod service;
mod state;

pub use registrar::{Registrar, connect, fetch};
pub use service::{Mgs, refuse};
pub use state::{MAX_ADDRESS, MAX_TARGETS, MgsState, RegisterError, STATE_FILE};
