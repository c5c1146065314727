//! One connection of ping or perf, for both sides: memory, posted receives, waits with deadlines.
//!
//! Receives stay posted at all times. Flushed completions therefore always report the end of the connection.

mod messages;
mod reason;

use std::time::Duration;

use dat::{
    CloseFlags, ConnectionKind, DtoCompletion, EpAttr, Evd, EvdFlags, Event, Ia, Privileges, Psp, Region,
    Request, RmrTriplet, Slice,
};

use crate::failure::{Context, Failure, Outcome};
use crate::protocol::{self, CONTROL, Hello};
use crate::units::Target;
use reason::describe;

/// Bytes of buffers for one direction, unless a single message needs more.
const BUFFERS: usize = 4 << 20;
/// Maximum number of completions in one poll.
const TOGETHER: usize = 16;

/// A connection.
#[derive(Debug)]
pub struct Link {
    ep: dat::Ep,
    dto: Evd,
    connection: Evd,
    /// Local buffers: `slots` to send and for RDMA, `slots` to receive, one for control messages.
    messages: Region,
    /// Memory that the peer writes and reads.
    window: Region,
    remote: RmrTriplet,
    slot: usize,
    slots: usize,
    depth: u32,
    wait: bool,
    limit: Duration,
    /// Cookies of the last posted request and of the last completed one.
    posted: u64,
    done: u64,
    /// A message that arrived during a wait for a request.
    early: Option<Received>,
    /// Completions taken in one poll, and how many of them were consumed.
    completions: Vec<DtoCompletion>,
    consumed: usize,
    /// Receive buffers, and receives to be posted in one list.
    receive_slices: Vec<Slice>,
    reposts: Vec<(Slice, u64)>,
}

/// Parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Largest operation.
    pub size: u32,
    /// Maximum of outstanding operations.
    pub depth: u32,
    /// Sleep for completions.
    pub wait: bool,
    /// Ordinary memory instead of the provider's.
    pub heap: bool,
    /// Buffers for messages of one direction at most.
    pub buffers: u32,
    /// Longest wait for anything.
    pub limit: Duration,
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    slot: u64,
    /// Its length.
    pub length: u64,
}

impl Link {
    /// Connects to a listening side.
    pub fn connect(ia: &Ia, target: Target, shape: Shape) -> Outcome<Link> {
        let mut link = Link::new(ia, shape)?;
        let window = link.window.remote(..);
        let Shape { size, wait, heap, buffers, .. } = shape;
        let hello = Hello { size, depth: link.depth, wait, heap, buffers, window };
        let welcome = link.establish(target, &hello).context(|| format!("no connection to {target}"))?;
        link.remote = protocol::decode_window(&welcome);
        if (link.remote.length as usize) < link.window.len() {
            return Err(Failure::new(format!("what listens at {target} is not `dat` of this version")));
        }
        Ok(link)
    }

    /// Accepts a peer's request. An invalid one is rejected with a reason.
    pub fn accept(ia: &Ia, mut request: Request, limit: Duration) -> Outcome<Link> {
        let refuse = |request: Request, failure: Failure| -> Outcome<Link> {
            let text = failure.to_string();
            let room = ia.provider_attr()?.max_private_data_size as usize;
            request.reject(&text.as_bytes()[..text.floor_char_boundary(room)])?;
            Err(failure)
        };
        let hello = match Hello::decode(request.private_data()) {
            Ok(hello) => hello,
            Err(reason) => return refuse(request, Failure::new(reason)),
        };
        let Hello { size, depth, wait, heap, buffers, .. } = hello;
        let shape = Shape { size, depth, wait, heap, buffers, limit };
        let mut link = match Link::new(ia, shape) {
            Ok(link) => link,
            Err(failure) => return refuse(request, failure),
        };
        link.remote = hello.window;
        request.accept(&link.ep, &protocol::encode_window(link.window.remote(..)))?;
        match link.connection.wait(limit)? {
            Some(Event::Connection { kind: ConnectionKind::Established, .. }) => Ok(link),
            Some(event) => {
                Err(Failure::new(format!("the peer went away while connecting: {}", describe(&event))))
            }
            None => Err(Failure::new(format!("the connection did not come up within {limit:?}"))),
        }
    }

