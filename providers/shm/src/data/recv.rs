//! A posted receive.

use dat_kit::MemSpan;
use dat_plugin::{PostFlag, RecvRequest};

/// A posted receive: half a cache line.
#[derive(Clone, Copy, Default)]
pub(crate) struct Recv {
    pub(crate) token: u64,
    /// Where its bytes go, if that is one segment.
    pub(crate) one: MemSpan,
    /// One more than the bytes it has room for; 0 if it is to fail.
    pub(crate) room: u32,
    pub(crate) nsegs: u32,
}

impl Recv {
    pub(crate) fn new(request: &RecvRequest) -> Recv {
        let segments = request.segments();
        let (one, total) = match segments {
            [one] => (MemSpan::from(one), u64::from(one.len())),
            _ => (MemSpan::default(), segments.iter().map(|segment| u64::from(segment.len())).sum::<u64>()),
        };
        let poison = request.flags.contains(PostFlag::POISON);
        let room = if poison { 0 } else { (total + 1).min(u32::MAX.into()) as u32 };
        Recv { token: request.token, one, room, nsegs: segments.len() as u32 }
    }

    /// Where its bytes go; `segs` are those of its slot, if it has several.
    #[inline]
    pub(crate) fn list<'a>(&'a self, segs: &'a [MemSpan]) -> &'a [MemSpan] {
        match self.nsegs {
            1 => std::slice::from_ref(&self.one),
            several => &segs[..several as usize],
        }
    }
}
