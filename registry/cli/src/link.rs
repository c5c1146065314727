//! One connection of ping or perf, from either side: memory, posted receives, waits with deadlines.
//!
//! Receives stay posted at all times, so the end of the connection is always seen as flushed completions.

use std::time::{Duration, Instant};

use dat::{
    CloseFlags, ConnectionKind, DtoCompletion, DtoOperation, EpAttr, Evd, EvdFlags, Event, Ia, Privileges,
    Psp, Region, Request, RmrTriplet, Slice,
};

use crate::failure::{Context, Failure, Outcome};
use crate::protocol::{self, CONTROL, Control, Hello};
use crate::units::Target;

/// How many bytes of buffers one side has for messages of one direction, unless a single one needs more.
const BUFFERS: usize = 4 << 20;
/// Completions taken together at most.
const TOGETHER: usize = 16;
/// Polls between two looks at the clock and at the connection.
const PATIENCE: u32 = 4096;
/// How long after a failed operation the connection's own event is waited for.
const REASON: Duration = Duration::from_millis(300);

/// A connection.
#[derive(Debug)]
pub struct Link {
    ep: dat::Ep,
    dto: Evd,
    connection: Evd,
    /// Sends from, receives into, local side of RDMA: `slots` to send, `slots` to receive, one for control.
    messages: Region,
    /// What the peer writes to and reads from.
    window: Region,
    remote: RmrTriplet,
    slot: usize,
    slots: usize,
    depth: u32,
    wait: bool,
    limit: Duration,
    /// Cookie of the last request posted, and of the last one known to be done.
    posted: u64,
    done: u64,
    /// A message that came while a request was waited for.
    early: Option<Received>,
    /// Completions taken together, and how many of them were looked at.
    taken: Vec<DtoCompletion>,
    seen: usize,
    /// Where messages are received, and receives to be posted together.
    places: Vec<Slice>,
    again: Vec<(Slice, u64)>,
}

/// What a connection is to be.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Largest operation.
    pub size: u32,
    /// Most operations under way.
    pub depth: u32,
    /// Sleep for completions.
    pub wait: bool,
    /// Memory that is not the provider's.
    pub heap: bool,
    /// Buffers for messages of one direction at most.
    pub buffers: u32,
    /// Longest wait for anything.
    pub limit: Duration,
}