    fn new(ia: &Ia, shape: Shape) -> Outcome<Link> {
        let limits = ia.attr()?;
        let size = u64::from(shape.size);
        if size > limits.max_message_size || size > limits.max_rdma_size {
            let most = limits.max_message_size.min(limits.max_rdma_size);
            return Err(Failure::new(format!(
                "{size} bytes are too many: {} takes at most {most}",
                ia.name()
            )));
        }
        let depth = shape.depth.min(limits.max_dto_per_ep).max(1);
        let slot = (shape.size as usize).max(CONTROL).next_multiple_of(64);
        // A power of two, so that finding a buffer takes no division.
        let slots = 1 << (BUFFERS / slot).clamp(1, depth.min(shape.buffers) as usize).ilog2();
        let pz = ia.pz()?;
        // The right for peers to read lets a provider hand a large message over with one copy, where it can.
        let readable = Privileges::LOCAL_READ | Privileges::LOCAL_WRITE | Privileges::REMOTE_READ;
        let region = |len, privileges| match shape.heap {
            true => pz.heap_region(len, privileges),
            false => pz.region(len, privileges),
        };
        let messages = region((2 * slots + 1) * slot, readable)?;
        let window = region(slots * slot, Privileges::ALL)?;
        let dto = ia.evd_of(2 * depth + 8, EvdFlags::DTO)?;
        let connection = ia.evd_of(8, EvdFlags::CONNECTION)?;
        let attr = EpAttr {
            max_recv_dtos: depth,
            max_request_dtos: depth,
            max_rdma_read_in: depth.min(limits.max_rdma_read_per_ep_in),
            max_rdma_read_out: depth.min(limits.max_rdma_read_per_ep_out),
            ..EpAttr::default()
        };
        let ep = ia.ep(&pz).recv_evd(&dto).request_evd(&dto).connect_evd(&connection).attr(attr).create()?;
        let receive_slices =
            (slots..2 * slots).map(|place| messages.slice(place * slot..(place + 1) * slot)).collect();
        let link = Link {
            ep,
            dto,
            connection,
            messages,
            window,
            remote: RmrTriplet::default(),
            slot,
            slots,
            depth,
            wait: shape.wait,
            limit: shape.limit,
            posted: 0,
            done: 0,
            early: None,
            completions: Vec::with_capacity(TOGETHER),
            consumed: 0,
            receive_slices,
            reposts: Vec::with_capacity(TOGETHER),
        };
        for receive in 0..depth as usize {
            link.post_recv((receive & (slots - 1)) as u64)?;
        }
        Ok(link)
    }

    /// Connects and waits for the outcome. The error contains the reason of a rejecting peer.
    fn establish(&self, target: Target, hello: &Hello) -> Outcome<Box<[u8]>> {
        let data = hello.encode();
        self.ep.connect(target.address, target.qual).private_data(&data).timeout(self.limit).start()?;
        // The engine's time-out comes first; this one is a fallback.
        match self.connection.wait(self.limit + Duration::from_secs(1))? {
            Some(Event::Connection { kind: ConnectionKind::Established, private_data, .. }) => {
                Ok(private_data)
            }
            Some(Event::Connection { kind: ConnectionKind::PeerRejected, private_data, .. }) => {
                let words = String::from_utf8_lossy(&private_data).into_owned();
                Err(Failure::new(format!("the peer rejected it: {}", words.trim_start_matches("dat: "))))
            }
            Some(Event::Connection { kind: ConnectionKind::NonPeerRejected, .. }) => Err(Failure::new(
                "no process listens there; start the other side with --listen first. If it runs, it is full or refuses \
                 this user: see the parameters of its provider",
            )),
            Some(event) => Err(Failure::new(describe(&event))),
            None => Err(Failure::new(format!("no answer within {:?}", self.limit))),
        }
    }

    /// The path the connection takes.
    pub fn path(&self) -> String {
        self.ep.path()
    }

    /// Maximum of outstanding operations.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Refuses a command for more bytes than the peer announced at connect, before any memory is touched.
    pub fn check_length(&self, length: u32) -> Outcome {
        match length {
            1.. if length as usize <= self.window.len() => Ok(()),
            _ => Err(Failure::new(format!(
                "the peer requests {length} bytes; at connect it announced at most {}",
                self.window.len()
            ))),
        }
    }

    /// Outstanding operations.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.posted - self.done
    }

    /// Disconnects gracefully and waits for the end.
    pub fn close(mut self) -> Outcome {
        self.drain_to(0)?;
        self.ep.disconnect(CloseFlags::Graceful)?;
        match self.connection.wait(self.limit)? {
            Some(Event::Connection { kind: ConnectionKind::Disconnected, .. }) => Ok(()),
            Some(event) => Err(Failure::new(format!("instead of a graceful end: {}", describe(&event)))),
            None => Err(Failure::new(format!("the graceful disconnect did not end within {:?}", self.limit))),
        }
    }
}

/// Listens on a qualifier, or on a free one.
pub fn listen(ia: &Ia, qual: Option<u64>, requests: &Evd) -> Outcome<Psp> {
    match qual {
        Some(qual) => ia
            .listen(qual, requests)
            .context(|| format!("cannot listen on {qual}; choose another with --listen QUAL")),
        None => Ok(ia.listen_any(requests)?),
    }
}
