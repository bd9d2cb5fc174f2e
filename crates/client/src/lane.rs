//! Where the written bytes of a file go: those that go elsewhere neither wait for each other nor share a
//! thread.

use crate::inode::Place;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Lane {
    /// With the metadata.
    #[default]
    Mdt,
    /// To one OST.
    Ost(u32),
    /// To several, the slowest of which sets the pace.
    Many,
}

impl Lane {
    /// None: it is not known.
    pub(crate) fn of(place: &Place) -> Option<Lane> {
        let layout = match place {
            Place::Unknown => return None,
            Place::Inline(_) => return Some(Lane::Mdt),
            Place::Striped(layout) => layout,
        };
        match layout.osts.split_first() {
            Some((first, rest)) if rest.iter().all(|ost| ost == first) => Some(Lane::Ost(*first)),
            _ => Some(Lane::Many),
        }
    }
}
