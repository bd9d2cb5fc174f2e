//! What servers say unasked: leases called back, sessions lost and back.
//!
//! Role: transport threads only note an event; two threads of the client act on them (leases,
//! connections), so that a lease that waits for data never waits for a connection's business.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use net::{CallReply, Events, NetError};
use parking_lot::{Condvar, Mutex};
use proto::mds::{
    Accessed, Grant, LeaseRecall, O_REOPEN, Op, R_FORGET, R_SOLE_BEGIN, R_SOLE_END, Recall, Res,
};
use proto::mgs::Welcome;
use proto::{Errno, MAX_FILE_SIZE, Wire, ops};

use crate::awaited::Awaited;
use crate::connect::ost_index;
use crate::core::Core;
use crate::inode::{Inode, Place};
use crate::leases::Leases;
use crate::mdt::{last, own_cred};
use crate::promises::Promises;

/// How often a lost target is looked for at another address.
const FOLLOW: Duration = Duration::from_millis(500);

/// A lease event.
pub(crate) enum Lease {
    Recall(Recall, CallReply),
    Inodes(LeaseRecall, CallReply),
    /// Nothing is given back.
    Accessed(Accessed, CallReply),
    Stop,
}

/// A connection event.
pub(crate) enum Link {
    Lost(String),
    Back(String, Box<Welcome>),
    /// A target refuses this incarnation of the client.
    Evicted([u8; 16]),
    Stop,
}

/// Sessions with the MDT that came back and were not dealt with yet. A lease that is called back
/// after such a session began must not be given back before what its welcome granted was taken: the
/// grant would stand for good (invariant 3).
#[derive(Default)]
pub(crate) struct Order {
    fresh: Mutex<u32>,
    dealt_with: Condvar,
}

impl Order {
    fn began(&self) {
        *self.fresh.lock() += 1;
    }

    fn done(&self) {
        let mut fresh = self.fresh.lock();
        *fresh = fresh.saturating_sub(1);
        self.dealt_with.notify_all();
    }

    /// Nothing will be dealt with any more.
    fn end(&self) {
        *self.fresh.lock() = 0;
        self.dealt_with.notify_all();
    }

    fn wait(&self) {
        let mut fresh = self.fresh.lock();
        while *fresh > 0 {
            self.dealt_with.wait(&mut fresh);
        }
    }
}

/// Where events are noted.
pub(crate) struct Hooks {
    pub(crate) order: Arc<Order>,
    pub(crate) promises: Arc<Promises>,
    pub(crate) table: Arc<Leases>,
    pub(crate) leases: Sender<Lease>,
    pub(crate) links: Sender<Link>,
    pub(crate) awaited: Arc<Awaited>,
}

/// The receiving ends.
pub(crate) struct Inbox {
    pub(crate) order: Arc<Order>,
    pub(crate) leases: Receiver<Lease>,
    pub(crate) links: Receiver<Link>,
    pub(crate) awaited: Arc<Awaited>,
}

pub(crate) fn hooks(table: Arc<Leases>) -> (Arc<Hooks>, Inbox) {
    // Bounded by what servers may have outstanding: one call-back a lease, one event a loss.
    let (leases, leases_in) = unbounded();
    let (links, links_in) = unbounded();
    let (promises, order) = (Arc::default(), Arc::<Order>::default());
    let awaited = Arc::<Awaited>::default();
    let inbox = Inbox {
        order: order.clone(),
        leases: leases_in,
        links: links_in,
        awaited: awaited.clone(),
    };
    (Arc::new(Hooks { order, promises, table, leases, links, awaited }), inbox)
}

impl Hooks {
    pub(crate) fn of(self: &Arc<Hooks>, target: &str) -> Arc<dyn Events> {
        Arc::new(Hook { hooks: self.clone(), target: target.to_string() })
    }
}

/// One session's events.
struct Hook {
    hooks: Arc<Hooks>,
    target: String,
}

impl Events for Hook {
    fn call(&self, opcode: u16, body: Bytes, reply: CallReply) {
        let leases = &self.hooks.leases;
        let bad = |reply: CallReply| reply.send(Errno::EPROTO.status(), Vec::new());
        match opcode {
            ops::callback::RECALL => match Recall::from_bytes(&body) {
                Ok(recall) => {
                    self.hooks.awaited.add(reply.not_yet());
                    let _ = leases.send(Lease::Recall(recall, reply));
                }
                Err(_) => bad(reply),
            },
            ops::callback::LEASES => match LeaseRecall::from_bytes(&body) {
                Ok(recall) => {
                    self.hooks.awaited.add(reply.not_yet());
                    let _ = leases.send(Lease::Inodes(recall, reply));
                }
                Err(_) => bad(reply),
            },
            ops::callback::ACCESSED => match Accessed::from_bytes(&body) {
                Ok(files) => {
                    self.hooks.awaited.add(reply.not_yet());
                    let _ = leases.send(Lease::Accessed(files, reply));
                }
                Err(_) => bad(reply),
            },
            _ => reply.send(Errno::EOPNOTSUPP.status(), Vec::new()),
        }
    }

