//! Memory that a caller in this process offers for the bulk of an answer.
//!
//! Role: who needs the bytes of an answer in memory of its own says so around the call; a service that runs on the
//! caller's thread may take the offer and have the disk put them there. Assumptions: an answer in that memory is
//! recognised by its address. Never does: reach another thread, or beyond a socket; there the offer is not taken.

use std::cell::RefCell;

/// Memory on a page boundary; its owner hears by its being dropped that nobody uses it any more.
pub struct Place(Box<dyn Memory>);

trait Memory: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl<M: AsRef<[u8]> + AsMut<[u8]> + Send + Sync> Memory for M {
    fn bytes(&self) -> &[u8] {
        self.as_ref()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut()
    }
}

impl Place {
    /// `memory` begins on a page boundary.
    pub fn new(memory: impl AsRef<[u8]> + AsMut<[u8]> + Send + Sync + 'static) -> Place {
        Place(Box::new(memory))
    }
}

impl AsRef<[u8]> for Place {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl AsMut<[u8]> for Place {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({} bytes)", self.as_ref().len())
    }
}

thread_local! {
    static OFFERED: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// Takes the offer back, whatever happened.
struct Until;

impl Drop for Until {
    fn drop(&mut self) {
        drop(OFFERED.take());
    }
}

/// Calls with an offer: the bulk of the answer may, or may not, lie in `place`.
pub fn offering<R>(place: Option<Place>, call: impl FnOnce() -> R) -> R {
    let Some(place) = place else { return call() };
    OFFERED.set(Some(place));
    let _until = Until;
    call()
}

/// What the caller on this thread offers, once, if it holds `len` bytes.
pub fn offered(len: usize) -> Option<Place> {
    OFFERED.with_borrow_mut(|offer| offer.take_if(|place| place.as_ref().len() >= len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Option<Place> {
        Some(Place::new(vec![0; 8]))
    }

    #[test]
    fn an_offer_is_taken_once_by_who_fits_and_ends_with_the_call() {
        assert!(offered(1).is_none());
        let taken = offering(place(), || {
            assert!(offered(9).is_none(), "too small");
            assert!(std::thread::scope(|s| s.spawn(|| offered(1).is_none()).join().unwrap()));
            let mut taken = offered(8).unwrap();
            assert!(offered(8).is_none(), "taken");
            taken.as_mut()[7] = 5;
            taken
        });
        assert_eq!(taken.as_ref(), [0, 0, 0, 0, 0, 0, 0, 5]);
        offering(place(), || {});
        assert!(offered(1).is_none(), "not taken, and given back");
        let failing = || offering(place(), || panic!("on purpose"));
        assert!(std::panic::catch_unwind(failing).is_err());
        assert!(offered(1).is_none());
    }
}
