//! P. The plugin interface itself: what the engine relies on, asked of the provider without the engine.

use std::collections::BTreeSet;
use std::sync::Arc;

use dat_plugin::host::{Channel, Device, Memory, Queue, Remote, SpanTable};
use dat_plugin::{
    Access, Caps, ChannelAttr, Completion, CompletionStatus, ConnectParam, Event, EventKind, Failure, Opcode,
    PostFlag, SrqAttr, Status,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::prelude::*;
use crate::clause::PLUGIN;
use crate::os;

clauses! {
    PLUGIN + 1 "what a device reports of itself is consistent" => attributes;
    PLUGIN + 2 "what the capability bits leave out is refused" => capabilities;
    PLUGIN + 3 "an unknown parameter is refused, and named" => unknown_parameter;
    PLUGIN + 4 "a port is listened on once; 0 stands for a free one" => listen_twice;
    PLUGIN + 5 "keys of regions: distinct, and not to be guessed from each other" => keys;
    PLUGIN + 6 "polling with room for nothing loses nothing" => no_room;
    PLUGIN + 7 "tokens come back as they were given, whatever they are" => tokens;
    PLUGIN + 8 "arm: a completion makes the descriptor readable; armed too late says so" => arm;
    PLUGIN + 9 "disarm: the descriptor is quiet" => disarm;
    PLUGIN + 10 "a channel serves one connection" => one_connection;
    PLUGIN + 11 "posts on a channel that has stopped are not accepted" => stopped;
    PLUGIN + 12 "after a disconnect has finished nothing completes and no event follows" => silent;
    PLUGIN + 13 "objects are closed in any order, used to the last" => close_order;
    PLUGIN + 14 "what a request needs is checked before it is accepted: an unknown request, private data" => bad_requests;
    PLUGIN + 15 "several devices, opened and closed by several threads" => [Alone] threads;
    PLUGIN + 16 "no descriptor, thread, memory or mapping is left of a connection and its devices" => [Alone] leaks;
    PLUGIN + 17 "signal handlers and environment are as they were" => [Alone] surroundings;
}

const ALL: Access = Access(0x33);

/// One end: a device, its queues, a channel, registered memory.
struct End {
    channel: Channel,
    sends: Arc<Queue>,
    recvs: Arc<Queue>,
    spans: SpanTable,
    context: u32,
    memory: Memory,
    device: Device,
    user: u64,
}

const DOMAIN: u32 = 5;
const ROOM: u64 = 4096;

impl End {
    fn new(device: &Device, user: u64) -> Result<End, Stop> {
        let queue = || device.open_queue(64).map(Arc::new).map_err(said);
        let (sends, recvs) = (queue()?, queue()?);
        let channel = device.open_channel(&attr(user), Some(&sends), Some(&recvs), None).map_err(said)?;
        let memory = Memory::heap(ROOM as usize);
        let registration = device.register(memory.clone(), ALL, DOMAIN).map_err(said)?;
        let spans = SpanTable::new();
        let Ok(context) = spans.insert(registration) else { return fail("the table of regions is full") };
        Ok(End { channel, sends, recvs, spans, context, memory, device: device.clone(), user })
    }

    fn send(&self, token: u64, len: u32) -> Status {
        let Ok(segment) = self.segment(len, Access::LOCAL_READ) else { return Status::INVALID };
        let remote = Remote::default();
        self.channel.post(Opcode::SEND, PostFlag::NONE, token, &[segment], len.into(), remote)
    }

    fn recv(&self, token: u64, len: u32) -> Status {
        let Ok(segment) = self.segment(len, Access::LOCAL_WRITE) else { return Status::INVALID };
        self.channel.post_recv(PostFlag::NONE, token, &[segment], len.into())
    }

    fn segment(&self, len: u32, access: Access) -> Result<dat_plugin::Segment, Stop> {
        let segment = self.spans.segment(self.context, self.memory.addr(), len, DOMAIN, access);
        segment.map_err(|error| Stop::Failed(format!("a segment of registered memory: {error:?}")))
    }

    /// The next event of the device.
    fn event(&self, t: &Bench, what: &str) -> Result<Event, Stop> {
        next_event(t, &self.device, what)
    }

    fn told(&self, t: &Bench, kind: EventKind) -> Result<Event, Stop> {
        let event = self.event(t, &format!("{kind:?}"))?;
        same("event (kind, user)", (event.kind, event.user), (kind, self.user))?;
        Ok(event)
    }
}

fn attr(user: u64) -> ChannelAttr {
    ChannelAttr {
        user,
        send_user: user + 1,
        recv_user: user + 2,
        domain: DOMAIN,
        max_requests: 8,
        max_recvs: 8,
        max_request_segments: 2,
        max_recv_segments: 2,
        max_reads_out: 1,
        max_reads_in: 1,
        reserved: 0,
        max_message: ROOM,
    }
}

fn said(failure: dat_plugin::Failure) -> Stop {
    Stop::Failed(format!("a call that should succeed gave {failure}"))
}

/// A call that must fail with one of these, saying why.
fn refused<T>(what: &str, result: Result<T, dat_plugin::Failure>, want: &[Status]) -> Outcome {
    match result {
        Ok(_) => fail(format!("{what}: succeeded instead of {want:?}")),
        Err(failure) if !want.contains(&failure.status) => {
            fail(format!("{what}: {failure} instead of {want:?}"))
        }
        Err(failure) => holds(!failure.message.is_empty(), format!("{what}: refused without a sentence")),
    }
}

fn next_event(t: &Bench, device: &Device, what: &str) -> Result<Event, Stop> {
    let mut out = [Event::new(EventKind(0), 0)];
    t.until(&format!("an event of the provider: {what}"), || Ok(device.poll_events(&mut out) == 1))?;
    Ok(out[0])
}

/// The next completion of `queue`. Devices are polled meanwhile, as the engine's thread does: what a peer waits for goes
/// on in there, even when nobody asks the peer's own queues.
fn completion(t: &Bench, queue: &Queue, devices: [&Device; 2]) -> Result<Completion, Stop> {
    let mut out = [Completion::default()];
    t.until("a completion of the provider", || {
        for device in devices {
            progress(device)?;
        }
        Ok(queue.poll(&mut out) == 1)
    })?;
    Ok(out[0])
}

/// Polls a device that has nothing to tell.
fn progress(device: &Device) -> Outcome {
    let mut out = [Event::new(EventKind(0), 0)];
    match device.poll_events(&mut out) {
        0 => Ok(()),
        _ => fail(format!("an event that should not be there: {:?}", out[0])),
    }
}

/// Two devices and a connection between them.
fn connected(t: &Bench) -> Result<(End, End), Stop> {
    let (a, b) = (End::new(&t.subject.device()?, 100)?, End::new(&t.subject.device()?, 200)?);
    let listener = b.device.listen(0, 9).map_err(said)?;
    let address = b.device.attr().address;
    let param = ConnectParam { addr: address, port: listener.port(), qos: 0, data: b"from a" };
    a.channel.connect(&param).map_err(said)?;
    // Its request may leave the active end when that is polled, as the engine's thread does.
    let mut request = Event::new(EventKind(0), 0);
    t.until("an event of the provider: a connection request", || {
        progress(&a.device)?;
        Ok(b.device.poll_events(std::slice::from_mut(&mut request)) == 1)
    })?;
    same("request (kind, user)", (request.kind, request.user), (EventKind::REQUEST, 9))?;
    same("private data of the request", request.data(), b"from a")?;
    b.channel.accept(request.request, b"from b").map_err(said)?;
    // A provider may have the passive end go on only when the active one is polled.
    let mut told = [None, None];
    t.until("both ends to be connected", || {
        for (end, told) in [&a, &b].into_iter().zip(&mut told) {
            let mut out = [Event::new(EventKind(0), 0)];
            if end.device.poll_events(&mut out) == 1 {
                *told = Some(out[0]);
            }
        }
        Ok(told.iter().all(Option::is_some))
    })?;
    for (end, told) in [&a, &b].into_iter().zip(told) {
        let seen = told.map(|event| (event.kind, event.user));
        same("event (kind, user)", seen, Some((EventKind::ESTABLISHED, end.user)))?;
    }
    same(
        "private data of the accept",
        told[0].as_ref().map(|event| event.data().to_vec()),
        Some(b"from b".into()),
    )?;
    Ok((a, b))
}

fn attributes(t: &Bench) -> Outcome {
    let device = t.subject.device()?;
    let attr = *device.attr();
    let sizes = [
        ("max_channels", u64::from(attr.max_channels)),
        ("max_queues", attr.max_queues.into()),
        ("max_queue_depth", attr.max_queue_depth.into()),
        ("max_regions", attr.max_regions.into()),
        ("max_region", attr.max_region),
        ("max_message", attr.max_message),
        ("max_rdma", attr.max_rdma),
        ("max_requests_per_channel", attr.max_requests_per_channel.into()),
        ("max_recvs_per_channel", attr.max_recvs_per_channel.into()),
        ("max_segments", attr.max_segments.into()),
    ];
    for (what, value) in sizes {
        holds(value > 0, format!("{what} is 0"))?;
    }
    let data = attr.max_private_data;
    let most = dat_plugin::MAX_PRIVATE_DATA as u32;
    holds((64..=most).contains(&data), format!("{data} bytes of private data; 64 to {most} are allowed"))?;
    holds(!device.describe().is_empty(), "the device does not describe itself")?;
    for (cap, what, count) in
        [(Caps::SRQ, "max_srqs", attr.max_srqs), (Caps::WINDOWS, "max_windows", attr.max_windows)]
    {
        same(&format!("whether {what} is above 0"), count > 0, attr.caps.contains(cap))?;
    }
    Ok(())
}

fn capabilities(t: &Bench) -> Outcome {
    let device = t.subject.device()?;
    let caps = device.attr().caps;
    let mut tried = 0;
    if !caps.contains(Caps::SRQ) {
        let attr = SrqAttr { user: 1, depth: 4, max_segments: 1, domain: DOMAIN, reserved: 0 };
        refused("a shared receive queue", device.open_srq(&attr), &[Status::NOT_SUPPORTED])?;
        tried += 1;
    }
    if !caps.contains(Caps::WINDOWS) {
        refused("a window", device.open_window(DOMAIN), &[Status::NOT_SUPPORTED])?;
        tried += 1;
    }
    if !caps.contains(Caps::IMMEDIATE) {
        let (a, _b) = connected(t)?;
        let status = a.channel.post_imm(Opcode::SEND_IMM, PostFlag::NONE, 1, &[], 0, Remote::default(), 7);
        holds(status.0 < 0, "a send with a value was accepted")?;
        tried += 1;
    }
    if !caps.contains(Caps::DMABUF) {
        // Any descriptor: what is not offered is refused before anything looks at it.
        let file =
            std::fs::File::open("/dev/null").map_err(|error| said(Failure::os("/dev/null", &error)))?;
        let memory = Memory::device(file.into(), 0, ROOM, 1 << 20);
        refused("memory of another device", device.register(memory, ALL, DOMAIN), &[Status::NOT_SUPPORTED])?;
        tried += 1;
    }
    match tried {
        0 => not_supported("the provider has every capability there is"),
        _ => Ok(()),
    }
}

fn unknown_parameter(t: &Bench) -> Outcome {
    let mut config = t.subject.config.clone();
    config.params.insert("no_such_parameter".into(), "1".into());
    match t.subject.plugin.open(&config) {
        Ok(_) => fail("a parameter nobody knows was taken"),
        Err(failure) => {
            same("status", failure.status, Status::BAD_CONFIG)?;
            let named = failure.message.contains("no_such_parameter");
            holds(named, format!("the sentence does not name it: {}", failure.message))
        }
    }
}

fn listen_twice(t: &Bench) -> Outcome {
    let device = t.subject.device()?;
    let listener = device.listen(0, 1).map_err(said)?;
    let port = listener.port();
    holds(port >= 1024, format!("a free port is {port}; those below 1024 are not for that"))?;
    refused("the same port", device.listen(port, 2), &[Status::IN_USE])?;
    let other = device.listen(0, 3).map_err(said)?;
    holds(other.port() != port, "the same port was given out twice")?;
    drop(listener);
    // Not at once: a process that is being started meanwhile holds a copy of the listener's descriptor for a moment.
    t.until("a listener where one was closed", || Ok(device.listen(port, 4).is_ok()))
}

fn keys(t: &Bench) -> Outcome {
    const COUNT: usize = 64;
    let device = t.subject.device()?;
    let mut regions = Vec::new();
    for _ in 0..COUNT {
        regions.push(device.register(Memory::heap(64), ALL, DOMAIN).map_err(said)?);
    }
    let keys: Vec<u32> = regions.iter().map(|region| region.keys().rkey).collect();
    let distinct: BTreeSet<u32> = keys.iter().copied().collect();
    same("distinct keys", distinct.len(), COUNT)?;
    holds(!distinct.contains(&0), "a key is 0, which stands for none")?;
    let steps: BTreeSet<u32> = keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    holds(steps.len() > COUNT / 4, format!("keys follow each other in {} steps only", steps.len()))?;
    drop(regions);
    let again = device.register(Memory::heap(64), ALL, DOMAIN).map_err(said)?;
    holds(
        !distinct.contains(&again.keys().rkey),
        "the key of a region that is gone was given out again at once",
    )
}

fn no_room(t: &Bench) -> Outcome {
    let (a, b) = connected(t)?;
    same("post", b.recv(1, 64), Status::OK)?;
    same("post", a.send(2, 8), Status::OK)?;
    for _ in 0..100 {
        same("completions into no room", b.recvs.poll(&mut []), 0)?;
        same("completions into no room", a.sends.poll(&mut []), 0)?;
        same("events into no room", a.device.poll_events(&mut []), 0)?;
    }
    let devices = [&a.device, &b.device];
    same("status", completion(t, &b.recvs, devices)?.status, CompletionStatus::SUCCESS)?;
    same("status", completion(t, &a.sends, devices)?.status, CompletionStatus::SUCCESS)?;
    a.channel.disconnect();
    b.device.poll_events(&mut []);
    let mut out = [Event::new(EventKind(0), 0)];
    t.until("the end of the connection", || {
        same("events into no room", b.device.poll_events(&mut []), 0)?;
        Ok(b.device.poll_events(&mut out) == 1)
    })?;
    same("event", out[0].kind, EventKind::DISCONNECTED)
}

fn tokens(t: &Bench) -> Outcome {
    let (a, b) = connected(t)?;
    let given = [0, u64::MAX, 7, 7, 1 << 63, 0xDEAD_BEEF];
    for token in given {
        same("post of a receive", b.recv(token, 64), Status::OK)?;
    }
    for token in given {
        same("post of a send", a.send(token ^ 1, 8), Status::OK)?;
    }
    let devices = [&a.device, &b.device];
    for token in given {
        let done = completion(t, &b.recvs, devices)?;
        same("receive (token, user)", (done.token, done.user), (token, b.user + 2))?;
        let done = completion(t, &a.sends, devices)?;
        same("send (token, user)", (done.token, done.user), (token ^ 1, a.user + 1))?;
    }
    Ok(())
}

fn readable(queue: &Queue, patience: Duration) -> Result<bool, Stop> {
    let Some(fd) = queue.fd() else { return not_supported("the provider's queues have no descriptor") };
    let limit = Timespec { tv_sec: patience.as_secs() as _, tv_nsec: patience.subsec_nanos() as _ };
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(errno) => fail(format!("polling the descriptor: {errno}")),
    }
}

