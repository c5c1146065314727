//! The model's data path: posts, matching of sends with receives, one-sided operations, what memory then holds.

use dat_types::ConnectionKind::{Broken, Disconnected};
use dat_types::DtoStatus::{Flushed, LocalLength, LocalProtection, RemoteAccess, RemoteResponder, Success};
use dat_types::ReturnType::{
    InsufficientResources as IR, InvalidParameter as IP, InvalidState as IS, LengthError as LE,
    PrivilegesViolation as PRIV, ProtectionViolation as PROT,
};
use dat_types::{DtoOperation, EpState, ReturnType};

use crate::expect::{Answer, Faults, Stream};
use crate::model::Model;
use crate::program::{Far, REGION, Segment, Step, UNKNOWN};

/// A posted receive.
#[derive(Clone, Debug)]
pub(crate) struct Recv {
    pub(crate) cookie: u64,
    pub(crate) iov: Vec<Segment>,
}

/// A request that is not finished.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) cookie: u64,
    pub(crate) operation: DtoOperation,
    pub(crate) iov: Vec<Segment>,
    pub(crate) far: Far,
    pub(crate) suppressed: bool,
}

const SUPPRESS: u32 = 0x01;
const SOLICITED: u32 = 0x02;
const UNSIGNALLED: u32 = 0x04;
const FENCE: u32 = 0x08;

/// Zone and rights of the regions every adapter has: local read 1, remote read 2, local write 0x10, remote write 0x20.
pub(crate) const REGIONS: [(u8, u32); 5] = [(0, 0x33), (1, 0x33), (0, 0x03), (0, 0x30), (0, 0x11)];

const LOCAL_READ: u32 = 0x01;
const LOCAL_WRITE: u32 = 0x10;
const REMOTE_READ: u32 = 0x02;
const REMOTE_WRITE: u32 = 0x20;

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

    fn part(&mut self, region: u8, offset: u32, len: u32) -> &mut [Option<u8>] {
        &mut self.0[usize::from(region)][offset as usize..(offset + len) as usize]
    }

    fn gather(&mut self, iov: &[Segment]) -> Vec<Option<u8>> {
        let mut out = Vec::new();
        for segment in iov.iter().filter(|segment| segment.len > 0) {
            out.extend_from_slice(self.part(segment.region, segment.offset, segment.len));
        }
        out
    }

    fn scatter(&mut self, iov: &[Segment], bytes: &[Option<u8>]) {
        let mut rest = bytes;
        for segment in iov.iter().filter(|segment| segment.len > 0) {
            let (now, later) = rest.split_at(rest.len().min(segment.len as usize));
            self.part(segment.region, segment.offset, now.len() as u32).copy_from_slice(now);
            rest = later;
        }
    }

    /// Nothing is known of these bytes any more.
    fn doubt(&mut self, iov: &[Segment]) {
        for segment in iov.iter().filter(|segment| segment.len > 0) {
            self.part(segment.region, segment.offset, segment.len).fill(None);
        }
    }
}

/// What a byte of a region is at the start.
pub(crate) fn initial(side: usize, region: usize, at: u32) -> u8 {
    ((at as usize * 31 + region * 101 + side * 57) ^ (at as usize >> 5)) as u8
}

