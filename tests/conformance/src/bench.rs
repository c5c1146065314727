//! What a clause works with: sides A and B of the provider under test, made when asked for.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use dat_engine::Ia;
use dat_types::ConnectionKind;

use crate::check::{Stop, same};
use crate::kit::Kit;
use crate::peer::{AttrSpec, Peer, RemoteSide};
use crate::side::Side;
use crate::subject::Subject;

/// Handed to every clause.
pub struct Bench {
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

/// Connects A to B, both established.
pub(crate) fn join(a: &Side, b: &RemoteSide) -> Result<(), Stop> {
    a.connect(b)?;
    let request = b.request()?;
    b.accept(&request, b"")?;
    same("A's connection event", a.connection()?.0, ConnectionKind::Established)?;
    same("B's connection event", b.connection()?.0, ConnectionKind::Established)
}
