//! Limits, wrong states and foreign resources: each gives the exact DAT code, and the program can go on.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use dat::{CloseFlags, ConnectionKind, DtoStatus, EpAttr, EpState, Error, ReturnType, Subtype};
use dat_process_tests::{Domain, LONG, Link, Note, Peer, Server, open, peer, server};

const PEER: &str = env!("CARGO_BIN_EXE_dat-peer");

/// The user `nobody`, by custom.
const NOBODY: u32 = 65534;

#[track_caller]
fn code<T: std::fmt::Debug>(result: Result<T, Error>, kind: ReturnType, subtype: Subtype) {
    let error = result.expect_err("it must fail");
    assert_eq!((error.kind(), error.subtype()), (kind, subtype), "{error}");
    assert!(error.to_string().len() > 10, "{error}: no help to anybody");
}

fn send(link: &Link) -> Result<(), Error> {
    link.ep.send_from(&[link.region.slice(..8)]).post()
}

fn recv(link: &Link) -> Result<(), Error> {
    link.ep.recv_into(&[link.region.slice(..8)]).post()
}

#[test]
fn more_than_the_queue_holds() {
    let domain = Domain::new();
    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    let port = peer.hear_number("port");
    let ia = open(&domain.to_string()).unwrap();
    let attr = EpAttr { max_recv_dtos: 4, max_request_dtos: 4, ..EpAttr::default() };
    let mut link = Link::with(&ia, attr).unwrap();
    // No process receives these.
    link.connect(port, server::DEAF).unwrap();
    for _ in 0..4 {
        send(&link).unwrap();
        recv(&link).unwrap();
    }
    for _ in 0..100 {
        assert_eq!(send(&link).unwrap_err().kind(), ReturnType::InsufficientResources);
        assert_eq!(recv(&link).unwrap_err().kind(), ReturnType::InsufficientResources);
    }
    link.ep.disconnect(CloseFlags::Abrupt).unwrap();
    for _ in 0..8 {
        assert_eq!(link.completion().status, DtoStatus::Flushed);
    }
    assert_eq!(link.connection(LONG), Some(ConnectionKind::Disconnected));
    link.ep.reset().unwrap();

    // It recovers: the same endpoint works, over and over.
    link.connect(port, server::ECHO).unwrap();
    for _ in 0..100 {
        recv(&link).unwrap();
        send(&link).unwrap();
        assert!(link.completion().status.is_success() && link.completion().status.is_success());
    }
}

#[test]
fn posting_in_each_state() {
    let domain = Domain::new();
    let mut silent = Peer::start(PEER, "silent", &domain, &[]);
    let silent_port = silent.hear_number("port");
    let ia = open(&domain.to_string()).unwrap();
    let mut link = Link::new(&ia).unwrap();
    let slice = [link.region.slice(..8)];

    assert_eq!(link.ep.state(), EpState::Unconnected);
    code(send(&link), ReturnType::InvalidState, Subtype::EpUnconnected);
    code(link.ep.write_from(&slice, link.remote).post(), ReturnType::InvalidState, Subtype::EpUnconnected);
    code(link.ep.read_into(&slice, link.remote).post(), ReturnType::InvalidState, Subtype::EpUnconnected);
    code(link.ep.disconnect(CloseFlags::Abrupt), ReturnType::InvalidState, Subtype::EpUnconnected);
    recv(&link).unwrap();

    link.ep.connect(ia.address().unwrap(), silent_port).timeout(LONG).start().unwrap();
    assert_eq!(link.ep.state(), EpState::ActiveConnectionPending);
    code(send(&link), ReturnType::InvalidState, Subtype::EpActConnPending);
    code(link.ep.reset(), ReturnType::InvalidState, Subtype::EpActConnPending);
    recv(&link).unwrap();
    link.ep.disconnect(CloseFlags::Abrupt).unwrap();
    assert_eq!(link.connection(LONG), Some(ConnectionKind::Disconnected));

    assert_eq!(link.ep.state(), EpState::Disconnected);
    for _ in 0..2 {
        assert_eq!(link.completion().status, DtoStatus::Flushed);
    }
    // After the end posts are accepted and flushed at once.
    send(&link).unwrap();
    recv(&link).unwrap();
    for _ in 0..2 {
        assert_eq!(link.completion().status, DtoStatus::Flushed);
    }
    link.ep.reset().unwrap();

    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    link.connect(peer.hear_number("port"), server::DEAF).unwrap();
    code(link.ep.reset(), ReturnType::InvalidState, Subtype::EpConnected);
    send(&link).unwrap();
    link.ep.disconnect(CloseFlags::Graceful).unwrap();
    assert_eq!(link.ep.state(), EpState::DisconnectPending);
    code(send(&link), ReturnType::InvalidState, Subtype::EpDiscPending);
    recv(&link).unwrap();
}