/// Whether the descriptor becomes readable, other devices being polled meanwhile.
fn wakes(t: &Bench, queue: &Queue, device: &Device) -> Outcome {
    t.until("the queue's descriptor to be readable", || {
        progress(device)?;
        readable(queue, Duration::from_millis(1))
    })
}

fn arm(t: &Bench) -> Outcome {
    let (a, b) = connected(t)?;
    for round in 0..20 {
        same("post", b.recv(round, 64), Status::OK)?;
        holds(b.recvs.arm(), "arming an empty queue says that there is something")?;
        holds(!readable(&b.recvs, Duration::ZERO)?, "the descriptor is readable without a completion")?;
        same("post", a.send(round, 8), Status::OK)?;
        wakes(t, &b.recvs, &a.device)?;
        b.recvs.disarm();
        same("token", completion(t, &b.recvs, [&a.device, &b.device])?.token, round)?;
        completion(t, &a.sends, [&a.device, &b.device])?;
    }
    // Too late: either it says so, or the descriptor is readable.
    same("post", b.recv(50, 64), Status::OK)?;
    same("post", a.send(50, 8), Status::OK)?;
    completion(t, &a.sends, [&a.device, &b.device])?;
    if b.recvs.arm() {
        wakes(t, &b.recvs, &a.device)?;
    }
    same("token", completion(t, &b.recvs, [&a.device, &b.device])?.token, 50)
}

