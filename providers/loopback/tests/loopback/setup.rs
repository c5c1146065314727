//! Two devices, a connection between them, registered memory.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use dat_loopback::Loopback;
use dat_plugin::host::{Channel, Device, Memory, Plugin, Queue, Remote, SpanTable, Srq};
use dat_plugin::{
    Access, ChannelAttr, Completion, CompletionFlag, CompletionStatus, Config, ConnectParam, Event,
    EventKind, Failure, Keys, Opcode, PostFlag, Segment, SockAddr, Status,
};

pub const ALL: Access = Access(0x33);
pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A configuration; `domain` keeps tests that run at the same time apart.
pub fn config(domain: &str, params: &[(&str, &str)]) -> Config {
    let own = [("domain", domain)];
    let params = own.iter().chain(params).map(|(key, value)| (key.to_string(), value.to_string())).collect();
    Config { ia_name: "loop0".into(), params }
}

pub fn try_device(domain: &str, params: &[(&str, &str)]) -> Result<Device, Failure> {
    Plugin::of::<Loopback>().open(&config(domain, params))
}

pub fn device(domain: &str, params: &[(&str, &str)]) -> Device {
    try_device(domain, params).expect("the device opens")
}

/// The next event; the provider raises all but timed ones before the call that causes them returns.
pub fn event(device: &Device) -> Event {
    let mut out = [Event::new(EventKind(0), 0)];
    assert_eq!(device.poll_events(&mut out), 1, "an event is there");
    out[0]
}

pub fn no_event(device: &Device) {
    let mut out = [Event::new(EventKind(0), 0); 4];
    let count = device.poll_events(&mut out);
    assert_eq!(count, 0, "unexpected events: {:?}", &out[..count]);
}

