//! SIGSTOP of a peer at any moment. Memory that the peer may still write to is not given back, and others are not held up.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat::Ia;
use dat_process_tests::{
    Domain, LONG, Link, Load, Note, Peer, Server, open, random, random_time, server, setting,
};
use rustix::process::Signal;

const PEER: &str = env!("CARGO_BIN_EXE_dat-peer");
/// Peers that are stopped. `DAT_TEST_STOPS=1000 DAT_TEST_STOP_MS=10000` is the long run.
const STOPS: u64 = 12;
/// How long each stays stopped.
const STOP_MS: u64 = 400;
/// The longest time between the start of the load and the stop.
const MOMENT: Duration = Duration::from_millis(15);
/// What a peer gets to go on with its work.
const GO_ON: Duration = Duration::from_millis(20);
/// The pattern of memory that is not registered.
const FILL: u8 = 0xA5;
/// Bytes of the registered memory that peers write.
const WRITTEN: usize = 2 << 20;
/// When no processor is free, an answer comes that much later.
const BUSY: Duration = Duration::from_secs(2);

#[test]
fn what_a_stopped_peer_may_write_to_is_kept_and_nobody_waits() {
    let domain = Domain::new();
    let ia = open(&domain.to_string()).unwrap();
    let bystander = Bystander::start(&ia, &domain);
    let alone = {
        thread::sleep(Duration::from_millis(500));
        bystander.worst_so_far()
    };
    let mut random = random();
    let (stops, time) =
        (setting("DAT_TEST_STOPS", STOPS), Duration::from_millis(setting("DAT_TEST_STOP_MS", STOP_MS)));
    let mut stopped: VecDeque<Stopped> = VecDeque::new();
    let mut longest = Duration::ZERO;
    for number in 0..stops {
        let load = [Load::Write, Load::Read, Load::Send, Load::Large][number as usize % 4];
        let (one, took) = Stopped::stop(&ia, &domain, load, random_time(&mut random, MOMENT));
        longest = longest.max(took);
        stopped.push_back(one);
        while stopped.front().is_some_and(|one| one.since.elapsed() >= time) {
            stopped.pop_front().expect("the first").go_on();
        }
    }
    for one in stopped {
        thread::sleep(time.saturating_sub(one.since.elapsed()));
        one.go_on();
    }
    let answers = bystander.end();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let at = |part: f64| ms(answers[((answers.len() - 1) as f64 * part) as usize]);
    println!(
        "{stops} peers stopped for {} ms each; nothing was written to memory given back",
        time.as_millis()
    );
    println!("giving back a stopped peer's connection and memory: at most {:.1} ms", ms(longest));
    println!(
        "a bystander's {} answers: median {:.3} ms, 99.9 % {:.2} ms, worst {:.2} ms; before any stop {:.2} ms",
        answers.len(),
        at(0.5),
        at(0.999),
        at(1.0),
        ms(alone)
    );
    assert!(at(0.5) < 10.0, "the median of a bystander's answers");
    assert!(answers[answers.len() - 1] < BUSY && longest < BUSY, "somebody waited for a stopped peer");
}

/// A stopped peer, and memory that lies where its target's memory was.
struct Stopped {
    peer: Peer,
    since: Instant,
    memory: Vec<Vec<u8>>,
}

impl Stopped {
    /// Has a new peer work, stops it, and gives back all that it worked with. The second is how long that took.
    fn stop(ia: &Ia, domain: &Domain, load: Load, moment: Duration) -> (Stopped, Duration) {
        let mut server = Server::with_heap(ia).unwrap();
        let peer = Peer::start(PEER, "load", domain, &[&server.port().to_string(), &format!("{load:?}")]);
        while server.turn(LONG).unwrap().expect("a client") != Note::Connected {}
        let start = Instant::now();
        while start.elapsed() < moment {
            server.turn(Duration::from_millis(1)).unwrap();
        }
        peer.signal(Signal::STOP);
        let since = Instant::now();
        drop(server);
        let took = since.elapsed();
        // As much as was freed, so that the allocator uses those pages again.
        let memory = (0..2).map(|_| vec![FILL; WRITTEN]).collect();
        (Stopped { peer, since, memory }, took)
    }

    /// The peer goes on in the middle of what it did. Then it is killed.
    fn go_on(mut self) {
        self.peer.signal(Signal::CONT);
        thread::sleep(GO_ON);
        self.peer.kill();
        self.peer.wait();
        let wrong = self.memory.iter().flatten().filter(|byte| **byte != FILL).count();
        assert_eq!(
            wrong, 0,
            "bytes of memory that was given back were written by a peer that had been stopped"
        );
    }
}

/// A connection of the same adapter with another peer, which answers messages all the time.
struct Bystander {
    ends: Arc<AtomicBool>,
    worst: Arc<std::sync::Mutex<Duration>>,
    thread: thread::JoinHandle<Vec<Duration>>,
}

impl Bystander {
    fn start(ia: &Ia, domain: &Domain) -> Bystander {
        let mut peer = Peer::start(PEER, "serve", domain, &[]);
        let mut link = Link::new(ia).unwrap();
        link.connect(peer.hear_number("port"), server::ECHO).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let worst = Arc::new(std::sync::Mutex::new(Duration::ZERO));
        let (ended, told) = (ends.clone(), worst.clone());
        let thread = thread::spawn(move || {
            let _peer = peer;
            let mut answers = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let start = Instant::now();
                link.ep.recv_into(&[link.region.slice(..64)]).post().unwrap();
                link.ep.send_from(&[link.region.slice(64..128)]).post().unwrap();
                for _ in 0..2 {
                    assert!(link.completion().status.is_success());
                }
                let took = start.elapsed();
                let mut worst = told.lock().expect("no panic");
                *worst = took.max(*worst);
                answers.push(took);
                thread::sleep(Duration::from_micros(200));
            }
            answers.sort();
            answers
        });
        Bystander { ends, worst, thread }
    }

    fn worst_so_far(&self) -> Duration {
        *self.worst.lock().expect("no panic")
    }

    fn end(self) -> Vec<Duration> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("the bystander got all its answers")
    }
}
