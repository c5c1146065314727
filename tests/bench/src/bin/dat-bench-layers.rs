//! What the layers of `plugins.toml` cost: the same 8-byte messages through the shared-memory provider's tables without
//! a layer, and with each.
//!
//! Both ends are on one thread, so that no cache line moves and what is left is the price of the code. A round posts a
//! batch of receives, posts a batch of sends, takes all receive completions, takes all send completions; each phase is
//! timed and divided by the batch. Rounds of the variants take turns; the median of the rounds is printed, and the
//! difference to the first row.
//!
//! `cargo run --release -p dat-bench --bin dat-bench-layers [-- --rounds N] [-- --only NAME]`

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat::registry::layer::{self, Spec};
use dat_plugin::host::{Channel, Device, Memory, Plugin, Queue, Remote, SpanTable};
use dat_plugin::{
    Access, ChannelAttr, Completion, Config, ConnectParam, Event, EventKind, Opcode, PostFlag, Segment,
};
use dat_shm::Shm;

const BATCH: usize = 64;
const PHASES: [&str; 4] = ["post_recv", "post_send", "recv completion", "send completion"];

/// Name, and the layers it is made of. The second shows that an empty list is none.
const VARIANTS: [(&str, &str); 7] = [
    ("none", ""),
    ("empty list", ""),
    ("count", "count"),
    ("trace, unheard", "trace"),
    ("trace,count", "trace,count"),
    ("faults, far off", "faults:fail_register=1000000"),
    ("faults, mild", "faults"),
];

type Sample = [f64; 4];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let rounds: usize = given("--rounds").map_or(2000, |n| n.parse().expect("--rounds takes a number"));
    let only = given("--only");
    let mut set = rustix::thread::CpuSet::new();
    set.set(0);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        eprintln!("not pinned: {error}");
    }
    let chosen = VARIANTS.into_iter().filter(|(name, _)| only.is_none_or(|only| only == name));
    let mut pairs: Vec<(&str, Pair, Vec<Sample>)> =
        chosen.map(|(name, layers)| (name, Pair::new(layers), Vec::new())).collect();
    assert!(!pairs.is_empty(), "--only takes one of {:?}", VARIANTS.map(|(name, _)| name));
    for round in 0..rounds + rounds / 10 {
        for (_, pair, samples) in &mut pairs {
            let sample = pair.round();
            // The first tenth warms up.
            if round >= rounds / 10 {
                samples.push(sample);
            }
        }
    }
    println!("8-byte messages, batches of {BATCH}, median of {rounds} rounds, ns an operation (over none)");
    print!("{:<16}", "layers");
    PHASES.iter().for_each(|phase| print!(" {phase:>17}"));
    let medians: Vec<Sample> = pairs.iter().map(|(_, _, samples)| median(samples)).collect();
    for ((name, ..), sample) in pairs.iter().zip(&medians) {
        print!("\n{name:<16}");
        for (ns, base) in sample.iter().zip(&medians[0]) {
            print!(" {:>17}", format!("{ns:.1} ({:+.1})", ns - base));
        }
    }
    println!();
}

fn median(samples: &[Sample]) -> Sample {
    std::array::from_fn(|phase| {
        let mut values: Vec<f64> = samples.iter().map(|sample| sample[phase]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    })
}

/// A connection between two devices of this thread.
struct Pair {
    channels: [Channel; 2],
    queues: [Arc<Queue>; 2],
    segments: [Segment; 2],
    _spans: SpanTable,
}

impl Pair {
    fn new(layers: &str) -> Pair {
        let specs = if layers.is_empty() { Vec::new() } else { Spec::parse_list(layers).expect("layers") };
        let own = Plugin::of::<Shm>();
        let plugin = layer::over(own.clone(), &specs).expect("layers");
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let world = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let domain = format!("bench-layers-{world}-{}", std::process::id());
        let config = Config { ia_name: "bench".into(), params: BTreeMap::from([("domain".into(), domain)]) };
        let devices: [Device; 2] = [0; 2].map(|_| plugin.open(&config).expect("the provider opens"));
        assert_eq!(devices[0].is_directly_of(&own), specs.is_empty(), "a layer where none was asked for");
        let queues = [0, 1].map(|i: usize| Arc::new(devices[i].open_queue(256).expect("a queue")));
        let channels = [0, 1].map(|i: usize| {
            let (attr, queue) = (attr(i as u64 + 1), Some(&queues[i]));
            devices[i].open_channel(&attr, queue, queue, None).expect("a channel")
        });
        let spans = SpanTable::new();
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let segments = [0, 1].map(|i: usize| {
            let memory = Memory::heap(4096);
            let addr = memory.addr();
            let registration = devices[i].register(memory, access, 1).expect("a registration");
            let context = spans.insert(registration).unwrap_or_else(|_| panic!("no room"));
            spans.segment(context, addr, 8, 1, access).expect("a segment")
        });
        connect(&devices, &channels);
        Pair { channels, queues, segments, _spans: spans }
    }

    fn round(&self) -> Sample {
        [
            timed(|token| {
                let segments = std::slice::from_ref(&self.segments[1]);
                assert!(self.channels[1].post_recv(PostFlag::NONE, token, segments, 8).0 >= 0);
            }),
            timed(|token| {
                let segments = std::slice::from_ref(&self.segments[0]);
                let (opcode, remote) = (Opcode::SEND, Remote::default());
                assert!(self.channels[0].post(opcode, PostFlag::NONE, token, segments, 8, remote).0 >= 0);
            }),
            timed(|_| take(&self.queues[1])),
            timed(|_| take(&self.queues[0])),
        ]
    }
}

fn timed(mut step: impl FnMut(u64)) -> f64 {
    let start = Instant::now();
    (0..BATCH as u64).for_each(&mut step);
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

fn take(queue: &Queue) {
    let mut out = [Completion::default(); 1];
    while queue.poll(&mut out) == 0 {}
}

fn connect(devices: &[Device; 2], channels: &[Channel; 2]) {
    let listener = devices[1].listen(0, 9).expect("a listener");
    let param = ConnectParam { addr: devices[1].attr().address, port: listener.port(), qos: 0, data: &[] };
    channels[0].connect(&param).expect("a connect");
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut events = [Event::new(EventKind(0), 0); 8];
    let mut established = 0;
    while established < 2 {
        assert!(Instant::now() < deadline, "no connection within 10 s");
        for device in devices {
            let n = device.poll_events(&mut events);
            for event in &events[..n] {
                match event.kind {
                    EventKind::REQUEST => channels[1].accept(event.request, &[]).expect("an accept"),
                    EventKind::ESTABLISHED => established += 1,
                    other => panic!("{other:?} while connecting"),
                }
            }
        }
    }
}

fn attr(user: u64) -> ChannelAttr {
    ChannelAttr {
        user,
        send_user: user * 2,
        recv_user: user * 2 + 1,
        domain: 1,
        max_requests: BATCH as u32 * 2,
        max_recvs: BATCH as u32 * 2,
        max_request_segments: 4,
        max_recv_segments: 4,
        max_reads_out: 4,
        max_reads_in: 4,
        reserved: 0,
        max_message: 1 << 20,
    }
}
