//! Many endpoints over shm and TCP for a while, with connects, kill -9, SIGSTOP and regions that come and go: what the
//! process holds stays flat, and all of it is given back. `cargo xtask soak` runs it for long and draws the curves.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dat::Ia;
use dat_process_tests::{
    Domain, Holdings, LONG, Link, Peer, Server, descriptors, open, peer, random, random_time, server, setting,
};
use fastrand::Rng;
use rustix::process::Signal;

const PEER: &str = env!("CARGO_BIN_EXE_dat-peer");
/// Processes of a crowd.
const PROCESSES: usize = 4;
/// The longest SIGSTOP.
const STOP: Duration = Duration::from_secs(2);
/// Descriptors that may be there afterwards and were not before, however long the run: over TCP six were seen, of libfabric.
const KEPT: usize = 12;
/// Messages of one sample of the latency.
const PINGS: usize = 50;

#[test]
fn what_a_process_holds_stays_flat() {
    let seconds = setting("DAT_SOAK_SECONDS", 6);
    let endpoints = setting("DAT_SOAK_ENDPOINTS", 48) as usize;
    if !descriptors(endpoints * 12 + 500, "what_a_process_holds_stays_flat") {
        return;
    }
    let mut random = random();
    let shm = Domain::new().to_string();
    let tcp = "fabric = \"tcp\", address = \"127.0.0.1\"".to_owned();
    let names = [shm].into_iter().chain(has_tcp().then_some(tcp)).collect::<Vec<_>>();
    let each = (endpoints / names.len() / PROCESSES).max(1);
    let mut places: Vec<Place> = names.iter().map(|name| Place::new(name, each)).collect();
    // What is made once is made here, before the count: also what comes with the first peers that stop and die at work.
    for _ in 0..2 {
        places.iter_mut().for_each(Place::fill);
        for place in &mut places {
            place.kill_one(&mut random);
            place.stop_one(&mut random);
        }
        places.iter_mut().for_each(Place::empty);
    }
    let before = Holdings::calm();
    println!("open before: {:?}", Holdings::kinds());
    places.iter_mut().for_each(Place::fill);
    let start = Instant::now();
    let mut private = Vec::new();
    let (mut killed, mut stopped) = (0, 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        let next = Instant::now() + Duration::from_secs(1);
        let place = random.usize(..places.len());
        match random.bool() {
            true => {
                places[place].kill_one(&mut random);
                killed += 1;
            }
            false => {
                places[place].stop_one(&mut random);
                stopped += 1;
            }
        }
        let latency: Vec<String> =
            places.iter().map(|place| place.latency().as_micros().to_string()).collect();
        let (now, bytes) = (Holdings::now(), Holdings::private_bytes());
        private.push(bytes);
        // Seconds, descriptors, threads, mappings, KiB of them, KiB of private memory, microseconds of each place.
        println!(
            "sample {} {} {} {} {} {} {}",
            start.elapsed().as_secs(),
            now.descriptors,
            now.threads,
            now.segments,
            now.segment_bytes / 1024,
            bytes / 1024,
            latency.join(" ")
        );
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let served: usize = places.iter().map(|place| place.served.load(Ordering::Relaxed)).sum();
    places.iter_mut().for_each(Place::empty);
    let after = settled(&before);
    println!(
        "{} endpoints, {} adapters, {killed} killed, {stopped} stopped, {served} events at the servers; left {after:?}, \
         before {before:?}",
        each * PROCESSES * places.len(),
        places.len()
    );
    let left = after.descriptors > before.descriptors + KEPT || after.threads > before.threads;
    assert!(!left, "something is left; now open: {:?}", Holdings::kinds());
    assert!(after.segments <= before.segments && after.shm_files <= before.shm_files, "memory is left");
    let third = private.len() / 3;
    let (first, last) = (median(&private[..=third]), median(&private[private.len() - third - 1..]));
    assert!(last <= first + first / 4 + (16 << 20), "private memory grew from {first} to {last} bytes");
}

/// Whether the libfabric provider is there and finds its library. Without it shm alone is looked at.
fn has_tcp() -> bool {
    if !peer::plugins().join("libdat_libfabric.so").exists() {
        println!("without TCP: the plugin is not built (`cargo build -p dat-libfabric`)");
        return false;
    }
    let opened = open("fabric = \"tcp\", address = \"127.0.0.1\"");
    opened.map_err(|error| println!("without TCP: {error}")).is_ok()
}

fn median(numbers: &[u64]) -> u64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// What is held once it is no more than before, or after a generous time.
fn settled(before: &Holdings) -> Holdings {
    let deadline = Instant::now() + LONG;
    loop {
        let now = Holdings::now();
        let less = now.descriptors <= before.descriptors + KEPT
            && now.threads <= before.threads
            && now.segments <= before.segments;
        if less || Instant::now() > deadline {
            return now;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// An adapter with a server, and its crowds.
struct Place {
    name: String,
    each: usize,
    port: u64,
    crowds: Vec<Peer>,
    probe: Link,
    served: Arc<AtomicUsize>,
    clients: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Place {
    fn new(name: &str, each: usize) -> Place {
        let ia = open(name).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let (served, clients) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (port, thread) = serve(&ia, (ends.clone(), served.clone(), clients.clone()));
        let mut probe = Link::new(&ia).unwrap();
        probe.connect(port, server::ECHO).unwrap();
        let thread = Some(thread);
        Place { name: name.to_owned(), each, port, crowds: Vec::new(), probe, served, clients, ends, thread }
    }

    fn crowd(&self) -> Peer {
        let mut peer =
            Peer::start(PEER, "crowd", &self.name, &[&self.port.to_string(), &self.each.to_string()]);
        peer.hear("working");
        peer
    }

    fn fill(&mut self) {
        for _ in 0..PROCESSES {
            let crowd = self.crowd();
            self.crowds.push(crowd);
        }
    }

    /// Kills all, and waits until the server is rid of all but the probe.
    fn empty(&mut self) {
        self.crowds.clear();
        let deadline = Instant::now() + LONG;
        while self.clients.load(Ordering::Relaxed) > 1 {
            assert!(Instant::now() < deadline, "{}: endpoints that wait for dead clients", self.name);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill_one(&mut self, random: &mut Rng) {
        let one = random.usize(..self.crowds.len());
        self.crowds[one].kill();
        self.crowds[one].wait();
        self.crowds[one] = self.crowd();
    }

    fn stop_one(&self, random: &mut Rng) {
        let one = &self.crowds[random.usize(..self.crowds.len())];
        one.signal(Signal::STOP);
        thread::sleep(random_time(random, STOP));
        one.signal(Signal::CONT);
    }

    /// The median of some messages there and back.
    fn latency(&self) -> Duration {
        let link = &self.probe;
        let mut times: Vec<Duration> = (0..PINGS)
            .map(|_| {
                let start = Instant::now();
                link.ep.recv_into(&[link.region.slice(..64)]).post().unwrap();
                link.ep.send_from(&[link.region.slice(64..128)]).post().unwrap();
                for _ in 0..2 {
                    let done = link.completion();
                    assert!(done.status.is_success(), "{}: {done:?}", self.name);
                }
                start.elapsed()
            })
            .collect();
        times.sort();
        times[PINGS / 2]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; this may be another one's unwinding.
            let _ = thread.join();
        }
    }
}

type Shared = (Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>);

fn serve(ia: &Ia, (ends, served, clients): Shared) -> (u64, JoinHandle<()>) {
    let mut server = Server::new(ia).unwrap();
    let port = server.port();
    let thread = thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            if server.turn(Duration::from_millis(20)).unwrap().is_some() {
                served.fetch_add(1, Ordering::Relaxed);
            }
            clients.store(server.clients(), Ordering::Relaxed);
        }
    });
    (port, thread)
}
