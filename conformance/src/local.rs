//! End A: an adapter of this process with one of everything.

use std::sync::Arc;
use std::time::Duration;

use dat_engine::{ConnectOptions, Cr, Ep, Evd, Ia, Lmr, Pz, Rsp};
use dat_types::{
    AsyncReason, BreakReason, CompletionFlags, ConnectionKind, DtoCompletion, DtoStatus, EpState, EvdFlags,
    Event, EventData, ObjectId, Privileges, PspFlags, RmrTriplet, Timeout,
};

use crate::check::{Outcome, Stop, ensure_eq, fail};
use crate::fixture::Fixture;
pub(crate) use crate::fixture::REGION;
use crate::peer::{AttrSpec, RemoteEnd};

pub(crate) struct LocalEnd {
    pub(crate) ep: Ep,
    pub(crate) lmr: Lmr,
    pub(crate) recv: Evd,
    pub(crate) request: Evd,
    pub(crate) conn: Evd,
    pub(crate) crs: Evd,
    pub(crate) pz: Pz,
    pub(crate) fixture: Arc<Fixture>,
    // Last, so that everything else is gone when it closes.
    pub(crate) ia: Ia,
}

impl LocalEnd {
    pub(crate) fn new(ia: Ia, attr: &AttrSpec, fixture: Arc<Fixture>) -> Result<LocalEnd, Stop> {
        let pz = ia.pz_create()?;
        let recv = ia.evd_create(128, EvdFlags::DTO)?;
        let request = ia.evd_create(128, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
        let conn = ia.evd_create(16, EvdFlags::CONNECTION)?;
        let crs = ia.evd_create(16, EvdFlags::CR)?;
        let lmr = ia.lmr_create(&pz, ia.alloc(REGION)?, Privileges::ALL)?;
        let attr = attr.over(&ia)?;
        let ep = ia.ep_create(Some(&pz), Some(&recv), Some(&request), Some(&conn), Some(&attr))?;
        Ok(LocalEnd { ep, lmr, recv, request, conn, crs, pz, fixture, ia })
    }

    /// Another endpoint, with a connect dispatcher of its own.
    pub(crate) fn separate_ep(&self) -> Result<(Ep, Evd), Stop> {
        let conn = self.ia.evd_create(16, EvdFlags::CONNECTION)?;
        let attr = AttrSpec::default().over(&self.ia)?;
        let ep = self.ia.ep_create(
            Some(&self.pz),
            Some(&self.recv),
            Some(&self.request),
            Some(&conn),
            Some(&attr),
        )?;
        Ok((ep, conn))
    }

    /// A connection qualifier without a listener.
    pub(crate) fn free_qual(&self) -> Result<u64, Stop> {
        let psp = self.ia.psp_create_any(&self.crs, PspFlags::Consumer)?;
        psp.free()?;
        Ok(psp.conn_qual())
    }

    /// The endpoint RESERVED by a service point.
    pub(crate) fn reserve(&self) -> Result<Rsp, Stop> {
        let mut made = None;
        // Not at once: a process that is being started meanwhile may hold a copy of the listener's descriptor, and one
        // that connects may have been given its port.
        self.fixture.until("a reserved service point where a public one was freed", || {
            made = self.ia.rsp_create(self.free_qual()?, Some(&self.ep), &self.crs).ok();
            Ok(made.is_some())
        })?;
        match made {
            Some(rsp) => Ok(rsp),
            None => fail("no reserved service point"),
        }
    }

    /// The next event of another connect dispatcher is of this kind.
    pub(crate) fn expect_event_on(&self, conn: &Evd, kind: ConnectionKind) -> Outcome {
        match self.event(conn, "a connection event at A")?.data {
            EventData::Connection { kind: seen, .. } => ensure_eq("connection event at A", seen, kind),
            other => fail(format!("an event that is no connection event: {other:?}")),
        }
    }

    /// The next event of a connect dispatcher is BROKEN, for this reason.
    pub(crate) fn breaks(&self, conn: &Evd, reason: BreakReason) -> Outcome {
        match self.event(conn, "BROKEN at A")?.data {
            EventData::Connection { kind, reason: seen, .. } => ensure_eq(
                "connection event at A, and its reason",
                (kind, seen),
                (ConnectionKind::Broken, Some(reason)),
            ),
            other => fail(format!("an event that is no connection event: {other:?}")),
        }
    }

    /// The next event of the async dispatcher.
    pub(crate) fn async_event(&self) -> Result<(ObjectId, AsyncReason), Stop> {
        match self.event(&self.ia.async_evd(), "an asynchronous event at A")?.data {
            EventData::Async { object, reason } => Ok((object, reason)),
            other => fail(format!("an event that is not asynchronous: {other:?}")),
        }
    }

    /// The next event on the request dispatcher is the completion of a bind.
    pub(crate) fn bound(&self, cookie: u64, status: DtoStatus) -> Outcome {
        match self.event(&self.request, "the completion of a bind at A")?.data {
            EventData::RmrBind { cookie: seen, status: how, .. } => {
                ensure_eq("bind at A (cookie, status)", (seen, how), (cookie, status))
            }
            other => fail(format!("an event that is no bind completion: {other:?}")),
        }
    }

    /// Another endpoint on the same dispatchers.
    pub(crate) fn another_ep(&self) -> Result<Ep, Stop> {
        let attr = AttrSpec::default().over(&self.ia)?;
        Ok(self.ia.ep_create(
            Some(&self.pz),
            Some(&self.recv),
            Some(&self.request),
            Some(&self.conn),
            Some(&attr),
        )?)
    }

    /// How to connect to B; a clause changes what it tests.
    pub(crate) fn towards<'a>(&self, b: &RemoteEnd) -> ConnectOptions<'a> {
        ConnectOptions {
            timeout: Timeout::from(self.fixture.long()),
            ..ConnectOptions::new(b.address, b.port)
        }
    }

    pub(crate) fn connect(&self, b: &RemoteEnd) -> Outcome {
        Ok(self.ep.connect(&self.towards(b))?)
    }

    /// The next event of `evd`.
    pub(crate) fn event(&self, evd: &Evd, what: &str) -> Result<Event, Stop> {
        self.fixture.doing(what);
        match evd.wait(Timeout::from(self.fixture.long()), 1) {
            Ok((event, _)) => Ok(event),
            Err(error) => fail(format!("no event: {what}: {error}")),
        }
    }

    pub(crate) fn dto(&self, evd: &Evd) -> Result<DtoCompletion, Stop> {
        match self.event(evd, "a completion at A")?.data {
            EventData::Dto(dto) => Ok(dto),
            other => fail(format!("an event that is no completion: {other:?}")),
        }
    }

    /// The next completion of `evd` has this cookie and status.
    pub(crate) fn completes(&self, evd: &Evd, cookie: u64, status: DtoStatus) -> Result<DtoCompletion, Stop> {
        let dto = self.dto(evd)?;
        ensure_eq("completion at A (cookie, status)", (dto.cookie, dto.status), (cookie, status))?;
        Ok(dto)
    }

    /// The next connection event of the endpoint, with its private data.
    pub(crate) fn connection(&self) -> Result<(ConnectionKind, Box<[u8]>), Stop> {
        match self.event(&self.conn, "a connection event at A")?.data {
            EventData::Connection { kind, private_data, .. } => Ok((kind, private_data)),
            other => fail(format!("an event that is no connection event: {other:?}")),
        }
    }

    /// The next connection event is of this kind.
    pub(crate) fn expect_event(&self, kind: ConnectionKind) -> Outcome {
        ensure_eq("connection event at A", self.connection()?.0, kind)
    }

    /// The next connection request at a service point that uses `crs`.
    pub(crate) fn cr(&self) -> Result<Cr, Stop> {
        match self.event(&self.crs, "a connection request at A")?.data {
            EventData::ConnectionRequest { cr, .. } => Ok(self.ia.cr(cr)?),
            other => fail(format!("an event that is no connection request: {other:?}")),
        }
    }

    /// Nothing arrives on `evd` for a while.
    pub(crate) fn expect_no_event(&self, evd: &Evd, what: &str) -> Outcome {
        self.quiet_for(evd, what, self.fixture.short())
    }

    pub(crate) fn quiet_for(&self, evd: &Evd, what: &str, time: Duration) -> Outcome {
        self.fixture.doing(format!("nothing to happen on the dispatcher of {what}"));
        match evd.wait(Timeout::from(time), 1) {
            Ok((event, _)) => fail(format!("{what}: an event that should not be there: {:?}", event.data)),
            Err(error) => ensure_eq(what, error.error.kind(), dat_types::ReturnType::TimeoutExpired),
        }
    }

    pub(crate) fn reaches(&self, state: EpState) -> Outcome {
        self.fixture.until(&format!("A's endpoint in state {state}"), || Ok(self.ep.state() == state))
    }

    pub(crate) fn is_in(&self, state: EpState) -> Outcome {
        ensure_eq("state of A's endpoint", self.ep.state(), state)
    }

    pub(crate) fn post_recv(&self, offset: u64, len: u32, cookie: u64) -> Outcome {
        Ok(self.ep.post_recv(&[self.lmr.triplet(offset, len)], cookie, CompletionFlags::empty())?)
    }

    pub(crate) fn send(&self, offset: u64, len: u32, cookie: u64) -> Outcome {
        Ok(self.ep.post_send(&[self.lmr.triplet(offset, len)], cookie, CompletionFlags::empty())?)
    }

    pub(crate) fn write(&self, offset: u64, len: u32, cookie: u64, to: RmrTriplet) -> Outcome {
        Ok(self.ep.post_rdma_write(&[self.lmr.triplet(offset, len)], cookie, to, CompletionFlags::empty())?)
    }

    pub(crate) fn read(&self, offset: u64, len: u32, cookie: u64, from: RmrTriplet) -> Outcome {
        Ok(self.ep.post_rdma_read(
            &[self.lmr.triplet(offset, len)],
            cookie,
            from,
            CompletionFlags::empty(),
        )?)
    }

    /// All completions on `evd` until `n` came, in order.
    pub(crate) fn dtos(&self, evd: &Evd, n: usize) -> Result<Vec<DtoCompletion>, Stop> {
        (0..n).map(|_| self.dto(evd)).collect()
    }

    /// Receives with cookies 0 to `n - 1`, small.
    pub(crate) fn post_recvs(&self, n: u64) -> Outcome {
        (0..n).try_for_each(|cookie| self.post_recv(64 * cookie, 64, cookie))
    }

    /// The receives of [`LocalEnd::post_recvs`] are flushed, in order.
    pub(crate) fn recvs_flushed(&self, n: u64) -> Outcome {
        (0..n).try_for_each(|cookie| self.completes(&self.recv, cookie, DtoStatus::Flushed).map(|_| ()))
    }

    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.lmr.memory().read(offset, &mut out);
        out
    }
}
