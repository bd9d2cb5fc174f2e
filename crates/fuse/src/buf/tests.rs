use super::*;

#[test]
fn write_data_is_page_aligned_and_can_be_taken() {
    let pool = Pool::new(1 << 20);
    let mut slot = pool.get();
    let area = slot.read_area();
    assert_eq!(area.len(), (1 << 20) + HEADER_SPACE);
    area[HEADER_SPACE..HEADER_SPACE + 3].copy_from_slice(b"abc");
    let data = WriteData::pooled(&mut slot, 3);
    assert_eq!(&*data, b"abc");
    let kept = data.take();
    assert_eq!(&*kept, b"abc");
    assert_eq!(kept.as_ptr() as usize % PAGE, 0);
    slot.read_area().fill(b'x');
    assert_eq!(&*kept, b"abc");
}

#[test]
fn lengths_are_clamped_to_the_capacity() {
    let pool = Pool::new(1);
    let mut buf = pool.get();
    assert_eq!(buf.capacity(), MIN_CAPACITY);
    buf.set_len(usize::MAX);
    assert_eq!(buf.len(), MIN_CAPACITY);
    assert_eq!(buf.request(usize::MAX).len(), MIN_CAPACITY + HEADER_SPACE);
    assert_eq!(WriteData::pooled(&mut buf, usize::MAX).len(), MIN_CAPACITY);
}

#[test]
fn the_pool_reuses_buffers_and_keeps_a_bounded_number() {
    let pool = Pool::new(8192);
    let many: Vec<_> = (0..POOL_FREE_MAX + 5).map(|_| pool.get()).collect();
    drop(many);
    assert_eq!(pool.free.lock().plain.len(), POOL_FREE_MAX);
    let _one = pool.get();
    assert_eq!(pool.free.lock().plain.len(), POOL_FREE_MAX - 1);
    pool.trim();
    assert_eq!(pool.free.lock().plain.len(), POOL_CALM_MAX);
}

/// Lengths of the pool's idle buffers: those by the page, those in huge pages.
fn idle(pool: &Pool) -> (usize, usize) {
    let free = pool.free.lock();
    (free.plain.len(), free.huge.len())
}

#[test]
fn much_data_lies_in_huge_pages_and_little_does_not() {
    let pool = Pool::new(1 << 20);
    let buffers: Vec<_> = (0..9).map(|_| pool.get_for(1 << 20)).collect();
    let mut places: Vec<_> = buffers.iter().map(|b| b.as_ptr().addr()).collect();
    places.sort_unstable();
    for pair in places.windows(2) {
        assert!(pair[0] + (1 << 20) + PAGE <= pair[1], "buffers overlap");
    }
    assert!(buffers.iter().all(|b| b.raw.as_ref().is_some_and(|raw| raw.arena.is_some())));
    assert_eq!(idle(&pool), (0, 5), "two arenas of seven");
    let little = pool.get_for((1 << 19) - 1);
    assert!(little.raw.as_ref().is_some_and(|raw| raw.arena.is_none()));
    drop((buffers, little));
    assert_eq!(idle(&pool), (1, 14));
}

#[test]
fn a_buffer_of_an_arena_can_be_filled_from_end_to_end() {
    let pool = Pool::new(1 << 20);
    let mut buffers: Vec<_> = (0..14).map(|_| pool.get_for(1 << 20)).collect();
    for (n, buf) in buffers.iter_mut().enumerate() {
        buf.read_area().fill(n as u8);
    }
    for (n, buf) in buffers.iter().enumerate() {
        assert!(buf.iter().all(|b| *b == n as u8));
    }
}

#[test]
fn arenas_go_when_it_is_calm_and_nothing_in_them_is_used() {
    let pool = Pool::new(1 << 20);
    let mut used: Vec<_> = (0..14).map(|_| pool.get_for(1 << 20)).collect();
    used.sort_by_key(|b| b.as_ptr().addr());
    let one = used.remove(3);
    drop(used);
    assert_eq!(idle(&pool), (0, 13));
    pool.trim_huge(Duration::from_secs(3600));
    assert_eq!(idle(&pool), (0, 13), "wanted a moment ago");
    pool.trim_huge(Duration::ZERO);
    assert_eq!(idle(&pool), (0, 6), "one arena is used yet");
    drop(one);
    assert_eq!(idle(&pool), (0, 0), "nor is it now");
    drop(pool.get_for(1 << 20));
    assert_eq!(idle(&pool), (0, 7), "not calm any more");
    pool.trim();
    assert_eq!(idle(&pool), (0, 0));
}

#[test]
fn a_readers_buffer_becomes_of_the_kind_that_came() {
    let pool = Pool::new(1 << 20);
    let mut slot = pool.get();
    let is_huge = |b: &AlignedBuf| b.raw.as_ref().is_some_and(|raw| raw.arena.is_some());
    drop(WriteData::pooled(&mut slot, 1 << 20).take());
    assert!(is_huge(&slot), "more of it is to be expected");
    slot.suit(1 << 20);
    assert!(is_huge(&slot));
    slot.suit(100);
    assert!(!is_huge(&slot));
    slot.suit(1 << 20);
    assert!(is_huge(&slot));
}
