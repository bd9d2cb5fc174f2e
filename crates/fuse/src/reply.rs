//! Typed answers: sent once, from any thread; a dropped one answers EIO.

use crate::abi;
use crate::channel::{Link, Responder};
use crate::codec::{
    attr_out, created_out, entry_out, file_lock_out, open_out, statfs_out, statx_out,
};
use crate::dir::{DirBuf, DirPlusBuf};
use crate::ring::{Entry as RingEntry, Landing};
use crate::types::*;
use std::marker::PhantomData;
use zerocopy::IntoBytes;

/// The kind of an answer made of plain bytes (read, readlink).
pub enum Data {}

/// The kind of an answer to getxattr and listxattr.
pub enum Xattr {}

/// The pending answer to one request.
///
/// Sending costs one write to the kernel. It is an error of the program, not of the request, to drop it unsent: the
/// caller then gets EIO.
#[must_use = "a dropped reply answers EIO"]
pub struct Reply<T> {
    /// None once sent.
    responder: Option<Responder>,
    kind: PhantomData<fn(T)>,
}

impl<T> Reply<T> {
    pub(crate) fn new(responder: Responder) -> Reply<T> {
        Reply { responder: Some(responder), kind: PhantomData }
    }

    /// Answers with an errno.
    pub fn err(mut self, errno: Errno) {
        self.refuse(errno);
    }

    fn refuse(&mut self, errno: Errno) -> bool {
        self.responder.take().is_some_and(|r| r.error(errno))
    }

    /// Has the calling process been signalled since? Then the answer should be EINTR, soon.
    pub fn is_interrupted(&self) -> bool {
        self.responder.as_ref().is_some_and(Responder::is_interrupted)
    }

    /// Has `hook` called once when the calling process is signalled, on a reader thread, unless this is answered first.
    /// False if it has been signalled already: then the hook is dropped, and the answer should be EINTR now.
    ///
    /// To keep the reply for later: take the lock of the place it will wait in, call this, store the reply, let the lock
    /// go. The hook takes that lock, looks for the reply (it may be answered in the meantime) and answers EINTR. A hook
    /// must not block otherwise.
    #[must_use = "false means that the interrupt came first"]
    pub fn on_interrupt(&self, hook: impl FnOnce() + Send + 'static) -> bool {
        self.responder.as_ref().is_some_and(|r| r.on_interrupt(Box::new(hook)))
    }

    /// Number of this request, unique in its session.
    pub fn unique(&self) -> u64 {
        self.responder.as_ref().map_or(0, |r| r.unique)
    }

    fn parts(self, parts: &[&[u8]]) {
        self.hand_over(parts);
    }

    fn hand_over(mut self, parts: &[&[u8]]) -> bool {
        self.responder.take().is_some_and(|r| r.parts(parts))
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(r) = self.responder.take() {
            r.error(Errno::EIO);
        }
    }
}

impl<T> std::fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({})", self.unique())
    }
}

/// Answers that are one value.
pub trait Body: Sized {
    #[doc(hidden)]
    fn put(self, reply: Reply<Self>) -> bool;
}

impl<T: Body> Reply<T> {
    /// Answers with a value.
    pub fn ok(self, value: T) {
        self.deliver(Ok(value));
    }

    /// Answers with what a handler returned.
    pub fn send(self, result: Result<T>) {
        self.deliver(result);
    }

    /// As `send`. False: the kernel did not take it, because the caller was killed while the handler worked; it does not
    /// know what was done, opened or looked up for it.
    pub fn deliver(mut self, result: Result<T>) -> bool {
        match result {
            Ok(value) => value.put(self),
            Err(errno) => self.refuse(errno),
        }
    }
}

macro_rules! body {
    ($($ty:ty => |$value:ident| $parts:expr;)*) => {
        $(impl Body for $ty {
            fn put(self, reply: Reply<$ty>) -> bool {
                let $value = self;
                reply.hand_over($parts)
            }
        })*
    };
}

