//! A thousand connections of one process; what each costs, by its attributes; how long connecting and opening take.
//! The tests count the process's descriptors and memory and raise its limits, so they run one after another.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use dat::{ConnectionKind, Ep, EpAttr, Evd, Event, Region};
use dat_process_tests::{Domain, Holdings, LONG, Peer, alone, descriptors, open, server};
use serial_test::serial;

const PEER: &str = env!("CARGO_BIN_EXE_dat-peer");
const COUNT: usize = 1000;

#[test]
#[serial]
fn a_thousand_connections() {
    if !descriptors(COUNT + 200, "a_thousand_connections") {
        return;
    }
    let domain = Domain::new();
    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    let port = peer.hear_number("port");
    let ia = open(&domain.to_string()).unwrap();
    let pz = ia.pz().unwrap();
    let (connections, completions) = (ia.evd(64).unwrap(), ia.evd(33 * COUNT as u32).unwrap());
    let region = pz.region(4096, dat::Privileges::ALL).unwrap();
    let connect = || {
        let ep = ia.ep(&pz).connect_evd(&connections).recv_evd(&completions).request_evd(&completions);
        let ep = ep.attr(EpAttr::default()).create().unwrap();
        let start = Instant::now();
        ep.connect(ia.address().unwrap(), port).private_data(server::ECHO).timeout(LONG).establish().unwrap();
        (ep, start.elapsed())
    };
    // What is made once is not counted.
    let warm = connect().0;
    assert!(completions.wait(Duration::from_millis(1)).unwrap().is_none());
    let lonely = poll_cost(&warm, &completions, &region);
    let (before, private) = (Holdings::calm(), Holdings::private_bytes());
    let (eps, mut times): (Vec<_>, Vec<Duration>) = (0..COUNT).map(|_| connect()).unzip();
    let (after, private_after) = (Holdings::now(), Holdings::private_bytes());
    times.sort();
    let (median, late, worst) = (times[COUNT / 2], times[COUNT * 9 / 10], times[COUNT - 1]);
    let shared = (after.segment_bytes - before.segment_bytes) / COUNT as u64;
    let own = private_after.saturating_sub(private) / COUNT as u64;
    println!(
        "{COUNT} connections, idle: {shared} bytes shared by both sides and {own} bytes of this side, each"
    );
    println!("descriptors each: {:.2}", (after.descriptors - before.descriptors) as f64 / COUNT as f64);
    println!("connect + accept: median {median:?}, nine in ten within {late:?}, worst {worst:?}");
    assert!(shared > 0, "the shared memory was not found; it would have to be counted otherwise");
    assert!(shared + own < 64 << 10, "{} bytes for an idle connection", shared + own);
    assert_eq!(after.threads, before.threads, "connections cost threads");
    // The figure is printed; the bound only catches what is out of all proportion, for the machine may be busy and the
    // build unoptimised.
    assert!(median < Duration::from_millis(30), "median {median:?}");

    // Polls cost in proportion to the connections at work. The bound only catches a poll that looks at all of them.
    let crowded = poll_cost(&warm, &completions, &region);
    println!(
        "poll of the dispatcher: {crowded:.1?} ns with {COUNT} idle connections, {lonely:.1?} ns with none"
    );
    assert!(crowded < 20.0 * lonely + 100.0, "{crowded:.1} ns in place of {lonely:.1}");

    // Every one of them works.
    for (index, ep) in eps.iter().enumerate() {
        ep.recv_into(&[region.slice(..8)]).cookie(index as u64).post().unwrap();
        ep.send_from(&[region.slice(8..16)]).cookie(index as u64).post().unwrap();
    }
    for _ in 0..2 * COUNT {
        match completions.wait(LONG).unwrap() {
            Some(Event::Completion(done)) => {
                assert!(done.status.is_success(), "{done:?}");
                assert_eq!(done.ep, eps[done.cookie as usize].id());
            }
            other => panic!("expected a completion, got {other:?}"),
        }
    }
    // And every one is let go.
    drop(eps);
    assert_eq!(before.settled(), before, "left: after, before");
    drop(warm);
}