    fn lost(&self, why: &NetError) {
        if let NetError::Evicted { client } = why {
            return drop(self.hooks.links.send(Link::Evicted(*client)));
        }
        tracing::info!(target = %self.target, %why, "lost");
        if ost_index(&self.target).is_none() {
            self.hooks.table.away(true);
        }
        let _ = self.hooks.links.send(Link::Lost(self.target.clone()));
    }

    fn back(&self, welcome: &Welcome) {
        tracing::info!(target = %self.target, resumed = welcome.resumed, "back");
        // Before anything is sent again: an fsync among it must not be answered as if all was well.
        if !welcome.resumed
            && ost_index(&self.target).is_none()
            && let Ok(grant) = Grant::from_bytes(&welcome.data)
        {
            self.hooks.promises.restarted(welcome.epoch, grant.recovered);
        }
        let of_mdt = ost_index(&self.target).is_none();
        if of_mdt {
            if !welcome.resumed {
                self.hooks.table.clear();
            }
            self.hooks.table.away(false);
            self.hooks.order.began();
        }
        let event = Link::Back(self.target.clone(), Box::new(welcome.clone()));
        if self.hooks.links.send(event).is_err() && of_mdt {
            self.hooks.order.done();
        }
    }
}

/// Acts on leases until told to stop.
pub(crate) fn lease_thread(core: &Arc<Core>, order: &Order, inbox: &Receiver<Lease>) {
    for event in inbox {
        let (recall, reply) = match event {
            Lease::Recall(recall, reply) => (recall, reply),
            Lease::Inodes(recall, reply) => {
                core.give_back(recall, reply);
                continue;
            }
            Lease::Accessed(files, reply) => {
                core.accessed_elsewhere(&files.files.0);
                core.counters.recalls.fetch_add(1, SeqCst);
                reply.send(0, Vec::new());
                continue;
            }
            Lease::Stop => return,
        };
        core.givers.wait();
        order.wait();
        match recall.what {
            R_SOLE_END => core.sole_end(|| reply.is_awaited()),
            R_SOLE_BEGIN => core.sole_begin(|| reply.is_awaited()),
            R_FORGET => {
                core.forget(recall.fid);
                core.forgets.fetch_add(1, SeqCst);
                core.announce(|l| l.forget(recall.fid));
            }
            _ => {
                reply.send(Errno::EOPNOTSUPP.status(), Vec::new());
                continue;
            }
        }
        reply.send(0, Vec::new());
    }
}

/// Acts on connections until told to stop.
pub(crate) fn link_thread(core: &Arc<Core>, order: &Order, inbox: &Receiver<Link>) {
    links(core, order, inbox);
    order.end();
}

