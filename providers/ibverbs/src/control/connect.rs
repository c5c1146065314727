//! Setting up a connection, step by step as RDMA CM reports.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use dat_kit::Qualifier;
use dat_plugin::{ConnectParam, Event, EventKind, Failure, Status};
use rdma_sys::cm::*;
use rdma_sys::verbs::*;

use crate::control::channel::{Attempt, ChannelInner, Control, Phase};
use crate::control::sources::{Request, Sources};
use crate::private_data;
use crate::status::{self, CmMeaning};
use crate::sys::cm::{CmEvent, CmId, ConnParam};

impl ChannelInner {
    pub(crate) fn start_connect(self: &Arc<ChannelInner>, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let adapter = &self.adapter;
        adapter.check_fork()?;
        let what = || format!("{}: connect to {:?}, port {}", adapter.params.ia_name, param.addr, param.port);
        let fail = |status, why: &str| Err(Failure::new(status, format!("{}: {why}", what())));
        let os = |error: io::Error| status::failure(&what(), &error);
        let mut control = self.idle(&what)?;
        let qualifier = Qualifier::new(param.port);
        let style = adapter.params.style;
        let Some(data) = style.wrap_request(param.data, qualifier.quotient) else {
            let most = style.request_limit(qualifier.quotient);
            return fail(Status::INVALID, &format!("at most {most} bytes of private data fit here"));
        };
        let Some(peer) = param.addr.to_std().map(|peer| peer.ip().to_canonical()) else {
            return fail(Status::BAD_ADDRESS, "an IPv4 or IPv6 address is needed");
        };
        if peer.is_ipv4() != adapter.address.is_ipv4() {
            return fail(Status::BAD_ADDRESS, &format!("this device's address is {}", adapter.address.ip()));
        }
        check_route(adapter.address, peer).map_err(os)?;
        let id = CmId::new(&adapter.cm, self.token()).map_err(os)?;
        id.bind(SocketAddr::new(adapter.address.ip(), 0)).map_err(os)?;
        if adapter.params.traffic_class != 0 {
            id.set_traffic_class(adapter.params.traffic_class).map_err(os)?;
        }
        let peer = SocketAddr::new(peer, qualifier.port);
        id.resolve_addr(peer, adapter.params.resolve_timeout_ms).map_err(os)?;
        control.phase = Phase::Resolving(Box::new(Attempt { data }));
        control.id = Some(id);
        Ok(())
    }

    pub(crate) fn start_accept(
        self: &Arc<ChannelInner>,
        sources: &Sources,
        request: u64,
        data: &[u8],
    ) -> Result<(), Failure> {
        let adapter = &self.adapter;
        adapter.check_fork()?;
        let what = || format!("{}: accept of request {request}", adapter.params.ia_name);
        let mut control = self.idle(&what)?;
        if data.len() > adapter.params.style.limit() {
            return Err(Failure::new(Status::INVALID, format!("{}: too much private data", what())));
        }
        let Some(Request { id, reads, gone }) = sources.take_request(request, self) else {
            return Err(Failure::new(Status::INVALID, format!("{}: there is no such request", what())));
        };
        let _ = self.cm_token.set(request);
        let answered = match gone {
            true => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            false => self.answer(&id, reads, data),
        };
        control.id = Some(id);
        match answered {
            Ok(()) => control.phase = Phase::Accepting,
            Err(error) => {
                tracing::debug!(%error, "an accept came too late");
                self.finish(&mut control, Event::new(EventKind::ACCEPT_FAILED, self.user()));
            }
        }
        Ok(())
    }

    fn answer(&self, id: &CmId, (peer_out, peer_in): (u8, u8), data: &[u8]) -> io::Result<()> {
        let (reads_in, reads_out) = self.reads();
        let (reads_in, reads_out) = (reads_in.min(peer_out), reads_out.min(peer_in));
        self.bring_up(id, reads_in, reads_out)?;
        // The peer's first message may arrive before RDMA CM's event, and the answer to it may follow at once.
        self.queue_pair.go_live();
        let data = self.adapter.params.style.wrap(data, private_data::ACCEPT);
        id.accept(&self.conn_param(&data, reads_in, reads_out))
    }

