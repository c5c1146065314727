//! The real thing: two adapters of a provider with the places of programs, and the calls the steps stand for.

mod attributes;
mod half;

use std::collections::BTreeMap;

use dat_engine::{ConnectOptions, Cr, CrParam, Ep, EpMask, EpModify, Pz, Srq};
use dat_types::{
    CloseFlags, CompletionFlags, ConnectFlags, EpState, Event, ObjectId, Privileges, Qos, SrqAttr,
};

use crate::model::{Limits, private_data};
use crate::program::{Atomic, FOREIGN, Far, Range, Shape, Step, TOO_LONG, Target, side_of};
use crate::subject::Subject;
pub(crate) use attributes::{SHORT, attrs_of};
use attributes::{attributes, timeout};
pub(crate) use half::Half;
use half::{Result, Window, says};

pub(crate) struct World {
    pub(crate) sides: [Half; 2],
    /// In the order of the model's.
    pub(crate) eps: Vec<Ep>,
    pub(crate) queues: Vec<Srq>,
    /// The window of each bind, by its cookie.
    pub(crate) binds: BTreeMap<u64, ObjectId>,
    /// What was wrong with what a call gave.
    pub(crate) wrong: Option<String>,
    limits: Limits,
}

/// What the places of a step mean, by the model.
pub(crate) struct Places {
    /// The endpoint, by its number.
    pub(crate) ep: Option<usize>,
    /// The endpoint whose connect is repeated.
    pub(crate) dup: Option<usize>,
    /// Its side, and the side of the endpoint it is connected to.
    pub(crate) side: usize,
    pub(crate) peer_side: usize,
    /// The undecided request, by its number.
    pub(crate) which: Option<usize>,
    /// The shared receive queue, by its number.
    pub(crate) queue: Option<usize>,
    pub(crate) cookie: u64,
}

