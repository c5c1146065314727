//! Measures the provider by itself, over its own interface: two pinned processes, everything polled.
//!
//! `cargo run --release -p dat-shm --example direct [lat|rate|bw|write|read|connect ...] [parameter=value ...]`

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_plugin::host::{Channel, Device, Memory, Plugin, Queue, Remote, SpanTable};
use dat_plugin::{
    Access, ChannelAttr, Completion, CompletionStatus, Config, ConnectParam, Event, EventKind, Opcode,
    PostFlag, Segment, Status,
};
use dat_shm::Shm;

const AREA: usize = 8 << 20;
const WINDOW: u64 = 64;
const LIMIT: Duration = Duration::from_secs(20);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|arg| arg == "--peer") {
        return peer();
    }
    let all = args[1..].iter().all(|arg| arg.contains('='));
    let chosen = |what: &str| all || args[1..].iter().any(|arg| arg == what);
    pin(1);
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .arg("--peer")
        .args(args[1..].iter().filter(|arg| arg.contains('=')))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a second process");
    pin(0);
    run(&mut child, chosen);
    drop(child.stdin.take());
    child.wait().expect("the second process ends");
}

struct Side {
    device: Device,
    channel: Channel,
    queue: Arc<Queue>,
    table: SpanTable,
    area: u32,
    memory: Memory,
    shared: Memory,
    shared_context: u32,
    rkey: u32,
}

impl Side {
    fn new() -> Side {
        let params =
            std::env::args().filter_map(|arg| arg.split_once('=').map(|(k, v)| (k.into(), v.into())));
        let config = Config { ia_name: "bench".into(), params: params.collect() };
        let device = Plugin::of::<Shm>().open(&config).expect("open");
        let queue = Arc::new(device.open_queue(4096).expect("queue"));
        let channel = Side::channel(&device, &queue);
        let table = SpanTable::new();
        let memory = Memory::heap(AREA);
        memory.write(0, &vec![1; AREA]);
        let area = device.register(memory.clone(), Access(0x33), 0).expect("register");
        let shared = device.alloc(AREA as u64).expect("alloc");
        shared.write(0, &vec![2; AREA]);
        let registration = device.register(shared.clone(), Access(0x33), 0).expect("register");
        let rkey = registration.keys().rkey;
        let area = table.insert(area).expect("room");
        let shared_context = table.insert(registration).expect("room");
        Side { device, channel, queue, table, area, memory, shared, shared_context, rkey }
    }

    fn channel(device: &Device, queue: &Arc<Queue>) -> Channel {
        let attr = ChannelAttr {
            max_requests: 256,
            max_recvs: 256,
            max_request_segments: 4,
            max_recv_segments: 4,
            max_reads_out: 8,
            max_reads_in: 8,
            send_user: 1,
            recv_user: 2,
            ..ChannelAttr::default()
        };
        device.open_channel(&attr, Some(queue), Some(queue), None).expect("channel")
    }

    fn seg(&self, len: usize) -> Segment {
        self.seg_at(0, len)
    }

    fn seg_at(&self, offset: usize, len: usize) -> Segment {
        let addr = self.memory.addr() + offset as u64;
        self.table.segment(self.area, addr, len as u32, 0, Access::LOCAL_READ).expect("segment")
    }

    fn shared_seg(&self, len: usize) -> Segment {
        let addr = self.shared.addr();
        self.table.segment(self.shared_context, addr, len as u32, 0, Access::LOCAL_READ).expect("segment")
    }

    fn send(&self, seg: &[Segment], len: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.channel.post(Opcode::SEND, PostFlag::NONE, 0, seg, len as u64, Remote::default())
            != Status::OK
        {
            assert!(Instant::now() < deadline, "no room to post");
        }
    }

    #[inline]
    fn post(&self, seg: &[Segment], len: usize) {
        let status = self.channel.post(Opcode::SEND, PostFlag::NONE, 0, seg, len as u64, Remote::default());
        assert_eq!(status, Status::OK);
    }