#[test]
fn arguments_that_cannot_be() {
    let domain = Domain::new();
    let ia = open(&domain.to_string()).unwrap();
    let link = Link::new(&ia).unwrap();
    let here = ia.address().unwrap();
    let most = ia.provider_attr().unwrap().max_private_data_size as usize;

    let long = vec![1; most + 1];
    let connect = link.ep.connect(here, 1).private_data(&long).timeout(LONG).start();
    code(connect, ReturnType::InvalidParameter, Subtype::Arg5);
    let multicast = link.ep.connect("224.0.0.1".parse().unwrap(), 1).timeout(LONG).start();
    code(multicast, ReturnType::InvalidAddress, Subtype::AddressUnsupported);
    // Another host: an error at once, or an event; never a hang.
    match link.ep.connect("192.0.2.1".parse().unwrap(), 1).timeout(LONG).start() {
        Err(error) => assert_eq!(error.kind(), ReturnType::InvalidAddress, "{error}"),
        Ok(()) => {
            assert_eq!(link.connection(LONG), Some(ConnectionKind::Unreachable));
            link.ep.reset().unwrap();
        }
    }
    // No process listens there.
    link.ep.connect(here, 999_999).timeout(LONG).start().unwrap();
    assert_eq!(link.connection(LONG), Some(ConnectionKind::NonPeerRejected));
    let unknown = open(&format!("{domain}, speed = \"light\"")).unwrap_err();
    assert!(unknown.to_string().contains("speed"), "{unknown}");
}

#[test]
fn the_most_private_data_arrives_whole() {
    let domain = Domain::new();
    let ia = open(&domain.to_string()).unwrap();
    let most = ia.provider_attr().unwrap().max_private_data_size as usize;
    let data: Vec<u8> = dat_process_tests::pattern(3, most);
    let evd = ia.evd(8).unwrap();
    let psp = ia.listen_any(&evd).unwrap();
    let link = Link::new(&ia).unwrap();
    link.ep
        .connect(ia.address().unwrap(), psp.conn_qual())
        .private_data(&data)
        .timeout(LONG)
        .start()
        .unwrap();
    let Ok(Some(dat::Event::Request(mut request))) = evd.wait(LONG) else { panic!("no request") };
    assert_eq!(request.private_data(), data);
    let other = Link::new(&ia).unwrap();
    // Too much to answer with leaves the request as it was.
    let long = vec![1; most + 1];
    assert_eq!(request.accept(&other.ep, &long).unwrap_err().kind(), ReturnType::InvalidParameter);
    request.reject(&data).unwrap();
    match link.connections.wait(LONG) {
        Ok(Some(dat::Event::Connection { kind: ConnectionKind::PeerRejected, private_data, .. })) => {
            assert_eq!(*private_data, *data);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_listener_of_another_process() {
    let domain = Domain::new();
    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    let port = peer.hear_number("port");
    let ia = open(&domain.to_string()).unwrap();
    let evd = ia.evd(8).unwrap();
    code(ia.listen(port, &evd), ReturnType::ConnQualInUse, Subtype::None);
    // It is free as soon as the other is gone.
    peer.kill();
    peer.wait();
    ia.listen(port, &evd).unwrap();
}

#[test]
fn another_user_is_refused_unless_allowed() {
    // Root may do so, unless a container has taken that right away or has no such user.
    if let Err(why) = Command::new("true").uid(NOBODY).gid(NOBODY).current_dir("/").status() {
        println!("NOT RUN: another user is refused: this one cannot become user {NOBODY}: {why}");
        return;
    }
    // Where another user can read it.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("dat-peer");
    fs::copy(PEER, &program).unwrap();
    fs::copy(peer::plugins().join("libdat_shm.so"), folder.path().join("libdat_shm.so")).unwrap();

    for (allow, outcome) in
        [("", "refused"), ("allow_users = \"any\"", "connected"), ("allow_users = \"65534\"", "connected")]
    {
        let domain = Domain::with(allow);
        let ia = open(&domain.to_string()).unwrap();
        let mut server = Server::new(&ia).unwrap();
        let port = server.port().to_string();
        // The other user must allow this one, too.
        let theirs = format!("domain = \"{}\", allow_users = \"any\"", domain.name());
        let mut other = Peer::start_as(&program, folder.path(), Some(NOBODY), "connect", &theirs, &[&port]);
        let serving = std::thread::spawn(move || {
            let mut connected = false;
            while let Some(note) = server.turn(Duration::from_millis(300)).unwrap() {
                connected |= note == Note::Connected;
            }
            connected
        });
        let said = other.hear("outcome");
        println!("{allow:24} user {NOBODY}: {said}");
        match outcome {
            "connected" => assert_eq!(said, "connected"),
            _ => assert!(said.contains("DAT_INVALID_STATE"), "{said}"),
        }
        assert_eq!(serving.join().unwrap(), outcome == "connected");
    }
}
