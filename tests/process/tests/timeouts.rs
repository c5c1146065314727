//! Every blocking call honours its time-out, even when the peer does nothing.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use dat::{CloseFlags, ConnectionKind, Event, ReturnType};
use dat_process_tests::{Domain, LONG, Link, Peer, open, server};
use rustix::process::Signal;

const PEER: &str = env!("CARGO_BIN_EXE_dat-peer");
const LIMIT: Duration = Duration::from_millis(60);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(2);

/// Runs `call`, which must take its time-out and not much more.
fn timed<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = call();
    let took = start.elapsed();
    println!("{what}: {:.1} ms of {} ms", took.as_secs_f64() * 1e3, LIMIT.as_millis());
    assert!(took >= LIMIT, "{what}: came back after {took:?}, too early");
    assert!(took < LIMIT + SLACK, "{what}: came back after {took:?}");
    result
}

/// Runs `call`, which must not block.
fn at_once<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = call();
    let took = start.elapsed();
    println!("{what}: {:.2} ms", took.as_secs_f64() * 1e3);
    assert!(took < SLACK, "{what}: blocked for {took:?}");
    result
}

#[test]
fn a_wait_for_nothing() {
    let ia = open(&Domain::new().to_string()).unwrap();
    let link = Link::new(&ia).unwrap();
    assert!(timed("wait, one event", || link.completions.wait(LIMIT)).unwrap().is_none());
    assert!(timed("wait, connection", || link.connections.wait(LIMIT)).unwrap().is_none());
    assert!(timed("wait, asynchronous", || ia.async_evd().wait(LIMIT)).unwrap().is_none());
    // Fewer than the threshold is nothing, too.
    let evd = ia.evd(8).unwrap();
    evd.post(1).unwrap();
    assert!(timed("wait, threshold", || evd.wait_for(2, LIMIT.into())).unwrap().is_none());
    assert!(matches!(evd.poll(), Ok(Some(Event::Software(1)))));
}

#[test]
fn a_listener_that_never_answers() {
    let domain = Domain::new();
    let mut peer = Peer::start(PEER, "silent", &domain, &[]);
    let port = peer.hear_number("port");
    let link = Link::new(&open(&domain.to_string()).unwrap()).unwrap();
    for _ in 0..3 {
        let connect = || link.ep.connect(link.ia.address().unwrap(), port).timeout(LIMIT).establish();
        assert_eq!(timed("establish, silent peer", connect).unwrap_err().kind(), ReturnType::TimeoutExpired);
        link.ep.reset().unwrap();
    }
}

#[test]
fn a_peer_that_is_stopped() {
    let domain = Domain::new();
    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    let port = peer.hear_number("port");
    let ia = open(&domain.to_string()).unwrap();
    let mut connected = Link::new(&ia).unwrap();
    connected.connect(port, server::ECHO).unwrap();
    let mut graceful = Link::new(&ia).unwrap();
    graceful.connect(port, server::ECHO).unwrap();
    peer.signal(Signal::STOP);

    let fresh = Link::new(&ia).unwrap();
    let connect = || fresh.ep.connect(ia.address().unwrap(), port).timeout(LIMIT).establish();
    assert_eq!(timed("establish, stopped peer", connect).unwrap_err().kind(), ReturnType::TimeoutExpired);

    for _ in 0..4 {
        let post = || connected.ep.send_from(&[connected.region.slice(..64)]).post();
        at_once("send to a stopped peer", post).unwrap();
    }
    assert!(
        timed("wait, stopped peer", || connected.completions.wait_for(4, LIMIT.into())).unwrap().is_none()
    );
    at_once("abrupt disconnect", || connected.ep.disconnect(CloseFlags::Abrupt)).unwrap();
    assert_eq!(connected.connection(LONG), Some(ConnectionKind::Disconnected));

    graceful.ep.send_from(&[graceful.region.slice(..1 << 20)]).post().unwrap();
    at_once("graceful disconnect", || graceful.ep.disconnect(CloseFlags::Graceful)).unwrap();
    assert!(timed("wait for the drain", || graceful.connections.wait(LIMIT)).unwrap().is_none());
    at_once("abrupt instead", || graceful.ep.disconnect(CloseFlags::Abrupt)).unwrap();
    assert_eq!(graceful.connection(LONG), Some(ConnectionKind::Disconnected));

    at_once("free", || drop((connected, graceful, fresh)));
    at_once("close", || ia.close()).unwrap();
    peer.signal(Signal::CONT);
}

#[test]
fn closing_the_adapter_ends_a_wait() {
    let ia = open(&Domain::new().to_string()).unwrap();
    let evd = ia.evd(8).unwrap();
    let waiter = std::thread::spawn(move || evd.wait(LONG));
    std::thread::sleep(LIMIT);
    ia.close().unwrap();
    let error = at_once("wait cut short", || waiter.join()).unwrap().unwrap_err();
    assert_eq!(error.kind(), ReturnType::Abort, "{error}");
}
