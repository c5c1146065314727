//! Several threads on the same endpoints: post, poll, disconnect, connect again, free. No hang, no crash, no completion
//! lost.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat::{CloseFlags, Event, ReturnType};
use dat_process_tests::{Domain, LONG, Link, Peer, open, random, random_time, server};

const PEER: &str = env!("CARGO_BIN_EXE_dat-peer");
/// Most posts without a completion, far below what the dispatcher holds.
const ROOM: u64 = 2000;
const TIME: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Counts {
    posted: AtomicU64,
    completed: AtomicU64,
    connections: AtomicU64,
    endpoints: AtomicU64,
    /// No posts for a moment.
    pause: AtomicBool,
    stop: AtomicBool,
}

impl Counts {
    /// Posts whose completion was not taken yet.
    fn waiting(&self) -> u64 {
        // A completion may be counted before its post is.
        let completed = self.completed.load(Ordering::Relaxed);
        self.posted.load(Ordering::Relaxed).saturating_sub(completed)
    }
}

#[test]
fn everything_at_once() {
    let domain = Domain::new();
    let mut peer = Peer::start(PEER, "serve", &domain, &[]);
    let port = peer.hear_number("port");
    let ia = open(&domain.to_string()).unwrap();
    let link = Arc::new(Link::new(&ia).unwrap());
    let counts = Arc::new(Counts::default());

    let mut workers = Vec::new();
    for _ in 0..2 {
        let (link, counts) = (link.clone(), counts.clone());
        workers.push(thread::spawn(move || post(&link, &counts)));
    }
    {
        let (link, counts) = (link.clone(), counts.clone());
        workers.push(thread::spawn(move || poll(&link, &counts)));
    }
    {
        let (link, counts) = (link.clone(), counts.clone());
        workers.push(thread::spawn(move || connect_and_break(&link, port, &counts)));
    }
    {
        let (ia, counts) = (ia.clone(), counts.clone());
        workers.push(thread::spawn(move || make_and_free(&ia, port, &counts)));
    }
    thread::sleep(TIME);
    counts.stop.store(true, Ordering::Relaxed);
    let deadline = Instant::now() + LONG;
    for worker in workers {
        while !worker.is_finished() {
            assert!(Instant::now() < deadline, "a thread hangs");
            thread::sleep(Duration::from_millis(5));
        }
        worker.join().unwrap();
    }
    // All that was accepted must have completed, flushed or not.
    poll_until_dry(&link, &counts);
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} posts, {} completions, {} connections, {} other endpoints",
        get(&counts.posted),
        get(&counts.completed),
        get(&counts.connections),
        get(&counts.endpoints)
    );
    assert!(ia.async_evd().poll().unwrap().is_none(), "an overflow, or a provider that is ill");
    assert_eq!(get(&counts.posted), get(&counts.completed), "posts without a completion");
    assert!(get(&counts.connections) > 10 && get(&counts.endpoints) > 10 && get(&counts.posted) > 1000);
}

fn post(link: &Link, counts: &Counts) {
    while !counts.stop.load(Ordering::Relaxed) {
        // A dispatcher that is full loses completions, which is not what this is about.
        if counts.pause.load(Ordering::Relaxed) || counts.waiting() > ROOM {
            thread::yield_now();
            continue;
        }
        for receive in [true, false] {
            let slice = [link.region.slice(..64)];
            let post = if receive { link.ep.recv_into(&slice) } else { link.ep.send_from(&slice) };
            match post.post() {
                Ok(()) => {
                    counts.posted.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    let kind = error.kind();
                    let expected = [ReturnType::InsufficientResources, ReturnType::InvalidState];
                    assert!(expected.contains(&kind), "{error}");
                    thread::yield_now();
                }
            }
        }
    }
}

fn poll(link: &Link, counts: &Counts) {
    while !counts.stop.load(Ordering::Relaxed) {
        match link.completions.poll().unwrap() {
            Some(Event::Completion(_)) => {
                counts.completed.fetch_add(1, Ordering::Relaxed);
            }
            Some(other) => panic!("{other:?}"),
            None => thread::yield_now(),
        }
    }
}

fn poll_until_dry(link: &Link, counts: &Counts) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while counts.completed.load(Ordering::Relaxed) < counts.posted.load(Ordering::Relaxed)
        && Instant::now() < deadline
    {
        if let Some(Event::Completion(_)) = link.completions.wait(Duration::from_millis(10)).unwrap() {
            counts.completed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Connects, lets the others work for a moment, and ends the connection at once. Leaves it ended.
fn connect_and_break(link: &Link, port: u64, counts: &Counts) {
    let mut random = random();
    loop {
        let address = link.ia.address().unwrap();
        link.ep.connect(address, port).private_data(server::ECHO).timeout(LONG).establish().unwrap();
        counts.connections.fetch_add(1, Ordering::Relaxed);
        thread::sleep(random_time(&mut random, Duration::from_millis(5)));
        // Nothing but this ends the connection: an echo that finds no receive waits for one.
        link.ep.disconnect(CloseFlags::Abrupt).unwrap();
        assert!(link.connection(LONG).is_some(), "no event after a disconnect");
        if counts.stop.load(Ordering::Relaxed) {
            return;
        }
        // Posts on an ended endpoint complete at once and would fill the dispatcher, again and again: no room for the
        // completions of the next life, and they would be lost. So no thread posts until it has begun.
        counts.pause.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + LONG;
        while counts.waiting() > 1000 {
            // The thread that polls may have ended already.
            if counts.stop.load(Ordering::Relaxed) {
                return;
            }
            assert!(Instant::now() < deadline, "completions do not come");
            thread::sleep(Duration::from_millis(1));
        }
        link.ep.reset().unwrap();
        counts.pause.store(false, Ordering::Relaxed);
    }
}

/// Endpoints that are freed while they are connecting, connected or in use.
fn make_and_free(ia: &dat::Ia, port: u64, counts: &Counts) {
    let mut random = random();
    while !counts.stop.load(Ordering::Relaxed) {
        let link = Link::new(ia).unwrap();
        link.ep
            .connect(ia.address().unwrap(), port)
            .private_data(server::SINK)
            .timeout(LONG)
            .start()
            .unwrap();
        if random.bool() {
            assert!(link.connection(LONG).is_some(), "no outcome of a connect");
            link.ep.send_from(&[link.region.slice(..random.usize(..1 << 20))]).post().unwrap();
        }
        if random.bool() {
            thread::sleep(random_time(&mut random, Duration::from_millis(1)));
        }
        drop(link);
        counts.endpoints.fetch_add(1, Ordering::Relaxed);
    }
}
