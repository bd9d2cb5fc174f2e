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
    assert_eq!(pool.free.lock().len(), POOL_FREE_MAX);
    let _one = pool.get();
    assert_eq!(pool.free.lock().len(), POOL_FREE_MAX - 1);
    pool.trim();
    assert_eq!(pool.free.lock().len(), POOL_CALM_MAX);
}
