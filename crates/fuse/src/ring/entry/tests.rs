use super::*;
use crate::buf::Pool;
use std::ffi::c_void;

struct Bench {
    entry: Arc<Entry>,
    hub: Arc<Hub>,
}

impl Bench {
    fn new() -> Bench {
        let shared = Shared { pool: Pool::new(65536), interrupts: Arc::default() };
        let hub = Arc::new(Hub::new(Arc::new(shared)).unwrap());
        Bench { entry: Arc::new(Entry::new(3, 1, 65536, &hub).unwrap()), hub }
    }

    /// What the kernel does: the parts of a request at their places.
    fn kernel_puts(&self, opcode: u32, len: usize, fixed: &[u8], payload: &[u8]) {
        self.kernel_puts_as(77, opcode, len, fixed, payload);
    }

    fn kernel_puts_as(&self, unique: u64, opcode: u32, len: usize, fixed: &[u8], payload: &[u8]) {
        let header = InHeader { len: len as u32, opcode, unique, ..InHeader::default() };
        let payload_sz = payload.len() as u32;
        let about = RingEntInOut { commit_id: 78, payload_sz, ..RingEntInOut::default() };
        // SAFETY: nobody else uses the entry now.
        unsafe {
            let e = &self.entry;
            e.bytes_mut(IN_OUT, 40).copy_from_slice(header.as_bytes());
            e.bytes_mut(OP_IN, fixed.len()).copy_from_slice(fixed);
            e.bytes_mut(PAGE, payload.len()).copy_from_slice(payload);
            e.bytes_mut(RING, 32).copy_from_slice(about.as_bytes());
        }
    }

    /// What the kernel finds: length, error and number, then the payload.
    fn kernel_finds(&self) -> (OutHeader, Vec<u8>) {
        let len = self.entry.load::<RingEntInOut>(RING).payload_sz as usize;
        // SAFETY: nobody else uses the entry now.
        (self.entry.load(IN_OUT), unsafe { self.entry.bytes(PAGE, len) }.to_vec())
    }
}

#[test]
fn a_plain_request_reads_as_from_the_device_and_is_answered_in_place() {
    let b = Bench::new();
    b.kernel_puts(22, 40 + 8 + 5, &[7; 8], b"name\0");
    let mut plain = vec![1, 2, 3];
    assert!(matches!(b.entry.receive(&mut plain), Ok(Message::Plain)));
    assert_eq!((plain.len(), &plain[40..48], &plain[48..]), (53, &[7; 8][..], &b"name\0"[..]));
    assert_eq!((b.entry.header().unique, b.entry.commit_id()), (77, 78));
    assert!(Entry::answer(&b.entry, 77, 0, &[b"ab", b"", b"cde"]));
    assert!(b.entry.returned(77));
    let (head, payload) = b.kernel_finds();
    assert_eq!((head.len, head.error, head.unique, &*payload), (21, 0, 77, &b"abcde"[..]));
    assert_eq!(b.entry.commit_id(), 78);
    assert!(b.hub.take_late().is_empty());
}

#[test]
fn the_data_of_a_write_outlives_its_entry() {
    let b = Bench::new();
    b.kernel_puts(op::WRITE, 80 + 4, &[5; 40], b"data");
    let Ok(Message::Write(header, fixed, data)) = b.entry.receive(&mut Vec::new()) else {
        panic!("not taken as a write");
    };
    assert_eq!((header.unique, fixed, &*data), (77, [5; 40], &b"data"[..]));
    assert_eq!(data.as_ptr() as usize % PAGE, 0);
    assert!(Entry::answer(&b.entry, 77, 0, &[&[9; 8]]));
    assert!(b.entry.returned(77));
    assert_eq!(b.kernel_finds().1, [9; 8]);
    assert_eq!(&*data, b"data");
}