fn disarm(t: &Bench) -> Outcome {
    let (a, b) = connected(t)?;
    same("post", b.recv(1, 64), Status::OK)?;
    b.recvs.arm();
    b.recvs.disarm();
    same("post", a.send(1, 8), Status::OK)?;
    completion(t, &a.sends, [&a.device, &b.device])?;
    same("token", completion(t, &b.recvs, [&a.device, &b.device])?.token, 1)?;
    holds(!readable(&b.recvs, t.short())?, "the descriptor is readable after disarm")
}

fn one_connection(t: &Bench) -> Outcome {
    let (a, b) = connected(t)?;
    let listener = b.device.listen(0, 9).map_err(said)?;
    let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"" };
    refused("a second connect", a.channel.connect(&param), &[Status::INVALID, Status::NOT_CONNECTED])?;
    a.channel.disconnect();
    refused("a connect after the end", a.channel.connect(&param), &[Status::INVALID, Status::NOT_CONNECTED])
}

fn stopped(t: &Bench) -> Outcome {
    let (a, _b) = connected(t)?;
    stop(t, &a)?;
    same("post of a send", a.send(1, 8), Status::NOT_CONNECTED)?;
    let status = a.recv(2, 8);
    holds(status == Status::NOT_CONNECTED || status == Status::OK, format!("a receive gave {status:?}"))?;
    same("a second disconnect", a.channel.disconnect(), Status::OK)
}

