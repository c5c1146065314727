//! Peers of another user, and strangers that are refused.
//!
//! A thread has credentials of its own as far as the kernel is concerned, so a test that runs as root is both users.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use super::*;

const OTHER: u32 = 65534;

/// Connects as another user. `None`: this process may not become one.
fn as_another_user(test: &str, port: u64) -> Option<Attacker> {
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: {test}: it must be root to be another user, too");
        return None;
    }
    let made = std::thread::spawn(move || {
        // SAFETY: changes the credentials of this thread, which ends here.
        let status = unsafe { libc::syscall(libc::SYS_setresuid, -1, OTHER, -1) };
        (status == 0).then(|| Attacker::new(port))
    });
    let made = made.join().unwrap();
    if made.is_none() {
        println!("NOT RUN: {test}: this process may not change its user");
    }
    made
}

/// A TCP socket whose last close takes as long as `linger`.
fn lingering(linger: Duration) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (kept, _) = listener.accept().unwrap();
    out.set_nonblocking(true).unwrap();
    while out.write(&[0; 65536]).is_ok() {}
    out.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&out, Some(linger)).unwrap();
    (out, kept)
}

const LINGER: Duration = Duration::from_secs(6);
/// What the event thread may take for it, on a machine that is busy.
const BOUND: Duration = Duration::from_secs(2);

/// The request carries a descriptor that takes long to close: the event thread does not wait for that.
fn closing_takes_no_time(mut host: Host, port: u64, attacker: Attacker) {
    let (slow, _kept) = lingering(LINGER);
    let mut packet = Attacker::request(port);
    if let Packet::Request { with, .. } = &mut packet {
        *with = With::MEMORY;
    }
    // Not what a request should be, so an allowed one is dropped, too.
    let fds = [slow.as_fd(), slow.as_fd()];
    let _ = handshake::send(&attacker.socket, &packet, &fds);
    drop(slow);
    let start = Instant::now();
    attacker.wait_closed(&mut host);
    println!(
        "a descriptor that closes in {LINGER:?} kept the event thread for at most {:?}",
        start.elapsed()
    );
    assert!(start.elapsed() < BOUND, "the event thread was away for {:?}", start.elapsed());
}

#[test]
fn what_a_refused_user_sends_does_not_hold_the_event_thread() {
    let host = Host::open(&[]);
    let listener = host.device.listen(0, 1).unwrap();
    let test = "what_a_refused_user_sends_does_not_hold_the_event_thread";
    let Some(attacker) = as_another_user(test, listener.port()) else { return };
    closing_takes_no_time(host, listener.port(), attacker);
}

#[test]
fn what_a_malformed_request_carries_does_not_hold_the_event_thread() {
    let host = Host::open(&[]);
    let listener = host.device.listen(0, 1).unwrap();
    let attacker = Attacker::new(listener.port());
    closing_takes_no_time(host, listener.port(), attacker);
}

/// An end of the connection closes what is unread in its socket.
#[test]
fn what_is_unread_at_the_end_does_not_hold_the_caller() {
    let (mut host, end, _listener, attacker) = Attacker::connected();
    let (slow, _kept) = lingering(LINGER);
    handshake::send(&attacker.socket, &Packet::Kick, &[slow.as_fd()]).unwrap();
    drop(slow);
    let start = Instant::now();
    assert_eq!(end.channel.disconnect(), Status::OK);
    drop(end);
    host.pump();
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
}

/// A peer of another user that is allowed in gets no keys, no memory, and is not reached through the kernel.
#[test]
fn another_user_gets_operations_by_the_target_alone() {
    let mut host = Host::open(&[("allow_users", "any")]);
    let end = host.end(2);
    let listener = host.device.listen(0, 1).unwrap();
    let test = "another_user_gets_operations_by_the_target_alone";
    let Some(attacker) = as_another_user(test, listener.port()) else { return };
    let area = host.area_of(host.device.alloc(4096).unwrap(), crate::common::ALL, 7);
    attacker.send(&Attacker::request(listener.port()), &attacker.fds());
    let asked = host.wait(EventKind::REQUEST);
    end.channel.accept(asked.request, b"").unwrap();
    let Received::Packet(Packet::Accept { with, cma, .. }, fds) = handshake::receive(&attacker.socket) else {
        panic!("not accepted");
    };
    assert!(with.has(With::DEVICE) && !with.has(With::KEYS) && fds.len() == 1, "{with:?}");
    assert!(!cma, "its memory is not reached through the kernel");
    attacker.send(&Packet::Confirm { cma: true }, &[]);
    host.wait(EventKind::ESTABLISHED);
    for write in [false, true] {
        attacker.send(&Packet::MapRequest { map: 1, write }, &[]);
        let deadline = Instant::now() + LIMIT;
        loop {
            host.pump();
            match handshake::receive(&attacker.socket) {
                Received::Packet(Packet::MapReply { ok, .. }, fds) => {
                    assert!(!ok && fds.is_empty());
                    break;
                }
                _ => assert!(Instant::now() < deadline),
            }
        }
    }
    drop(area);
}