#[test]
fn a_request_is_answered_once_and_its_entry_handed_in_once() {
    let late = |b: &Bench| b.hub.take_late().len();
    // Its caller was killed: the steward hands the entry in, and the handler's answer is too late, whoever comes next.
    let b = Bench::new();
    b.kernel_puts(33, 40, &[], &[]);
    b.entry.receive(&mut Vec::new()).ok().unwrap();
    assert!(Entry::take_over(&b.entry, 77, -libc::EINTR));
    assert_eq!((late(&b), b.kernel_finds().0.error), (1, -libc::EINTR));
    for next in [false, true] {
        if next {
            b.kernel_puts_as(79, 33, 40, &[], &[]);
            b.entry.receive(&mut Vec::new()).ok().unwrap();
        }
        assert!(!Entry::answer(&b.entry, 77, 0, &[b"late"]));
        assert!(!Entry::take_over(&b.entry, 77, -libc::EINTR));
        assert_eq!(late(&b), 0);
    }
    assert!(!b.entry.returned(77));
    assert!(Entry::answer(&b.entry, 79, 0, &[b"next"]));
    assert!(b.entry.returned(79));
    assert_eq!((late(&b), b.kernel_finds().1), (0, b"next".to_vec()));

    // There is an answer: nobody takes over.
    let b = Bench::new();
    b.kernel_puts(33, 40, &[], &[]);
    b.entry.receive(&mut Vec::new()).ok().unwrap();
    assert!(Entry::answer(&b.entry, 77, 0, &[b"fine"]));
    assert!(!Entry::take_over(&b.entry, 77, -libc::EINTR));
    assert!(!Entry::answer(&b.entry, 77, 0, &[b"twice"]));
    assert!(b.entry.returned(77));
    assert_eq!((late(&b), b.kernel_finds().1), (0, b"fine".to_vec()));
}

#[test]
fn so_many_handlers_go_on_alone_and_no_more() {
    let (b, max) = (Bench::new(), crate::ring::RING_ABANDONED_MAX as u64);
    let request = |unique| {
        b.kernel_puts_as(unique, 33, 40, &[], &[]);
        b.entry.receive(&mut Vec::new()).ok().unwrap();
    };
    for unique in 1..=max {
        request(unique);
        assert!(Entry::take_over(&b.entry, unique, -libc::EINTR));
        assert!(!Entry::take_over(&b.entry, unique, -libc::EINTR), "once");
    }
    request(max + 1);
    assert!(!Entry::take_over(&b.entry, max + 1, -libc::EINTR));
    assert!(!b.entry.returned(1), "one of them has returned");
    assert!(Entry::take_over(&b.entry, max + 1, -libc::EINTR));
    assert_eq!(b.hub.take_late().len() as u64, max + 1);
}

/// Whichever comes first of the answer, the one in its place and the handler's return, on threads of their own: one answer,
/// and one who hands it in.
#[test]
fn answers_that_race_are_one() {
    let b = Bench::new();
    for round in 0..2000u64 {
        let unique = 1 + round;
        b.kernel_puts_as(unique, 33, 40, &[], &[]);
        b.entry.receive(&mut Vec::new()).ok().unwrap();
        let start = std::sync::Barrier::new(3);
        let (answered, taken, own) = std::thread::scope(|s| {
            let answer = s.spawn(|| {
                start.wait();
                Entry::answer(&b.entry, unique, 0, &[b"yes"])
            });
            let taking = s.spawn(|| {
                start.wait();
                round % 2 == 0 && Entry::take_over(&b.entry, unique, -libc::EINTR)
            });
            start.wait();
            let own = b.entry.returned(unique);
            (answer.join().unwrap(), taking.join().unwrap(), own)
        });
        let late = b.hub.take_late().len();
        assert!(answered != taken, "round {round}: {answered} {taken}");
        assert_eq!(usize::from(own) + late, 1, "round {round}");
        let error = if taken { -libc::EINTR } else { 0 };
        assert_eq!(b.kernel_finds().0.error, error);
    }
}

#[test]
fn a_late_answer_goes_through_the_hub_unless_all_is_over() {
    for over in [false, true] {
        let b = Bench::new();
        b.kernel_puts(33, 40, &[], &[]);
        b.entry.receive(&mut Vec::new()).ok().unwrap();
        assert!(!b.entry.returned(77));
        if over {
            b.hub.end();
        }
        Entry::answer(&b.entry, 77, -libc::EINTR, &[]);
        let late: Vec<usize> = b.hub.take_late().iter().map(|e| e.id).collect();
        assert_eq!(late, if over { vec![] } else { vec![3] });
        assert_eq!(b.kernel_finds().0.error, -libc::EINTR);
    }
}

#[test]
fn impossible_lengths_are_refused() {
    let b = Bench::new();
    for (len, payload_sz) in
        [(39, 0), (40, 1), (40 + 129, 0), (0, 0), (u32::MAX, u32::MAX), (41 + 65536, 65537)]
    {
        b.kernel_puts(1, len as usize, &[], &[]);
        let about = RingEntInOut { payload_sz, ..RingEntInOut::default() };
        // SAFETY: nobody else uses the entry now.
        unsafe { b.entry.bytes_mut(RING, 32).copy_from_slice(about.as_bytes()) };
        assert!(b.entry.receive(&mut Vec::new()).is_err(), "{len} {payload_sz}");
    }
}