/// Connections of few and short messages cost less than usual ones, and those of many cost what these need.
#[test]
#[serial]
fn memory_follows_the_attributes() {
    /// A multiple of how many share a file.
    const EACH: usize = 160;
    const DEEP: u32 = 1000;
    // Of four kinds, all kept.
    if !descriptors(4 * EACH + 200, "memory_follows_the_attributes") {
        return;
    }
    let domain = Domain::new();
    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    let port = peer.hear_number("port");
    let ia = open(&domain.to_string()).unwrap();
    let pz = ia.pz().unwrap();
    let evd = ia.evd(1 << 19).unwrap();
    let of = |depth, max_message_size| EpAttr {
        max_recv_dtos: depth,
        max_request_dtos: depth,
        max_message_size,
        ..EpAttr::default()
    };
    let usual = EpAttr::default();
    let kinds = [
        ("one message of 64 bytes", of(1, 64)),
        ("one message of any length", of(1, usual.max_message_size)),
        ("the defaults", usual.clone()),
        ("a thousand messages", of(DEEP, usual.max_message_size)),
    ];
    let connect = |attr: &EpAttr| {
        let ep = ia.ep(&pz).evd(&evd).attr(attr.clone()).create().unwrap();
        let connect = ep.connect(ia.address().unwrap(), port).private_data(server::IDLE);
        connect.timeout(LONG).start().unwrap();
        match evd.wait(LONG).unwrap() {
            Some(Event::Connection { kind: ConnectionKind::Established, .. }) => ep,
            other => panic!("expected a connection, got {other:?}"),
        }
    };
    // What is made once is not counted.
    let warm = connect(&usual);
    let mut all = vec![warm];
    let costs = kinds.map(|(what, attr)| {
        let (before, private) = (Holdings::calm(), Holdings::private_bytes());
        all.extend((0..EACH).map(|_| connect(&attr)));
        let shared = (Holdings::now().segment_bytes - before.segment_bytes) / EACH as u64;
        let own = Holdings::private_bytes().saturating_sub(private) / EACH as u64;
        println!("{what}: {shared} bytes shared by both sides and {own} bytes of this side, each");
        (shared, own)
    });
    let [tiny, few, usual, deep] = costs.map(|(shared, _)| shared);
    assert!(tiny < few && few < usual, "{costs:?}");
    assert!(tiny * 2 < usual, "a connection that needs little gets it: {costs:?}");
    assert!(usual + costs[2].1 < 64 << 10, "{costs:?}");
    assert!(deep > u64::from(DEEP) * 2 * 128, "short messages of both directions find room: {costs:?}");
    assert!(deep < 1 << 20, "{costs:?}");
}

/// Nanoseconds of a poll that finds nothing while one connection is at work: the best of some groups of polls, each right
/// after a message there and back.
fn poll_cost(ep: &Ep, completions: &Evd, region: &Region) -> f64 {
    const POLLS: u32 = 64;
    let mut best = f64::MAX;
    for _ in 0..200 {
        ep.recv_into(&[region.slice(..8)]).post().unwrap();
        ep.send_from(&[region.slice(8..16)]).post().unwrap();
        let deadline = Instant::now() + LONG;
        let mut left = 2;
        while left > 0 {
            left -= i32::from(completions.poll().unwrap().is_some());
            assert!(Instant::now() < deadline, "no echo");
        }
        let start = Instant::now();
        for _ in 0..POLLS {
            assert!(completions.poll().unwrap().is_none());
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(POLLS));
    }
    best
}

#[test]
#[serial]
fn connecting_many_at_once() {
    const BATCH: usize = 200;
    // The peer frees what it has of one round while the next goes on.
    if !descriptors(10 * BATCH, "connecting_many_at_once") {
        return;
    }
    let domain = Domain::new();
    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    let port = peer.hear_number("port");
    let ia = open(&domain.to_string()).unwrap();
    let pz = ia.pz().unwrap();
    let evd = ia.evd(4 * BATCH as u32).unwrap();
    let ep = || ia.ep(&pz).evd(&evd).max_recvs(1).max_requests(1).create().unwrap();
    let (mut singly, mut together) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        // Made and freed outside of what is measured.
        let eps: Vec<Ep> = (0..2 * BATCH).map(|_| ep()).collect();
        let connect = |ep: &Ep| {
            let connect = ep.connect(ia.address().unwrap(), port).private_data(server::IDLE);
            connect.timeout(LONG).start().unwrap();
        };
        let established = || match evd.wait(LONG).unwrap() {
            Some(Event::Connection { kind: ConnectionKind::Established, .. }) => {}
            other => panic!("expected a connection, got {other:?}"),
        };
        let (one_by_one, at_once) = eps.split_at(BATCH);
        let start = Instant::now();
        for ep in one_by_one {
            connect(ep);
            established();
        }
        singly.push(start.elapsed() / BATCH as u32);
        let start = Instant::now();
        at_once.iter().for_each(connect);
        at_once.iter().for_each(|_| established());
        together.push(start.elapsed() / BATCH as u32);
    }
    singly.sort();
    together.sort();
    println!("a connection, one after another: {:?}; {BATCH} at once: {:?} each", singly[2], together[2]);
    // Posted at once they must not be in each other's way; how much faster they are depends on the machine.
    assert!(together[2] < singly[2] * 4 + Duration::from_millis(2), "{together:?}, one by one {singly:?}");
}

#[test]
#[serial]
fn opening_is_quick() {
    if alone("opening_is_quick") {
        return;
    }
    // Each in a process of its own, so that the library is loaded each time.
    let mut first: Vec<u64> =
        (0..9).map(|_| Peer::start(PEER, "open", &"-", &[]).hear_number("microseconds")).collect();
    first.sort();
    let mut again: Vec<Duration> = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let ia = dat::open("shm0").expect("the built-in plugins.toml names it");
        again.push(start.elapsed());
        drop(ia);
    }
    again.sort();
    println!("registry, library and adapter: median {} us; once loaded: median {:?}", first[4], again[10]);
    assert!(first[4] < 50_000, "{first:?} us");
    assert!(again[10] < Duration::from_millis(10), "{again:?}");
}