/// A message that came.
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

    /// Takes a peer's request; a request that makes no sense is rejected with the reason.
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
                Err(Failure::new(format!("the peer went away while connecting: {}", name(&event))))
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
        let places =
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
            taken: Vec::with_capacity(TOGETHER),
            seen: 0,
            places,
            again: Vec::with_capacity(TOGETHER),
        };
        for receive in 0..depth as usize {
            link.post_recv((receive & (slots - 1)) as u64)?;
        }
        Ok(link)
    }

    /// Connects and waits for the outcome; a rejecting peer's words are part of the error.
    fn establish(&self, target: Target, hello: &Hello) -> Outcome<Box<[u8]>> {
        let data = hello.encode();
        self.ep.connect(target.address, target.qual).private_data(&data).timeout(self.limit).start()?;
        // The time-out is kept below; this one is for the case that it is not.
        match self.connection.wait(self.limit + Duration::from_secs(1))? {
            Some(Event::Connection { kind: ConnectionKind::Established, private_data, .. }) => {
                Ok(private_data)
            }
            Some(Event::Connection { kind: ConnectionKind::PeerRejected, private_data, .. }) => {
                let words = String::from_utf8_lossy(&private_data).into_owned();
                Err(Failure::new(format!("the peer rejected it: {}", words.trim_start_matches("dat: "))))
            }
            Some(Event::Connection { kind: ConnectionKind::NonPeerRejected, .. }) => Err(Failure::new(
                "nobody listens there; start the other side with --listen first. If it is there, it has no room, or does \
                     not let this user in: see the parameters of its provider",
            )),
            Some(event) => Err(Failure::new(name(&event))),
            None => Err(Failure::new(format!("no answer within {:?}", self.limit))),
        }
    }

    /// The path the connection takes.
    pub fn path(&self) -> String {
        self.ep.path()
    }

    /// Most operations under way.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Operations under way.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.posted - self.done
    }

    /// Puts bytes where [`Link::send`] and [`Link::write`] with an index of 0 take them from.
    pub fn put(&self, bytes: &[u8]) {
        self.messages.write(0, bytes);
    }

    /// The reverse, for [`Link::read`].
    pub fn get(&self, out: &mut [u8]) {
        self.messages.read(0, out);
    }

    /// The memory that is open to the peer.
    pub fn window(&self) -> &Region {
        &self.window
    }

    /// One byte at the place [`Link::put`] starts.
    #[inline]
    pub fn put_byte(&self, offset: usize, byte: u8) {
        self.messages.write(offset, &[byte]);
    }

    /// Copies a message out.
    pub fn copy(&self, message: Received, out: &mut [u8]) {
        self.messages.read((self.slots + message.slot as usize) * self.slot, out);
    }

    /// Posts a send of `length` bytes; `index` spreads sends over the buffers.
    #[inline]
    pub fn send(&mut self, index: u32, length: u32, silent: bool) -> Outcome {
        let (slice, cookie) = (self.local(index, length), self.posted + 1);
        let segments = [slice];
        let post = self.ep.send_from(&segments).cookie(cookie);
        if silent {
            post.suppress().post()?
        } else {
            post.post()?
        }
        self.posted = cookie;
        Ok(())
    }

    /// Posts an RDMA write, likewise.
    #[inline]
    pub fn write(&mut self, index: u32, length: u32, silent: bool) -> Outcome {
        let (slice, remote, cookie) = (self.local(index, length), self.far(index, length), self.posted + 1);
        let segments = [slice];
        let post = self.ep.write_from(&segments, remote).cookie(cookie);
        if silent {
            post.suppress().post()?
        } else {
            post.post()?
        }
        self.posted = cookie;
        Ok(())
    }

    /// Posts an RDMA read, likewise.
    #[inline]
    pub fn read(&mut self, index: u32, length: u32, silent: bool) -> Outcome {
        let (slice, remote, cookie) = (self.local(index, length), self.far(index, length), self.posted + 1);
        let segments = [slice];
        let post = self.ep.read_into(&segments, remote).cookie(cookie);
        if silent {
            post.suppress().post()?
        } else {
            post.post()?
        }
        self.posted = cookie;
        Ok(())
    }

    /// The next message. It must be given back with [`Link::release`].
    #[inline]
    pub fn receive(&mut self) -> Outcome<Received> {
        if let Some(message) = self.early.take() {
            return Ok(message);
        }
        loop {
            if let Some(message) = self.next(self.limit)? {
                return Ok(message);
            }
        }
    }

    /// Takes messages that have come, one at least and `most` at most, and posts their receives again; gives how many.
    #[inline]
    pub fn absorb(&mut self, most: u32) -> Outcome<u32> {
        if let Some(message) = self.early.take() {
            self.release(message)?;
            return Ok(1);
        }
        self.again.clear();
        while self.again.is_empty() {
            if self.seen == self.taken.len() {
                self.more(self.limit)?;
            }
            while self.again.len() < most as usize
                && let Some(done) = self.left()
            {
                if let Some(message) = self.take(&done)? {
                    self.again.push((self.places[message.slot as usize], message.slot));
                }
            }
        }
        self.ep.recv_each(&self.again).1?;
        Ok(self.again.len() as u32)
    }

    /// Posts the receive of a message again.
    #[inline]
    pub fn release(&self, message: Received) -> Outcome {
        self.post_recv(message.slot)
    }

    /// Waits until at most `most` requests are under way. The answer to the last of them may come meanwhile.
    #[inline]
    pub fn settle(&mut self, most: u64) -> Outcome {
        while self.outstanding() > most {
            if let Some(message) = self.next(self.limit)? {
                self.keep(message)?;
            }
        }
        Ok(())
    }

    /// Waits until a byte of the window has this value.
    #[inline]
    pub fn watch(&mut self, offset: usize, value: u8) -> Outcome {
        let mut deadline = None;
        loop {
            for _ in 0..PATIENCE {
                if self.window.poll_byte(offset) == value {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            self.check(&mut deadline, self.limit)?;
            if let Some(done) = self.poll()?
                && let Some(message) = self.take(&done)?
            {
                self.keep(message)?;
            }
        }
    }

    /// Sends a control message.
    pub fn tell(&mut self, control: Control) -> Outcome {
        // One buffer for control: the message before must have gone.
        self.settle(0)?;
        let start = 2 * self.slots * self.slot;
        self.messages.write(start, &control.encode());
        let cookie = self.posted + 1;
        self.ep.send_from(&[self.messages.slice(start..start + CONTROL)]).cookie(cookie).post()?;
        self.posted = cookie;
        Ok(())
    }

    /// Waits for a control message.
    pub fn hear(&mut self) -> Outcome<Control> {
        let message = self.receive()?;
        self.as_control(message)
    }

    /// Tells, and waits until the peer answers that it is done or ready.
    pub fn ask(&mut self, control: Control) -> Outcome {
        self.tell(control)?;
        match self.hear()? {
            Control::Done => Ok(()),
            Control::Mismatch { offset, found } => Err(Failure::new(format!(
                "the peer found {found:#04x} at byte {offset}, which is not what was sent"
            ))),
            other => Err(Failure::new(format!("the peer answered {other:?}"))),
        }
    }

    /// Sleeps until a control message comes; `None` when the peer has disconnected or `stop` says so.
    pub fn idle(&mut self, stop: impl Fn() -> bool) -> Outcome<Option<Control>> {
        if let Some(message) = self.early.take() {
            return self.as_control(message).map(Some);
        }
        while !stop() {
            if let Some(Event::Connection { kind: ConnectionKind::Disconnected, .. }) =
                self.connection.poll()?
            {
                return Ok(None);
            }
            let done = match self.left() {
                Some(done) => done,
                None => match self.dto.wait(Duration::from_millis(100))? {
                    Some(Event::Completion(done)) => done,
                    _ => continue,
                },
            };
            if !done.status.is_success() {
                return match self.connection.wait(REASON)? {
                    Some(Event::Connection { kind: ConnectionKind::Disconnected, .. }) => Ok(None),
                    event => Err(gone(done.status, event.as_ref())),
                };
            }
            if done.operation == DtoOperation::Receive {
                return self.as_control(Received { slot: done.cookie, length: done.length }).map(Some);
            }
            self.done = done.cookie;
        }
        Ok(None)
    }

    /// Disconnects gracefully and waits for the end.
    pub fn close(mut self) -> Outcome {
        self.settle(0)?;
        self.ep.disconnect(CloseFlags::Graceful)?;
        match self.connection.wait(self.limit)? {
            Some(Event::Connection { kind: ConnectionKind::Disconnected, .. }) => Ok(()),
            Some(event) => Err(Failure::new(format!("instead of a graceful end: {}", name(&event)))),
            None => Err(Failure::new(format!("the graceful disconnect did not end within {:?}", self.limit))),
        }
    }

    fn as_control(&self, message: Received) -> Outcome<Control> {
        let mut bytes = [0; CONTROL];
        self.copy(message, &mut bytes);
        self.release(message)?;
        let control = if message.length == CONTROL as u64 { Control::decode(&bytes) } else { None };
        control.ok_or_else(|| {
            Failure::new(format!(
                "a message of {} bytes came from the peer out of turn: {bytes:02x?}",
                message.length
            ))
        })
    }

    #[inline]
    fn post_recv(&self, slot: u64) -> Outcome {
        Ok(self.ep.recv_into(&[self.places[slot as usize]]).cookie(slot).post()?)
    }

    #[inline]
    fn local(&self, index: u32, length: u32) -> Slice {
        let start = (index as usize & (self.slots - 1)) * self.slot;
        self.messages.slice(start..start + length as usize)
    }

    #[inline]
    fn far(&self, index: u32, length: u32) -> RmrTriplet {
        let offset = (index as usize & (self.slots - 1)) * self.slot;
        RmrTriplet { address: self.remote.address + offset as u64, length, context: self.remote.context }
    }

    /// One completion: a message, or `None` for a request of our own.
    #[inline]
    fn next(&mut self, limit: Duration) -> Outcome<Option<Received>> {
        loop {
            if let Some(done) = self.left() {
                return self.take(&done);
            }
            self.more(limit)?;
        }
    }

    /// Takes completions, one at least.
    #[inline]
    fn more(&mut self, limit: Duration) -> Outcome {
        self.seen = 0;
        self.taken.clear();
        let mut deadline = None;
        loop {
            if self.wait {
                if let Some(Event::Completion(done)) = self.dto.wait(Duration::from_millis(100))? {
                    self.taken.push(done);
                    return Ok(());
                }
            } else {
                for _ in 0..PATIENCE {
                    if self.dto.poll_completions(&mut self.taken)? > 0 {
                        return Ok(());
                    }
                }
            }
            self.check(&mut deadline, limit)?;
        }
    }

    /// The oldest completion that was taken and not looked at.
    #[inline]
    fn left(&mut self) -> Option<DtoCompletion> {
        let done = self.taken.get(self.seen).copied()?;
        self.seen += 1;
        Some(done)
    }

    /// The same, or a new one.
    fn poll(&mut self) -> Outcome<Option<DtoCompletion>> {
        if self.seen == self.taken.len() {
            self.seen = 0;
            self.taken.clear();
            self.dto.poll_completions(&mut self.taken)?;
        }
        Ok(self.left())
    }

    fn keep(&mut self, message: Received) -> Outcome {
        match self.early.replace(message) {
            None => Ok(()),
            Some(_) => Err(Failure::new("the peer sent a message out of turn")),
        }
    }

    #[inline]
    fn take(&mut self, done: &dat::DtoCompletion) -> Outcome<Option<Received>> {
        if !done.status.is_success() {
            let event = self.connection.wait(REASON)?;
            return Err(gone(done.status, event.as_ref()));
        }
        if done.operation == DtoOperation::Receive {
            return Ok(Some(Received { slot: done.cookie, length: done.length }));
        }
        // Requests complete in order, so this one stands for all before it, silent ones included.
        self.done = done.cookie;
        Ok(None)
    }

    /// What is looked at now and then while waiting.
    #[cold]
    fn check(&self, deadline: &mut Option<Instant>, limit: Duration) -> Outcome {
        if let Some(event) = self.connection.poll()? {
            return Err(Failure::new(format!("the connection ended: {}", name(&event))));
        }
        let now = Instant::now();
        if now > *deadline.get_or_insert(now + limit) {
            return Err(Failure::new(format!(
                "the peer did nothing for {limit:?}; a longer --timeout may help"
            )));
        }
        Ok(())
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

/// Why operations fail: by the connection's event if there is one.
#[cold]
fn gone(status: dat::DtoStatus, event: Option<&Event>) -> Failure {
    match event {
        Some(event) => Failure::new(name(event)),
        None => {
            Failure::new(format!("the operation failed with {status:?} and the connection is still there"))
        }
    }
}

fn name(event: &Event) -> String {
    match event {
        Event::Connection { kind: ConnectionKind::Broken, .. } => {
            "the peer is gone: the connection is BROKEN; its process has ended, or the way to it was lost"
                .into()
        }
        Event::Connection { kind: ConnectionKind::Disconnected, .. } => {
            "the peer is gone: it has disconnected (DISCONNECTED); did its process end?".into()
        }
        Event::Connection { kind, .. } => format!("{kind:?}"),
        other => format!("{other:?}"),
    }
}
