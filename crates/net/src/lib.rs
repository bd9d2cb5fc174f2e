//! Sessions between clients and targets: framing, credits, bulk transfer, resumption.
//!
//! Role: a request goes to a target and its reply comes back, over TCP, a Unix socket or within
//! the process, and survives the loss of the transport. Assumptions: peers may be hostile or
//! broken; whatever one sends, only its own connection suffers (invariant 12). Never does: look
//! into a body, other than those of the session's own set-up.
//!
//! Layers, from the bottom: [`Endpoint`] names a place; a link carries frames; a server session
//! ([`SessionRef`]) and a client session ([`Session`]) hold what outlives a link.
//!
//! ```
//! use pinstripe_net::*;
//! use std::sync::Arc;
//!
//! struct Echo;
//! impl Service for Echo {
//!     fn target(&self) -> String { "OST0000".into() }
//!     fn fs(&self) -> [u8; 16] { [1; 16] }
//!     fn epoch(&self) -> u32 { 1 }
//!     fn open(&self, _: &SessionRef, _: &proto::mgs::Hello, _: bool) -> Result<Vec<u8>, String> {
//!         Ok(Vec::new())
//!     }
//!     fn request(&self, _: &SessionRef, request: Request, reply: Responder) {
//!         reply.send(Response::ok(request.body.to_vec()));
//!     }
//!     fn closed(&self, _: &SessionRef, _: Closed) {}
//! }
//!
//! # fn main() -> Result<(), NetError> {
//! let server = Server::new(ServerOptions::default());
//! server.add(Arc::new(Echo));
//! let endpoint = server.listen(&"tcp:127.0.0.1:0".parse()?)?;
//! let options = ConnectOptions { target: "OST0000".into(), ..ConnectOptions::default() };
//! let session = Session::connect(&endpoint, options)?;
//! assert_eq!(session.call(0x0901, b"hello".to_vec(), Vec::new())?.body, &b"hello"[..]);
//! # Ok(())
//! # }
//! ```

mod auth;
mod client;
mod endpoint;
mod error;
pub mod idle;
mod keeper;
mod key;
mod link;
mod local;
mod message;
mod parts;
pub mod place;
mod quiet_log;
mod reader;
mod server;
mod socket;
pub mod sparse;

pub use auth::{Accepted, Challenge, Proof};
pub use client::backoff::Backoff;
pub use client::heard::Heard;
pub use client::options::{ConnectOptions, Events, NoEvents, Patience};
pub use client::runtime::{MAX_CLIENT_THREADS, set_client_threads};
pub use client::stats::SessionStats;
pub use client::{CallReply, NotYet, Outstanding, Session};
pub use endpoint::Endpoint;
pub use error::NetError;
pub use key::ClusterKey;
pub use local::LocalServer;
pub use message::{Reply, Request, Response};
pub use reader::{FrameReader, encode_frame};
pub use server::Server;
pub use server::options::ServerOptions;
pub use server::responder::Responder;
pub use server::service::{Closed, Service};
pub use server::session::SessionRef;
pub use server::stats::ServerStats;
