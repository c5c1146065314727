//! Two devices of one process, and what their layers say.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dat_layers::Spec;
use dat_plugin::host::{Channel, Device, Listener, Memory, Plugin, Queue, Registration, Remote, SpanTable};
use dat_plugin::{
    Access, ChannelAttr, Completion, Config, ConnectParam, Event, EventKind, Failure, Opcode, PostFlag,
    Segment, Status,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// A device of a world of its own, with layers.
pub fn device(world: &str, layers: &[Spec]) -> Device {
    named(world, world, layers)
}

fn named(name: &str, world: &str, layers: &[Spec]) -> Device {
    let params = BTreeMap::from([("domain".to_owned(), world.to_owned())]);
    let plugin = dat_layers::over(Plugin::of::<dat_loopback::Loopback>(), layers).expect("layers");
    plugin.open(&Config { ia_name: name.to_owned(), params }).expect("opens")
}

/// One end.
pub struct Side {
    pub channel: Option<Channel>,
    pub queue: Arc<Queue>,
    pub memory: Memory,
    rkey: u32,
    table: SpanTable,
    context: u32,
    pub device: Device,
}

/// A connection.
pub struct Pair {
    pub a: Side,
    pub b: Side,
}

const ALL: Access =
    Access(Access::LOCAL_READ.0 | Access::LOCAL_WRITE.0 | Access::REMOTE_READ.0 | Access::REMOTE_WRITE.0);

impl Pair {
    pub fn connected(world: &str, layers: &[Spec]) -> Pair {
        let (a, b) = (
            Side::new(&format!("{world}.a"), world, layers, 1),
            Side::new(&format!("{world}.b"), world, layers, 2),
        );
        let listener: Listener = b.device.listen(0, 77).expect("listens");
        let addr = b.device.attr().address;
        a.channel()
            .connect(&ConnectParam { addr, port: listener.port(), qos: 0, data: b"hello" })
            .expect("starts");
        let request = b.event();
        assert_eq!((request.kind, request.user, request.data()), (EventKind::REQUEST, 77, &b"hello"[..]));
        b.channel().accept(request.request, b"").expect("accepts");
        assert_eq!(a.event().kind, EventKind::ESTABLISHED);
        assert_eq!(b.event().kind, EventKind::ESTABLISHED);
        Pair { a, b }
    }
}

impl Side {
    fn new(name: &str, world: &str, layers: &[Spec], user: u64) -> Side {
        let device = named(name, world, layers);
        let queue = Arc::new(device.open_queue(128).expect("a queue"));
        let attr = ChannelAttr {
            user,
            send_user: user * 10,
            recv_user: user * 10 + 1,
            max_requests: 64,
            max_recvs: 64,
            max_request_segments: 1,
            max_recv_segments: 1,
            max_reads_out: 4,
            max_reads_in: 4,
            max_message: 8192,
            ..ChannelAttr::default()
        };
        let channel = device.open_channel(&attr, Some(&queue), Some(&queue), None).expect("a channel");
        let registration = Side::register(&device).expect("registers");
        let (memory, rkey) = (registration.memory().clone(), registration.keys().rkey);
        let table = SpanTable::new();
        let context = table.insert(registration).expect("room");
        Side { channel: Some(channel), queue, memory, rkey, table, context, device }
    }

    pub fn register(device: &Device) -> Result<Registration, Failure> {
        device.register(Memory::heap(8192), ALL, 0)
    }

    pub fn channel(&self) -> &Channel {
        self.channel.as_ref().expect("open")
    }

    fn segment(&self, offset: u64, len: u32) -> Segment {
        let addr = self.memory.addr() + offset;
        self.table.segment(self.context, addr, len, 0, Access::LOCAL_READ).expect("in range")
    }

    pub fn recv(&self, token: u64, offset: u64, len: u32) {
        assert_eq!(self.try_recv(token, offset, len), Status::OK);
    }

    pub fn try_recv(&self, token: u64, offset: u64, len: u32) -> Status {
        let segment = self.segment(offset, len);
        self.channel().post_recv(PostFlag::NONE, token, &[segment], len.into())
    }

    pub fn send(&self, token: u64, offset: u64, len: u32) {
        assert_eq!(self.try_send(token, offset, len), Status::OK);
    }

    pub fn try_send(&self, token: u64, offset: u64, len: u32) -> Status {
        let segment = self.segment(offset, len);
        let remote = Remote::default();
        self.channel().post(Opcode::SEND, PostFlag::NONE, token, &[segment], len.into(), remote)
    }

    pub fn one_sided(&self, opcode: Opcode, token: u64, offset: u64, len: u32, peer: &Side, at: u64) {
        let segment = self.segment(offset, len);
        let read = if opcode == Opcode::READ { len } else { 0 };
        let remote = Remote { addr: peer.memory.addr() + at, rkey: peer.rkey, len: read };
        let status = self.channel().post(opcode, PostFlag::NONE, token, &[segment], len.into(), remote);
        assert_eq!(status, Status::OK);
    }

    /// The next completion.
    pub fn completion(&self) -> Completion {
        let mut out = [Completion::default()];
        until("a completion", || self.queue.poll(&mut out) == 1);
        out[0]
    }

    /// The next event.
    pub fn event(&self) -> Event {
        let mut out = [Event::new(EventKind(0), 0)];
        until("an event", || self.device.poll_events(&mut out) == 1);
        out[0]
    }

    /// Whether there is none.
    pub fn no_event(&self) -> bool {
        self.device.poll_events(&mut [Event::new(EventKind(0), 0)]) == 0
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "no {what} within {LONG:?}");
        std::thread::yield_now();
    }
}

/// Whether a descriptor becomes readable in time.
pub fn readable(fd: BorrowedFd<'_>, time: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time)).expect("polls") == 1
}

/// Runs `f` and returns what it logged under this target, one line each, without times.
pub fn collect(target: &'static str, f: impl FnOnce()) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let collector = Collector { target, lines: lines.clone(), spans: AtomicU64::new(1) };
    tracing::subscriber::with_default(collector, f);
    let lines = lines.lock().expect("sound");
    lines.clone()
}

struct Collector {
    target: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
    spans: AtomicU64,
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == self.target
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.lines.lock().expect("sound").push(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}