/// Disconnects and waits until the channel has stopped.
fn stop(t: &Bench, end: &End) -> Outcome {
    match end.channel.disconnect() {
        Status::PENDING => end.told(t, EventKind::DISCONNECTED).map(|_| ()),
        status => same("disconnect", status, Status::OK),
    }
}

fn silent(t: &Bench) -> Outcome {
    let (a, b) = connected(t)?;
    for token in 0..4 {
        same("post of a send", a.send(token, 64), Status::OK)?;
        same("post of a receive", a.recv(token, 64), Status::OK)?;
    }
    stop(t, &a)?;
    let mut out = [Completion::default(); 16];
    while a.sends.poll(&mut out) + a.recvs.poll(&mut out) > 0 {}
    for token in 0..4 {
        b.recv(token, 64);
    }
    t.pause();
    let late = a.sends.poll(&mut out) + a.recvs.poll(&mut out);
    same("completions after the end", late, 0)?;
    let mut events = [Event::new(EventKind(0), 0); 4];
    same("events after the end", a.device.poll_events(&mut events), 0)
}

fn close_order(t: &Bench) -> Outcome {
    for order in 0..3 {
        let (a, b) = connected(t)?;
        let End { channel, sends, recvs, spans, device, memory, .. } = a;
        match order {
            0 => {
                drop(device);
                drop((sends, recvs));
                same("a disconnect with only the channel left", channel.disconnect().0 >= 0, true)?;
                drop(channel);
                drop(spans);
            }
            1 => {
                drop(spans);
                drop(memory);
                drop(channel);
                let mut out = [Completion::default(); 4];
                sends.poll(&mut out);
                recvs.arm();
                recvs.disarm();
                drop(device);
            }
            _ => {
                drop(channel);
                drop(sends);
                device.poll_events(&mut []);
                drop(device);
                drop(recvs);
            }
        }
        // The other end is told, whatever the order was.
        let event = b.event(t, "the end of the connection")?;
        let ends = [EventKind::DISCONNECTED, EventKind::BROKEN];
        holds(ends.contains(&event.kind), format!("the other end was told {:?}", event.kind))?;
    }
    Ok(())
}

