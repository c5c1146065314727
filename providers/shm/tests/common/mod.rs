//! Two ends of a connection over the provider's interface, as the engine would use it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_plugin::host::{Channel, Device, Memory, Plugin, Queue, Registration, Remote, SpanTable};
use dat_plugin::{
    Access, ChannelAttr, Completion, CompletionStatus, Config, ConnectParam, Event, EventKind, Opcode,
    PostFlag, Segment, Status,
};
use dat_shm::Shm;

#[path = "../../../../tests/process/src/descriptors.rs"]
pub mod descriptors;

/// Nothing here takes longer, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(10);

pub const ALL: Access = Access(0x33);

/// A device and its events.
pub struct Host {
    pub device: Device,
    events: VecDeque<Event>,
}

/// One end.
pub struct End {
    pub channel: Channel,
    pub send: Arc<Queue>,
    pub recv: Arc<Queue>,
    pub user: u64,
}

/// Registered memory and the table that makes segments of it.
pub struct Area {
    pub table: SpanTable,
    pub context: u32,
    pub memory: Memory,
    pub rkey: u32,
}

impl Host {
    pub fn open(params: &[(&str, &str)]) -> Host {
        let params = params.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let config = Config { ia_name: "shm-test".into(), params };
        Host { device: Plugin::of::<Shm>().open(&config).unwrap(), events: VecDeque::new() }
    }

    pub fn pump(&mut self) {
        let mut out = [Event::new(EventKind(0), 0); 4];
        loop {
            let n = self.device.poll_events(&mut out);
            self.events.extend(&out[..n]);
            if n < out.len() {
                return;
            }
        }
    }

    /// The next event of this kind, if it is there.
    pub fn take(&mut self, kind: EventKind) -> Option<Event> {
        self.pump();
        let place = self.events.iter().position(|event| event.kind == kind)?;
        self.events.remove(place)
    }

    pub fn events(&mut self) -> Vec<Event> {
        self.pump();
        self.events.drain(..).collect()
    }

    pub fn wait(&mut self, kind: EventKind) -> Event {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(event) = self.take(kind) {
                return event;
            }
            assert!(Instant::now() < deadline, "no {kind:?}; there are {:?}", self.events);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub fn end(&self, user: u64) -> End {
        self.end_with(user, |_| {}, false)
    }

    pub fn end_with(&self, user: u64, change: impl FnOnce(&mut ChannelAttr), one_queue: bool) -> End {
        let send = Arc::new(self.device.open_queue(64).unwrap());
        let recv = if one_queue { send.clone() } else { Arc::new(self.device.open_queue(64).unwrap()) };
        let mut attr = ChannelAttr {
            user,
            send_user: user * 10 + 1,
            recv_user: user * 10 + 2,
            domain: 7,
            max_requests: 64,
            max_recvs: 64,
            max_request_segments: 4,
            max_recv_segments: 4,
            max_reads_out: 8,
            max_reads_in: 8,
            reserved: 0,
            max_message: 1 << 24,
        };
        change(&mut attr);
        let channel = self.device.open_channel(&attr, Some(&send), Some(&recv), None).unwrap();
        End { channel, send, recv, user }
    }

    pub fn area(&self, len: usize) -> Area {
        self.area_of(Memory::heap(len), ALL, 7)
    }

    pub fn area_of(&self, memory: Memory, access: Access, domain: u32) -> Area {
        let registration: Registration = self.device.register(memory.clone(), access, domain).unwrap();
        let rkey = registration.keys().rkey;
        let table = SpanTable::new();
        let context = table.insert(registration).unwrap();
        Area { table, context, memory, rkey }
    }
}

impl Area {
    pub fn seg(&self, offset: u64, len: u32) -> Segment {
        self.table.segment(self.context, self.memory.addr() + offset, len, 7, Access::LOCAL_READ).unwrap()
    }

    pub fn fill(&self, seed: u8) -> Vec<u8> {
        let bytes: Vec<u8> = (0..self.memory.len()).map(|i| (i.wrapping_mul(31) >> 3) as u8 ^ seed).collect();
        self.memory.write(0, &bytes);
        bytes
    }

    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.read(offset, &mut out);
        out
    }

    pub fn remote(&self, offset: u64, len: u32) -> Remote {
        Remote { addr: self.memory.addr() + offset, rkey: self.rkey, len }
    }
}

impl End {
    pub fn post_send(&self, token: u64, segs: &[Segment]) -> Status {
        self.post(Opcode::SEND, PostFlag::NONE, token, segs, Remote::default())
    }

    pub fn post(&self, op: Opcode, flags: PostFlag, token: u64, segs: &[Segment], remote: Remote) -> Status {
        let total = segs.iter().map(|seg| seg.len() as u64).sum();
        self.channel.post(op, flags, token, segs, total, remote)
    }

    pub fn post_recv(&self, token: u64, segs: &[Segment]) -> Status {
        let total = segs.iter().map(|seg| seg.len() as u64).sum();
        self.channel.post_recv(PostFlag::NONE, token, segs, total)
    }

    pub fn sent(&self, hosts: &mut [&mut Host]) -> Completion {
        next(&self.send, hosts)
    }

    pub fn received(&self, hosts: &mut [&mut Host]) -> Completion {
        next(&self.recv, hosts)
    }
}

/// The next completion of a queue, while the hosts' events are taken care of.
pub fn next(queue: &Queue, hosts: &mut [&mut Host]) -> Completion {
    let deadline = Instant::now() + LIMIT;
    let mut out = [Completion::default()];
    loop {
        for _ in 0..64 {
            if queue.poll(&mut out) == 1 {
                return out[0];
            }
        }
        hosts.iter_mut().for_each(|host| host.pump());
        assert!(
            Instant::now() < deadline,
            "no completion; events: {:?}",
            hosts.iter_mut().map(|h| h.events()).collect::<Vec<_>>()
        );
    }
}

pub fn assert_ok(completion: &Completion, token: u64, length: u32) {
    assert_eq!(
        (completion.token, completion.status, completion.length),
        (token, CompletionStatus::SUCCESS, length)
    );
}

/// Connects `a`'s end to `b`'s through a listener of `b`'s.
pub fn connect(a: &mut Host, b: &mut Host, from: &End, to: &End) {
    let listener = b.device.listen(0, 99).unwrap();
    let addr = b.device.attr().address;
    from.channel.connect(&ConnectParam { addr, port: listener.port(), qos: 0, data: b"hello" }).unwrap();
    let request = b.wait(EventKind::REQUEST);
    assert_eq!((request.user, request.data(), request.port), (99, &b"hello"[..], listener.port()));
    assert_eq!(request.peer_port, from.channel.local_port());
    to.channel.accept(request.request, b"welcome").unwrap();
    let established = a.wait(EventKind::ESTABLISHED);
    assert_eq!((established.user, established.data()), (from.user, &b"welcome"[..]));
    assert_eq!(b.wait(EventKind::ESTABLISHED).user, to.user);
}

/// Two hosts of one process, connected.
pub fn pair(params: &[(&str, &str)]) -> (Host, Host, End, End) {
    let (mut a, mut b) = (Host::open(params), Host::open(params));
    let (from, to) = (a.end(1), b.end(2));
    connect(&mut a, &mut b, &from, &to);
    (a, b, from, to)
}
