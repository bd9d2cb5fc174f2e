//! Answers the kernel did not take, because their caller was killed while the handler worked.
//!
//! Role: what was opened or looked up for nobody is given back, and what was changed without the
//! kernel's hearing of it is dropped from its caches. Assumptions: rare; each is dropped by a thread
//! of its own, because the kernel may take locks for it whose holders wait for handlers.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use fuse::{AttrOut, Body, Created, Entry, Errno, Open, Reply};

use crate::caches::Caches;
use crate::fs::PinstripeFs;

/// What the kernel may remember wrongly.
#[derive(Default)]
pub(crate) struct Doubt {
    names: Vec<(u64, OsString)>,
    nodes: Vec<u64>,
}

impl Doubt {
    /// A name, and the directory it is in.
    pub(crate) fn name(parent: u64, name: &OsStr) -> Doubt {
        Doubt { names: vec![(parent, name.to_owned())], nodes: vec![parent] }
    }

    pub(crate) fn node(node: u64) -> Doubt {
        Doubt { names: Vec::new(), nodes: vec![node] }
    }

    pub(crate) fn and(mut self, other: Doubt) -> Doubt {
        self.names.extend(other.names);
        self.nodes.extend(other.nodes);
        self
    }
}

impl PinstripeFs {
    /// Answers; if nobody hears it, what `doubt` says is dropped from the kernel's caches.
    pub(crate) fn tell<T: Body>(
        &self,
        reply: Reply<T>,
        result: Result<T, Errno>,
        doubt: impl FnOnce() -> Doubt,
    ) {
        if !reply.deliver(result) {
            self.caches.doubt(doubt());
        }
    }

    /// As `tell`, with attributes of a node that others may have made longer.
    pub(crate) fn tell_attr(
        &self,
        reply: Reply<AttrOut>,
        result: Result<AttrOut, Errno>,
        doubt: impl FnOnce() -> Doubt + Send + 'static,
    ) {
        let told = result.as_ref().ok().map(|a| (a.attr.ino, a.attr.size));
        self.caches.answer_size(told, reply, move |caches, reply, late| {
            let ttl = |a: &AttrOut| if late { Duration::ZERO } else { a.ttl };
            let result = result.map(|a| AttrOut { ttl: ttl(&a), ..a });
            if !reply.deliver(result) {
                caches.doubt(doubt());
            }
        });
    }

    /// As `tell`, with a node the kernel now knows once more.
    pub(crate) fn tell_entry(
        &self,
        reply: Reply<Entry>,
        result: Result<Entry, Errno>,
        doubt: impl FnOnce() -> Doubt + Send + 'static,
    ) {
        let node = result.as_ref().map_or(0, |e| e.nodeid);
        let told = result.as_ref().ok().map(|e| (node, e.attr.size));
        self.caches.answer_size(told, reply, move |caches, reply, late| {
            let ttl = |e: &Entry| if late { Duration::ZERO } else { e.attr_ttl };
            let result = result.map(|e| Entry { attr_ttl: ttl(&e), ..e });
            if !reply.deliver(result) {
                caches.untold(node);
                caches.doubt(doubt());
            }
        });
    }

    pub(crate) fn tell_open(&self, reply: Reply<Open>, result: Result<Open, Errno>, node: u64) {
        let fh = result.as_ref().ok().map(|o| o.fh);
        if !reply.deliver(result) {
            self.unopened(fh);
            self.caches.doubt(Doubt::node(node));
        }
    }

    pub(crate) fn tell_created(
        &self,
        reply: Reply<Created>,
        result: Result<Created, Errno>,
        doubt: impl FnOnce() -> Doubt,
    ) {
        let made = result.as_ref().ok().map(|c| (c.entry.nodeid, c.open.fh));
        if !reply.deliver(result) {
            self.caches.untold(made.map_or(0, |m| m.0));
            self.unopened(made.map(|m| m.1));
            self.caches.doubt(doubt());
        }
    }

    fn unopened(&self, fh: Option<u64>) {
        if let Some(h) = fh.and_then(|fh| self.handles.remove(fh)) {
            h.file.release();
        }
    }
}

impl Caches {
    fn untold(&self, node: u64) {
        if node != 0 {
            self.nodes.forget(node, 1);
        }
    }

    pub(crate) fn doubt(self: &Arc<Caches>, doubt: Doubt) {
        let caches = Arc::clone(self);
        let drop_all = move || {
            doubt.names.iter().for_each(|(parent, name)| caches.drop_name(*parent, name));
            doubt.nodes.iter().for_each(|node| caches.drop_one(caches.fid(*node)));
        };
        if let Err(e) = std::thread::Builder::new().name("unheard".into()).spawn(drop_all) {
            tracing::warn!(error = %e, "the kernel may show what it cached before a change");
        }
    }
}
