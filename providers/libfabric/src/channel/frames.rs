//! The frames of a channel, as memory, and spans of segments to fill them with. `framed.rs` uses them.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use dat_plugin::Failure;
use libfabric_sys::consts::*;

use crate::endpoint::context::{Context, Role, Seg};
use crate::fabric::Fabric;
use crate::fabric::limits::{FRAMES_IN, FRAMES_OUT, MAX_SEGMENTS};
use crate::memory::{MemoryRegion, Regions};
use crate::status;
use crate::wire::control::PAYLOAD;
use crate::wire::head::Head;

/// Bytes of a message in one frame.
pub const BODY: usize = 4096;

/// The frames of a channel. libfabric owns a posted frame; the holder of the channel's lock owns the others.
pub struct Frames {
    pub inward: Box<[Slot<{ Head::SIZE + BODY }>]>,
    pub outward: Box<[Slot<{ Head::SIZE + PAYLOAD }>]>,
    registered: [Option<MemoryRegion>; 2],
}

pub struct Slot<const SIZE: usize> {
    pub context: Context,
    pub bytes: UnsafeCell<[u8; SIZE]>,
}

// SAFETY: libfabric owns a posted slot; the channel's lock guards all others.
unsafe impl<const SIZE: usize> Sync for Slot<SIZE> {}

fn slots<const SIZE: usize>(count: u32, role: Role) -> Box<[Slot<SIZE>]> {
    let slot = |index| Slot { context: Context::new(role, index), bytes: UnsafeCell::new([0; SIZE]) };
    (0..count).map(slot).collect()
}

/// The changing state of a channel's frames.
pub struct FramingState {
    /// Outgoing frames that are free.
    pub free: Vec<u32>,
    /// For each: the slot of its request, and whether it is the request's last frame.
    pub parts: Box<[(u32, bool)]>,
    /// Bytes of the current outgoing message that libfabric has.
    pub sent: u32,
    /// The receive of the current incoming message, and how many bytes have arrived.
    pub recv: u32,
    pub arrived: u32,
    /// The frame with the close message while it is on its way, and how long it is waited for.
    pub closing: Option<(u32, Instant)>,
}

impl Default for FramingState {
    fn default() -> FramingState {
        FramingState {
            free: (0..FRAMES_OUT).collect(),
            parts: vec![(0, false); FRAMES_OUT as usize].into_boxed_slice(),
            sent: 0,
            recv: 0,
            arrived: 0,
            closing: None,
        }
    }
}

impl Frames {
    pub fn new(fabric: &Arc<Fabric>, regions: &Regions) -> Result<Frames, Failure> {
        let mut frames = Frames {
            inward: slots(FRAMES_IN, Role::FrameIn),
            outward: slots(FRAMES_OUT, Role::FrameOut),
            registered: [None, None],
        };
        if fabric.limits.mr_mode & FI_MR_LOCAL != 0 {
            let ranges = [range_of(&frames.inward), range_of(&frames.outward)];
            for (place, (addr, len)) in frames.registered.iter_mut().zip(ranges) {
                let key = match fabric.limits.mr_mode & FI_MR_PROV_KEY {
                    0 => regions.secret(fabric.limits.mr_key_size),
                    _ => 0,
                };
                let made = MemoryRegion::new(fabric, addr, len, FI_SEND | FI_RECV, key, ptr::null_mut());
                *place = Some(made.map_err(|errno| {
                    status::failure(fabric.library, "fi_mr_reg of a channel's frames", errno.into())
                })?);
            }
        }
        Ok(frames)
    }

    /// Sets the channel in all contexts.
    pub fn set_owner(&mut self, channel: *const c_void) {
        self.inward.iter_mut().for_each(|slot| slot.context.set_owner(channel));
        self.outward.iter_mut().for_each(|slot| slot.context.set_owner(channel));
    }

    pub fn descriptor(&self, which: usize) -> *mut c_void {
        self.registered[which].as_ref().map_or(ptr::null_mut(), MemoryRegion::descriptor)
    }
}

fn range_of<T>(slots: &[T]) -> (u64, u64) {
    (slots.as_ptr() as u64, std::mem::size_of_val(slots) as u64)
}

/// Part of a list of segments.
#[derive(Default)]
pub struct Span {
    pub segs: [Seg; MAX_SEGMENTS],
    pub count: usize,
    pub len: u32,
}

/// `len` bytes of `segs` from byte `from` on; fewer if `segs` ends, or if they need more than `most` segments.
pub fn span_of(segs: &[Seg], from: u32, len: u32, most: usize) -> Span {
    let mut out = Span::default();
    let (mut skip, mut left) = (u64::from(from), len);
    for seg in segs.iter().take(MAX_SEGMENTS) {
        let skipped = skip.min(seg.len.into());
        skip -= skipped;
        let take = left.min(seg.len - skipped as u32);
        if take > 0 && out.count < most {
            out.segs[out.count] = Seg { addr: seg.addr.wrapping_add(skipped), len: take, lkey: seg.lkey };
            out.count += 1;
            out.len += take;
            left -= take;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_covers_the_bytes_asked_for() {
        let seg = |addr, len| Seg { addr, len, lkey: addr as u32 };
        let segs = [seg(1000, 10), seg(2000, 0), seg(3000, 20), seg(4000, 5)];
        let parts = |from, len| {
            let out = span_of(&segs, from, len, 2);
            out.segs[..out.count].iter().map(|seg| (seg.addr, seg.len, seg.lkey)).collect::<Vec<_>>()
        };
        assert_eq!(parts(0, 10), [(1000, 10, 1000)]);
        assert_eq!(parts(4, 10), [(1004, 6, 1000), (3000, 4, 3000)]);
        assert_eq!(parts(10, 25), [(3000, 20, 3000), (4000, 5, 4000)]);
        assert_eq!(parts(0, 35), [(1000, 10, 1000), (3000, 20, 3000)], "two segments and no more");
        assert_eq!(parts(34, 100), [(4004, 1, 4000)]);
        assert_eq!(parts(35, 1), []);
        assert_eq!(parts(3, 0), []);
    }
}