    #[inline]
    fn recv(&self, seg: &[Segment], len: usize) {
        assert_eq!(self.channel.post_recv(PostFlag::NONE, 0, seg, len as u64), Status::OK);
    }

    fn wait(&self, kind: EventKind) -> Event {
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut out = [Event::new(EventKind(0), 0)];
            if self.device.poll_events(&mut out) == 1 {
                assert_eq!(out[0].kind, kind);
                return out[0];
            }
            assert!(Instant::now() < deadline, "no {kind:?}");
        }
    }

    /// What the engine's event thread does; here it is done in between, so that there are two threads in all.
    fn events(&self) {
        let mut out = [Event::new(EventKind(0), 0)];
        assert_eq!(self.device.poll_events(&mut out), 0, "{:?}", out[0].kind);
    }

    /// Takes completions and counts those of sends and receives.
    #[inline]
    fn take(&self, sends: &mut u64, recvs: &mut u64) {
        let mut out = [Completion::default(); 16];
        let n = self.queue.poll(&mut out);
        for one in &out[..n] {
            assert_eq!(one.status, CompletionStatus::SUCCESS);
            if one.user == 1 { *sends += 1 } else { *recvs += 1 }
        }
    }
}

/// The other process: does what each command says.
fn peer() {
    let side = Side::new();
    let listener = side.device.listen(0, 1).expect("listen");
    println!("{} {} {}", listener.port(), side.shared.addr(), side.rkey);
    let request = side.wait(EventKind::REQUEST);
    side.channel.accept(request.request, b"").expect("accept");
    side.wait(EventKind::ESTABLISHED);
    let (lines, commands) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    loop {
        let mut out = [Event::new(EventKind(0), 0)];
        side.device.poll_events(&mut out);
        let line = match commands.try_recv() {
            Ok(line) => line,
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(_) => {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
        };
        let words: Vec<&str> = line.split(' ').collect();
        let (count, len) = (words[1].parse().expect("count"), words[2].parse().expect("length"));
        match words[0] {
            "lat" => echo(&side, count, len),
            "rate" => sink(&side, count, len),
            "connect" => accept_all(&side, &listener_of(&side), count),
            other => panic!("unknown command {other}"),
        }
    }
}

fn listener_of(side: &Side) -> dat_plugin::host::Listener {
    let listener = side.device.listen(0, 2).expect("listen");
    println!("{}", listener.port());
    listener
}

fn accept_all(side: &Side, _listener: &dat_plugin::host::Listener, count: u64) {
    for _ in 0..count {
        let channel = Side::channel(&side.device, &side.queue);
        let request = side.wait(EventKind::REQUEST);
        channel.accept(request.request, b"").expect("accept");
        side.wait(EventKind::ESTABLISHED);
        side.wait(EventKind::DISCONNECTED);
    }
}

fn echo(side: &Side, count: u64, len: usize) {
    let seg = [side.seg(len)];
    let deadline = Instant::now() + LIMIT;
    let (mut sends, mut recvs, mut turn) = (0, 0, 0);
    side.recv(&seg, len);
    side.recv(&seg, len);
    println!("0");
    while turn < count {
        side.take(&mut sends, &mut recvs);
        while turn < recvs {
            turn += 1;
            side.post(&seg, len);
            if turn + 2 <= count {
                side.recv(&seg, len);
            }
        }
        if turn % 1024 == 0 {
            assert!(Instant::now() < deadline, "peer: {turn} of {count}");
        }
    }
    while sends < count {
        side.take(&mut sends, &mut recvs);
        assert!(Instant::now() < deadline);
    }
}

fn sink(side: &Side, count: u64, len: usize) {
    let seg = [side.seg(len)];
    let deadline = Instant::now() + LIMIT;
    let (mut sends, mut recvs, mut posted) = (0, 0, 0);
    let mut looks = 0u32;
    while posted < WINDOW.min(count) {
        side.recv(&seg, len);
        posted += 1;
    }
    println!("0");
    while recvs < count {
        side.take(&mut sends, &mut recvs);
        while posted < count && posted < recvs + WINDOW {
            side.recv(&seg, len);
            posted += 1;
        }
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1024) {
            side.events();
            assert!(Instant::now() < deadline);
        }
    }
}

