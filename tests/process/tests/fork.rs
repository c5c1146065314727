//! The child of a process with an open adapter gets an error from every call; the parent is not disturbed.
#![forbid(unsafe_code)]

use dat_process_tests::{Domain, LONG, Note, Peer, Server, open};

const PEER: &str = env!("CARGO_BIN_EXE_dat-peer");

#[test]
fn the_child_gets_errors_and_the_parent_goes_on() {
    let domain = Domain::new();
    let mut server = Server::new(&open(&domain.to_string()).unwrap()).unwrap();
    let port = server.port().to_string();
    let mut peer = Peer::start(PEER, "fork", &domain, &[&port]);
    // Serves until the one client has gone by itself: a connection broken by the child would end it too early.
    let serving = std::thread::spawn(move || {
        loop {
            match server.turn(LONG).unwrap().expect("the client does something in time") {
                Note::Gone(kind) => return kind,
                _ => continue,
            }
        }
    });
    // 0 calls of the child did anything but fail; no crash, no hang.
    assert_eq!(peer.hear("calls"), "Ok(0)");
    assert_eq!(peer.hear("drops"), "Ok(0)");
    peer.hear("parent well");
    assert_eq!(serving.join().unwrap(), dat::ConnectionKind::Disconnected);
    assert!(peer.ended_well(LONG), "the parent ends as usual");
}
