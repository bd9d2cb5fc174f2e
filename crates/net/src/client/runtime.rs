//! The thread that serves all client sessions of this process.

use crate::NetError;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle};

/// The runtime of client sockets and of reconnecting; made at first use.
pub(crate) fn handle() -> Result<Handle, NetError> {
    static RUNTIME: OnceLock<Result<Handle, String>> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            let runtime =
                Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
            let handle = runtime.handle().clone();
            std::thread::Builder::new()
                .name("net-client".into())
                .spawn(move || runtime.block_on(std::future::pending::<()>()))
                .map_err(|e| e.to_string())?;
            Ok(handle)
        })
        .clone()
        .map_err(|e| NetError::Lost(format!("no thread for connections: {e}")))
}