fn run(child: &mut Child, chosen: impl Fn(&str) -> bool) {
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut input = child.stdin.take().expect("piped");
    let mut numbers = || {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        line.split_whitespace().map(|word| word.parse().expect("a number")).collect::<Vec<u64>>()
    };
    let side = Side::new();
    let start = numbers();
    let addr = side.device.attr().address;
    side.channel.connect(&ConnectParam { addr, port: start[0], qos: 0, data: b"" }).expect("connect");
    side.wait(EventKind::ESTABLISHED);
    println!("{}", side.channel.describe());
    let remote = |len| Remote { addr: start[1], rkey: start[2] as u32, len };
    let mut tell = |line: String| writeln!(input, "{line}").expect("the peer listens");
    println!("probe: {} ns", probe());
    if chosen("lat") {
        for len in [8usize, 64, 1024, 4096] {
            let mut batches: Vec<f64> = (0..25)
                .map(|_| {
                    tell(format!("lat 1000 {len}"));
                    numbers();
                    latency(&side, 1000, len)
                })
                .collect();
            report(&format!("latency {len} B, one way"), &mut batches, "ns");
        }
        println!("probe: {} ns", probe());
    }
    if chosen("rate") {
        for (len, count) in [(8usize, 200_000), (64, 200_000), (1024, 50_000), (4096, 20_000)] {
            let mut batches: Vec<f64> = (0..9)
                .map(|_| {
                    tell(format!("rate {count} {len}"));
                    numbers();
                    count as f64 / stream(&side, count, len, None) / 1e6
                })
                .collect();
            report(&format!("rate {len} B"), &mut batches, "M/s");
        }
        println!("probe: {} ns", probe());
    }
    if chosen("bw") {
        for (len, count) in [(16384usize, 4000), (65536, 2000), (262_144, 500), (1 << 20, 150), (4 << 20, 40)]
        {
            for shared in [false, true] {
                let mut batches: Vec<f64> = (0..7)
                    .map(|_| {
                        tell(format!("rate {count} {len}"));
                        numbers();
                        let seg = shared.then(|| side.shared_seg(len));
                        count as f64 * len as f64 / stream(&side, count, len, seg) / 1e9
                    })
                    .collect();
                let memory = if shared { "allocated" } else { "plain" };
                report(&format!("two-sided {} KiB, {memory}", len / 1024), &mut batches, "GB/s");
            }
        }
    }
    for (name, op) in [("write", Opcode::WRITE), ("read", Opcode::READ)] {
        if chosen(name) {
            for len in [8usize, 4096, 65536, 1 << 20, 4 << 20] {
                let mut batches: Vec<f64> =
                    (0..7).map(|_| one_sided(&side, op, len, remote(len as u32))).collect();
                let rate = batches.iter().map(|seconds| len as f64 / seconds / 1e9);
                report(&format!("{name} {len} B, mapped"), &mut rate.collect::<Vec<_>>(), "GB/s");
                batches.iter_mut().for_each(|seconds| *seconds *= 1e9);
                report(&format!("{name} {len} B, mapped"), &mut batches, "ns");
            }
        }
    }
    if chosen("connect") {
        tell("connect 200 0".into());
        let port = numbers()[0];
        let mut times: Vec<f64> = (0..200)
            .map(|_| {
                let channel = Side::channel(&side.device, &side.queue);
                let start = Instant::now();
                channel.connect(&ConnectParam { addr, port, qos: 0, data: b"" }).expect("connect");
                side.wait(EventKind::ESTABLISHED);
                let took = start.elapsed();
                channel.disconnect();
                took.as_secs_f64() * 1e6
            })
            .collect();
        report("connect and accept", &mut times, "us");
    }
}

