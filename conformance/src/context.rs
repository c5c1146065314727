//! Ends A and B of the provider under test, made on demand.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use dat_engine::{Cr, Ep, Ia, Psp};
use dat_types::{CompletionFlags, ConnectionKind, EpState, PspFlags};

use crate::check::{Outcome, Stop, ensure_eq, fail, not_applicable};
use crate::fixture::Fixture;
use crate::local::{LocalEnd, REGION};
use crate::peer::{AttrSpec, Peer, RemoteEnd};
use crate::subject::Subject;

/// Handed to every clause.
pub(crate) struct TestContext {
    pub(crate) subject: Arc<Subject>,
    pub(crate) fixture: Arc<Fixture>,
    peer: OnceLock<Arc<Peer>>,
}

impl Deref for TestContext {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl TestContext {
    pub(crate) fn new(subject: Arc<Subject>, fixture: Arc<Fixture>) -> TestContext {
        TestContext { subject, fixture, peer: OnceLock::new() }
    }

    /// A fresh adapter in this process.
    pub(crate) fn ia(&self) -> Result<Ia, Stop> {
        self.doing("opening an adapter");
        self.subject.open()
    }

    /// A fresh adapter with one of everything, the endpoint with default attributes.
    pub(crate) fn local(&self) -> Result<LocalEnd, Stop> {
        self.local_with(&AttrSpec::default())
    }

    pub(crate) fn local_with(&self, attr: &AttrSpec) -> Result<LocalEnd, Stop> {
        LocalEnd::new(self.ia()?, attr, self.fixture.clone())
    }

    /// The peer, started on first use.
    pub(crate) fn peer(&self) -> Result<Arc<Peer>, Stop> {
        if let Some(peer) = self.peer.get() {
            return Ok(peer.clone());
        }
        self.doing("starting the peer");
        let peer = Arc::new(Peer::start(&self.subject, self.fixture.clone())?);
        Ok(self.peer.get_or_init(|| peer).clone())
    }

    /// One of everything at the peer, and a public service point.
    pub(crate) fn remote(&self) -> Result<RemoteEnd, Stop> {
        self.remote_with(&AttrSpec::default())
    }

    pub(crate) fn remote_with(&self, attr: &AttrSpec) -> Result<RemoteEnd, Stop> {
        RemoteEnd::new(self.peer()?, attr)
    }

    /// Both sides, not connected yet.
    pub(crate) fn ends(&self) -> Result<(LocalEnd, RemoteEnd), Stop> {
        Ok((self.local()?, self.remote()?))
    }

    /// Both sides, connected from A to B.
    pub(crate) fn pair(&self) -> Result<(LocalEnd, RemoteEnd), Stop> {
        self.pair_with(&AttrSpec::default(), &AttrSpec::default())
    }

    pub(crate) fn pair_with(&self, a: &AttrSpec, b: &AttrSpec) -> Result<(LocalEnd, RemoteEnd), Stop> {
        let (a, b) = (self.local_with(a)?, self.remote_with(b)?);
        join(&a, &b)?;
        Ok((a, b))
    }
}

/// A request from B that waits at A's service point.
pub(crate) struct PendingRequest {
    pub(crate) a: LocalEnd,
    pub(crate) b: RemoteEnd,
    pub(crate) psp: Psp,
    pub(crate) cr: Cr,
}

impl TestContext {
    /// B asks A, with private data; A has not answered.
    pub(crate) fn pending_request(&self, flags: PspFlags, data: &[u8]) -> Result<PendingRequest, Stop> {
        let (a, b) = self.ends()?;
        let psp = a.ia.psp_create_any(&a.crs, flags)?;
        b.connect_to(&a.ia, psp.conn_qual(), data, self.long().as_millis() as u64)?;
        let cr = a.cr()?;
        Ok(PendingRequest { a, b, psp, cr })
    }

    /// The same with an endpoint the provider made, and that endpoint.
    pub(crate) fn tentative(&self) -> Result<(PendingRequest, Ep), Stop> {
        let pending = self.pending_request(PspFlags::Provider, b"")?;
        match pending.cr.query()?.local_ep {
            Some(ep) => Ok((pending, ep)),
            None => fail("the request at a service point that supplies endpoints has none"),
        }
    }

    /// Both sides, connected from B to A.
    pub(crate) fn pair_from_b(&self) -> Result<(LocalEnd, RemoteEnd), Stop> {
        let PendingRequest { a, b, cr, .. } = self.pending_request(PspFlags::Consumer, b"")?;
        cr.accept(Some(&a.ep), b"")?;
        a.expect_event(ConnectionKind::Established)?;
        b.expect_event(ConnectionKind::Established)?;
        Ok((a, b))
    }

    /// A connected pair, A with `n` sends posted that cannot all complete, because B has no receives.
    pub(crate) fn stalled(&self, n: u64, flags: CompletionFlags) -> Result<(LocalEnd, RemoteEnd), Stop> {
        let (a, b) = self.pair()?;
        stall(&a, n, flags)?;
        Ok((a, b))
    }

    /// The same with a graceful disconnect under way.
    pub(crate) fn draining(&self, n: u64) -> Result<(LocalEnd, RemoteEnd), Stop> {
        let (a, b) = self.stalled(n, CompletionFlags::empty())?;
        a.ep.disconnect(dat_types::CloseFlags::Graceful)?;
        a.is_in(EpState::DisconnectPending)?;
        Ok((a, b))
    }
}

/// Posts `n` long sends, cookies from 0, to a peer without receives.
fn stall(a: &LocalEnd, n: u64, flags: CompletionFlags) -> Outcome {
    for cookie in 0..n {
        a.ep.post_send(&[a.lmr.triplet(0, REGION as u32)], cookie, flags)?;
    }
    a.fixture.pause();
    // Looks at what has completed without taking it.
    a.request.arm()?;
    match a.ep.status()?.request_idle {
        false => Ok(()),
        true => not_applicable("the provider completes long sends before the peer takes them"),
    }
}

/// Has B take what [`stall`] posted.
pub(crate) fn take_stalled(b: &RemoteEnd, n: u64) -> Outcome {
    for cookie in 0..n {
        b.post_recv(0, REGION as u32, cookie)?;
    }
    Ok(())
}

/// Connects A to B, both established.
pub(crate) fn join(a: &LocalEnd, b: &RemoteEnd) -> Result<(), Stop> {
    a.connect(b)?;
    let request = b.request()?;
    b.accept(&request, b"")?;
    ensure_eq("A's connection event", a.connection()?.0, ConnectionKind::Established)?;
    ensure_eq("B's connection event", b.connection()?.0, ConnectionKind::Established)
}
