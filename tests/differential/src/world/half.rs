//! One adapter of a provider with everything programs use.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_engine::{Cr, Ep, Ia, IaOptions, Lmr, Psp, Pz, Rmr, Rsp};
use dat_types::{
    CloseFlags, Error, EvdFlags, LmrTriplet, ObjectId, Privileges, ProviderAttr, PspFlags, ReturnType,
    RmrTriplet,
};

use crate::model::Goal;
use crate::model::memory::{REGIONS, initial};
use crate::program::{
    EVDS, Evd, Far, POINTS, Point, REGION, STALE, Segment, Target, UNKNOWN, WINDOW, WINDOWS, ZONES,
};
use crate::subject::Subject;

/// Room in every dispatcher: more than a program can have outstanding.
const ROOM: i32 = 512;
/// No service point listens here: service points get qualifiers of at least 1024.
pub(super) const NOBODY: u64 = 7;
/// Qualifiers for reserved service points, outside of what service points are given that take any; how many are tried.
const RESERVED_PORTS: (u64, u64) = (12_000, 30_000);
const MANY: u32 = 1000;
static NEXT_PORT: AtomicU32 = AtomicU32::new(0);

pub(super) type Result<T = ()> = std::result::Result<T, Error>;

pub(crate) struct Half {
    pub(crate) zones: Vec<Pz>,
    pub(crate) evds: Vec<dat_engine::Evd>,
    pub(crate) regions: Vec<Lmr>,
    pub(crate) windows: [Option<Window>; WINDOWS],
    pub(crate) requests: Vec<Cr>,
    pub(super) decided: Vec<Cr>,
    pub(super) psps: [Option<Psp>; POINTS],
    ports: [u64; POINTS],
    pub(super) rsp: Option<Rsp>,
    pub(super) reserved_port: u64,
    pub(super) address: SocketAddr,
    // Last, so that everything else is gone when it closes.
    pub(crate) ia: Ia,
}

/// Whether a provider says of itself that it has something.
pub(super) fn says(attr: &ProviderAttr, name: &str) -> bool {
    attr.provider_specific.iter().any(|(known, value)| known == name && value == "TRUE")
}

/// A memory window, with the contexts it was bound under last and before.
pub(crate) struct Window {
    pub(crate) rmr: Rmr,
    pub(super) contexts: [u32; 2],
    /// The region it was bound to last.
    pub(super) region: u8,
}

impl Half {
    pub(super) fn open(subject: &Subject, side: usize) -> std::result::Result<Half, String> {
        let device = subject.plugin.open(&subject.config).map_err(|failure| failure.to_string())?;
        let ia = Ia::open(device, &subject.config.ia_name, subject.plugin.version(), IaOptions::default())
            .map_err(|error| error.to_string())?;
        Half::furnished(ia, side).map_err(|error| error.to_string())
    }

    fn furnished(ia: Ia, side: usize) -> Result<Half> {
        let zones: Vec<Pz> = (0..ZONES).map(|_| ia.pz_create()).collect::<Result<_>>()?;
        let kind = |evd: &Evd| match evd {
            Evd::Dto => EvdFlags::DTO,
            Evd::Binds => EvdFlags::DTO | EvdFlags::RMR_BIND,
            Evd::Both => EvdFlags::DTO | EvdFlags::RMR_BIND | EvdFlags::CONNECTION,
            Evd::Connection => EvdFlags::CONNECTION,
            Evd::Requests => EvdFlags::CR,
        };
        let evds = EVDS.iter().map(|evd| ia.evd_create(ROOM, kind(evd))).collect::<Result<_>>()?;
        let atomics = says(&ia.provider_query()?, "DAT_IB_FETCH_AND_ADD");
        let mut regions = Vec::new();
        for (number, (zone, rights)) in REGIONS.into_iter().enumerate() {
            let mut rights = Privileges::from_bits_retain(rights);
            if !atomics {
                rights.remove(Privileges::REMOTE_ATOMIC);
            }
            let lmr = ia.lmr_create(&zones[usize::from(zone)], ia.alloc(REGION.into())?, rights)?;
            let bytes: Vec<u8> = (0..REGION).map(|at| initial(side, number, at)).collect();
            lmr.memory().write(0, &bytes);
            regions.push(lmr);
        }
        let address = (ia.query()?.address, 0).into();
        let (requests, decided) = (Vec::new(), Vec::new());
        let (psps, ports) = (Default::default(), [NOBODY; POINTS]);
        let (rsp, reserved_port) = (None, NOBODY);
        let mut half = Half {
            zones,
            evds,
            regions,
            windows: Default::default(),
            requests,
            decided,
            psps,
            ports,
            rsp,
            reserved_port,
            address,
            ia,
        };
        half.listen(Point::First)?;
        Ok(half)
    }