impl Model {
    pub(crate) fn post(&mut self, ep: usize, step: &Step) -> Answer {
        let (iov, flags, operation, far) = match step {
            Step::Recv { iov, flags, .. } => (iov, *flags, DtoOperation::Receive, None),
            Step::Send { iov, flags, .. } => (iov, *flags, DtoOperation::Send, None),
            Step::Write { iov, far, flags, .. } => (iov, *flags, DtoOperation::RdmaWrite, Some(*far)),
            Step::Read { iov, far, flags, .. } => (iov, *flags, DtoOperation::RdmaRead, Some(*far)),
            _ => return Answer::LeftOut,
        };
        let it = &self.eps[ep];
        let attrs = &it.shape.attrs;
        let is_recv = operation == DtoOperation::Receive;
        let total = total(iov);
        let mut faults = Faults::default();
        // Flags and counts come first, then the state; the segments may be looked at before or after it.
        let (mode, most) = match is_recv {
            true => (attrs.recv_flags, attrs.recv_iov),
            false => (attrs.request_flags, attrs.request_iov),
        };
        let mut allowed = if is_recv { 0 } else { SUPPRESS | FENCE };
        if operation == DtoOperation::Send {
            allowed |= SOLICITED;
        }
        if mode == UNSIGNALLED {
            allowed |= UNSIGNALLED;
        }
        faults.when(flags & !allowed != 0 || iov.len() > most as usize, 0, IP);
        let usable = matches!(it.state, EpState::Connected | EpState::Disconnected);
        faults.when(!is_recv && !usable, 1, IS);
        let right = match operation {
            DtoOperation::Receive | DtoOperation::RdmaRead => LOCAL_WRITE,
            _ => LOCAL_READ,
        };
        segment_faults(iov, it.shape.zone, right).into_iter().for_each(|code| faults.when(true, 1, code));
        let most = if operation == DtoOperation::Send { attrs.message } else { attrs.rdma };
        faults.when(!is_recv && total > most, 1, IP);
        if let Some(far) = far {
            if operation == DtoOperation::RdmaRead {
                faults.when(attrs.reads_out == 0, 1, IP);
                faults.when(total < u64::from(far.len), 1, LE);
            } else {
                faults.when(total > u64::from(far.len), 1, LE);
            }
        }
        let (outstanding, limit) = match is_recv {
            true => (it.recvs.len(), attrs.recvs),
            false => (it.requests.len(), attrs.requests),
        };
        let full = outstanding >= limit as usize;
        faults.when(full, 2, IR);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        let iov = iov.clone();
        let cookie = self.step as u64;
        let far = far.unwrap_or(Far { region: 0, offset: 0, len: 0 });
        if self.eps[ep].state == EpState::Disconnected {
            let stream = if is_recv { Stream::Recv } else { Stream::Request };
            self.complete(ep, stream, cookie, &[Flushed], operation, 0);
        } else if is_recv {
            self.eps[ep].recvs.push_back(Recv { cookie, iov });
        } else {
            let request = Request { cookie, operation, iov, far, suppressed: flags & SUPPRESS != 0 };
            // Whether a success nobody is told of has been, while others wait behind it, cannot be known; it decides
            // whether a later flush tells of it.
            let waiting = &self.eps[ep].requests;
            if !waiting.is_empty() && (request.suppressed || waiting.iter().any(|other| other.suppressed)) {
                return Answer::LeftOut;
            }
            // Behind a message that cannot be delivered it is open when a one-sided operation fails.
            if !self.eps[ep].requests.is_empty() && self.remote_fault(ep, &request) {
                return Answer::LeftOut;
            }
            self.eps[ep].requests.push_back(request);
        }
        answer
    }

    /// Whether the far side refuses it.
    fn remote_fault(&self, ep: usize, request: &Request) -> bool {
        let right = match request.operation {
            DtoOperation::RdmaWrite => REMOTE_WRITE,
            DtoOperation::RdmaRead => REMOTE_READ,
            _ => return false,
        };
        let length = match request.operation {
            DtoOperation::RdmaWrite => total(&request.iov) as u32,
            _ => request.far.len,
        };
        let Some(peer) = self.eps[ep].peer else { return false };
        if length == 0 {
            return false;
        }
        let Far { region, offset, .. } = request.far;
        if region == UNKNOWN {
            return true;
        }
        let (zone, rights) = REGIONS[usize::from(region)];
        rights & right == 0 || self.eps[peer].shape.zone != Some(zone) || offset + length > REGION
    }

