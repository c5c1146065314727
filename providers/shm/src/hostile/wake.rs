//! How a peer lets itself be woken, and how it wakes.

use rustix::event::{PollFd, PollFlags, poll};

use super::*;
use crate::control::handshake::Wake;
use crate::notify::ready_bitmap::ReadyBitmap;
use crate::notify::wake::{WakeSender, WakeSocket, Waker};

/// Longer than any call takes, and shorter than for ever.
const SOON: Duration = Duration::from_secs(5);

/// All attackers are device 1, and names are the machine's.
fn number(queue: u64) -> u64 {
    u64::from(std::process::id()) << 32 | queue
}

fn readable(end: &End) -> bool {
    let fd = end.recv.fd().unwrap();
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() == 1
}

/// Connects a peer with queues; returns what it learnt about the victim's.
fn connected_with(wake: [Wake; 2], attacker: &Attacker, host: &mut Host, end: &End, port: u64) -> Hello {
    let mut request = Attacker::request(port);
    if let Packet::Request { hello, .. } = &mut request {
        hello.wake = wake;
    }
    attacker.send(&request, &attacker.fds());
    let asked = host.wait(EventKind::REQUEST);
    end.channel.accept(asked.request, b"").unwrap();
    let Received::Packet(Packet::Accept { hello, .. }, _) = handshake::receive(&attacker.socket) else {
        panic!("not accepted");
    };
    attacker.send(&Packet::Confirm { cma: false }, &[]);
    host.wait(EventKind::ESTABLISHED);
    hello
}

/// A thread that posts to the peer while that changes its mind all the time: each post returns.
fn posts_return(host: &Host, end: &End, attacker: &Attacker, bitmap: &ReadyBitmap) {
    let area = host.area(8);
    for number in 1..200u32 {
        bitmap.arm(true);
        attacker.segment.own().parked[0].store(number, Ordering::SeqCst);
        let start = Instant::now();
        // When the ring is full the request waits; that is as good.
        end.post_send(u64::from(number), &[area.seg(0, 8)]);
        assert!(start.elapsed() < SOON, "a post took {:?}", start.elapsed());
        if number >= 60 {
            break;
        }
    }
}

#[test]
fn a_peer_that_does_not_read_its_wake_ups_holds_nobody() {
    let mut host = Host::open(&[]);
    let end = host.end(2);
    let listener = host.device.listen(0, 1).unwrap();
    let attacker = Attacker::new(listener.port());
    // A socket that is full.
    let full = WakeSocket::new(1, number(9), 4).unwrap();
    for _ in 0..5000 {
        full.signal();
    }
    let bitmap = attacker.bitmaps.take().unwrap();
    let wake = Wake { queue: number(9), bitmap: bitmap.number(), slot: 0, secret: 4 };
    connected_with([wake, Wake::default()], &attacker, &mut host, &end, listener.port());
    posts_return(&host, &end, &attacker, &bitmap);
}

#[test]
fn a_peer_without_a_wake_socket_raises_no_signal() {
    let mut host = Host::open(&[]);
    let end = host.end(2);
    let listener = host.device.listen(0, 1).unwrap();
    let attacker = Attacker::new(listener.port());
    let bitmap = attacker.bitmaps.take().unwrap();
    let wake = Wake { queue: number(10), bitmap: bitmap.number(), slot: 0, secret: 4 };
    connected_with([wake, Wake::default()], &attacker, &mut host, &end, listener.port());
    posts_return(&host, &end, &attacker, &bitmap);
}

/// It knows the secret, sends all the time, and makes the description of its socket blocking: the victim's calls return,
/// and an honest peer's wake-up arrives.
#[test]
fn a_peer_that_floods_a_queue_holds_nobody() {
    let mut host = Host::open(&[]);
    let end = host.end(2);
    let listener = host.device.listen(0, 1).unwrap();
    let attacker = Attacker::new(listener.port());
    let hello = connected_with([Wake::default(); 2], &attacker, &mut host, &end, listener.port());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (wake, sender) = (hello.wake[0], Arc::new(WakeSender::new().unwrap()));
            let bitmap = attacker.bitmaps.take().unwrap();
            bitmap.arm(true);
            let waker = Waker::new(bitmap, &sender, hello.device, wake.queue, wake.secret).unwrap();
            while !stop.load(Ordering::Relaxed) {
                waker.ring(0);
            }
        });
        let start = Instant::now();
        for _ in 0..200 {
            end.recv.arm();
            end.recv.disarm();
        }
        let took = start.elapsed();
        stop.store(true, Ordering::Relaxed);
        assert!(took < SOON, "{took:?}");
    });
    while readable(&end) {
        end.recv.disarm();
    }
}

/// Bitmaps are writable for all peers. One that takes the flag of a sleeper away delays the wake-ups of other peers to the
/// next packet and no longer.
#[test]
fn a_cleared_flag_does_not_keep_a_sleeper_asleep() {
    let (mut host, end, _listener, attacker, (map, hello)) = Attacker::connected_to();
    let area = host.area(64);
    assert_eq!(end.post_recv(1, &[area.seg(0, 64)]), Status::OK);
    while !end.recv.arm() {
        let mut out = [Completion::default(); 8];
        end.recv.poll(&mut out);
    }
    map.bitmap(hello.wake[0].bitmap).unwrap().arm(false);
    attacker.header(0, kind::SEND, 8, 0);
    attacker.send(&Packet::Kick, &[]);
    let deadline = Instant::now() + LIMIT;
    while !readable(&end) {
        host.pump();
        assert!(Instant::now() < deadline, "the sleeper sleeps on");
    }
}