    pub(super) fn listen(&mut self, point: Point) -> Result {
        let flags = match point {
            Point::First | Point::Second => PspFlags::Consumer,
            Point::Maker => PspFlags::Provider,
        };
        let psp = self.ia.psp_create_any(self.requests(), flags)?;
        self.ports[point as usize] = psp.conn_qual();
        self.psps[point as usize] = Some(psp);
        Ok(())
    }

    /// The connection qualifier a target means at this adapter.
    pub(super) fn port(&self, to: Target) -> u64 {
        match to {
            Target::Nobody => NOBODY,
            Target::Reserved => self.reserved_port,
            Target::Peer | Target::Own => self.ports[Point::First as usize],
            Target::Second => self.ports[Point::Second as usize],
            Target::Maker => self.ports[Point::Maker as usize],
        }
    }

    /// The service point of a goal, which an event must name, and its connection qualifier.
    pub(crate) fn listens(&self, goal: Goal) -> (Option<ObjectId>, u64) {
        match goal {
            Goal::Public { point, .. } => {
                let psp = self.psps[point as usize].as_ref();
                (psp.map(Psp::id), self.ports[point as usize])
            }
            Goal::Reserved { .. } => (None, self.reserved_port),
            Goal::Nobody => (None, NOBODY),
        }
    }

    fn requests(&self) -> &dat_engine::Evd {
        &self.evds[EVDS.iter().position(|evd| *evd == Evd::Requests).unwrap_or_default()]
    }

    pub(super) fn reserve(&mut self, ep: &Ep, taken: bool) -> Result {
        if taken {
            return self.ia.rsp_create(self.ports[0], Some(ep), self.requests()).map(|_| ());
        }
        // A free qualifier. Other programs and processes of the machine may choose at the same time.
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
        self.ia.rsp_create(self.ports[0], Some(ep), self.requests()).map(|_| ())
    }

    pub(super) fn triplets(&self, iov: &[Segment]) -> Vec<LmrTriplet> {
        iov.iter().map(|segment| self.triplet(segment)).collect()
    }

    pub(super) fn triplet(&self, segment: &Segment) -> LmrTriplet {
        let &Segment { region, offset, len } = segment;
        match region {
            UNKNOWN => LmrTriplet { address: offset.into(), length: len, context: 0xDEAD_0001 },
            region => self.regions[usize::from(region)].triplet(offset.into(), len),
        }
    }

    pub(super) fn far(&self, Far { region: number, offset, len }: Far) -> RmrTriplet {
        match number {
            UNKNOWN => RmrTriplet { address: 4096, length: len, context: 0xDEAD_0003 },
            WINDOW.. => {
                let window = self.windows[usize::from(number - WINDOW) % WINDOWS].as_ref();
                let (contexts, region) =
                    window.map_or(([0; 2], 0), |window| (window.contexts, window.region));
                let known = self.regions[usize::from(region)].remote_triplet(offset.into(), len);
                let context = contexts[usize::from(number >= STALE)];
                RmrTriplet { context: if context == 0 { 0xDEAD_0003 } else { context }, ..known }
            }
            region => self.regions[usize::from(region)].remote_triplet(offset.into(), len),
        }
    }

    /// Frees everything but endpoints, and closes, which only succeeds when nothing is left.
    pub(crate) fn close(mut self) -> std::result::Result<(), String> {
        let ending = |what: &str, result: Result| result.map_err(|error| format!("{what}: {error}"));
        for cr in self.requests.drain(..) {
            ending("rejecting an undecided request at the end", cr.reject(&[]))?;
        }
        for psp in self.psps.iter_mut().filter_map(Option::take) {
            ending("freeing the service point at the end", psp.free())?;
        }
        for window in self.windows.iter_mut().filter_map(Option::take) {
            // It may be gone already.
            let _ = window.rmr.free();
        }
        self.regions.iter().try_for_each(|lmr| ending("freeing a region at the end", lmr.free()))?;
        self.zones.iter().try_for_each(|pz| ending("freeing a zone at the end", pz.free()))?;
        self.evds.iter().try_for_each(|evd| ending("freeing a dispatcher at the end", evd.free()))?;
        ending("closing gracefully at the end", self.ia.close(CloseFlags::Graceful))
    }
}
