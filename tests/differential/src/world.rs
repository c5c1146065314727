//! The real thing: two adapters of a provider with the places of programs, and the calls the steps stand for.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dat_engine::{ConnectOptions, Cr, Ep, EpMask, EpModify, Ia, IaOptions, Lmr, Psp, Pz, Rsp};
use dat_types::{
    CloseFlags, CompletionFlags, ConnectFlags, EpAttr, Error, EvdFlags, Event, LmrTriplet, ObjectId,
    Privileges, PspFlags, Qos, ReturnType, RmrTriplet, ServiceType, Timeout,
};

use crate::model::{Limits, private_data};
use crate::program::{
    Attrs, EVDS, Evd, FOREIGN, Far, REGION, Segment, Shape, Step, TOO_LONG, Target, Time, UNKNOWN, ZONES,
    side_of,
};
use crate::run::Subject;
use crate::transfer::{REGIONS, initial};

/// Room in every dispatcher: more than a program can have outstanding.
const ROOM: i32 = 512;
/// Nobody listens here: service points get qualifiers of at least 1024.
const NOBODY: u64 = 7;
/// The short time-out of a connect.
const SHORT: Duration = Duration::from_millis(30);
/// Qualifiers for reserved service points, outside of what service points are given that take any; how many are tried.
const RESERVED_PORTS: (u64, u64) = (12_000, 30_000);
const MANY: u32 = 1000;
static NEXT_PORT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct World {
    pub(crate) sides: [Half; 2],
    /// In the order of the model's.
    pub(crate) eps: Vec<Ep>,
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
    pub(crate) cookie: u64,
}

pub(crate) struct Half {
    pub(crate) zones: Vec<Pz>,
    pub(crate) evds: Vec<dat_engine::Evd>,
    pub(crate) regions: Vec<Lmr>,
    pub(crate) asked: Vec<Cr>,
    decided: Vec<Cr>,
    psp: Option<Psp>,
    port: u64,
    rsp: Option<Rsp>,
    reserved_port: u64,
    address: SocketAddr,
    // Last, so that everything else is gone when it closes.
    pub(crate) ia: Ia,
}

type Result<T = ()> = std::result::Result<T, Error>;