/// A channel with its device and queues.
pub struct Side {
    pub device: Device,
    pub channel: Channel,
    pub sends: Arc<Queue>,
    pub recvs: Arc<Queue>,
    pub spans: SpanTable,
    /// What comes back in events.
    pub user: u64,
    /// Protection domain.
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
        max_requests: 4,
        max_recvs: 4,
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
        let sends = Arc::new(device.open_queue(16).unwrap());
        let recvs = Arc::new(device.open_queue(16).unwrap());
        let channel = device.open_channel(&attr(user, domain), Some(&sends), Some(&recvs), None).unwrap();
        Side { device: device.clone(), channel, sends, recvs, spans: SpanTable::new(), user, domain }
    }

    /// A side whose receives come out of `srq`.
    pub fn sharing(device: &Device, user: u64, domain: u32, srq: &Arc<Srq>) -> Side {
        let mut side = Side::new(device, user, domain);
        let attr = attr(user, domain);
        side.channel = device.open_channel(&attr, Some(&side.sends), Some(&side.recvs), Some(srq)).unwrap();
        side
    }

    pub fn connect(&self, port: u64, data: &[u8]) {
        let param = ConnectParam { addr: LOCALHOST.into(), port, qos: 0, data };
        self.channel.connect(&param).unwrap();
    }

    /// The next event must be this one, of this channel.
    pub fn expect(&self, kind: EventKind) -> Event {
        let event = event(&self.device);
        assert_eq!((event.kind, event.user), (kind, self.user));
        event
    }

    pub fn buffer(&self, content: &[u8]) -> Buffer {
        self.buffer_for(content, ALL, self.domain)
    }

    pub fn buffer_for(&self, content: &[u8], access: Access, domain: u32) -> Buffer {
        let memory = Memory::heap(content.len());
        memory.write(0, content);
        let registration = self.device.register(memory.clone(), access, domain).unwrap();
        let keys = registration.keys();
        let context = self.spans.insert(registration).unwrap();
        Buffer { context, memory, keys }
    }

    pub fn segment(&self, buffer: &Buffer, offset: u64, len: u32, access: Access) -> Segment {
        let domain = self.domain;
        self.spans.segment(buffer.context, buffer.memory.addr() + offset, len, domain, access).unwrap()
    }

    fn segments(&self, parts: &[(&Buffer, u64, u32)], access: Access) -> (Vec<Segment>, u64) {
        let list: Vec<Segment> =
            parts.iter().map(|(buffer, at, len)| self.segment(buffer, *at, *len, access)).collect();
        let total = list.iter().map(|segment| u64::from(segment.len())).sum();
        (list, total)
    }

    pub fn send(&self, token: u64, flags: PostFlag, parts: &[(&Buffer, u64, u32)]) -> Status {
        let (list, total) = self.segments(parts, Access::LOCAL_READ);
        self.channel.post(Opcode::SEND, flags, token, &list, total, Remote::default())
    }

    pub fn recv(&self, token: u64, parts: &[(&Buffer, u64, u32)]) -> Status {
        self.recv_with(token, PostFlag::NONE, parts)
    }

    pub fn recv_with(&self, token: u64, flags: PostFlag, parts: &[(&Buffer, u64, u32)]) -> Status {
        let (list, total) = self.segments(parts, Access::LOCAL_WRITE);
        self.channel.post_recv(flags, token, &list, total)
    }

    pub fn write(&self, token: u64, parts: &[(&Buffer, u64, u32)], addr: u64, rkey: u32) -> Status {
        let (list, total) = self.segments(parts, Access::LOCAL_READ);
        let remote = Remote { addr, rkey, len: 0 };
        self.channel.post(Opcode::WRITE, PostFlag::NONE, token, &list, total, remote)
    }

    pub fn read(&self, token: u64, parts: &[(&Buffer, u64, u32)], addr: u64, rkey: u32, len: u32) -> Status {
        let (list, total) = self.segments(parts, Access::LOCAL_WRITE);
        let remote = Remote { addr, rkey, len };
        self.channel.post(Opcode::READ, PostFlag::FENCE, token, &list, total, remote)
    }

    /// All completions of requests, as token, status and length.
    pub fn sent(&self) -> Vec<(u64, CompletionStatus, u32)> {
        let done = taken(&self.sends);
        assert!(done.iter().all(|done| done.user == self.user + 1 && done.flags == CompletionFlag::NONE));
        done.iter().map(|done| (done.token, done.status, done.length)).collect()
    }

    /// All completions of receives, as token, status and length.
    pub fn received(&self) -> Vec<(u64, CompletionStatus, u32)> {
        let done = taken(&self.recvs);
        assert!(done.iter().all(|done| done.user == self.user + 2));
        done.iter().map(|done| (done.token, done.status, done.length)).collect()
    }

    /// The connection broke, and the channel takes no more work.
    pub fn expect_broken(&self) {
        self.expect(EventKind::BROKEN);
        no_event(&self.device);
        assert_eq!(self.send(0, PostFlag::NONE, &[]), Status::NOT_CONNECTED);
        assert_eq!(self.recv(0, &[]), Status::NOT_CONNECTED);
    }
}

/// All completions of a queue.
pub fn taken(queue: &Queue) -> Vec<Completion> {
    let mut all = Vec::new();
    loop {
        let mut out = [Completion::default(); 32];
        let count = queue.poll(&mut out);
        all.extend_from_slice(&out[..count]);
        if count == 0 {
            return all;
        }
    }
}

pub fn content(buffer: &Buffer) -> Vec<u8> {
    let mut out = vec![0; buffer.memory.len() as usize];
    buffer.memory.read(0, &mut out);
    out
}

/// A connection of two devices, all events taken.
pub fn connected(domain: &str, params: &[(&str, &str)]) -> (Side, Side) {
    let (active, passive) = (device(domain, params), device(domain, params));
    let listener = passive.listen(0, 500).unwrap();
    let (active, passive) = (Side::new(&active, 100, 7), Side::new(&passive, 200, 9));
    active.connect(listener.port(), b"");
    let request = event(&passive.device);
    passive.channel.accept(request.request, b"").unwrap();
    active.expect(EventKind::ESTABLISHED);
    passive.expect(EventKind::ESTABLISHED);
    (active, passive)
}

/// A device's own address as a peer writes it.
pub fn address(text: &str) -> SockAddr {
    text.parse::<IpAddr>().unwrap().into()
}
