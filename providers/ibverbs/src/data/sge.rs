//! Segments as the device takes them.

use std::mem::MaybeUninit;

use dat_plugin::Segment;
use rdma_sys::verbs::ibv_sge;

/// The most segments of a request.
pub(crate) const MAX_SEGMENTS: usize = 16;

/// The interface's segments as the device's: the two have the same layout, which the test below shows.
#[inline]
pub(crate) fn as_sges(segments: &[Segment]) -> *mut ibv_sge {
    segments.as_ptr().cast::<ibv_sge>().cast_mut()
}

/// The first `length` bytes of `segments`: how many segments that takes.
#[cold]
pub(crate) fn cut_to(segments: &[Segment], length: u64, out: &mut Sges) -> i32 {
    let mut left = length;
    let mut n = 0;
    for (sge, segment) in out.iter_mut().zip(segments) {
        if left == 0 {
            break;
        }
        let len = left.min(segment.len().into()) as u32;
        sge.write(ibv_sge { addr: segment.addr(), length: len, lkey: segment.lkey() });
        left -= u64::from(len);
        n += 1;
    }
    n
}

/// Segments that differ from those of a request; filled in only where they do.
pub(crate) type Sges = [MaybeUninit<ibv_sge>; MAX_SEGMENTS];

pub(crate) const NO_SGES: Sges = [const { MaybeUninit::uninit() }; MAX_SEGMENTS];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_have_the_devices_layout() {
        assert_eq!(size_of::<Segment>(), size_of::<ibv_sge>());
        assert_eq!(align_of::<Segment>(), align_of::<ibv_sge>());
        // SAFETY: never posted.
        let segment = [unsafe { Segment::from_parts(0x1122_3344_5566_7788, 0x99aa_bbcc, 0xddee_ff01) }];
        // SAFETY: of the same size and alignment, all bits valid.
        let sge = unsafe { *as_sges(&segment) };
        assert_eq!((sge.addr, sge.length, sge.lkey), (0x1122_3344_5566_7788, 0x99aa_bbcc, 0xddee_ff01));
    }

    #[test]
    fn a_read_is_cut_to_what_it_asks_for() {
        // SAFETY: never posted.
        let segments =
            [unsafe { Segment::from_parts(100, 10, 1) }, unsafe { Segment::from_parts(200, 10, 2) }];
        let mut out = NO_SGES;
        for (length, want) in [(0, vec![]), (10, vec![10]), (13, vec![10, 3]), (20, vec![10, 10])] {
            let n = cut_to(&segments, length, &mut out) as usize;
            // SAFETY: the first `n` were filled in.
            let lengths: Vec<u32> =
                out[..n].iter().map(|sge| unsafe { sge.assume_init_ref() }.length).collect();
            assert_eq!(lengths, want);
        }
    }
}
