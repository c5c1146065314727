//! The active side of a connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use dat_engine::ConnectOptions;
use dat_types::{ConnectFlags, ConnectionKind, Error, Qos, Result, ReturnType, Subtype, Timeout};

use super::endpoint::Ep;
use crate::Event;

/// A connect, to be started. Must be used: nothing happens before [`Connect::start`] or [`Connect::establish`].
#[must_use = "nothing happens before it is started"]
#[derive(Debug)]
pub struct Connect<'a> {
    ep: &'a Ep,
    whom: Whom<'a>,
    options: ConnectOptions<'a>,
}

#[derive(Debug)]
enum Whom<'a> {
    /// As the options say.
    Named,
    /// Whom this endpoint asked.
    Like(&'a Ep),
    /// The address in the options is a socket's.
    Socket,
}

impl Ep {
    /// A connect to the adapter at `address` and the service point listening on `conn_qual`, to be started.
    pub fn connect(&self, address: IpAddr, conn_qual: u64) -> Connect<'_> {
        Connect { ep: self, whom: Whom::Named, options: ConnectOptions::new((address, 0).into(), conn_qual) }
    }

    /// A connect to whom `other` is connected, which must have been the connecting side (`dat_ep_dup_connect`). Its flags
    /// are repeated too.
    pub fn connect_like<'a>(&'a self, other: &'a Ep) -> Connect<'a> {
        let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Connect { ep: self, whom: Whom::Like(other), options: ConnectOptions::new(nobody, 0) }
    }

    /// A connect to a socket address ([`crate::Ia::listen_on`], `dat_ep_common_connect`). Quality of service and flags
    /// are the endpoint's.
    pub fn connect_to(&self, address: SocketAddr) -> Connect<'_> {
        Connect { ep: self, whom: Whom::Socket, options: ConnectOptions::new(address, address.port().into()) }
    }
}

impl<'a> Connect<'a> {
    /// Delivered with the request.
    pub fn private_data(mut self, data: &'a [u8]) -> Connect<'a> {
        self.options.private_data = data;
        self
    }

    /// How long the attempt may take; without limit by default.
    pub fn timeout(mut self, timeout: Duration) -> Connect<'a> {
        self.options.timeout = Timeout::from(timeout);
        self
    }

    /// One quality of service.
    pub fn qos(mut self, qos: Qos) -> Connect<'a> {
        self.options.qos = qos;
        self
    }

    /// Multipath wishes.
    pub fn flags(mut self, flags: ConnectFlags) -> Connect<'a> {
        self.options.flags = flags;
        self
    }

    /// Begins to connect (`dat_ep_connect`); the outcome arrives on the connect dispatcher.
    pub fn start(self) -> Result<()> {
        let ep = &self.ep.0.engine;
        let ConnectOptions { address, timeout, private_data, qos, .. } = self.options;
        match self.whom {
            Whom::Named => ep.connect(&self.options),
            Whom::Like(other) => ep.dup_connect(&other.0.engine, timeout, private_data, qos),
            Whom::Socket => ep.common_connect(address, timeout, private_data),
        }
    }

    /// Begins to connect and waits for the outcome on the connect dispatcher, which must have no other events to give
    /// meanwhile: another event is an error. Gives the acceptor's private data.
    pub fn establish(self) -> Result<Box<[u8]>> {
        const CALL: &str = "dat_ep_connect";
        let ep = self.ep.clone();
        let limit = self.options.timeout;
        self.start()?;
        let Some(evd) = &ep.0.connect_evd else {
            return Err(Error::new(
                CALL,
                ReturnType::InternalError,
                Subtype::None,
                "connected without a dispatcher",
            ));
        };
        // The time-out is the engine's to keep: its event comes. This limit is for a dispatcher that has other waiters.
        let deadline = limit.duration().map(|limit| Instant::now() + limit + Duration::from_secs(1));
        loop {
            let left =
                deadline.map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(Instant::now()));
            match evd.wait(left)? {
                Some(Event::Connection {
                    kind: ConnectionKind::Established, ep: id, private_data, ..
                }) if id == ep.id() => {
                    return Ok(private_data);
                }
                Some(Event::Connection { kind, ep: id, .. }) if id == ep.id() => {
                    return Err(failed(CALL, kind));
                }
                Some(other) => {
                    let message =
                        format!("{other:?} came while connecting; use `start` on a shared dispatcher");
                    return Err(Error::new(CALL, ReturnType::InvalidState, Subtype::EpEvdConnect, message));
                }
                None if deadline.is_some() => return Err(failed(CALL, ConnectionKind::TimedOut)),
                None => {}
            }
        }
    }
}

/// A connection event that is the end of an attempt, as an error.
fn failed(call: &'static str, kind: ConnectionKind) -> Error {
    let (code, message) = match kind {
        ConnectionKind::PeerRejected => (ReturnType::InvalidState, "the peer rejected the connection"),
        ConnectionKind::NonPeerRejected => (
            ReturnType::InvalidState,
            "nobody listens there, or the backlog is full; is the peer's service point up?",
        ),
        ConnectionKind::Unreachable => (ReturnType::InvalidAddress, "the peer cannot be reached"),
        ConnectionKind::TimedOut => {
            (ReturnType::TimeoutExpired, "the peer did not answer within the time-out")
        }
        _ => (ReturnType::InvalidState, "the connection was ended before it was up"),
    };
    Error::new(call, code, Subtype::None, message)
}
