//! Two ends of a connection over a real libfabric, for the tests of this folder.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_libfabric::Libfabric;
use dat_plugin::host::{Channel, Device, Listener, Memory, Plugin, Queue, Remote, SpanTable, Srq};
use dat_plugin::{
    Access, ChannelAttr, Completion, CompletionStatus, Config, ConnectParam, Event, EventKind, Opcode,
    PostFlag, Status,
};

pub const MSG: &[(&str, &str)] = &[("fabric", "tcp"), ("endpoint", "msg"), ("address", "127.0.0.1")];
pub const RDM: &[(&str, &str)] = &[("fabric", "tcp;ofi_rxm"), ("endpoint", "rdm"), ("address", "127.0.0.1")];

/// As on fabrics with little immediate data: messages in frames.
pub const FRAMED: &[(&str, &str)] =
    &[("fabric", "tcp"), ("endpoint", "msg"), ("address", "127.0.0.1"), ("frames", "on")];

pub const LONG: Duration = Duration::from_secs(20);

/// The next event of `ends[which]` that `wanted` accepts; the other end must have none.
pub fn await_event(ends: [&End; 2], which: usize, wanted: impl Fn(&Event) -> bool) -> Event {
    let start = Instant::now();
    loop {
        assert!(ends[1 - which].poll().is_none(), "an event that should not be there");
        if let Some(event) = ends[which].poll().filter(&wanted) {
            return event;
        }
        assert!(start.elapsed() < LONG, "an event did not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn exchange(a: &End, b: &End) {
    for token in 0..10 {
        assert_eq!(b.recv(token), Status::OK);
        assert_eq!(a.send(token), Status::OK);
        for (queue, end) in [(&b.recvs, b), (&a.sends, a)] {
            let done = end.completion(queue, [a, b]);
            assert_eq!((done.token, done.status), (token, CompletionStatus::SUCCESS));
        }
    }
}

pub struct End {
    pub channel: Channel,
    pub sends: Arc<Queue>,
    pub recvs: Arc<Queue>,
    spans: SpanTable,
    context: u32,
    memory: Memory,
    pub device: Device,
    pub user: u64,
}

pub const ROOM: u64 = 4096;

impl End {
    pub fn new(device: Device, user: u64) -> End {
        End::sharing(device, user, None)
    }

    pub fn sharing(device: Device, user: u64, srq: Option<&Arc<Srq>>) -> End {
        let queue = || Arc::new(device.open_queue(64).expect("a queue"));
        let (sends, recvs) = (queue(), queue());
        let attr = ChannelAttr {
            user,
            send_user: user + 1,
            recv_user: user + 2,
            domain: 5,
            max_requests: 16,
            max_recvs: 16,
            max_request_segments: 1,
            max_recv_segments: 1,
            max_reads_out: 1,
            max_reads_in: 1,
            max_message: ROOM,
            ..ChannelAttr::default()
        };
        let channel = device.open_channel(&attr, Some(&sends), Some(&recvs), srq).expect("a channel");
        let memory = Memory::heap(ROOM as usize);
        let registration = device.register(memory.clone(), Access(0x33), 5).expect("registered");
        let spans = SpanTable::new();
        let Ok(context) = spans.insert(registration) else { panic!("no room in a new table") };
        End { channel, sends, recvs, spans, context, memory, device, user }
    }

    pub fn segment(&self, access: Access) -> dat_plugin::Segment {
        self.spans.segment(self.context, self.memory.addr(), 64, 5, access).expect("registered")
    }

    pub fn send(&self, token: u64) -> Status {
        self.send_with(PostFlag::NONE, token)
    }

    pub fn send_some(&self, token: u64, len: u32) -> Status {
        let right = Access::LOCAL_READ;
        let segment =
            self.spans.segment(self.context, self.memory.addr(), len, 5, right).expect("registered");
        self.channel.post(Opcode::SEND, PostFlag::NONE, token, &[segment], len.into(), Remote::default())
    }

    pub fn send_with(&self, flags: PostFlag, token: u64) -> Status {
        let segment = [self.segment(Access::LOCAL_READ)];
        self.channel.post(Opcode::SEND, flags, token, &segment, 64, Remote::default())
    }

    pub fn recv(&self, token: u64) -> Status {
        self.channel.post_recv(PostFlag::NONE, token, &[self.segment(Access::LOCAL_WRITE)], 64)
    }

    pub fn poll(&self) -> Option<Event> {
        let mut out = [Event::new(EventKind(0), 0)];
        (self.device.poll_events(&mut out) == 1).then_some(out[0])
    }

    pub fn until(&self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let start = Instant::now();
        loop {
            if let Some(event) = self.poll().filter(&wanted) {
                return event;
            }
            assert!(start.elapsed() < LONG, "did not come: {what}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn completion(&self, queue: &Queue, ends: [&End; 2]) -> Completion {
        let start = Instant::now();
        let mut out = [Completion::default()];
        loop {
            for end in ends {
                assert!(end.poll().is_none(), "an event that should not be there");
            }
            if queue.poll(&mut out) == 1 {
                return out[0];
            }
            assert!(start.elapsed() < LONG, "no completion");
        }
    }
}

pub fn open(params: &[(&str, &str)], keepalive: &str) -> Result<Device, dat_plugin::Failure> {
    let mut all: std::collections::BTreeMap<String, String> =
        params.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    all.insert("keepalive_ms".into(), keepalive.into());
    Plugin::of::<Libfabric>().open(&Config { ia_name: "ofi".into(), params: all })
}

pub fn installed() -> bool {
    libfabric_sys::Library::get().is_ok()
}

/// `None`: there is no libfabric.
pub fn pair_of_devices(params: &[(&str, &str)], keepalive: &str) -> Option<(End, End)> {
    if !installed() {
        println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
        let required = std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_some();
        assert!(!required, "DAT_REQUIRE_LIBFABRIC is set, and there is no libfabric");
        return None;
    }
    let device = || open(params, keepalive).expect("a device");
    Some((End::new(device(), 100), End::new(device(), 200)))
}

pub fn connect(a: End, b: End, listener: &Listener) -> [End; 2] {
    let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"hello" };
    a.channel.connect(&param).expect("begins");
    let start = Instant::now();
    let mut up = [false; 2];
    while up != [true; 2] {
        for (index, end) in [&a, &b].into_iter().enumerate() {
            match end.poll() {
                None => {}
                Some(event) if event.kind == EventKind::REQUEST => {
                    assert_eq!(event.data(), b"hello");
                    b.channel.accept(event.request, b"").expect("accepts");
                }
                Some(event) => {
                    assert_eq!((event.kind, event.user), (EventKind::ESTABLISHED, end.user));
                    up[index] = true;
                }
            }
        }
        assert!(start.elapsed() < LONG, "not connected");
        std::thread::sleep(Duration::from_micros(100));
    }
    [a, b]
}
