//! Endpoints and their parameters: what may be created, modified and freed (spec: endpoint).

use std::collections::VecDeque;

use dat_types::ConnectionKind::Disconnected;
use dat_types::EpState;
use dat_types::ReturnType::{
    InvalidHandle as IH, InvalidParameter as IP, InvalidState as IS, ModelNotSupported as MNS,
};

use super::state::{Endpoint, Model};
use crate::expect::{Answer, Faults};
use crate::program::{Attrs, EVDS, Evd, FOREIGN, Shape, side_of};

const NEVER: u64 = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x800;
const DEFINED: u64 = 0x7FFF_FFFF;
const ZONE: u64 = 0x80;
/// Dispatchers, and all attributes programs vary.
const CHOSEN: u64 = 0x700 | 0xFF_F000;
const UNSIGNALLED: u32 = 0x04;
const THRESHOLD: u32 = 0x10;
const SOLICITED: u32 = 0x02;

impl Endpoint {
    fn new(side: usize, state: EpState, shape: Shape) -> Endpoint {
        Endpoint {
            side,
            alive: true,
            state,
            shape,
            queue: None,
            open: false,
            attempt: 0,
            peer: None,
            goal: None,
            recvs: VecDeque::new(),
            requests: VecDeque::new(),
            silent: false,
            expected: Default::default(),
        }
    }

    /// An endpoint made for a request (spec: service_points).
    pub(super) fn made(side: usize) -> Endpoint {
        let shape = Shape { zone: None, recv: None, request: None, conn: None, attrs: Attrs::default() };
        Endpoint { open: true, ..Endpoint::new(side, EpState::TentativeConnectionPending, shape) }
    }
}

impl Model {
    pub(super) fn create(&mut self, place: u8, shape: &Shape, shared: bool) -> Answer {
        let side = side_of(place);
        let mut faults = Faults::default();
        let queue = if shared { self.sides[side].queue } else { None };
        if shared && (queue.is_none() || shape.recv.is_none()) {
            // The specification does not define where such a receive completes without a dispatcher.
            return Answer::LeftOut;
        }
        if let Some(queue) = queue.map(|queue| &self.queues[queue]) {
            faults.when(!queue.alive, 0, IH);
            let differ = shape.zone.is_some_and(|zone| zone != queue.zone);
            if differ && self.limits.soft_roce {
                return Answer::LeftOut;
            }
            faults.when(differ && !self.limits.queue_zones, 1, IP);
        }
        faults.when(shape.zone == Some(FOREIGN), 0, IH);
        wrong_evds(shape, |fault| faults.when(fault, 0, IH));
        self.inconsistent(side, None, shape, shared, |fault| faults.when(fault, 1, IP));
        // Which of an unsupported model and another bad attribute is named first is open.
        faults.when(shape.attrs.service != 0, 1, MNS);
        let answer = faults.answer();
        if answer == Answer::Success {
            let ep = Endpoint::new(side, EpState::Unconnected, shape.clone());
            self.eps.push(Endpoint { queue, ..ep });
            self.places[usize::from(place)] = Some(self.eps.len() - 1);
        }
        answer
    }

    /// Contract section 5.3.
    pub(super) fn inconsistent(
        &self,
        side: usize,
        own: Option<usize>,
        shape: &Shape,
        shared: bool,
        mut found: impl FnMut(bool),
    ) {
        let a = &shape.attrs;
        found(a.qos != 0);
        // K-11: receives of a shared queue have its number of segments.
        let recv_iov = if shared { 0 } else { a.recv_iov };
        let most = [a.recvs, a.requests, recv_iov, a.request_iov, a.reads_in, a.reads_out];
        found(most.contains(&u32::MAX) || a.message == u64::MAX || a.rdma == u64::MAX);
        match shape.recv {
            None => found(a.recvs > 0),
            Some(_) => found(a.recvs == 0 || a.recv_iov == 0),
        }
        match shape.request {
            None => found(a.requests > 0 || a.request_iov > 0),
            Some(_) => found(a.requests == 0),
        }
        found(![0, UNSIGNALLED, SOLICITED, THRESHOLD].contains(&a.recv_flags));
        found(![0, UNSIGNALLED, THRESHOLD].contains(&a.request_flags));
        (0..EVDS.len() as u8).for_each(|evd| found(self.clash(side, own, shape, evd)));
    }

    /// Rules K-7 to K-9 on one dispatcher.
    fn clash(&self, side: usize, own: Option<usize>, shape: &Shape, evd: u8) -> bool {
        let others = self
            .eps
            .iter()
            .enumerate()
            .filter(|(index, ep)| ep.alive && ep.side == side && Some(*index) != own);
        let shapes = others.map(|(_, ep)| &ep.shape).chain([shape]);
        let (mut modes, mut requests, mut connections) = (Vec::new(), false, false);
        let mut fed_by_shape = false;
        for each in shapes {
            let normal = |flags: u32| if flags == 0 { THRESHOLD } else { flags };
            if each.recv == Some(evd) {
                modes.push(normal(each.attrs.recv_flags));
            }
            if each.request == Some(evd) {
                modes.push(normal(each.attrs.request_flags));
                requests = true;
            }
            connections |= each.conn == Some(evd);
            fed_by_shape |=
                std::ptr::eq(each, shape) && [shape.recv, shape.request, shape.conn].contains(&Some(evd));
        }
        let Some(first) = modes.first().copied() else { return false };
        fed_by_shape
            && (modes.iter().any(|mode| *mode != first)
                || (connections && first != THRESHOLD)
                || (requests && first == SOLICITED))
    }