fn bad_requests(t: &Bench) -> Outcome {
    let device = t.subject.device()?;
    let end = End::new(&device, 1)?;
    let any = [Status::INVALID, Status::NOT_CONNECTED];
    // The outcome of an accept may be an event as well; then it must not be success.
    if end.channel.accept(0xDEAD_BEEF, b"").is_ok() {
        end.told(t, EventKind::ACCEPT_FAILED)?;
    }
    let status = device.reject(0xDEAD_BEEF, dat_plugin::RejectReason::CONSUMER, b"");
    holds(status.0 <= 0, format!("rejecting an unknown request gave {status:?}"))?;
    let other = End::new(&device, 4)?;
    let data = vec![0; device.attr().max_private_data as usize + 1];
    let param = ConnectParam { addr: device.attr().address, port: 7, qos: 0, data: &data };
    refused("too much private data", other.channel.connect(&param), &any)?;
    let status = other.send(1, 8);
    same("a send before connecting", status, Status::NOT_CONNECTED)
}

fn threads(t: &Bench) -> Outcome {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..10).try_for_each(|_| {
                        let (a, b) = connected(t)?;
                        same("post", b.recv(1, 64), Status::OK)?;
                        same("post", a.send(1, 8), Status::OK)?;
                        completion(t, &b.recvs, [&a.device, &b.device]).map(|_| ())
                    })
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(_) => fail("a thread panicked"),
        })
    })
}