impl World {
    pub(crate) fn open(subject: &Subject) -> std::result::Result<World, String> {
        let half = |side| Half::open(subject, side);
        let sides = [half(0)?, half(1)?];
        let most = |side: &Half| side.ia.provider_query().map(|attr| attr.max_private_data_size as usize);
        let private_data = most(&sides[0]).map_err(|error| error.to_string())?;
        Ok(World { sides, eps: Vec::new(), limits: Limits { private_data } })
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Makes the call of a step, with what the model says its places mean.
    pub(crate) fn perform(&mut self, step: &Step, places: &Places) -> Result {
        match step {
            Step::Create { place, shape } => self.create(side_of(*place), shape),
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
            Step::StopListening { side } => match self.sides[usize::from(*side)].psp.take() {
                Some(psp) => psp.free(),
                None => Ok(()),
            },
            Step::Listen { side } => self.sides[usize::from(*side)].listen(),
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
                    conn_qual: match to {
                        Target::Nobody => NOBODY,
                        Target::Reserved => there.reserved_port,
                        Target::Peer | Target::Own => there.port,
                    },
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
            Step::Send { iov, flags: f, .. } => ep.post_send(&here.triplets(iov), cookie, flags(*f)),
            Step::Write { iov, far: to, flags: f, .. } => {
                ep.post_rdma_write(&here.triplets(iov), cookie, far(*to), flags(*f))
            }
            Step::Read { iov, far: from, flags: f, .. } => {
                ep.post_rdma_read(&here.triplets(iov), cookie, far(*from), flags(*f))
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

    fn create(&mut self, side: usize, shape: &Shape) -> Result {
        let evd = |evd: Option<u8>| evd.map(|evd| self.evd(side, evd));
        let ep = self.sides[side].ia.ep_create(
            shape.zone.map(|zone| self.zone(side, zone)),
            evd(shape.recv),
            evd(shape.request),
            evd(shape.conn),
            Some(&attributes(&shape.attrs)),
        )?;
        self.eps.push(ep);
        Ok(())
    }

    fn decide(&mut self, side: u8, which: Option<usize>, call: impl FnOnce(&Cr) -> Result) -> Result {
        let side = &mut self.sides[usize::from(side)];
        let Some(which) = which else { return Ok(()) };
        call(&side.asked[which])?;
        let cr = side.asked.remove(which);
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

    pub(crate) fn arrived(&mut self, side: usize, cr: ObjectId) -> Result {
        let cr = self.sides[side].ia.cr(cr)?;
        self.sides[side].asked.push(cr);
        Ok(())
    }
}

impl Half {
    fn open(subject: &Subject, side: usize) -> std::result::Result<Half, String> {
        let device = subject.plugin.open(&subject.config).map_err(|failure| failure.to_string())?;
        let ia = Ia::open(device, &subject.config.ia_name, subject.plugin.version(), IaOptions::default())
            .map_err(|error| error.to_string())?;
        Half::furnished(ia, side).map_err(|error| error.to_string())
    }

    fn furnished(ia: Ia, side: usize) -> Result<Half> {
        let zones: Vec<Pz> = (0..ZONES).map(|_| ia.pz_create()).collect::<Result<_>>()?;
        let kind = |evd: &Evd| match evd {
            Evd::Dto => EvdFlags::DTO,
            Evd::Both => EvdFlags::DTO | EvdFlags::CONNECTION,
            Evd::Connection => EvdFlags::CONNECTION,
            Evd::Requests => EvdFlags::CR,
        };
        let evds = EVDS.iter().map(|evd| ia.evd_create(ROOM, kind(evd))).collect::<Result<_>>()?;
        let mut regions = Vec::new();
        for (number, (zone, rights)) in REGIONS.into_iter().enumerate() {
            let rights = Privileges::from_bits_retain(rights);
            let lmr = ia.lmr_create(&zones[usize::from(zone)], ia.alloc(REGION.into())?, rights)?;
            let bytes: Vec<u8> = (0..REGION).map(|at| initial(side, number, at)).collect();
            lmr.memory().write(0, &bytes);
            regions.push(lmr);
        }
        let address = (ia.query()?.address, 0).into();
        let (asked, decided, psp, port) = (Vec::new(), Vec::new(), None, NOBODY);
        let (rsp, reserved_port) = (None, NOBODY);
        let mut half =
            Half { zones, evds, regions, asked, decided, psp, port, rsp, reserved_port, address, ia };
        half.listen()?;
        Ok(half)
    }

    fn listen(&mut self) -> Result {
        let psp = self.ia.psp_create_any(self.requests(), PspFlags::Consumer)?;
        self.port = psp.conn_qual();
        self.psp = Some(psp);
        Ok(())
    }

    fn requests(&self) -> &dat_engine::Evd {
        &self.evds[EVDS.iter().position(|evd| *evd == Evd::Requests).unwrap_or_default()]
    }

    fn reserve(&mut self, ep: &Ep, taken: bool) -> Result {
        if taken {
            return self.ia.rsp_create(self.port, Some(ep), self.requests()).map(|_| ());
        }
        // One nobody has; other programs and other processes of the machine may be choosing, too.
        for _ in 0..MANY {
            let port = RESERVED_PORTS.0
                + u64::from(NEXT_PORT.fetch_add(1, Ordering::Relaxed))
                    % (RESERVED_PORTS.1 - RESERVED_PORTS.0);
            match self.ia.rsp_create(port, Some(ep), self.requests()) {
                Err(error) if error.kind() == ReturnType::ConnQualInUse => {}
                Err(error) => return Err(error),
                Ok(rsp) => {
                    self.reserved_port = port;
                    self.rsp = Some(rsp);
                    return Ok(());
                }
            }
        }
        self.ia.rsp_create(self.port, Some(ep), self.requests()).map(|_| ())
    }

    fn triplets(&self, iov: &[Segment]) -> Vec<LmrTriplet> {
        iov.iter()
            .map(|segment| match segment.region {
                UNKNOWN => {
                    LmrTriplet { address: segment.offset.into(), length: segment.len, context: 0xDEAD_0001 }
                }
                region => self.regions[usize::from(region)].triplet(segment.offset.into(), segment.len),
            })
            .collect()
    }

    fn far(&self, Far { region, offset, len }: Far) -> RmrTriplet {
        match region {
            UNKNOWN => RmrTriplet { address: 4096, length: len, context: 0xDEAD_0003 },
            region => self.regions[usize::from(region)].remote_triplet(offset.into(), len),
        }
    }

    /// Frees everything but endpoints, and closes, which only succeeds when nothing is left.
    pub(crate) fn close(mut self) -> std::result::Result<(), String> {
        let ending = |what: &str, result: Result| result.map_err(|error| format!("{what}: {error}"));
        for cr in self.asked.drain(..) {
            ending("rejecting an undecided request at the end", cr.reject(&[]))?;
        }
        if let Some(psp) = self.psp.take() {
            ending("freeing the service point at the end", psp.free())?;
        }
        self.regions.iter().try_for_each(|lmr| ending("freeing a region at the end", lmr.free()))?;
        self.zones.iter().try_for_each(|pz| ending("freeing a zone at the end", pz.free()))?;
        self.evds.iter().try_for_each(|evd| ending("freeing a dispatcher at the end", evd.free()))?;
        ending("closing gracefully at the end", self.ia.close(CloseFlags::Graceful))
    }
}

fn timeout(time: Time) -> Timeout {
    match time {
        Time::Zero => Timeout::from(Duration::ZERO),
        Time::Short => Timeout::from(SHORT),
        Time::Infinite => Timeout::INFINITE,
    }
}

fn attributes(attrs: &Attrs) -> EpAttr {
    EpAttr {
        service_type: ServiceType(attrs.service),
        qos: Qos(attrs.qos),
        max_message_size: attrs.message,
        max_rdma_size: attrs.rdma,
        recv_completion_flags: CompletionFlags::from_bits_retain(attrs.recv_flags),
        request_completion_flags: CompletionFlags::from_bits_retain(attrs.request_flags),
        max_recv_dtos: attrs.recvs,
        max_request_dtos: attrs.requests,
        max_recv_iov: attrs.recv_iov,
        max_request_iov: attrs.request_iov,
        max_rdma_read_in: attrs.reads_in,
        max_rdma_read_out: attrs.reads_out,
        ..EpAttr::default()
    }
}

/// The same of a query's answer, to compare.
pub(crate) fn attrs_of(attr: &EpAttr) -> Attrs {
    Attrs {
        service: attr.service_type.0,
        qos: attr.qos.0,
        message: attr.max_message_size,
        rdma: attr.max_rdma_size,
        recv_flags: attr.recv_completion_flags.bits(),
        request_flags: attr.request_completion_flags.bits(),
        recvs: attr.max_recv_dtos,
        requests: attr.max_request_dtos,
        recv_iov: attr.max_recv_iov,
        request_iov: attr.max_request_iov,
        reads_in: attr.max_rdma_read_in,
        reads_out: attr.max_rdma_read_out,
    }
}
