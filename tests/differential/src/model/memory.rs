//! What registered memory holds, and what is wrong with segments of it.

use dat_types::ReturnType;
use dat_types::ReturnType::{
    InvalidParameter as IP, PrivilegesViolation as PRIV, ProtectionViolation as PROT,
};

use crate::program::{REGION, Segment, UNKNOWN};

/// Zone and rights of the regions every adapter has: local read 1, remote read 2, local write 0x10, remote write 0x20,
/// remote atomic operations 0x40, where there are any.
pub(crate) const REGIONS: [(u8, u32); 5] = [(0, 0x73), (1, 0x33), (0, 0x03), (0, 0x30), (0, 0x11)];

pub(super) const LOCAL_READ: u32 = 0x01;
pub(super) const LOCAL_WRITE: u32 = 0x10;
pub(super) const REMOTE_READ: u32 = 0x02;
pub(super) const REMOTE_WRITE: u32 = 0x20;
pub(crate) const REMOTE_ATOMIC: u32 = 0x40;
/// All remote rights.
pub(crate) const REMOTE: u32 = REMOTE_READ | REMOTE_WRITE | REMOTE_ATOMIC;

/// What the regions of an adapter hold, where that is known.
#[derive(Clone, Debug)]
pub(crate) struct Memory(Vec<Vec<Option<u8>>>);

impl Memory {
    pub(crate) fn new(side: usize) -> Memory {
        let region = |region| (0..REGION).map(|at| Some(initial(side, region, at))).collect();
        Memory((0..REGIONS.len()).map(region).collect())
    }

    pub(crate) fn region(&self, region: usize) -> &[Option<u8>] {
        &self.0[region]
    }

    pub(super) fn part(&mut self, region: u8, offset: u32, len: u32) -> &mut [Option<u8>] {
        &mut self.0[usize::from(region)][offset as usize..(offset + len) as usize]
    }

    pub(super) fn gather(&mut self, iov: &[Segment]) -> Vec<Option<u8>> {
        let mut out = Vec::new();
        for segment in iov.iter().filter(|segment| segment.len > 0) {
            out.extend_from_slice(self.part(segment.region, segment.offset, segment.len));
        }
        out
    }

    pub(super) fn scatter(&mut self, iov: &[Segment], bytes: &[Option<u8>]) {
        let mut rest = bytes;
        for segment in iov.iter().filter(|segment| segment.len > 0) {
            let (now, later) = rest.split_at(rest.len().min(segment.len as usize));
            self.part(segment.region, segment.offset, now.len() as u32).copy_from_slice(now);
            rest = later;
        }
    }

    /// Nothing is known of these bytes any more.
    pub(super) fn doubt(&mut self, iov: &[Segment]) {
        for segment in iov.iter().filter(|segment| segment.len > 0) {
            self.part(segment.region, segment.offset, segment.len).fill(None);
        }
    }
}

/// What a byte of a region is at the start.
pub(crate) fn initial(side: usize, region: usize, at: u32) -> u8 {
    ((at as usize * 31 + region * 101 + side * 57) ^ (at as usize >> 5)) as u8
}

pub(crate) fn total(iov: &[Segment]) -> u64 {
    iov.iter().map(|segment| u64::from(segment.len)).sum()
}

/// What is wrong with the first bad segment. Which of several faults of one segment is named is open.
pub(super) fn segment_faults(iov: &[Segment], zone: Option<u8>, right: u32) -> Vec<ReturnType> {
    let faults = |segment: &Segment| {
        let Some(zone) = zone else { return vec![PROT] };
        if segment.region == UNKNOWN {
            return vec![PRIV];
        }
        let (owner, rights) = REGIONS[usize::from(segment.region)];
        let all =
            [(segment.offset + segment.len > REGION, IP), (owner != zone, PROT), (rights & right == 0, PRIV)];
        all.into_iter().filter_map(|(fault, code)| fault.then_some(code)).collect()
    };
    iov.iter()
        .filter(|segment| segment.len > 0)
        .map(faults)
        .find(|faults| !faults.is_empty())
        .unwrap_or_default()
}