    fn idle<'a>(&'a self, what: &dyn Fn() -> String) -> Result<std::sync::MutexGuard<'a, Control>, Failure> {
        let control = self.control();
        match control.phase {
            Phase::Idle => Ok(control),
            _ => {
                let message = format!("{}: the channel was used before; open another one", what());
                Err(Failure::new(Status::INVALID, message))
            }
        }
    }

    /// Reads this end takes, and those it makes. At least one each: atomic operations count as reads.
    fn reads(&self) -> (u8, u8) {
        let most = self.adapter.max_reads();
        let of = |wanted: u32| wanted.clamp(1, most.into()) as u8;
        (of(self.queue_pair.attr.max_reads_in), of(self.queue_pair.attr.max_reads_out))
    }

    fn conn_param<'a>(&self, data: &'a [u8], reads_in: u8, reads_out: u8) -> ConnParam<'a> {
        ConnParam {
            data,
            reads_in,
            reads_out,
            retry: self.adapter.params.retry_count,
            rnr_retry: self.adapter.params.rnr_retry,
            srq: self.queue_pair.srq.is_some(),
            qp: self.queue_pair.handle.number(),
        }
    }

    /// Brings the queue pair to the state in which requests can be posted, with RDMA CM's attributes of the peer.
    fn bring_up(&self, id: &CmId, reads_in: u8, reads_out: u8) -> io::Result<()> {
        /// Bits the kernel once set for its own use, which drivers refuse.
        const KERNELS_OWN: i32 = 0x01e0_0000;
        let params = &self.adapter.params;
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            let (mut attr, mask) = id.qp_attr(state)?;
            attr.qp_access_flags = self.adapter.remote_rights();
            attr.max_dest_rd_atomic = reads_in;
            attr.max_rd_atomic = attr.max_rd_atomic.min(reads_out).max(1);
            attr.min_rnr_timer = params.rnr_timer;
            attr.timeout = params.ack_timeout;
            attr.retry_cnt = params.retry_count;
            attr.rnr_retry = params.rnr_retry;
            if let Some(mtu) = params.mtu {
                attr.path_mtu = attr.path_mtu.min(mtu);
            }
            if let Some(index) = params.gid_index {
                attr.ah_attr.grh.sgid_index = index;
            }
            self.queue_pair.handle.modify(&mut attr, mask & !KERNELS_OWN)?;
        }
        Ok(())
    }

    /// Handles an event of RDMA CM about this channel.
    pub(crate) fn cm_event(self: &Arc<ChannelInner>, event: &CmEvent) {
        let mut control = self.control();
        let (adapter, user) = (&self.adapter, self.user());
        let connecting = matches!(control.phase, Phase::Resolving(_) | Phase::Connecting);
        let accepting = matches!(control.phase, Phase::Accepting);
        match status::meaning(event.kind) {
            CmMeaning::Step => {
                if let Err(failed) = self.step(&mut control, event) {
                    self.finish(&mut control, Event::new(failed, user));
                }
            }
            CmMeaning::End { connecting: end, .. } if connecting => {
                self.finish(&mut control, Event::new(end, user));
            }
            CmMeaning::End { accepting: end, .. } if accepting => {
                self.finish(&mut control, Event::new(end, user));
            }
            CmMeaning::End { live: EventKind::DISCONNECTED, .. } if self.has_failed() => {
                self.finish(&mut control, Event::new(EventKind::BROKEN, user));
            }
            CmMeaning::End { live: end, .. } => self.finish(&mut control, Event::new(end, user)),
            CmMeaning::Rejected if connecting => {
                tracing::debug!(reason = event.status, "a connect was rejected");
                let (by_program, data) = adapter.params.style.reject(&event.data);
                let kind = if by_program { status::rejected(event.status) } else { EventKind::REFUSED };
                let data = if kind == EventKind::REJECTED { data } else { &[] };
                self.finish(&mut control, Event::new(kind, user).with_data(data));
            }
            CmMeaning::Rejected if accepting => {
                self.finish(&mut control, Event::new(EventKind::ACCEPT_FAILED, user));
            }
            // The peer took its accept back.
            CmMeaning::Rejected => self.finish(&mut control, Event::new(EventKind::DISCONNECTED, user)),
            CmMeaning::Request | CmMeaning::Nothing => {}
        }
    }

    /// Whether the queue pair failed before the peer's disconnect came. The device at this end refuses a peer's access,
    /// or a message without room, and the peer disconnects because of that: no orderly end.
    fn has_failed(&self) -> bool {
        !self.adapter.is_iwarp && self.queue_pair.handle.state().is_ok_and(|state| state == IBV_QPS_ERR)
    }

    /// The next step of connecting or accepting; the error is how the attempt ends.
    fn step(self: &Arc<ChannelInner>, control: &mut Control, event: &CmEvent) -> Result<(), EventKind> {
        let adapter = &self.adapter;
        let news = |kind| Event::new(kind, self.user());
        let log =
            |what: &str, error: &io::Error| tracing::debug!(ia = %adapter.params.ia_name, %error, "{what}");
        let Some(id) = &control.id else { return Ok(()) };
        let next = match (event.kind, &control.phase) {
            (RDMA_CM_EVENT_ADDR_RESOLVED, Phase::Resolving(_)) => {
                if id.device().is_none_or(|(name, port)| name != adapter.name || port != adapter.port) {
                    tracing::warn!(ia = %adapter.params.ia_name, "the peer is reached by another device than this one");
                    return Err(EventKind::UNREACHABLE);
                }
                id.resolve_route(adapter.params.resolve_timeout_ms).map_err(|error| {
                    log("the route to a peer", &error);
                    EventKind::UNREACHABLE
                })?;
                return Ok(());
            }
            (RDMA_CM_EVENT_ROUTE_RESOLVED, Phase::Resolving(attempt)) => {
                let (reads_in, reads_out) = self.reads();
                id.connect(&self.conn_param(&attempt.data, reads_in, reads_out)).map_err(|error| {
                    log("a connection request", &error);
                    EventKind::UNREACHABLE
                })?;
                Phase::Connecting
            }
            (RDMA_CM_EVENT_CONNECT_RESPONSE, Phase::Connecting) => {
                let (reads_in, reads_out) = self.reads();
                let (_, peer_in) = event.reads;
                let up =
                    self.bring_up(id, reads_in, reads_out.min(peer_in.max(1))).and_then(|()| id.establish());
                up.map_err(|error| {
                    log("a queue pair could not be brought up", &error);
                    let _ = id.reject(false, &[]);
                    EventKind::REFUSED
                })?;
                self.queue_pair.go_live();
                let data = adapter.params.style.unwrap(&event.data, private_data::ACCEPT);
                adapter.push_event(Some(&self.closed), news(EventKind::ESTABLISHED).with_data(data));
                Phase::Live
            }
            (RDMA_CM_EVENT_ESTABLISHED, Phase::Accepting) => {
                adapter.push_event(Some(&self.closed), news(EventKind::ESTABLISHED));
                Phase::Live
            }
            _ => return Ok(()),
        };
        control.phase = next;
        Ok(())
    }

    /// Data of the peer arrived before the last packet of the handshake. RDMA CM takes that as the packet.
    pub(crate) fn data_arrived(&self) {
        let control = self.control();
        if let (Phase::Accepting, Some(id)) = (&control.phase, &control.id) {
            id.notify_established();
        }
    }
}

/// Whether this host has a route from the device's address to the peer. Without one, RDMA CM would take the peer for a
/// neighbour and wait a minute for its answer. Nothing is sent.
fn check_route(own: SocketAddr, peer: IpAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(SocketAddr::new(own.ip(), 0))?;
    socket.connect(SocketAddr::new(peer, 9))
}
