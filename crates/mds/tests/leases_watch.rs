//! Who keeps bytes of a file that others write hears of each write before it returns (`LS_READ` alone).

mod common;
#[path = "common/holder.rs"]
mod holder;

use std::time::Duration;

use common::{FILE, Solo};
use holder::{Holder, Way};
use pinstripe_mds::MdtOptions;
use proto::mds::*;
use proto::{Fid, TimeSpec};
use store::memory::MemoryDisk;

const WANTS_LATE: u8 = CF_LEASES | CF_SHARED_LEASES | CF_FILE_WRITES | CF_LATE;

fn report(fid: Fid, size: u64, mtime: Option<TimeSpec>) -> Op {
    Op::Report { fid, report: SizeReport { size, exact: false, blocks: None, mtime, atime: None } }
}

/// What is granted with the answer.
fn granted(h: &Holder, op: Op) -> u8 {
    let compound = Compound { flags: WANTS_LATE, ..Compound::new(holder::cred(), vec![op]) };
    let reply = holder::call(&h.client, &compound);
    assert!(!matches!(reply.results.0[..], [Res::Failed { .. }]), "{reply:?}");
    reply.leases.0.iter().fold(0, |bits, l| bits | l.bits)
}

/// A file that one session writes and another has open for reading.
fn shared() -> (Solo, Holder, Holder, Fid, TimeSpec) {
    let options = MdtOptions { orphan_grace: Duration::ZERO, ..MdtOptions::default() };
    let s = Solo::with(&MemoryDisk::new(), options);
    let (writer, reader) = (Holder::new(&s), Holder::new(&s));
    let file = writer.plain().make(Fid::ROOT, "file", FILE).unwrap();
    for (h, flags) in [(&writer, O_WRITE), (&reader, O_READ)] {
        let res = h.plain().run(vec![Op::Open { fid: file, flags, handle: 0 }]);
        assert!(matches!(res[0], Res::Opened { .. }), "{res:?}");
    }
    let time = writer.client.attr(file).unwrap().mtime;
    (s, writer, reader, file, time)
}

#[test]
fn who_watches_a_file_hears_of_each_write_and_goes_on_watching() {
    let (s, writer, reader, file, time) = shared();
    let write = |size| granted(&writer, report(file, size, Some(time)));
    let watch = || granted(&reader, Op::Lease { fid: file, bits: LS_READ });
    assert_eq!(write(10), LS_LATE, "it may tell late");
    let calls = writer.calls();
    assert_eq!(watch(), LS_READ);
    assert_eq!(writer.calls(), calls + 1, "but not while another watches");
    assert_eq!((write(20), reader.written()), (0, 1));
    // The same size, and a time that is no later.
    assert_eq!((write(20), reader.written()), (0, 2));
    assert_eq!(granted(&writer, report(file, 20, None)), 0);
    assert_eq!(reader.written(), 2, "nothing was written");
    assert!(reader.lost().is_empty(), "{:?}", reader.lost());
    let session = reader.client.session.welcome().session;
    let has = s.mdt.leases().iter().filter(|l| (l.0, l.1) == (file, session)).count();
    assert_eq!(has, 1);
    reader.unwatches();
    assert_eq!((write(30), reader.written()), (LS_LATE, 3), "given up with the answer");
    assert_eq!((write(40), reader.written()), (LS_LATE, 3));
}

#[test]
fn a_write_is_answered_when_all_who_watch_have_answered() {
    let (_s, writer, reader, file, time) = shared();
    assert_eq!(granted(&reader, Op::Lease { fid: file, bits: LS_READ }), LS_READ);
    reader.set_way(Way::Late);
    let later = TimeSpec { sec: time.sec + 1, ..time };
    std::thread::scope(|scope| {
        let write = scope.spawn(|| granted(&writer, report(file, 10, Some(later))));
        common::until(|| reader.calls() > 0);
        assert!(!write.is_finished(), "it waits");
        assert_eq!(writer.client.attr(file).unwrap().mtime, time, "nothing is applied yet");
        reader.answer_all();
        write.join().unwrap();
    });
    assert_eq!(writer.client.attr(file).unwrap().mtime, later);
}

/// What is changed by the operation itself is read as it was until then.
#[test]
fn a_watch_is_called_back_by_what_changes_the_file_itself() {
    let (_s, writer, reader, file, _) = shared();
    assert_eq!(granted(&reader, Op::Lease { fid: file, bits: LS_READ }), LS_READ);
    let (data, calls) = (b"abc"[..].into(), reader.calls());
    granted(&writer, Op::WriteInline { fid: file, offset: 0, data, cut: None, mtime: None });
    assert_eq!((reader.calls(), reader.written()), (calls + 1, 0));
}
