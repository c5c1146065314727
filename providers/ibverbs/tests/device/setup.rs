//! Adapters on the device, a connection between two of them, registered memory. Every wait has a deadline.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_ibverbs::Ibverbs;
use dat_plugin::host::{Channel, Device, Listener, Memory, Plugin, Queue, Remote, SpanTable, Srq};
use dat_plugin::{
    Access, ChannelAttr, Completion, CompletionStatus, Config, ConnectParam, Event, EventKind, Failure, Keys,
    Opcode, PostFlag, Segment, Status,
};

pub const ALL: Access = Access(0x33);

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The device under test.
pub fn name() -> String {
    std::env::var("DAT_TEST_IBVERBS").expect("DAT_TEST_IBVERBS names the device to test on")
}

pub fn config(params: &[(&str, &str)]) -> Config {
    let params = params.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    Config { ia_name: "ib0".into(), params }
}

pub fn try_device(params: &[(&str, &str)]) -> Result<Device, Failure> {
    Plugin::of::<Ibverbs>().open(&config(params))
}

pub fn device(params: &[(&str, &str)]) -> Device {
    let name = name();
    let mut all = vec![("device", name.as_str())];
    all.extend(params);
    try_device(&all).expect("the device opens")
}

/// Looks until `f` has something; `what` is named when it does not come.
pub fn wait<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = f() {
            return found;
        }
        assert!(Instant::now() < until, "did not come within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// An adapter's events in the order they came.
pub struct Events {
    pub device: Device,
    seen: RefCell<VecDeque<Event>>,
}

impl Events {
    pub fn of(device: &Device) -> Events {
        Events { device: device.clone(), seen: RefCell::default() }
    }

    pub fn poll(&self) {
        let mut out = [Event::new(EventKind(0), 0); 8];
        let n = self.device.poll_events(&mut out);
        self.seen.borrow_mut().extend(&out[..n]);
    }

    /// Takes the first event that `wanted` likes; others stay.
    pub fn take(&self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        wait(what, || {
            self.poll();
            let mut seen = self.seen.borrow_mut();
            let at = seen.iter().position(&wanted)?;
            seen.remove(at)
        })
    }

    pub fn kind(&self, kind: EventKind) -> Event {
        self.take(kind.name().unwrap_or("?"), |event| event.kind == kind)
    }

    /// The events seen and not taken.
    pub fn left(&self) -> Vec<EventKind> {
        self.poll();
        self.seen.borrow().iter().map(|event| event.kind).collect()
    }
}

/// A channel with its queues.
pub struct Side {
    pub channel: Channel,
    pub sends: Arc<Queue>,
    pub recvs: Arc<Queue>,
    pub spans: SpanTable,
    pub device: Device,
    pub user: u64,
    pub domain: u32,
}

/// Registered memory of a side.
pub struct Buffer {
    pub context: u32,
    pub memory: Memory,
    pub keys: Keys,
}

pub fn attr(user: u64, domain: u32) -> ChannelAttr {
    ChannelAttr {
        user,
        send_user: user + 1,
        recv_user: user + 2,
        domain,
        max_requests: 8,
        max_recvs: 8,
        max_request_segments: 4,
        max_recv_segments: 4,
        max_reads_out: 4,
        max_reads_in: 4,
        reserved: 0,
        max_message: 1 << 20,
    }
}

impl Side {
    pub fn new(device: &Device, user: u64, domain: u32) -> Side {
        Side::with(device, user, domain, None)
    }

    pub fn with(device: &Device, user: u64, domain: u32, srq: Option<&Arc<Srq>>) -> Side {
        let sends = Arc::new(device.open_queue(16).expect("a queue"));
        let recvs = Arc::new(device.open_queue(16).expect("a queue"));
        let channel =
            device.open_channel(&attr(user, domain), Some(&sends), Some(&recvs), srq).expect("a channel");
        Side { channel, sends, recvs, spans: SpanTable::new(), device: device.clone(), user, domain }
    }

    pub fn connect_to(&self, port: u64, data: &[u8]) -> Result<(), Failure> {
        let addr = self.device.attr().address;
        self.channel.connect(&ConnectParam { addr, port, qos: 0, data })
    }

    pub fn buffer(&self, content: &[u8]) -> Buffer {
        self.buffer_for(content, ALL)
    }

    pub fn buffer_for(&self, content: &[u8], access: Access) -> Buffer {
        let memory = Memory::heap(content.len());
        memory.write(0, content);
        let registration = self.device.register(memory.clone(), access, self.domain).expect("registered");
        let keys = registration.keys();
        let Ok(context) = self.spans.insert(registration) else { panic!("the table is full") };
        Buffer { context, memory, keys }
    }

    pub fn segment(&self, buffer: &Buffer, offset: u64, len: u32, access: Access) -> Segment {
        let at = buffer.memory.addr() + offset;
        self.spans.segment(buffer.context, at, len, self.domain, access).expect("a segment")
    }

    pub fn send(&self, token: u64, flags: PostFlag, buffer: &Buffer, len: u32) -> Status {
        let list = [self.segment(buffer, 0, len, Access::LOCAL_READ)];
        self.channel.post(Opcode::SEND, flags, token, &list, len.into(), Remote::default())
    }

    pub fn recv(&self, token: u64, buffer: &Buffer, len: u32) -> Status {
        let list = [self.segment(buffer, 0, len, Access::LOCAL_WRITE)];
        self.channel.post_recv(PostFlag::NONE, token, &list, len.into())
    }

    pub fn read(&self, token: u64, into: &Buffer, len: u32, addr: u64, rkey: u32) -> Status {
        let list = [self.segment(into, 0, into.memory.len() as u32, Access::LOCAL_WRITE)];
        let remote = Remote { addr, rkey, len };
        self.channel.post(Opcode::READ, PostFlag::NONE, token, &list, into.memory.len(), remote)
    }

    pub fn write(&self, token: u64, from: &Buffer, len: u32, addr: u64, rkey: u32) -> Status {
        let list = [self.segment(from, 0, len, Access::LOCAL_READ)];
        let remote = Remote { addr, rkey, len: 0 };
        self.channel.post(Opcode::WRITE, PostFlag::NONE, token, &list, len.into(), remote)
    }

    /// The next completion of requests: token, status, length.
    pub fn sent(&self) -> (u64, CompletionStatus, u32) {
        let done = completion(&self.sends, "completion of a request");
        assert_eq!(done.user, self.user + 1);
        (done.token, done.status, done.length)
    }

    /// The next completion of receives.
    pub fn received(&self) -> Completion {
        let done = completion(&self.recvs, "completion of a receive");
        assert_eq!(done.user, self.user + 2);
        done
    }

    /// Stopped, with everything given back.
    pub fn stop(&self, events: &Events) {
        match self.channel.disconnect() {
            Status::OK => {}
            Status::PENDING => {
                let user = self.user;
                events.take("the channel's end", |event| event.user == user);
            }
            other => panic!("disconnect: {other:?}"),
        }
    }
}

pub fn completion(queue: &Queue, what: &str) -> Completion {
    let mut out = [Completion::default()];
    wait(what, || (queue.poll(&mut out) == 1).then_some(out[0]))
}

pub fn no_completion(queue: &Queue) {
    let mut out = [Completion::default(); 4];
    let n = queue.poll(&mut out);
    assert_eq!(n, 0, "unexpected completions: {:?}", &out[..n]);
}

pub fn content(buffer: &Buffer) -> Vec<u8> {
    let mut out = vec![0; buffer.memory.len() as usize];
    buffer.memory.read(0, &mut out);
    out
}

/// Two connected channels of two adapters.
pub struct Pair {
    pub a: Side,
    pub b: Side,
    pub at_a: Events,
    pub at_b: Events,
    pub listener: Listener,
}

impl Pair {
    pub fn new(params: &[(&str, &str)]) -> Pair {
        Pair::prepared(params, |device| Side::new(device, 20, 9))
    }

    /// The accepting side is made by `accepting`.
    pub fn prepared(params: &[(&str, &str)], accepting: impl FnOnce(&Device) -> Side) -> Pair {
        let (a, b) = (device(params), device(params));
        let listener = b.listen(0, 77).expect("a listener");
        let pair = Pair {
            at_a: Events::of(&a),
            at_b: Events::of(&b),
            a: Side::new(&a, 10, 9),
            b: accepting(&b),
            listener,
        };
        connect(&pair.a, &pair.at_a, &pair.b, &pair.at_b, pair.listener.port());
        pair
    }
}

/// Connects two channels.
pub fn connect(a: &Side, at_a: &Events, b: &Side, at_b: &Events, port: u64) {
    a.connect_to(port, b"hello").expect("connecting begins");
    // Takes events of both adapters, because both ends make progress there.
    let asked = wait("a request", || {
        at_a.poll();
        at_b.poll();
        let mut seen = at_b.seen.borrow_mut();
        let at = seen.iter().position(|event| event.kind == EventKind::REQUEST)?;
        seen.remove(at)
    });
    assert_eq!((asked.user, asked.port, asked.data()), (77, port, &b"hello"[..]));
    b.channel.accept(asked.request, b"welcome").expect("accepting begins");
    let up = at_a.take("ESTABLISHED at A", |event| event.user == a.user);
    assert_eq!((up.kind, up.data()), (EventKind::ESTABLISHED, &b"welcome"[..]));
    let up = at_b.take("ESTABLISHED at B", |event| event.user == b.user);
    assert_eq!(up.kind, EventKind::ESTABLISHED);
}
