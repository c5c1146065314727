//! A whole connection of a stranger: any packets with any descriptors, to a device that listens.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, OnceLock};

use dat_plugin::feed::Feed;
use dat_plugin::host::{Listener, Remote};
use dat_plugin::{Completion, EventKind, Opcode, PostFlag, RejectReason};

use crate::common::{Area, End, Host};
use crate::control::handshake::{self, Hello, Packet, Received, Wake, With};
use crate::data::slab::Place;
use crate::hostile::{Attacker, RING};

struct World {
    host: Host,
    listener: Listener,
    attacker: Attacker,
    area: Area,
    others: Vec<OwnedFd>,
}

// SAFETY: its device may be used from any thread, and the mutex around it lets one thread in at a time.
unsafe impl Send for World {}

fn world() -> &'static Mutex<World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    WORLD.get_or_init(|| {
        let host = Host::open(&[]);
        let listener = host.device.listen(0, 1).expect("a port");
        let attacker = Attacker::new(listener.port());
        let area = host.area(4096);
        let null = std::fs::File::open("/dev/null").expect("a device").into();
        let (pipe, _) = std::io::pipe().expect("a pipe");
        Mutex::new(World { host, listener, attacker, area, others: vec![null, pipe.into()] })
    })
}

fn hello(feed: &mut Feed<'_>) -> Hello {
    let mut hello = Attacker::hello();
    for _ in 0..feed.u8() % 4 {
        match feed.u8() % 8 {
            0 => hello.device = feed.u8().into(),
            1 => {
                let (queue, bitmap, slot) = (feed.edge(), feed.edge() as u32, feed.edge() as u32);
                hello.wake[feed.u8() as usize % 2] = Wake { queue, bitmap, slot, secret: 0 };
            }
            2 => hello.port = feed.edge(),
            3 => hello.domain = feed.u8().into(),
            // Without access through the kernel: the peer is this process.
            4 => hello.flags = feed.edge() as u32 & 1,
            5 => hello.reads_in = feed.edge() as u32,
            _ => hello.probe = feed.edge(),
        }
    }
    hello
}

fn packet(feed: &mut Feed<'_>, port: u64) -> Packet {
    let data = |feed: &mut Feed<'_>| {
        let len = feed.u8() as usize;
        feed.bytes(len).to_vec()
    };
    match feed.u8() % 16 {
        0..=2 => {
            let mut place = Place { slab: 1, slots: 1, slot: 0, turn: 1 };
            let mut ring = RING as u32;
            match feed.u8() % 8 {
                0 => place.slots = feed.edge() as u32,
                1 => place.slot = feed.edge() as u32,
                2 => place.slab = feed.edge(),
                3 => ring = feed.edge() as u32,
                _ => {}
            }
            let with = With(if feed.flag() { 7 } else { u16::from(feed.u8() & 7) });
            let holds = u128::from(feed.u8() & 1);
            Packet::Request { with, ring, place, port, qos: 0, hello: hello(feed), holds, data: data(feed) }
        }
        3 => Packet::Accept {
            with: With((feed.u8() & 6).into()),
            hello: hello(feed),
            cma: false,
            data: data(feed),
        },
        4..=6 => Packet::Confirm { cma: false },
        7 => Packet::Reject { consumer: feed.flag(), data: data(feed) },
        8 => feed.pick(&[Packet::Disconnect, Packet::Error, Packet::Again].each_ref()).clone(),
        9 => Packet::Kick,
        10 | 11 => Packet::MapRequest { map: feed.edge(), write: feed.flag() },
        12 => {
            Packet::MapReply { map: feed.u8().into(), write: feed.flag(), len: feed.edge(), ok: feed.flag() }
        }
        _ => Packet::Unmap { map: feed.u8().into() },
    }
}

impl World {
    fn send(&self, feed: &mut Feed<'_>) {
        let all: Vec<BorrowedFd<'_>> =
            self.attacker.fds().into_iter().chain(self.others.iter().map(AsFd::as_fd)).collect();
        let choice = feed.u8();
        let fds: Vec<BorrowedFd<'_>> = match choice {
            0..=99 => all[..3].to_vec(),
            100..=179 => Vec::new(),
            _ => (0..feed.u8() % 6).map(|_| all[feed.u8() as usize % all.len()]).collect(),
        };
        // The victim may have closed, or have no room.
        if feed.u8().is_multiple_of(16) {
            let len = feed.u8() as usize;
            let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
            let _ = rustix::net::send(&self.attacker.socket, feed.bytes(len), flags);
        } else {
            let _ = handshake::send(
                &self.attacker.socket,
                &packet(feed, self.listener.port()),
                &fds[..fds.len().min(3)],
            );
        }
    }

    fn work(&self, feed: &mut Feed<'_>, end: &End) {
        let segment = [self.area.seg(0, 1 + u32::from(feed.u16()) % 4096)];
        let remote = Remote { addr: feed.edge(), rkey: feed.u32(), len: segment[0].len() };
        let opcode = feed.pick(&[Opcode::SEND, Opcode::WRITE, Opcode::READ]);
        let _ = end.post_recv(1, &segment);
        let _ = end.post(opcode, PostFlag::NONE, 2, &segment, remote);
        let mut out = [Completion::default(); 8];
        let _ = (end.recv.poll(&mut out), end.send.poll(&mut out));
    }
}

/// Packets of a stranger, and the victim's work meanwhile.
pub fn connection(bytes: &[u8]) {
    let mut feed = Feed(bytes);
    let mut world = world().lock().expect("one thread");
    let world = &mut *world;
    world.attacker.reconnect(world.listener.port());
    let mut end = None;
    while !feed.is_empty() {
        match feed.u8() % 4 {
            0 | 1 => world.send(&mut feed),
            2 => {
                for event in world.host.events() {
                    if event.kind != EventKind::REQUEST {
                        continue;
                    }
                    if end.is_some() || feed.u8().is_multiple_of(8) {
                        let _ = world.host.device.reject(event.request, RejectReason::CONSUMER, b"no");
                        continue;
                    }
                    let made = world.host.end(2);
                    let _ = made.channel.accept(event.request, b"yes");
                    end = Some(made);
                }
                while let Received::Packet(..) = handshake::receive(&world.attacker.socket) {}
            }
            _ => end.iter().for_each(|end| world.work(&mut feed, end)),
        }
    }
    for event in world.host.events() {
        if event.kind == EventKind::REQUEST {
            let _ = world.host.device.reject(event.request, RejectReason::CONSUMER, b"");
        }
    }
    if let Some(end) = &end {
        let _ = end.channel.disconnect();
    }
    drop(end);
    let _ = world.host.events();
}
