//! What a clause works with: sides A and B of the provider under test, made when asked for.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use dat_engine::{Cr, Ep, Ia, Psp};
use dat_types::{CompletionFlags, ConnectionKind, EpState, PspFlags};

use crate::check::{Outcome, Stop, fail, not_supported, same};
use crate::kit::Kit;
use crate::peer::{AttrSpec, Peer, RemoteSide};
use crate::side::{REGION, Side};
use crate::subject::Subject;

/// Handed to every clause.
pub(crate) struct Bench {
    pub(crate) subject: Arc<Subject>,
    pub(crate) kit: Arc<Kit>,
    peer: OnceLock<Arc<Peer>>,
}

impl Deref for Bench {
    type Target = Kit;

    fn deref(&self) -> &Kit {
        &self.kit
    }
}

impl Bench {
    pub(crate) fn new(subject: Arc<Subject>, kit: Arc<Kit>) -> Bench {
        Bench { subject, kit, peer: OnceLock::new() }
    }

    /// A fresh adapter in this process.
    pub(crate) fn ia(&self) -> Result<Ia, Stop> {
        self.doing("opening an adapter");
        self.subject.open()
    }

    /// A fresh adapter with one of everything, the endpoint with default attributes.
    pub(crate) fn side(&self) -> Result<Side, Stop> {
        self.side_with(&AttrSpec::default())
    }

    pub(crate) fn side_with(&self, attr: &AttrSpec) -> Result<Side, Stop> {
        Side::new(self.ia()?, attr, self.kit.clone())
    }

    /// The peer, started when first asked for.
    pub(crate) fn peer(&self) -> Result<Arc<Peer>, Stop> {
        if let Some(peer) = self.peer.get() {
            return Ok(peer.clone());
        }
        self.doing("starting the peer");
        let peer = Arc::new(Peer::start(&self.subject, self.kit.clone())?);
        Ok(self.peer.get_or_init(|| peer).clone())
    }

    /// One of everything at the peer, and a public service point.
    pub(crate) fn remote(&self) -> Result<RemoteSide, Stop> {
        self.remote_with(&AttrSpec::default())
    }

    pub(crate) fn remote_with(&self, attr: &AttrSpec) -> Result<RemoteSide, Stop> {
        RemoteSide::new(self.peer()?, attr)
    }

    /// Both sides, not connected yet.
    pub(crate) fn sides(&self) -> Result<(Side, RemoteSide), Stop> {
        Ok((self.side()?, self.remote()?))
    }

    /// Both sides, connected from A to B.
    pub(crate) fn pair(&self) -> Result<(Side, RemoteSide), Stop> {
        self.pair_with(&AttrSpec::default(), &AttrSpec::default())
    }

    pub(crate) fn pair_with(&self, a: &AttrSpec, b: &AttrSpec) -> Result<(Side, RemoteSide), Stop> {
        let (a, b) = (self.side_with(a)?, self.remote_with(b)?);
        join(&a, &b)?;
        Ok((a, b))
    }
}

/// A request from B that waits at A's service point.
pub(crate) struct Asked {
    pub(crate) a: Side,
    pub(crate) b: RemoteSide,
    pub(crate) psp: Psp,
    pub(crate) cr: Cr,
}

impl Bench {
    /// B asks A, with private data; A has not answered.
    pub(crate) fn asked(&self, flags: PspFlags, data: &[u8]) -> Result<Asked, Stop> {
        let (a, b) = self.sides()?;
        let psp = a.ia.psp_create_any(&a.crs, flags)?;
        b.connect_to(&a, psp.conn_qual(), data, self.long().as_millis() as u64)?;
        let cr = a.cr()?;
        Ok(Asked { a, b, psp, cr })
    }

    /// The same with an endpoint the provider made, and that endpoint.
    pub(crate) fn tentative(&self) -> Result<(Asked, Ep), Stop> {
        let asked = self.asked(PspFlags::Provider, b"")?;
        match asked.cr.query()?.local_ep {
            Some(ep) => Ok((asked, ep)),
            None => fail("the request at a service point that supplies endpoints has none"),
        }
    }

    /// Both sides, connected from B to A.
    pub(crate) fn pair_from_b(&self) -> Result<(Side, RemoteSide), Stop> {
        let Asked { a, b, cr, .. } = self.asked(PspFlags::Consumer, b"")?;
        cr.accept(Some(&a.ep), b"")?;
        a.told(ConnectionKind::Established)?;
        b.told(ConnectionKind::Established)?;
        Ok((a, b))
    }

    /// A connected pair, A with `n` sends posted that cannot all complete, because B has no receives.
    pub(crate) fn stalled(&self, n: u64, flags: CompletionFlags) -> Result<(Side, RemoteSide), Stop> {
        let (a, b) = self.pair()?;
        stall(&a, n, flags)?;
        Ok((a, b))
    }

    /// The same with a graceful disconnect under way.
    pub(crate) fn draining(&self, n: u64) -> Result<(Side, RemoteSide), Stop> {
        let (a, b) = self.stalled(n, CompletionFlags::empty())?;
        a.ep.disconnect(dat_types::CloseFlags::Graceful)?;
        a.is_in(EpState::DisconnectPending)?;
        Ok((a, b))
    }
}

/// Posts `n` long sends, cookies from 0, to a peer without receives.
fn stall(a: &Side, n: u64, flags: CompletionFlags) -> Outcome {
    for cookie in 0..n {
        a.ep.post_send(&[a.lmr.triplet(0, REGION as u32)], cookie, flags)?;
    }
    a.kit.pause();
    // Looks at what has completed without taking it.
    a.request.arm()?;
    match a.ep.status()?.request_idle {
        false => Ok(()),
        true => not_supported("the provider completes long sends before the peer takes them"),
    }
}

/// Has B take what [`stall`] posted.
pub(crate) fn unstall(b: &RemoteSide, n: u64) -> Outcome {
    for cookie in 0..n {
        b.post_recv(0, REGION as u32, cookie)?;
    }
    Ok(())
}

/// Connects A to B, both established.
pub(crate) fn join(a: &Side, b: &RemoteSide) -> Result<(), Stop> {
    a.connect(b)?;
    let request = b.request()?;
    b.accept(&request, b"")?;
    same("A's connection event", a.connection()?.0, ConnectionKind::Established)?;
    same("B's connection event", b.connection()?.0, ConnectionKind::Established)
}