fn latency(side: &Side, count: u64, len: usize) -> f64 {
    let seg = [side.seg(len)];
    let deadline = Instant::now() + LIMIT;
    let (mut sends, mut recvs) = (0, 0);
    let start = Instant::now();
    for turn in 1..=count {
        side.recv(&seg, len);
        side.post(&seg, len);
        let mut looks = 0u32;
        while recvs < turn {
            side.take(&mut sends, &mut recvs);
            looks += 1;
            assert!(looks < 1 << 20 || Instant::now() < deadline, "round {turn}");
        }
    }
    let took = start.elapsed();
    while sends < count {
        side.take(&mut sends, &mut recvs);
        assert!(Instant::now() < deadline);
    }
    took.as_secs_f64() * 1e9 / count as f64 / 2.0
}

fn stream(side: &Side, count: u64, len: usize, seg: Option<Segment>) -> f64 {
    let seg = [seg.unwrap_or_else(|| side.seg(len))];
    let (mut sends, mut recvs, mut posted) = (0, 0, 0);
    let window = if len > 16384 { 8 } else { WINDOW };
    let mut looks = 0u32;
    let deadline = Instant::now() + LIMIT;
    let start = Instant::now();
    while sends < count {
        while posted < count && posted < sends + window {
            side.send_one(&seg, len);
            posted += 1;
        }
        side.take(&mut sends, &mut recvs);
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1024) {
            side.events();
            assert!(Instant::now() < deadline);
        }
    }
    start.elapsed().as_secs_f64()
}

impl Side {
    #[inline]
    fn send_one(&self, seg: &[Segment], len: usize) {
        let status = self.channel.post(Opcode::SEND, PostFlag::NONE, 0, seg, len as u64, Remote::default());
        if status != Status::OK {
            self.send(seg, len);
        }
    }
}

/// Seconds an operation takes from post to completion.
fn one_sided(side: &Side, op: Opcode, len: usize, remote: Remote) -> f64 {
    let seg = [side.seg(len)];
    let count = (64 << 20) / len.clamp(4096, 1 << 20);
    let deadline = Instant::now() + LIMIT;
    let once = || {
        assert_eq!(side.channel.post(op, PostFlag::NONE, 0, &seg, len as u64, remote), Status::OK);
        let (mut sends, mut recvs) = (0, 0);
        let mut looks = 0u32;
        while sends == 0 {
            side.take(&mut sends, &mut recvs);
            looks += 1;
            if looks.is_multiple_of(1024) {
                side.events();
                assert!(Instant::now() < deadline);
            }
        }
    };
    once();
    let start = Instant::now();
    (0..count).for_each(|_| once());
    start.elapsed().as_secs_f64() / count as f64
}

fn report(what: &str, samples: &mut [f64], unit: &str) {
    samples.sort_by(f64::total_cmp);
    let n = samples.len();
    println!(
        "{what:<32} min {:8.2}  p10 {:8.2}  median {:8.2}  max {:8.2} {unit}",
        samples[0],
        samples[n / 10],
        samples[n / 2],
        samples[n - 1]
    );
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if rustix::thread::sched_setaffinity(None, &set).is_err() {
        eprintln!("CPU {cpu} is not to be had; the figures are of unpinned processes");
    }
}

/// One-way time of a bare cache line between two threads on the two CPUs, for comparison.
fn probe() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    #[repr(align(128))]
    struct Line(AtomicU64);
    static LINES: [Line; 2] = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    const TURNS: u64 = 20_000;
    LINES.iter().for_each(|line| line.0.store(0, Ordering::SeqCst));
    let other = std::thread::spawn(|| {
        pin(1);
        for turn in 1..=TURNS {
            while LINES[0].0.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
            LINES[1].0.store(turn, Ordering::Release);
        }
    });
    let mut batches = Vec::new();
    let mut turn = 0;
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..TURNS / 20 {
            turn += 1;
            LINES[0].0.store(turn, Ordering::Release);
            while LINES[1].0.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
        }
        batches.push(start.elapsed().as_nanos() as u64 / (TURNS / 20) / 2);
    }
    other.join().expect("no panic");
    batches.sort();
    batches[2]
}