    pub(super) fn modify(&mut self, ep: usize, mask: u64, new: &Shape) -> Answer {
        let state = self.eps[ep].state;
        let wrong = mask & !DEFINED != 0 || mask & NEVER != 0;
        let enough = mask == 0 || mask == ZONE || mask & CHOSEN == CHOSEN;
        if self.eps[ep].open && !wrong && !enough {
            // Some of its attributes are the provider's choice still, or chosen anew with a dispatcher.
            return Answer::LeftOut;
        }
        let mut faults = Faults::default();
        faults.when(mask & !DEFINED != 0 || mask & NEVER != 0, 0, IP);
        let fixed = match state {
            EpState::Unconnected | EpState::TentativeConnectionPending => 0,
            EpState::Reserved | EpState::PassiveConnectionPending => ZONE,
            _ => DEFINED,
        };
        faults.when(mask & fixed & !NEVER != 0, 1, IS);
        let merged = merge(&self.eps[ep].shape, new, mask);
        faults.when(mask & ZONE != 0 && new.zone == Some(FOREIGN), 2, IP);
        wrong_evds(&merged, |fault| faults.when(fault, 2, IP));
        faults.when(merged.attrs.service != 0, 2, IP);
        let queue = self.eps[ep].queue;
        if self.limits.soft_roce && queue.is_some_and(|queue| merged.zone != Some(self.queues[queue].zone)) {
            return Answer::LeftOut;
        }
        let shared = queue.is_some();
        if shared && merged.recv.is_none() {
            return Answer::LeftOut;
        }
        self.inconsistent(self.eps[ep].side, Some(ep), &merged, shared, |fault| faults.when(fault, 2, IP));
        let posted = self.eps[ep].recvs.len() as u32;
        let old = &self.eps[ep].shape.attrs;
        faults.when(posted > 0 && old.recv_flags != merged.attrs.recv_flags, 2, IS);
        faults.when(merged.attrs.recvs < posted, 2, IP);
        let longest = self.eps[ep].recvs.iter().map(|recv| recv.iov.len()).max().unwrap_or(0);
        faults.when((merged.attrs.recv_iov as usize) < longest, 2, IP);
        let answer = faults.answer();
        if answer == Answer::Success {
            self.eps[ep].shape = merged;
            self.eps[ep].open &= mask & CHOSEN != CHOSEN;
        }
        answer
    }

    pub(super) fn free(&mut self, ep: usize) -> Answer {
        if self.eps[ep].is_held() || self.eps[ep].state == EpState::Reserved {
            return Answer::Refused(vec![IS]);
        }
        self.hang_up_at_peer(ep, &[Disconnected]);
        let it = &mut self.eps[ep];
        it.alive = false;
        it.attempt += 1;
        it.recvs.clear();
        let binds: Vec<_> = it.requests.drain(..).filter_map(|request| request.bind).collect();
        binds.into_iter().for_each(|bind| self.unbound(bind));
        Answer::Success
    }

    pub(crate) fn free_at_end(&mut self, ep: usize) {
        self.free(ep);
        self.transfer_all();
    }

    pub(super) fn free_zone(&self, side: u8, zone: u8) -> Answer {
        // Every zone has regions.
        let _ = (side, zone);
        Answer::Refused(vec![IS])
    }

    pub(super) fn free_evd(&self, side: u8, evd: u8) -> Answer {
        let feeds = |ep: &Endpoint| {
            ep.alive
                && ep.side == usize::from(side)
                && [ep.shape.recv, ep.shape.request, ep.shape.conn].contains(&Some(evd))
        };
        let it = &self.sides[usize::from(side)];
        let listening = it.listening.contains(&true) || it.reserved.is_some_and(|point| point.listening);
        let listening = listening && EVDS[usize::from(evd)] == Evd::Requests;
        match listening || self.eps.iter().any(feeds) {
            true => Answer::Refused(vec![IS]),
            false => Answer::LeftOut,
        }
    }
}

fn wrong_evds(shape: &Shape, mut found: impl FnMut(bool)) {
    for evd in [shape.recv, shape.request].into_iter().flatten() {
        found(evd == FOREIGN || !matches!(EVDS[usize::from(evd)], Evd::Dto | Evd::Binds | Evd::Both));
    }
    if let Some(evd) = shape.conn {
        found(evd == FOREIGN || !matches!(EVDS[usize::from(evd)], Evd::Connection | Evd::Both));
    }
}

/// The old shape with what the mask names.
fn merge(old: &Shape, new: &Shape, mask: u64) -> Shape {
    let bit = |bit: u64| mask & bit != 0;
    let (a, b) = (&old.attrs, &new.attrs);
    macro_rules! pick {
        ($bit:literal, $field:ident) => {
            if bit($bit) { b.$field } else { a.$field }
        };
    }
    Shape {
        zone: if bit(ZONE) { new.zone } else { old.zone },
        recv: if bit(0x100) { new.recv } else { old.recv },
        request: if bit(0x200) { new.request } else { old.request },
        conn: if bit(0x400) { new.conn } else { old.conn },
        attrs: Attrs {
            service: pick!(0x1000, service),
            message: pick!(0x2000, message),
            rdma: pick!(0x4000, rdma),
            qos: pick!(0x8000, qos),
            recv_flags: pick!(0x1_0000, recv_flags),
            request_flags: pick!(0x2_0000, request_flags),
            recvs: pick!(0x4_0000, recvs),
            requests: pick!(0x8_0000, requests),
            recv_iov: pick!(0x10_0000, recv_iov),
            request_iov: pick!(0x20_0000, request_iov),
            reads_in: pick!(0x40_0000, reads_in),
            reads_out: pick!(0x80_0000, reads_out),
        },
    }
}
