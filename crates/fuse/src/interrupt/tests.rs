use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

fn counter() -> (Arc<AtomicU32>, Hook) {
    let n = Arc::new(AtomicU32::new(0));
    let m = n.clone();
    let hook = Box::new(move || {
        m.fetch_add(1, Ordering::SeqCst);
    });
    (n, hook)
}

#[test]
fn a_hook_is_called_once_by_an_interrupt_after_it() {
    let table = Interrupts::default();
    let (n, hook) = counter();
    assert!(table.register(2, hook));
    table.interrupt(4);
    assert_eq!(n.load(Ordering::SeqCst), 0);
    table.interrupt(2);
    table.interrupt(2);
    assert_eq!(n.load(Ordering::SeqCst), 1);
    assert!(table.is_interrupted(2) && table.is_interrupted(4) && !table.is_interrupted(6));
}

#[test]
fn a_hook_after_the_interrupt_is_refused() {
    let table = Interrupts::default();
    table.interrupt(4);
    let (n, hook) = counter();
    assert!(!table.register(4, hook));
    table.interrupt(4);
    assert_eq!(n.load(Ordering::SeqCst), 0);
}

#[test]
fn an_interrupt_that_came_too_late_is_dropped_in_time() {
    let table = Interrupts::default();
    table.done(2);
    table.interrupt(2);
    table.done(4);
    assert!(table.is_interrupted(2));
    table.done(2 + STALE);
    assert_eq!(table.entries.load(Ordering::SeqCst), 0);
}

#[test]
fn an_answered_request_is_forgotten() {
    let table = Interrupts::default();
    let (n, hook) = counter();
    assert!(table.register(2, hook));
    table.interrupt(8);
    table.done(2);
    table.done(8);
    table.interrupt(2);
    assert_eq!(n.load(Ordering::SeqCst), 0);
    table.done(2);
    assert_eq!(table.entries.load(Ordering::SeqCst), 0);
}

#[test]
fn interrupts_nobody_asks_for_are_bounded() {
    let table = Interrupts::default();
    for unique in 0..INTERRUPTED_MAX as u64 + 10 {
        table.interrupt(unique);
    }
    assert_eq!(table.entries.load(Ordering::SeqCst), INTERRUPTED_MAX);
    assert!(!table.is_interrupted(9) && table.is_interrupted(10));
}