    /// Everything that can finish does.
    pub(crate) fn transfer_all(&mut self) {
        while (0..self.eps.len()).any(|ep| self.transfer(ep)) {}
        // What waits behind an undeliverable message may have been done already, or not.
        for ep in 0..self.eps.len() {
            let Some(peer) = self.eps[ep].peer else { continue };
            let (here, there) = (self.eps[ep].side, self.eps[peer].side);
            for request in self.eps[ep].requests.clone() {
                match request.operation {
                    DtoOperation::RdmaRead => self.sides[here].memory.doubt(&request.iov),
                    DtoOperation::RdmaWrite if !self.remote_fault(ep, &request) => {
                        self.sides[there].memory.doubt(&[target(&request)]);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The oldest request of an endpoint; `false`: it has none that can finish.
    fn transfer(&mut self, ep: usize) -> bool {
        let it = &self.eps[ep];
        let (Some(peer), Some(request)) = (it.peer, it.requests.front().cloned()) else { return false };
        if !matches!(it.state, EpState::Connected | EpState::DisconnectPending) {
            return false;
        }
        match request.operation {
            DtoOperation::Send if self.eps[peer].recvs.is_empty() => return false,
            DtoOperation::Send => self.deliver(ep, peer, &request),
            _ => self.one_sided(ep, peer, &request),
        }
        let it = &mut self.eps[ep];
        if it.state == EpState::DisconnectPending && it.requests.is_empty() {
            self.hang_up_at_peer(ep, &[Disconnected]);
            self.down(ep, &[Disconnected], &[]);
        }
        true
    }

    fn deliver(&mut self, ep: usize, peer: usize, request: &Request) {
        let Some(recv) = self.eps[peer].recvs.pop_front() else { return };
        let length = total(&request.iov);
        let foreign = !segment_faults(&recv.iov, self.eps[peer].shape.zone, LOCAL_WRITE).is_empty();
        let status = match () {
            () if foreign => LocalProtection,
            () if length > total(&recv.iov) => LocalLength,
            () => Success,
        };
        self.complete(peer, Stream::Recv, recv.cookie, &[status], DtoOperation::Receive, length);
        if status != Success {
            let there = self.eps[peer].side;
            self.sides[there].memory.doubt(&recv.iov);
            self.fail(ep, peer, &[RemoteResponder, Flushed], false);
            return;
        }
        let bytes = self.sides[self.eps[ep].side].memory.gather(&request.iov);
        let there = self.eps[peer].side;
        self.sides[there].memory.scatter(&recv.iov, &bytes);
        self.succeed(ep, length);
    }

    fn one_sided(&mut self, ep: usize, peer: usize, request: &Request) {
        if self.remote_fault(ep, request) {
            if request.operation == DtoOperation::RdmaRead {
                let here = self.eps[ep].side;
                self.sides[here].memory.doubt(&request.iov);
            }
            self.fail(ep, peer, &[RemoteAccess], true);
            return;
        }
        let (here, there) = (self.eps[ep].side, self.eps[peer].side);
        let length = if request.operation == DtoOperation::RdmaWrite {
            let bytes = self.sides[here].memory.gather(&request.iov);
            if !bytes.is_empty() {
                self.sides[there].memory.scatter(&[target(request)], &bytes);
            }
            bytes.len() as u64
        } else {
            let Far { region, offset, len } = request.far;
            if len > 0 {
                let bytes = self.sides[there].memory.gather(&[Segment { region, offset, len }]);
                self.sides[here].memory.scatter(&request.iov, &bytes);
            }
            u64::from(len)
        };
        self.succeed(ep, length);
    }

    fn succeed(&mut self, ep: usize, length: u64) {
        let Some(request) = self.eps[ep].requests.pop_front() else { return };
        self.eps[ep].silent = request.suppressed;
        if !request.suppressed {
            self.complete(ep, Stream::Request, request.cookie, &[Success], request.operation, length);
        }
    }

    /// The oldest request fails and the connection with it. `here`: the fault is this end's to report.
    fn fail(&mut self, ep: usize, peer: usize, statuses: &[dat_types::DtoStatus], here: bool) {
        if let Some(request) = self.eps[ep].requests.pop_front() {
            self.complete(ep, Stream::Request, request.cookie, statuses, request.operation, 0);
        }
        let certain = [Broken];
        let either = [Broken, Disconnected];
        self.down(ep, if here { &certain } else { &either }, &[]);
        self.down(peer, if here { &either } else { &certain }, &[]);
    }
}

fn target(request: &Request) -> Segment {
    let Far { region, offset, .. } = request.far;
    Segment { region, offset, len: total(&request.iov) as u32 }
}

pub(crate) fn total(iov: &[Segment]) -> u64 {
    iov.iter().map(|segment| u64::from(segment.len)).sum()
}

/// What is wrong with the first bad segment. Which of several faults of one segment is named is open.
fn segment_faults(iov: &[Segment], zone: Option<u8>, right: u32) -> Vec<ReturnType> {
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
