//! Buffers inside an endpoint while operations use them.

use parking_lot::Mutex;

use crate::Buffer;

/// Marks a cookie as the place of a buffer. Programs' own cookies must not have it.
pub(super) const MARK: u64 = 1 << 63;

/// As many places as operations can be outstanding, so that posting never allocates.
#[derive(Debug)]
pub(crate) struct InFlight(Mutex<Places>);

#[derive(Debug)]
struct Places {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Place {
    /// Goes up with each use, so that an old completion finds nothing.
    generation: u32,
    buffer: Option<Buffer>,
}

impl InFlight {
    pub(crate) fn new(outstanding: usize) -> InFlight {
        // Completions queued but not reclaimed hold their place too: room for as many again.
        let capacity = outstanding * 2;
        InFlight(Mutex::new(Places {
            places: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
        }))
    }

    /// Takes a buffer in and gives the cookie it goes by.
    pub(crate) fn put(&self, buffer: Buffer) -> u64 {
        let mut places = self.0.lock();
        let index = match places.free.pop() {
            Some(index) => index,
            None => {
                places.places.push(Place::default());
                places.places.len() as u32 - 1
            }
        };
        let place = &mut places.places[index as usize];
        place.generation = (place.generation + 1) & (u32::MAX >> 1);
        place.buffer = Some(buffer);
        MARK | u64::from(place.generation) << 32 | u64::from(index)
    }

    /// Gives the buffer back that goes by `cookie`.
    pub(crate) fn take(&self, cookie: u64) -> Option<Buffer> {
        if cookie & MARK == 0 {
            return None;
        }
        let mut places = self.0.lock();
        let index = cookie as u32;
        let place = places.places.get_mut(index as usize)?;
        if u64::from(place.generation) != (cookie & !MARK) >> 32 {
            return None;
        }
        let buffer = place.buffer.take()?;
        places.free.push(index);
        Some(buffer)
    }
}