body! {
    () => |_v| &[];
    Entry => |v| &[entry_out(&v).as_bytes()];
    AttrOut => |v| &[attr_out(&v).as_bytes()];
    Open => |v| &[open_out(&v).as_bytes()];
    Created => |v| &[created_out(&v).as_bytes()];
    Statfs => |v| &[statfs_out(&v).as_bytes()];
    Statx => |v| &[statx_out(&v).as_bytes()];
    FileLock => |v| &[file_lock_out(&v).as_bytes()];
    u32 => |v| &[abi::WriteOut { size: v, padding: 0 }.as_bytes()];
    DirBuf => |v| &[v.bytes()];
    DirPlusBuf => |v| &[v.bytes()];
}

/// A position (lseek) or a number of bytes copied (copy_file_range).
impl Body for u64 {
    fn put(self, mut reply: Reply<u64>) -> bool {
        reply.responder.take().is_some_and(|r| r.number(self))
    }
}

impl Body for IoctlOut {
    fn put(self, mut reply: Reply<IoctlOut>) -> bool {
        if self.data.len() > reply.limit() {
            return reply.refuse(Errno::EIO);
        }
        let head = abi::IoctlOut { result: self.result, ..abi::IoctlOut::default() };
        reply.hand_over(&[head.as_bytes(), &self.data])
    }
}

impl<T> Reply<T> {
    /// Most bytes the kernel takes.
    fn limit(&self) -> usize {
        self.responder.as_ref().map_or(0, |r| r.limit as usize)
    }
}

impl Reply<Data> {
    /// Answers with bytes; more than were asked for are an error of the program (EIO).
    pub fn bytes(self, data: &[u8]) {
        self.slices(&[data]);
    }

    /// Answers with the slices one after the other, without copying them together.
    pub fn slices(self, data: &[&[u8]]) {
        if data.iter().map(|d| d.len()).sum::<usize>() > self.limit() {
            return self.err(Errno::EIO);
        }
        self.parts(data);
    }

    /// Memory from which an answer goes to the kernel without another copy, where there is any: what lies at its beginning,
    /// to be given as the first slice. The caller is not let go while it exists, even if it is killed: only to be asked for
    /// where the answer is waited for no longer than a disk needs.
    pub fn landing(&self) -> Option<Landing> {
        let responder = self.responder.as_ref()?;
        match &responder.link {
            Link::Ring(entry) => RingEntry::land(entry, responder.unique),
            Link::Device(_) => None,
        }
    }

    /// Answers with what `fill` puts into a page-aligned buffer of the size asked for. It returns the number of bytes;
    /// it must have written all of them, the buffer holds bytes of earlier requests.
    pub fn fill(self, fill: impl FnOnce(&mut [u8]) -> Result<usize>) {
        let limit = self.limit();
        let Some(r) = self.responder.as_ref() else { return };
        let mut buf = r.pool().get();
        buf.set_len(limit);
        match fill(&mut buf) {
            Ok(n) if n <= buf.len() => self.parts(&[&buf[..n]]),
            Ok(_) => self.err(Errno::EIO),
            Err(errno) => self.err(errno),
        }
    }

    /// Answers with what a handler returned.
    pub fn send_bytes<B: AsRef<[u8]>>(self, result: Result<B>) {
        match result {
            Ok(data) => self.bytes(data.as_ref()),
            Err(errno) => self.err(errno),
        }
    }
}

impl Reply<Xattr> {
    /// The size the caller has room for; 0 asks only for the size.
    pub fn size(&self) -> u32 {
        self.limit() as u32
    }

    /// Answers with the whole value: gives its size when only that was asked for, ERANGE when there is too little room.
    pub fn value(self, value: &[u8]) {
        match self.limit() {
            0 => self.value_size(value.len() as u32),
            limit if value.len() > limit => self.err(Errno::ERANGE),
            _ => self.parts(&[value]),
        }
    }

    /// Answers a size query (`size()` is 0) without having the value.
    pub fn value_size(self, size: u32) {
        match self.limit() {
            0 => self.parts(&[abi::GetxattrOut { size, padding: 0 }.as_bytes()]),
            _ => self.err(Errno::EIO),
        }
    }

    /// Answers with what a handler returned.
    pub fn send_value<B: AsRef<[u8]>>(self, result: Result<B>) {
        match result {
            Ok(value) => self.value(value.as_ref()),
            Err(errno) => self.err(errno),
        }
    }
}