#[test]
fn too_long_an_answer_is_an_error_of_that_request() {
    let b = Bench::new();
    b.kernel_puts(1, 40 + 2, &[], b"n\0");
    b.entry.receive(&mut Vec::new()).ok().unwrap();
    Entry::answer(&b.entry, 77, 0, &[&vec![0; 65537]]);
    assert_eq!(b.kernel_finds().0.error, -libc::EIO);
}

#[test]
fn a_trimmed_payload_is_empty_and_usable() {
    let b = Bench::new();
    b.kernel_puts(1, 40 + 65536, &[], &[1; 65536]);
    b.entry.receive(&mut Vec::new()).ok().unwrap();
    assert!(b.entry.is_large());
    b.entry.trim(Duration::ZERO);
    assert!(!b.entry.is_large());
    // SAFETY: nobody else uses the entry now.
    assert!(unsafe { b.entry.bytes(PAGE, 65536) }.iter().all(|&byte| byte == 0));
}

#[test]
fn each_large_write_is_copied_out_whole() {
    let b = Bench::new();
    for n in 1..4u64 {
        let fixed = [n as u8; size_of::<WriteIn>()];
        b.kernel_puts_as(n, op::WRITE, 40 + 40 + 65536, &fixed, &[n as u8; 65536]);
        let Ok(Message::Write(_, _, data)) = b.entry.receive(&mut Vec::new()) else {
            panic!("{n}")
        };
        assert!(data.len() == 65536 && data.iter().all(|&byte| byte == n as u8), "{n}");
        Entry::answer(&b.entry, n, 0, &[b"eight by"]);
        assert!(b.entry.returned(n));
        if n == 2 {
            b.entry.trim(Duration::ZERO);
        }
    }
}

#[test]
fn the_kernel_is_told_the_two_places() {
    let b = Bench::new();
    // SAFETY: two iovecs lie there as long as the entry.
    let vecs = unsafe { std::slice::from_raw_parts(b.entry.iovecs(), 2) };
    let base: *mut c_void = b.entry.base.as_ptr().cast();
    assert_eq!((vecs[0].iov_base, vecs[0].iov_len), (base, 288));
    assert_eq!((vecs[1].iov_base, vecs[1].iov_len), (base.wrapping_byte_add(4096), 65536));
}

#[test]
fn what_landed_is_not_copied_and_not_handed_in_while_somebody_has_it() {
    for kept in [false, true] {
        let b = Bench::new();
        b.kernel_puts(15, 40 + 40, &[0; 40], &[]);
        b.entry.receive(&mut Vec::new()).ok().unwrap();
        let mut landing = Entry::land(&b.entry, 77).unwrap();
        assert!(Entry::land(&b.entry, 77).is_none(), "one at a time");
        assert!(!Entry::take_over(&b.entry, 77, -libc::EINTR), "the payload is in use");
        landing.as_mut()[..4].copy_from_slice(b"land");
        assert!(Entry::answer(&b.entry, 77, 0, &[&landing.as_ref()[..4], b"ed"]));
        let landing = kept.then_some(landing);
        assert_eq!(b.entry.returned(77), !kept);
        assert!(b.hub.take_late().is_empty());
        drop(landing);
        assert_eq!(b.hub.take_late().len(), usize::from(kept));
        assert_eq!(b.kernel_finds().1, b"landed");
    }
}

#[test]
fn a_landing_that_is_not_used_changes_nothing() {
    let b = Bench::new();
    b.kernel_puts(15, 40 + 40, &[0; 40], &[]);
    b.entry.receive(&mut Vec::new()).ok().unwrap();
    drop(Entry::land(&b.entry, 77).unwrap());
    assert!(Entry::answer(&b.entry, 77, 0, &[b"elsewhere"]));
    assert!(Entry::land(&b.entry, 77).is_none(), "answered");
    assert!(b.entry.returned(77));
    assert_eq!(b.kernel_finds().1, b"elsewhere");
    // The handler left it to somebody else, and that one's answer comes first.
    b.kernel_puts_as(79, 15, 40 + 40, &[0; 40], &[]);
    b.entry.receive(&mut Vec::new()).ok().unwrap();
    let landing = Entry::land(&b.entry, 79).unwrap();
    assert!(!b.entry.returned(79));
    assert!(Entry::answer(&b.entry, 79, 0, &[b"late"]));
    assert!(b.hub.take_late().is_empty());
    drop(landing);
    assert_eq!(b.hub.take_late().len(), 1);
}
