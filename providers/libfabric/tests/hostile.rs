//! Hostile connections to a device over a real libfabric, and what remains of a closed port. Without libfabric the
//! tests print that they did not run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use dat_plugin::{ConnectParam, EventKind, RejectReason, Status};

mod ends;

use ends::*;

#[test]
fn garbage_at_a_connected_port_does_no_harm() {
    garbage(MSG);
}

#[test]
fn garbage_at_a_port_with_frames_does_no_harm() {
    garbage(FRAMED);
}

#[test]
fn garbage_at_a_datagram_port_does_no_harm() {
    garbage(RDM);
}

#[test]
fn a_request_after_its_listener_closed_is_refused_connected() {
    late_requests(MSG);
}

#[test]
fn a_request_after_its_listener_closed_is_refused_in_frames() {
    late_requests(FRAMED);
}

/// A listener closes before it read a request that arrived, and another one listens at its address. The request is
/// refused, so its sender does not wait for ever.
#[test]
fn an_unread_request_is_refused_when_its_port_closes() {
    let Some((a, b)) = pair_of_devices(RDM, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let ask = |end: &End| {
        let (addr, port) = (b.device.attr().address, listener.port());
        end.channel.connect(&ConnectParam { addr, port, qos: 0, data: b"ask" }).expect("begins");
    };
    ask(&a);
    let request = await_event([&a, &b], 1, |event| event.kind == EventKind::REQUEST);
    assert_eq!(b.device.reject(request.request, RejectReason::CONSUMER, b""), Status::OK);
    assert_eq!(await_event([&a, &b], 0, |_| true).kind, EventKind::REJECTED);
    // The fabric's connection exists now, so this request goes at once.
    let late = End::new(a.device.clone(), 300);
    ask(&late);
    for _ in 0..100 {
        assert!(late.poll().is_none());
        std::thread::sleep(Duration::from_micros(200));
    }
    let port = listener.port();
    drop(listener);
    let successor = b.device.listen(port, 10).expect("the port again");
    let read = await_event([&late, &b], 1, |event| event.kind == EventKind::REQUEST);
    assert_eq!(read.user, 9, "a request to the listener that closed");
    assert_eq!(b.device.reject(read.request, RejectReason::PROVIDER, b""), Status::OK);
    assert_eq!(await_event([&late, &b], 0, |_| true).kind, EventKind::REFUSED);
    drop(successor);
}

#[test]
fn a_child_that_outlives_a_device_keeps_no_port_open_connected() {
    outlived(MSG);
}

#[test]
fn a_child_that_outlives_a_device_keeps_no_port_open_datagrams() {
    outlived(RDM);
}

/// Strangers send garbage to a port, before and while a peer uses it.
fn garbage(params: &[(&str, &str)]) {
    let Some((a, b)) = pair_of_devices(params, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let at: SocketAddr = format!("127.0.0.1:{}", listener.port()).parse().expect("an address");
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..150usize {
        if let Ok(mut stranger) = TcpStream::connect(at) {
            let bytes: Vec<u8> = (0..round * 3).map(|_| rng.u8(..)).collect();
            let _ = stranger.write_all(&bytes);
        }
        assert!(a.poll().is_none());
        assert_eq!(b.poll().map(|event| event.kind), None, "a stranger became a request");
    }
    let [a, b] = connect(a, b, &listener);
    exchange(&a, &b);
}

/// Peers that connect by TCP, and send their request after the listener closed, are refused. The port is free at once.
fn late_requests(params: &[(&str, &str)]) {
    let Some((_, b)) = pair_of_devices(params, "0") else { return };
    // Freed memory is overwritten, so that a use after free crashes.
    // SAFETY: `mallopt` changes only how the allocator treats freed memory.
    unsafe { libc::mallopt(libc::M_PERTURB, 0x5A) };
    let mut taken = 0;
    for _ in 0..100 {
        let listener = b.device.listen(0, 9).expect("a port");
        let at: SocketAddr = format!("127.0.0.1:{}", listener.port()).parse().expect("an address");
        let mut peers: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(at).expect("taken in")).collect();
        for _ in 0..8 {
            assert!(b.poll().is_none());
        }
        drop(listener);
        let again = match std::net::TcpListener::bind(at) {
            Ok(again) => again,
            // Now and then the system gives the free port to another process at once.
            Err(why) => {
                taken += 1;
                assert!(taken < 10, "the port is not free: {why}");
                continue;
            }
        };
        for peer in &mut peers {
            // libfabric's head of a request, without its data.
            let mut head = [0; 32];
            (head[0], head[16]) = (3, 1);
            let _ = peer.write_all(&head);
        }
        for peer in &mut peers {
            peer.set_nonblocking(true).expect("a socket");
            let start = Instant::now();
            while matches!(peer.read(&mut [0; 64]), Err(why) if why.kind() == std::io::ErrorKind::WouldBlock)
            {
                assert!(b.poll().is_none(), "a request for a listener that is closed");
                assert!(start.elapsed() < LONG, "a peer is kept waiting");
            }
        }
        drop(again);
    }
}

/// A closing device closes the connections of peers whose request it did not read.
#[test]
fn a_closing_device_closes_connections_with_unread_requests() {
    let Some((_, b)) = pair_of_devices(MSG, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let at: SocketAddr = format!("127.0.0.1:{}", listener.port()).parse().expect("an address");
    let mut peers: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(at).expect("taken in")).collect();
    for _ in 0..8 {
        assert!(b.poll().is_none());
    }
    let mut head = [0; 32];
    (head[0], head[16]) = (3, 1);
    peers.iter_mut().for_each(|peer| peer.write_all(&head).expect("says what it wants"));
    drop(listener);
    drop(b);
    for peer in &mut peers {
        peer.set_read_timeout(Some(LONG)).expect("a socket");
        let mut answer = Vec::new();
        let end = peer.read_to_end(&mut answer);
        assert!(
            end.as_ref().is_ok_and(|_| !answer.is_empty())
                || end.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionReset),
            "not refused"
        );
    }
}

/// A port is closed with its listener and device, even if a program was started meanwhile.
fn outlived(params: &[(&str, &str)]) {
    let Some((a, b)) = pair_of_devices(params, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let ip = b.device.attr().address.to_std().expect("an address").ip();
    let at = SocketAddr::new(ip, listener.port() as u16);
    let mut child = Command::new("sleep").arg("1000").spawn().expect("a process");
    let before = TcpStream::connect(at).map(drop);
    drop((a, b, listener));
    let closed = Instant::now();
    let after = loop {
        match TcpStream::connect(at).map(drop) {
            // A child counts as started a moment before it closes inherited descriptors.
            Ok(()) if closed.elapsed() < LONG => std::thread::sleep(Duration::from_millis(10)),
            other => break other,
        }
    };
    child.kill().and_then(|()| child.wait()).expect("it ran");
    before.expect("listens");
    assert_eq!(after.expect_err("closed").kind(), std::io::ErrorKind::ConnectionRefused);
}