fn entries(folder: &str) -> Result<usize, Stop> {
    match std::fs::read_dir(folder) {
        Ok(entries) => Ok(entries.count()),
        Err(error) => fail(format!("{folder}: {error}")),
    }
}

/// Lines of /proc/self/maps that are not the allocator's or a stack's, which come and go.
fn mappings() -> Result<usize, Stop> {
    let maps = std::fs::read_to_string("/proc/self/maps");
    let maps = maps.map_err(|error| Stop::Failed(format!("/proc/self/maps: {error}")))?;
    Ok(maps
        .lines()
        .filter(|line| line.split_whitespace().nth(5).is_some_and(|file| !file.starts_with('[')))
        .count())
}

fn leaks(t: &Bench) -> Outcome {
    let round = || {
        let (a, b) = connected(t)?;
        same("post", b.recv(1, 64), Status::OK)?;
        same("post", a.send(1, 8), Status::OK)?;
        completion(t, &b.recvs, [&a.device, &b.device])?;
        let memory = match a.device.attr().caps.contains(Caps::ALLOC) {
            true => a.device.alloc(1 << 20).map_err(said)?,
            false => Memory::heap(1 << 20),
        };
        a.device.register(memory, ALL, DOMAIN).map(|_| ()).map_err(said)
    };
    // What is made once for the process.
    round()?;
    let before =
        || Ok::<_, Stop>([entries("/proc/self/fd")?, entries("/proc/self/task")?, mappings()?, os::heap()]);
    let start = before()?;
    for _ in 0..10 {
        round()?;
    }
    let most = [start[0], start[1], start[2], start[3] + HEAP_SLACK];
    // Threads that end take a moment.
    let mut now = start;
    let given_back = t.until("what ten connections used to be given back", || {
        now = before()?;
        Ok(now.iter().zip(most).all(|(now, most)| *now <= most))
    });
    given_back.or_else(|_| {
        let what = ["descriptors", "threads", "mappings", "bytes of the heap"];
        let counts: Vec<String> = what
            .iter()
            .zip(now.iter().zip(start))
            .map(|(what, (now, start))| format!("{now} {what} ({start} before)"))
            .collect();
        fail(format!("after ten connections were closed there are {}", counts.join(", ")))
    })
}

/// How much more of the heap may be in use after ten connections: threads and lists keep some at hand.
const HEAP_SLACK: usize = 64 << 10;

fn surroundings(t: &Bench) -> Outcome {
    let handlers = || {
        let status = std::fs::read_to_string("/proc/self/status");
        let status = status.map_err(|error| Stop::Failed(format!("/proc/self/status: {error}")))?;
        let wanted = |line: &&str| line.starts_with("SigCgt") || line.starts_with("SigIgn");
        Ok::<_, Stop>(status.lines().filter(wanted).map(str::to_owned).collect::<Vec<_>>())
    };
    let environment = || std::env::vars_os().collect::<BTreeSet<_>>();
    let folder = std::env::current_dir().ok();
    let before = (handlers()?, environment());
    let (a, b) = connected(t)?;
    same("post", b.recv(1, 64), Status::OK)?;
    same("post", a.send(1, 8), Status::OK)?;
    completion(t, &b.recvs, [&a.device, &b.device])?;
    same("caught and ignored signals while it is used", handlers()?, before.0.clone())?;
    drop((a, b));
    same("caught and ignored signals afterwards", handlers()?, before.0)?;
    same("environment", environment(), before.1)?;
    same("working directory", std::env::current_dir().ok(), folder)
}
