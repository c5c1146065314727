//! Two processes by the provider's name: connect, send, write, read, disconnect; every byte verified.
#![forbid(unsafe_code)]

use dat::{CloseFlags, ConnectionKind, DtoOperation, EpState, RmrTriplet};
use dat_process_tests::{Domain, LONG, Link, Peer, alone, open, pattern, server, sum};

const PEER: &str = env!("CARGO_BIN_EXE_dat-peer");

#[test]
fn by_the_name_alone() {
    if alone("by_the_name_alone") {
        return;
    }
    let mut peer = Peer::start(PEER, "serve", &"-", &[]);
    let port = peer.hear_number("port");
    let ia = dat::open("shm0").expect("the built-in plugins.toml names it");
    converse(&mut Link::new(&ia).unwrap(), &mut peer, port);
}

#[test]
fn one_sided_by_mapping() {
    forced("one_sided = \"mapped\"", "mapped");
}

#[test]
fn one_sided_by_the_kernel() {
    forced("one_sided = \"cma\"", "cma");
}

#[test]
fn one_sided_by_the_target() {
    forced("one_sided = \"target\"", "target");
}

#[test]
fn without_any_help_of_the_kernel() {
    forced("one_sided = \"target\", cma = \"off\"", "target");
}

fn forced(parameters: &str, mechanism: &str) {
    let domain = Domain::with(parameters);
    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    let port = peer.hear_number("port");
    let mut link = Link::new(&open(&domain.to_string()).unwrap()).unwrap();
    converse(&mut link, &mut peer, port);
    // Connected once more, now for the path it takes.
    link.connect(port, server::IDLE).unwrap();
    let path = link.ep.path();
    assert!(path.contains(mechanism), "forced to {mechanism}, takes {path:?}");
}

/// The whole life of a connection, on an endpoint that is not connected; leaves it so.
fn converse(link: &mut Link, peer: &mut Peer, port: u64) {
    link.connect(port, server::ECHO).unwrap();
    assert_eq!(link.ep.state(), EpState::Connected);
    messages(link);
    for (seed, len) in [(1, 1), (2, 8), (3, 4097), (4, 100_000), (5, 1 << 20)] {
        write_and_read(link, peer, seed, len);
    }
    link.ep.disconnect(CloseFlags::Graceful).unwrap();
    assert_eq!(link.connection(LONG), Some(ConnectionKind::Disconnected));
    link.ep.reset().unwrap();

    link.connect(port, server::SINK).unwrap();
    let sent = pattern(9, 1 << 20);
    link.region.write(0, &sent);
    link.ep.send_from(&[link.region.slice(..sent.len())]).cookie(7).post().unwrap();
    let done = link.completion();
    assert!(done.status.is_success() && done.cookie == 7 && done.length == sent.len() as u64, "{done:?}");
    link.hang_up().unwrap();
}

fn messages(link: &Link) {
    for (round, len) in [0, 1, 8, 63, 64, 65, 1000, 4096].into_iter().enumerate() {
        let sent = pattern(round as u64, len);
        link.region.write(0, &sent);
        link.region.write(8192, &[0xAA; 4096]);
        link.ep.recv_into(&[link.region.slice(8192..12288)]).cookie(1).post().unwrap();
        link.ep.send_from(&[link.region.slice(..len)]).cookie(2).post().unwrap();
        for _ in 0..2 {
            let done = link.completion();
            assert!(done.status.is_success() && done.length == len as u64, "{len} bytes: {done:?}");
            assert_eq!(done.cookie == 1, done.operation == DtoOperation::Receive, "{done:?}");
        }
        let mut received = vec![0; 4096];
        link.region.read(8192, &mut received);
        assert!(received[..len] == sent, "{len} bytes came back changed");
        assert!(received[len..].iter().all(|byte| *byte == 0xAA), "bytes after the message were touched");
    }
}

fn write_and_read(link: &Link, peer: &mut Peer, seed: u64, len: usize) {
    let sent = pattern(seed, len);
    link.region.write(0, &sent);
    link.region.write(1 << 20, &vec![0; len]);
    let remote = RmrTriplet { length: len as u32, ..link.remote };
    link.ep.write_from(&[link.region.slice(..len)], remote).cookie(3).post().unwrap();
    let done = link.completion();
    assert!(done.status.is_success() && done.operation == DtoOperation::RdmaWrite, "{done:?}");
    // The peer looks itself, so that a write and a read that are wrong in the same way do not pass.
    peer.say(&format!("sum {len}"));
    assert_eq!(peer.hear("sum"), sum(&sent).to_string(), "{len} bytes at the peer");

    let local = [link.region.slice(1 << 20..(1 << 20) + len)];
    link.ep.read_into(&local, remote).cookie(4).post().unwrap();
    let done = link.completion();
    assert!(done.status.is_success() && done.operation == DtoOperation::RdmaRead, "{done:?}");
    let mut back = vec![0; len];
    link.region.read(1 << 20, &mut back);
    assert!(back == sent, "{len} bytes were read back changed");
}
