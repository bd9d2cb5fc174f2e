use super::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Threads where the test puts them; what the reader does is written down.
#[derive(Default)]
struct Board {
    threads: RefCell<HashMap<u32, usize>>,
    here: Cell<Option<usize>>,
    moves: Cell<usize>,
    looks: Cell<u32>,
}

impl Places for Board {
    fn of(&self, thread: u32) -> Option<usize> {
        self.looks.set(self.looks.get() + 1);
        self.threads.borrow().get(&thread).copied()
    }

    fn pin(&self, cpu: usize) {
        self.here.set(Some(cpu));
        self.moves.set(self.moves.get() + 1);
    }

    fn unpin(&self) {
        self.here.set(None);
        self.moves.set(self.moves.get() + 1);
    }
}

fn message(opcode: u32, thread: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((40 + body.len() as u32).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend([0; 16]);
    for id in [0, 0, thread, 0] {
        bytes.extend(u32::to_ne_bytes(id));
    }
    bytes.extend(body);
    bytes
}

/// As the kernel's fuse_read_in and fuse_write_in: size at 16, flags of open(2) at 32.
fn io(opcode: u32, thread: u32, size: u32, flags: i32) -> Vec<u8> {
    let mut body = vec![0; 40];
    body[16..20].copy_from_slice(&size.to_ne_bytes());
    body[32..36].copy_from_slice(&flags.to_ne_bytes());
    if opcode == op::WRITE {
        body.resize(40 + size as usize, 0);
    }
    message(opcode, thread, &body)
}

fn ask(near: &mut Near<'_>, thread: u32, times: u32) {
    for _ in 0..times {
        near.request(&message(op::LOOKUP, thread, b"name\0"));
    }
}

#[test]
fn a_reader_goes_where_its_only_asker_is_and_follows_it() {
    let (board, asker) = (Board::default(), Asker::default());
    board.threads.borrow_mut().insert(7, 3);
    let mut near = Near::new(&asker, Some(&board));
    ask(&mut near, 7, ENOUGH / 2);
    assert_eq!((board.here.get(), near.stays()), (None, false), "too early to know");
    ask(&mut near, 7, ENOUGH);
    assert_eq!((board.here.get(), near.stays()), (Some(3), true));
    board.threads.borrow_mut().insert(7, 1);
    ask(&mut near, 7, LOOK + 2);
    assert_eq!(board.here.get(), Some(1));
    assert_eq!(board.moves.get(), 2, "it moves only when the asker has moved");
    drop(near);
    assert_eq!(board.here.get(), None, "a thread that ends its work is free again");
}

#[test]
fn a_second_reader_knows_at_once() {
    let (board, asker) = (Board::default(), Asker::default());
    board.threads.borrow_mut().insert(7, 3);
    let mut first = Near::new(&asker, Some(&board));
    ask(&mut first, 7, 2 * ENOUGH);
    let mut second = Near::new(&asker, Some(&board));
    ask(&mut second, 7, 1);
    assert!(second.stays());
}

#[test]
fn others_now_and_then_change_nothing_but_two_that_take_turns_do() {
    let (board, asker) = (Board::default(), Asker::default());
    board.threads.borrow_mut().extend([(7, 3), (8, 2)]);
    let mut near = Near::new(&asker, Some(&board));
    for _ in 0..20 {
        ask(&mut near, 7, 16);
        ask(&mut near, 8, 1);
    }
    assert_eq!(board.here.get(), Some(3));
    for _ in 0..40 {
        ask(&mut near, 7, 1);
        ask(&mut near, 8, 1);
    }
    assert_eq!((board.here.get(), near.stays()), (None, false));
    ask(&mut near, 8, 4 * ENOUGH);
    assert_eq!(board.here.get(), Some(2), "the other one asks alone now");
}

#[test]
fn large_data_and_direct_io_may_use_other_cpus() {
    let (board, asker) = (Board::default(), Asker::default());
    board.threads.borrow_mut().insert(7, 3);
    let mut near = Near::new(&asker, Some(&board));
    for opcode in [op::READ, op::WRITE] {
        for (size, flags) in [(1 << 20, 0), (4096, libc::O_DIRECT)] {
            for _ in 0..4 * ENOUGH {
                near.request(&io(opcode, 7, 4096, libc::O_RDWR));
            }
            assert_eq!(board.here.get(), Some(3), "small data is like any other request");
            for _ in 0..4 * ENOUGH {
                near.request(&io(opcode, 7, size, flags));
            }
            assert_eq!(board.here.get(), None, "{opcode} {size} {flags}");
        }
    }
}

#[test]
fn a_thread_nobody_sees_and_the_kernel_itself_are_not_followed() {
    let (board, asker) = (Board::default(), Asker::default());
    let mut near = Near::new(&asker, Some(&board));
    ask(&mut near, 9, 4 * ENOUGH);
    assert!((1..=4).contains(&board.looks.get()), "{} looks for nothing", board.looks.get());
    ask(&mut near, 0, 4 * ENOUGH);
    near.request(&[1, 2, 3]);
    assert_eq!((board.moves.get(), near.stays()), (0, false));
}

#[test]
fn the_last_cpu_is_the_39th_field() {
    let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
    let stat = format!("12 (a) b) S {}", fields.join(" "));
    assert_eq!(last_cpu(&stat), Some(39));
    assert_eq!(last_cpu("12 (a) S 1 2"), None);
    let own = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let cpus = rustix::thread::sched_getaffinity(None).unwrap();
    assert!(cpus.is_set(last_cpu(&own).unwrap()));
}

#[test]
fn nobody_is_looked_for_by_what_may_come_from_within_an_execve() {
    let (asker, board) = (Asker::default(), Board::default());
    board.threads.borrow_mut().insert(7, 3);
    let mut near = Near::new(&asker, Some(&board));
    for _ in 0..10 * MOST {
        near.request(&message(op::FLUSH, 7, &[0; 24]));
        near.request(&message(op::GETATTR, 7, &[0; 16]));
    }
    assert_eq!((board.looks.get(), board.here.get()), (0, None));
    ask(&mut near, 7, 1);
    assert_eq!((board.looks.get(), board.here.get()), (1, Some(3)));
    for _ in 0..10 * LOOK {
        near.request(&message(op::FLUSH, 7, &[0; 24]));
    }
    assert_eq!((board.looks.get(), board.here.get()), (1, Some(3)), "it stays where it was");
}
