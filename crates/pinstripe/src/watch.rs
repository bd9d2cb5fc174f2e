//! Looking into an MDT of this process without counting as its client.

use net::{ConnectOptions, Endpoint, Session};
use proto::mds::{Compound, CompoundReply, Cred, Op, Res};
use proto::mgs::FEATURE_OBSERVER;
use proto::wire::{List, Wire};
use proto::{Errno, ops};
use std::sync::Arc;
use std::time::Duration;

use crate::failure::{Doing, Outcome};
use crate::host::describe;

/// Time one question may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A session that only looks.
pub struct Watch(Arc<Session>);

impl Watch {
    /// Opens it.
    pub fn open(endpoint: &Endpoint, target: &str) -> Outcome<Watch> {
        let options = ConnectOptions {
            target: target.into(),
            description: describe("status"),
            features: FEATURE_OBSERVER,
            request_timeout: Some(PATIENCE),
            ..ConnectOptions::default()
        };
        let session = Session::connect(endpoint, options);
        session.map(Watch).doing(|| format!("cannot look into {target}"))
    }

    /// Asks one thing.
    pub fn ask(&self, op: Op) -> Result<Res, Errno> {
        let cred = Cred { uid: 0, gid: 0, groups: List(Vec::new()) };
        let body = Compound::new(cred, vec![op]).to_bytes();
        let reply = self.0.call(ops::mds::COMPOUND, body, Vec::new()).map_err(|e| e.errno())?;
        reply.status()?;
        let answer = CompoundReply::from_bytes(&reply.body).map_err(|_| Errno::EPROTO)?;
        match answer.results.0.into_iter().next() {
            Some(Res::Failed { errno }) => Err(Errno(errno.into())),
            Some(res) => Ok(res),
            None => Err(Errno::EPROTO),
        }
    }
}
