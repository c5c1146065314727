//! Connections that come and go: refused, broken, a thousand of them, a peer that is killed, a device that is taken
//! away. What is counted is what the kernel says is there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dat_plugin::{EventKind, PostFlag, RejectReason, SockAddr, Status};

use crate::setup::*;

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn refusals_are_told_apart() {
    let (da, db) = (device(&[]), device(&[]));
    let (at_a, at_b) = (Events::of(&da), Events::of(&db));
    let listener = db.listen(0, 77).expect("a listener");
    assert_eq!(db.listen(listener.port(), 78).err().map(|failure| failure.status), Some(Status::IN_USE));
    let ask = |user, port, data: &[u8]| {
        let side = Side::new(&da, user, 9);
        side.connect_to(port, data).expect("connecting begins");
        side
    };
    let answer = |user| at_a.take("an answer", |event| event.user == user);
    let request = || {
        wait("a request", || {
            at_a.poll();
            at_b.left().contains(&EventKind::REQUEST).then_some(())
        });
        at_b.kind(EventKind::REQUEST)
    };
    let _nobody = ask(100, 9, b"");
    assert_eq!(answer(100).kind, EventKind::REFUSED, "nobody listens");
    let _high = ask(110, 70_000, b"");
    assert_eq!(answer(110).kind, EventKind::REFUSED, "no such port");
    let data: Vec<u8> = (0..da.attr().max_private_data as u8).collect();
    let _no = ask(120, listener.port(), &data);
    let asked = request();
    assert_eq!(asked.data(), data);
    assert_eq!(db.reject(asked.request, RejectReason::CONSUMER, &data), Status::OK);
    let told = answer(120);
    assert_eq!((told.kind, told.data()), (EventKind::REJECTED, &data[..]));
    let _busy = ask(130, listener.port(), b"");
    assert_eq!(db.reject(request().request, RejectReason::PROVIDER, b""), Status::OK);
    assert_eq!(answer(130).kind, EventKind::REFUSED, "not by the consumer");
    let gone = ask(140, listener.port(), b"");
    let asked = request();
    gone.stop(&at_a);
    drop(gone);
    let late = Side::new(&db, 200, 9);
    late.channel.accept(asked.request, b"").expect("the outcome is an event");
    assert_eq!(at_b.take("an outcome", |event| event.user == 200).kind, EventKind::ACCEPT_FAILED);
    let far = Side::new(&da, 150, 9);
    let addr = SockAddr::from(std::net::IpAddr::from([192, 0, 2, 1]));
    let param = dat_plugin::ConnectParam { addr, port: 9, qos: 0, data: b"" };
    match far.channel.connect(&param) {
        Err(failure) => assert_eq!(failure.status, Status::UNREACHABLE, "{failure}"),
        // There may be a way there, which ends somewhere else.
        Ok(()) => far.stop(&at_a),
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn receives_are_given_back_when_a_connection_ends() {
    let pair = Pair::new(&[]);
    let to = pair.b.buffer(&[0; 64]);
    for token in 0..8 {
        assert_eq!(pair.b.recv(token, &to, 8), Status::OK);
    }
    assert_eq!(pair.b.recv(9, &to, 8), Status::NO_RESOURCE);
    pair.a.stop(&pair.at_a);
    let end = pair.at_b.take("the end at B", |event| event.user == 20);
    assert_eq!(end.kind, EventKind::DISCONNECTED);
    no_completion(&pair.b.recvs);
    assert_eq!(pair.b.recv(10, &to, 8), Status::NOT_CONNECTED);
    assert_eq!(pair.b.channel.disconnect(), Status::OK, "stopped already");
    assert!(pair.at_b.left().is_empty());
}

/// What the kernel holds for the device and this process.
fn holdings() -> (String, usize) {
    let name = name();
    let shown =
        Command::new("rdma").args(["resource", "show", &name]).output().expect("the command rdma (iproute2)");
    let line = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    assert!(line.contains(" qp "), "rdma resource show {name}: {line}");
    let open = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    (line, open)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_thousand_connections_leave_nothing_behind() {
    let (da, db) = (device(&[]), device(&[]));
    let (at_a, at_b) = (Events::of(&da), Events::of(&db));
    let listener = db.listen(0, 77).expect("a listener");
    let round = |user: u64| {
        let (a, b) = (Side::new(&da, user, 9), Side::new(&db, user + 3, 9));
        connect(&a, &at_a, &b, &at_b, listener.port());
        let (from, to) = (a.buffer(b"x"), b.buffer(b"."));
        assert_eq!(b.recv(1, &to, 1), Status::OK);
        assert_eq!(a.send(1, PostFlag::NONE, &from, 1), Status::OK);
        assert_eq!(b.received().token, 1);
        a.stop(&at_a);
        at_b.take("the end at B", |event| event.user == user + 3);
    };
    round(1000);
    let before = holdings();
    let start = Instant::now();
    for i in 1..=1000 {
        round(1000 + i * 10);
    }
    println!("1000 connections in {:.1} s, before and after: {before:?}", start.elapsed().as_secs_f64());
    // The kernel takes its time with what a connection leaves in its time-wait state.
    wait("everything is given back", || (holdings() == before).then_some(()));
    assert!(at_a.left().is_empty() && at_b.left().is_empty());
}

/// Set in a process that is to be killed: the port to connect to.
const VICTIM: &str = "DAT_TEST_IBVERBS_VICTIM";

/// Connects to the parent, posts receives, reports that, and waits to be killed.
fn victim(port: u64) -> ! {
    let device = device(&[]);
    let events = Events::of(&device);
    let side = Side::new(&device, 10, 9);
    let to = side.buffer(&[0; 8]);
    assert_eq!(side.recv(1, &to, 8), Status::OK);
    side.connect_to(port, b"victim").expect("connecting begins");
    events.take("ESTABLISHED at the victim", |event| event.kind == EventKind::ESTABLISHED);
    println!("up");
    let _ = std::io::stdout().flush();
    std::thread::sleep(Duration::from_secs(60));
    std::process::exit(1);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_killed_peer_is_noticed_and_its_work_comes_back() {
    if let Ok(port) = std::env::var(VICTIM) {
        victim(port.parse().expect("a port"));
    }
    let device = device(&[]);
    let events = Events::of(&device);
    let listener = device.listen(0, 77).expect("a listener");
    let side = Side::new(&device, 20, 9);
    let to = side.buffer(&[0; 8]);
    for token in 0..4 {
        assert_eq!(side.recv(token, &to, 8), Status::OK);
    }
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new(own)
        .args([
            "--exact",
            "life::a_killed_peer_is_noticed_and_its_work_comes_back",
            "--ignored",
            "--nocapture",
        ])
        .env(VICTIM, listener.port().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the peer starts");
    let asked = events.kind(EventKind::REQUEST);
    side.channel.accept(asked.request, b"").expect("accepting begins");
    events.kind(EventKind::ESTABLISHED);
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "up")), "the peer is up");
    let start = Instant::now();
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let end = events.take("the end", |event| event.user == 20);
    println!("a killed peer was noticed after {:?}: {:?}", start.elapsed(), end.kind);
    assert!([EventKind::DISCONNECTED, EventKind::BROKEN].contains(&end.kind));
    no_completion(&side.recvs);
    assert_eq!(side.recv(9, &to, 8), Status::NOT_CONNECTED);
}
