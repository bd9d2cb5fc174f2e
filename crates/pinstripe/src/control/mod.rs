//! Asking and steering a running process: `status`, parameters, paths of FIDs.
//!
//! Every server and mount process offers the target `CTL` beside its others. Answers are JSON:
//! rare, for people, and extensible. Opcodes are this crate's own.

mod ask;
mod service;

pub use ask::{
    ask_cluster, ask_paths, ask_status, check_params, get_params, open, open_within, set_params,
};
pub use service::{Control, Inside, Param, ProcessParams};

/// Name of the target.
pub const TARGET: &str = "CTL";
/// State of the process; empty body, the reply is a JSON object.
pub const STATUS: u16 = 0x0501;
/// Parameters; empty body, the reply is a JSON list of [`Param`].
pub const GET_PARAMS: u16 = 0x0502;
/// Changes parameters; body a JSON list of `[name, value]`. All or none.
pub const SET_PARAMS: u16 = 0x0503;
/// State of the whole file system, gathered by the process; empty body, the reply is a JSON object.
pub const CLUSTER: u16 = 0x0505;
/// Paths of a FID; body the FID as text, the reply a list of byte strings.
pub const PATHS: u16 = 0x0504;
/// Whether `SET_PARAMS` with this body would be done; nothing is changed.
pub const CHECK_PARAMS: u16 = 0x0506;
