//! Where this process has connections that sessions share.
//!
//! Role: finds the connection a session may share, so that of all that need one at once the first
//! dials and the others wait for it. Assumptions: sessions share only what they would have made alike:
//! same endpoint, same key, same ping times, same thread. Never does: keep a connection alive, or an
//! entry longer than somebody uses it.

use super::core::Core;
use super::trunk::Trunk;
use crate::{Endpoint, NetError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

#[derive(PartialEq, Eq, Hash)]
struct Key {
    endpoint: String,
    home: usize,
    key: Option<[u8; 32]>,
    pings: (Duration, Duration),
}

/// The connection to one place; locked while somebody dials.
pub(crate) type Place = tokio::sync::Mutex<Found>;

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) trunk: Weak<Trunk>,
    /// When the latest attempt to dial failed for a reason that concerns all, and why.
    pub(crate) failed: Option<(Instant, NetError)>,
}

/// The place `core` goes to.
pub(crate) fn place(core: &Core, endpoint: &Endpoint) -> Arc<Place> {
    static PLACES: OnceLock<Mutex<HashMap<Key, Weak<Place>>>> = OnceLock::new();
    let options = &core.options;
    let key = Key {
        endpoint: endpoint.to_string(),
        home: core.home,
        key: options.key.as_ref().map(|k| k.0),
        pings: (options.ping_interval, options.ping_timeout),
    };
    let mut places = PLACES.get_or_init(Mutex::default).lock();
    if let Some(place) = places.get(&key).and_then(Weak::upgrade) {
        return place;
    }
    places.retain(|_, place| place.strong_count() > 0);
    let place = Arc::new(Place::default());
    places.insert(key, Arc::downgrade(&place));
    place
}
