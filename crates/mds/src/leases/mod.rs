//! Leases per inode: who may cache what while several clients share the files (invariant 3).
//!
//! Role: a table of what each session was granted ([`table`]), the rules ([`policy`]: what an
//! operation touches, what it earns), directories that change hands too often ([`hot`]), and what
//! is being called back ([`calls`]). `server::recall` runs them. While one client is alone it has
//! the SOLE lease instead and the table stays as it was. Never does: I/O, waiting, clocks.
//!
//! Rules that everything rests on:
//! - `LS_WRITE` (of anything but a directory) and `LS_DIRX` (of a directory) are exclusive: nobody
//!   else has any bit of that inode. All other bits go together.
//! - A session that has a file open for writing, or may write its objects, excludes every lease of
//!   others on it. A file that several sessions have open, one of them for writing, has no leases
//!   under which anything is believed ("direct service"). Who writes it may have `LS_LATE`: nobody is
//!   told attributes of the file, and nobody sets any, before those who have it have told what their
//!   writes did. It ends with the last handle that can write.
//! - If all sessions that have such a file open have promised to keep to bytes of their own ([`lockahead`]), what each writes
//!   there may wait in its memory while it has `LS_LATE`. Who comes to the file, looks at it or goes back on a promise
//!   calls that back first.
//! - Beside direct service a session may *watch* a file: it asks for `LS_READ` alone (`Op::Lease`), because it
//!   keeps bytes where it cannot look before they are shown again (pages of a kernel). Nobody else has
//!   `LS_LATE` then, so every write is told before it returns, and telling it calls the watch back.
//! - When a file was read last calls nothing back: who has `LS_ATTR` is told of it (`server::accessed`).
//! - A grant is noted here before the answer that tells of it is sent. So whatever a client believes
//!   to have, the table has.
//! - A session's own leases never conflict with its operations.
//!
//! Why nothing waits in a circle. An operation that conflicts is set aside until the sessions in the
//! way have answered. These may have to send operations first: what they did under an exclusive
//! lease, opens they kept to themselves, the end of their writes. Such operations touch only inodes
//! on which that session holds a lease that excludes others (or that it made itself), so they meet no
//! conflict, and an open for reading conflicts with nothing but an exclusive lease, which nobody can
//! have beside the `LS_OPEN` it comes from. What is set aside holds up nothing but itself: tasks of
//! one session do not wait for each other, nor for what is called back from that session itself. Two
//! things remain by which a session's own waiting request could stop its flush. A compound that has
//! changed something and then meets a conflict would keep the answer to the change: it is answered at
//! once, the operation that conflicts with `ERESTART` (it and those after it did not run; the client
//! sends them again by themselves). And requests set aside take credits: while a session is being
//! called back, no more than
//! [`ASIDE_WHILE_CALLED`] of its requests stay aside, the others are answered `ERESTART`. Exclusive
//! leases that a client wishes for many inodes, in front of what it is about to do with them, wait once
//! for all of them and are refused if that was not enough (`server::row`).
//!
//! Why everything ends. An inode that somebody waits for, or of which a lease is being called back,
//! grants nothing until the waiting tasks have run. So a task waits at most once for each inode it
//! touches.

pub mod calls;
pub mod hot;
pub mod lockahead;
pub mod policy;
pub mod table;
#[cfg(test)]
mod tests;

use proto::mds::*;

/// Leases of one client at most; above it the oldest are called back (invariant 8).
pub const MAX_PER_CLIENT: usize = 100_000;
/// Leases of all clients at most.
pub const MAX_LEASES: usize = 4_000_000;
/// Leases called back at a time for lack of room.
pub const TRIM_BATCH: usize = 1024;
/// Leases granted with one answer at most.
pub const MAX_GRANTS: usize = 4096;
/// Call-backs under way to one session; more are gathered into the next.
pub const MAX_CALLS: usize = 4;
/// Call-backs of one session that do not count among these because some of what they ask for takes long there
/// ([`proto::mds::Op::PutOff`]); what else is put off keeps those that follow.
pub const MAX_PUT_OFF: usize = 256;
/// Leases in one call-back.
pub const MAX_CALL_LEASES: usize = 16_384;
/// Requests of one session that stay aside while it is called back: fewer than the credits it has.
pub const ASIDE_WHILE_CALLED: usize = 2;

/// Leases that exclude others.
pub const EXCLUSIVE: u8 = LS_WRITE | LS_DIRX;
/// Every lease.
pub const ALL: u8 =
    LS_LOOKUP | LS_ATTR | LS_OPEN | LS_LAYOUT | LS_READ | LS_WRITE | LS_DIRX | LS_LATE;
/// What a reader of a file gets.
pub const READER: u8 = LS_ATTR | LS_OPEN | LS_LAYOUT | LS_READ;
/// What the only user of a file (or symlink, pipe, ...) gets.
pub const OWNER: u8 = READER | LS_WRITE;
/// What the only user of a directory gets.
pub const DIR_OWNER: u8 = LS_LOOKUP | LS_ATTR | LS_DIRX;