fn links(core: &Arc<Core>, order: &Order, inbox: &Receiver<Link>) {
    let mut lost = BTreeSet::new();
    loop {
        let event = match lost.is_empty() {
            true => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => inbox.recv_timeout(FOLLOW),
        };
        match event {
            Ok(Link::Lost(target)) => {
                if ost_index(&target).is_none() {
                    core.announce(|l| l.doubted());
                }
                lost.insert(target);
            }
            Ok(Link::Back(target, welcome)) => {
                lost.remove(&target);
                match ost_index(&target) {
                    Some(index) => core.resend(index),
                    None => {
                        core.mdt_back(&welcome);
                        order.done();
                    }
                }
            }
            Ok(Link::Evicted(client)) => core.evicted(client),
            Ok(Link::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        for target in &lost {
            core.follow(target, &core.stopped);
        }
    }
}

impl Core {
    /// Another client came: everything goes out, then nothing is cached. Not if that was said in a session that is
    /// no more (`holds`): the next one has its own say.
    pub(crate) fn sole_end(self: &Arc<Core>, holds: impl Fn() -> bool) {
        {
            let _turn = self.sole_turn.lock();
            if !holds() {
                return;
            }
            self.leases.clear();
            self.sole.store(false, SeqCst);
            self.new_epoch();
        }
        // An MDT that takes nothing now is waited for first: of what follows nothing is told twice.
        self.mdt.flush_all();
        self.tell_looks_past();
        self.closed_all();
        // One for all: the MDT lets itself be put off for a limited time only.
        let until = Instant::now() + self.options.request_timeout;
        for inode in self.registry.all() {
            // Waits for operations that still believe in the lease.
            let _io = inode.io.write();
            if let Err(e) = self.pin(&inode) {
                tracing::warn!(fid = %inode.fid, error = %e, "a file that is open is not kept");
            }
            let drained = self.drain_by(&inode, until);
            if let Err(e) = self.tell(&inode, true, false).and(drained) {
                tracing::warn!(fid = %inode.fid, error = %e, "giving the lease back");
            }
            let mut st = inode.st.lock();
            st.ahead.clear();
            let dirty = matches!(&st.place, Place::Inline(i) if i.dirty.is_some());
            if matches!(st.place, Place::Inline(_)) && !dirty {
                st.place = Place::Unknown;
            }
            if !st.unstable.is_empty() {
                self.want_commit(&inode, &mut st);
            }
        }
        self.mdt.end_local();
        self.note_lost();
        self.announce(|l| l.sole(false));
    }

    /// This client is alone, if that still `holds`: an MDT that shuts down says so to the last whose session ends.
    pub(crate) fn sole_begin(self: &Arc<Core>, holds: impl Fn() -> bool) {
        for inode in self.registry.all() {
            // Bytes written among others may be older than theirs: they must not lie over what
            // the OSTs hold.
            if let Err(e) = self.commit(&inode) {
                tracing::warn!(fid = %inode.fid, error = %e, "commit before taking the lease");
            }
            if let Err(e) = self.tell_late(&inode) {
                tracing::warn!(fid = %inode.fid, error = %e, "what was written is not told");
            }
            let mut st = inode.st.lock();
            st.unstable.remove(0, MAX_FILE_SIZE);
            st.account(&self.budget);
        }
        {
            let _turn = self.sole_turn.lock();
            if !holds() {
                return;
            }
            self.leases.clear();
            self.mdt.wb.forget_all();
            self.new_epoch();
            self.sole.store(true, SeqCst);
        }
        self.announce(|l| l.sole(true));
    }

    /// The MDT's session is back.
    fn mdt_back(self: &Arc<Core>, welcome: &Welcome) {
        let Ok(grant) = Grant::from_bytes(&welcome.data) else {
            tracing::error!("the MDT's welcome is unreadable");
            return;
        };
        if welcome.resumed {
            self.lease_now(grant.sole);
            return;
        }
        self.mdt.granted(grant.fids);
        self.mdt.wb.restarted(grant.dom_limit.into());
        self.space.renew(self.tick_now());
        self.dom_limit.store(grant.dom_limit.into(), SeqCst);
        {
            let _turn = self.sole_turn.lock();
            self.sole.store(grant.sole, SeqCst);
            self.life.fetch_add(1, SeqCst);
            self.new_epoch();
        }
        for inode in self.registry.all() {
            self.reopen(&inode);
            if let Err(e) = self.tell_late(&inode) {
                tracing::warn!(fid = %inode.fid, error = %e, "what was written is not told");
            }
            {
                // Others may look at it from now on.
                let mut st = inode.st.lock();
                if !self.caching() && (st.has_inline_dirty() || !st.dirty.is_empty()) {
                    st.push_all = true;
                    self.want_push(&inode, &mut st);
                }
            }
            if !self.caching()
                && let Err(e) = self.pin(&inode)
            {
                tracing::warn!(fid = %inode.fid, error = %e, "a file that is open is not kept");
            }
        }
        self.retake_locks();
        if !grant.sole {
            self.mdt.end_local();
        }
        self.announce(|l| l.reset());
    }

    /// The session went on, but the lease may have gone or come meanwhile.
    fn lease_now(self: &Arc<Core>, sole: bool) {
        if self.sole.load(SeqCst) == sole {
            return;
        }
        if sole { self.sole_begin(|| true) } else { self.sole_end(|| true) }
    }

    /// Opens a file's handles again with a restarted MDT.
    fn reopen(self: &Arc<Core>, inode: &Arc<Inode>) {
        let handles: Vec<(u64, u32)> = {
            let mut st = inode.st.lock();
            st.unsynced = true;
            st.handles.iter().map(|(h, f)| (*h, *f)).collect()
        };
        for (handle, flags) in handles {
            let op = Op::Open { fid: inode.fid, flags: flags | O_REOPEN, handle };
            let answer = self.mdt.one(&own_cred(), op);
            let mut st = inode.st.lock();
            match answer {
                Ok(Res::Opened { attr, .. }) => st.attr = attr,
                Ok(_) => {}
                Err(e) => {
                    tracing::warn!(fid = %inode.fid, error = %e, "an open file is lost");
                    st.fail(Errno::ESTALE);
                }
            }
        }
    }

    /// Takes locks again with a restarted MDT.
    fn retake_locks(self: &Arc<Core>) {
        self.locks.retake();
        for (fid, lock) in self.locks.all() {
            self.options.pauses.point();
            let op = Op::Lock { fid, lock, wait: false };
            if let Err(e) = self.mdt.compound(&own_cred(), vec![op]).and_then(last) {
                tracing::warn!(%fid, error = %e, "a lock is lost");
            }
        }
        self.locks.retake();
    }
}