impl World {
    pub(crate) fn open(subject: &Subject) -> std::result::Result<World, String> {
        let half = |side| Half::open(subject, side);
        let sides = [half(0)?, half(1)?];
        let attr = sides[0].ia.provider_query().map_err(|error| error.to_string())?;
        let windows = sides[0].ia.query().map_err(|error| error.to_string())?.max_rmrs > 0;
        let says = |name: &str| says(&attr, name);
        let limits = Limits {
            private_data: attr.max_private_data_size as usize,
            immediate: says("DAT_IB_IMMED_DATA"),
            atomics: says("DAT_IB_FETCH_AND_ADD") && says("DAT_IB_CMP_AND_SWAP"),
            queues: attr.srq_supported,
            queue_zones: attr.srq_ep_pz_difference_supported,
            soft_roce: subject.soft_roce,
            windows,
        };
        Ok(World { sides, eps: Vec::new(), queues: Vec::new(), binds: BTreeMap::new(), wrong: None, limits })
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Makes the call of a step, with what the model says its places mean.
    pub(crate) fn perform(&mut self, step: &Step, places: &Places) -> Result {
        match step {
            Step::Create { place, shape, .. } => self.create(side_of(*place), shape, places.queue),
            Step::WindowCreate { side, window, zone } => {
                let side = usize::from(*side);
                let rmr = self.sides[side].ia.rmr_create(self.zone(side, *zone))?;
                let at = &mut self.sides[side].windows[usize::from(*window)];
                // The context of the one before is as dead as that.
                let contexts = at.as_ref().map_or([0; 2], |before| before.contexts);
                *at = Some(Window { rmr, contexts, region: 0 });
                Ok(())
            }
            Step::WindowFree { side, window } => {
                match &self.sides[usize::from(*side)].windows[usize::from(*window)] {
                    Some(window) => window.rmr.free(),
                    None => Ok(()),
                }
            }
            Step::FreeRegion { side, region } => {
                self.sides[usize::from(*side)].regions[usize::from(*region)].free()
            }
            Step::Bind { window, range, flags, .. } => match places.ep {
                Some(ep) => self.bind(ep, places, usize::from(*window), *range, *flags),
                None => Ok(()),
            },
            Step::QueueCreate { side, zone, recvs, segments, mark } => {
                let side = usize::from(*side);
                let attr = SrqAttr { max_recv_dtos: *recvs, max_recv_iov: *segments, low_watermark: *mark };
                let queue = self.sides[side].ia.srq_create(self.zone(side, *zone), &attr)?;
                self.queues.push(queue);
                Ok(())
            }
            Step::Accept { side, data, .. } => {
                let data = self.data(*data);
                let ep = places.ep.map(|ep| self.eps[ep].clone());
                self.decide(*side, places.which, |cr| cr.accept(ep.as_ref(), &data))
            }
            Step::Reject { side, data, .. } => {
                let data = self.data(*data);
                self.decide(*side, places.which, |cr| cr.reject(&data))
            }
            Step::AcceptStale { side, .. } => match self.sides[usize::from(*side)].decided.last() {
                Some(cr) => cr.accept(places.ep.map(|ep| &self.eps[ep]), &[]),
                None => Ok(()),
            },
            Step::RejectStale { side } => match self.sides[usize::from(*side)].decided.last() {
                Some(cr) => cr.reject(&[]),
                None => Ok(()),
            },
            Step::HandOff { side, to, .. } => {
                let port = self.sides[usize::from(*side)].port(*to);
                self.decide(*side, places.which, |cr| cr.handoff(port))
            }
            // The request names the endpoint.
            Step::Adopt { .. } => Ok(()),
            Step::StopListening { side, point } => {
                match self.sides[usize::from(*side)].psps[*point as usize].take() {
                    Some(psp) => psp.free(),
                    None => Ok(()),
                }
            }
            Step::Listen { side, point } => self.sides[usize::from(*side)].listen(*point),
            Step::Reserve { place, taken } => match places.ep {
                Some(ep) => self.sides[side_of(*place)].reserve(&self.eps[ep], *taken),
                None => Ok(()),
            },
            Step::Unreserve { side } => match &self.sides[usize::from(*side)].rsp {
                Some(rsp) => rsp.free(),
                None => Ok(()),
            },
            Step::FreeZone { side, zone } => self.sides[usize::from(*side)].zones[usize::from(*zone)].free(),
            Step::FreeEvd { side, evd } => self.sides[usize::from(*side)].evds[usize::from(*evd)].free(),
            Step::QueueFree { side }
            | Step::QueueRecv { side, .. }
            | Step::QueueMark { side, .. }
            | Step::QueueResize { side, .. }
            | Step::QueueQuery { side } => match places.queue {
                Some(queue) => self.on_queue(step, usize::from(*side), &self.queues[queue], places),
                None => Ok(()),
            },
            step => match places.ep {
                Some(ep) => self.on_endpoint(step, &self.eps[ep], places),
                None => Ok(()),
            },
        }
    }

    fn on_endpoint(&self, step: &Step, ep: &Ep, places: &Places) -> Result {
        let own = places.side;
        let here = &self.sides[own];
        let far = |far: Far| self.sides[places.peer_side].far(far);
        let flags = |flags: u32| CompletionFlags::from_bits_retain(flags);
        let cookie = places.cookie;
        match step {
            Step::Free { .. } => ep.free(),
            Step::Connect { to, data, time, flags, qos, .. } => {
                let there = &self.sides[if *to == Target::Own { own } else { 1 - own }];
                let data = self.data(*data);
                ep.connect(&ConnectOptions {
                    address: there.address,
                    conn_qual: there.port(*to),
                    timeout: timeout(*time),
                    private_data: &data,
                    qos: Qos(*qos),
                    flags: ConnectFlags::from_bits_retain(*flags),
                })
            }
            Step::DupConnect { data, time, qos, .. } => match places.dup {
                Some(dup) => ep.dup_connect(&self.eps[dup], timeout(*time), &self.data(*data), Qos(*qos)),
                None => Ok(()),
            },
            Step::Disconnect { graceful, .. } => {
                ep.disconnect(if *graceful { CloseFlags::Graceful } else { CloseFlags::Abrupt })
            }
            Step::Reset { .. } => ep.reset(),
            Step::Recv { iov, flags: f, .. } => ep.post_recv(&here.triplets(iov), cookie, flags(*f)),
            Step::Send { iov, flags: f, immediate, .. } => {
                let iov = here.triplets(iov);
                match immediate {
                    None => ep.post_send(&iov, cookie, flags(*f)),
                    Some(value) => ep.post_send_immed(&iov, cookie, *value, flags(*f)),
                }
            }
            Step::Write { iov, far: to, flags: f, immediate, .. } => {
                let (iov, to) = (here.triplets(iov), far(*to));
                match immediate {
                    None => ep.post_rdma_write(&iov, cookie, to, flags(*f)),
                    Some(value) => ep.post_rdma_write_immed(&iov, cookie, to, *value, flags(*f)),
                }
            }
            Step::Read { iov, far: from, flags: f, .. } => {
                ep.post_rdma_read(&here.triplets(iov), cookie, far(*from), flags(*f))
            }
            Step::Atomic { local, far: to, atomic, flags: f, .. } => {
                let (local, to) = (here.triplet(local), far(*to));
                match *atomic {
                    Atomic::Add(operand) => ep.post_fetch_add(operand, local, cookie, to, flags(*f)),
                    Atomic::Swap { expected, swap } => {
                        ep.post_compare_swap(expected, swap, local, cookie, to, flags(*f))
                    }
                }
            }
            Step::Modify { mask, shape, .. } => {
                let evd = |evd: Option<u8>| evd.map(|evd| self.evd(own, evd).clone());
                let new = EpModify {
                    pz: shape.zone.map(|zone| self.zone(own, zone).clone()),
                    recv_evd: evd(shape.recv),
                    request_evd: evd(shape.request),
                    connect_evd: evd(shape.conn),
                    attr: attributes(&shape.attrs),
                    ..EpModify::default()
                };
                ep.modify(EpMask::from_bits_retain(*mask), &new)
            }
            _ => ep.query().map(|_| ()),
        }
    }

    fn bind(&mut self, ep: usize, places: &Places, window: usize, range: Range, flags: u32) -> Result {
        let (half, ep) = (&mut self.sides[places.side], &self.eps[ep]);
        let Some(at) = half.windows[window].as_mut() else { return Ok(()) };
        let flushed = ep.state() == EpState::Disconnected;
        let region = &half.regions[usize::from(range.region)];
        let address = region.triplet(range.offset.into(), range.len).address;
        let rights = Privileges::from_bits_retain(range.rights);
        let flags = CompletionFlags::from_bits_retain(flags);
        self.binds.insert(places.cookie, at.rmr.id());
        let context = at.rmr.bind(Some(region), address, range.len, rights, ep, places.cookie, flags)?;
        if range.len > 0 && !flushed {
            if context == 0 || at.contexts.contains(&context) {
                self.wrong = Some(format!("context {context:#x} after {:x?}", at.contexts));
            }
            (at.contexts, at.region) = ([context, at.contexts[0]], range.region);
        }
        Ok(())
    }

    fn on_queue(&self, step: &Step, side: usize, queue: &Srq, places: &Places) -> Result {
        match step {
            Step::QueueFree { .. } => queue.free(),
            Step::QueueRecv { iov, .. } => queue.post_recv(&self.sides[side].triplets(iov), places.cookie),
            Step::QueueMark { mark, .. } => queue.set_low_watermark(*mark),
            Step::QueueResize { recvs, .. } => queue.resize(*recvs),
            _ => queue.query().map(|_| ()),
        }
    }

    fn create(&mut self, side: usize, shape: &Shape, queue: Option<usize>) -> Result {
        let evd = |evd: Option<u8>| evd.map(|evd| self.evd(side, evd));
        let ia = &self.sides[side].ia;
        let zone = shape.zone.map(|zone| self.zone(side, zone));
        let (recv, request, conn) = (evd(shape.recv), evd(shape.request), evd(shape.conn));
        let attr = attributes(&shape.attrs);
        let ep = match queue.map(|queue| &self.queues[queue]) {
            None => ia.ep_create(zone, recv, request, conn, Some(&attr)),
            Some(queue) => ia.ep_create_with_srq(zone, recv, request, conn, queue, &attr),
        }?;
        self.eps.push(ep);
        Ok(())
    }

    fn decide(&mut self, side: u8, which: Option<usize>, call: impl FnOnce(&Cr) -> Result) -> Result {
        let side = &mut self.sides[usize::from(side)];
        let Some(which) = which else { return Ok(()) };
        call(&side.requests[which])?;
        let cr = side.requests.remove(which);
        side.decided.push(cr);
        Ok(())
    }

    fn zone(&self, side: usize, zone: u8) -> &Pz {
        match zone {
            FOREIGN => &self.sides[1 - side].zones[0],
            zone => &self.sides[side].zones[usize::from(zone)],
        }
    }

    fn evd(&self, side: usize, evd: u8) -> &dat_engine::Evd {
        match evd {
            FOREIGN => &self.sides[1 - side].evds[2],
            evd => &self.sides[side].evds[usize::from(evd)],
        }
    }

    fn data(&self, len: u16) -> Vec<u8> {
        match len {
            TOO_LONG => vec![0; self.limits.private_data + 1],
            len => private_data(len),
        }
    }

    /// The next event anywhere, with side and dispatcher.
    pub(crate) fn event(&self) -> Result<Option<(usize, u8, Event)>> {
        for (side, half) in self.sides.iter().enumerate() {
            for (number, evd) in half.evds.iter().enumerate() {
                if let Some(event) = evd.poll()? {
                    return Ok(Some((side, number as u8, event)));
                }
            }
            if let Some(event) = half.ia.async_evd().poll()? {
                return Ok(Some((side, u8::MAX, event)));
            }
        }
        Ok(None)
    }

    /// A request that has come, and what it says.
    pub(crate) fn arrived(&self, side: usize, cr: ObjectId) -> Result<(Cr, CrParam)> {
        let cr = self.sides[side].ia.cr(cr)?;
        let param = cr.query()?;
        Ok((cr, param))
    }
}
