//! Two devices over a real libfabric: what strangers and dead peers do to them. Without libfabric the tests say that they
//! did not run.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_libfabric::Libfabric;
use dat_plugin::host::{Channel, Device, Listener, Memory, Plugin, Queue, Remote, SpanTable, Srq};
use dat_plugin::{
    Access, ChannelAttr, Completion, CompletionStatus, Config, ConnectParam, Event, EventKind, Opcode,
    PostFlag, RejectReason, SrqAttr, Status,
};
use rustix::event::epoll;

#[path = "../../../tests/process/src/descriptors.rs"]
mod descriptors;

use descriptors::descriptors;

const MSG: &[(&str, &str)] = &[("fabric", "tcp"), ("endpoint", "msg"), ("address", "127.0.0.1")];
const RDM: &[(&str, &str)] = &[("fabric", "tcp;ofi_rxm"), ("endpoint", "rdm"), ("address", "127.0.0.1")];

/// As on fabrics with little immediate data.
const FRAMED: &[(&str, &str)] =
    &[("fabric", "tcp"), ("endpoint", "msg"), ("address", "127.0.0.1"), ("frames", "on")];

const LONG: Duration = Duration::from_secs(20);

#[test]
fn garbage_at_a_connected_port_harms_nobody() {
    garbage(MSG);
}

#[test]
fn garbage_at_a_port_with_frames_harms_nobody() {
    garbage(FRAMED);
}

#[test]
fn garbage_at_a_datagram_port_harms_nobody() {
    garbage(RDM);
}

#[test]
fn a_request_that_comes_after_its_listener_closed_is_refused_connected() {
    late_requests(MSG);
}

#[test]
fn a_request_that_comes_after_its_listener_closed_is_refused_in_frames() {
    late_requests(FRAMED);
}

#[test]
fn a_silent_peer_is_given_up_connected() {
    silence(MSG);
}

#[test]
fn a_silent_peer_is_given_up_in_frames() {
    silence(FRAMED);
}

#[test]
fn a_silent_peer_is_given_up_datagrams() {
    silence(RDM);
}

#[test]
fn a_rejection_brings_its_data_connected() {
    rejection(MSG);
}

#[test]
fn a_rejection_brings_its_data_in_frames() {
    rejection(FRAMED);
}

#[test]
fn a_rejection_brings_its_data_datagrams() {
    rejection(RDM);
}

/// A listener for one request closes when that came; the answer may take its time all the same.
#[test]
fn a_slow_answer_from_a_port_that_closed_is_waited_for() {
    let Some((a, b)) = pair_of_devices(RDM, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"ask" };
    a.channel.connect(&param).expect("begins");
    let request = await_event([&a, &b], 1, |event| event.kind == EventKind::REQUEST);
    drop(listener);
    // Nobody drives either side: nothing that was said arrives.
    std::thread::sleep(Duration::from_millis(1500));
    for _ in 0..1000 {
        assert!(a.poll().is_none(), "given up");
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(b.device.reject(request.request, RejectReason::CONSUMER, b"late"), Status::OK);
    let told = await_event([&a, &b], 0, |_| true);
    assert_eq!((told.kind, told.data()), (EventKind::REJECTED, &b"late"[..]));
}

/// A listener closes before it read a request that arrived, and another listens at its address: who asked is not left
/// waiting for an answer of it.
#[test]
fn a_request_nobody_read_is_refused_when_its_port_closes() {
    let Some((a, b)) = pair_of_devices(RDM, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let ask = |end: &End| {
        let (addr, port) = (b.device.attr().address, listener.port());
        end.channel.connect(&ConnectParam { addr, port, qos: 0, data: b"ask" }).expect("begins");
    };
    ask(&a);
    let request = await_event([&a, &b], 1, |event| event.kind == EventKind::REQUEST);
    assert_eq!(b.device.reject(request.request, RejectReason::CONSUMER, b""), Status::OK);
    assert_eq!(await_event([&a, &b], 0, |_| true).kind, EventKind::REJECTED);
    // The way there is open now, so this one goes at once.
    let late = End::new(a.device.clone(), 300);
    ask(&late);
    for _ in 0..100 {
        assert!(late.poll().is_none());
        std::thread::sleep(Duration::from_micros(200));
    }
    let port = listener.port();
    drop(listener);
    let successor = b.device.listen(port, 10).expect("the port again");
    let read = await_event([&late, &b], 1, |event| event.kind == EventKind::REQUEST);
    assert_eq!(read.user, 9, "asked of the listener that closed");
    assert_eq!(b.device.reject(read.request, RejectReason::PROVIDER, b""), Status::OK);
    assert_eq!(await_event([&late, &b], 0, |_| true).kind, EventKind::REFUSED);
    drop(successor);
}

#[test]
fn a_child_that_outlives_a_device_keeps_no_port_open_connected() {
    outlived(MSG);
}

#[test]
fn a_child_that_outlives_a_device_keeps_no_port_open_datagrams() {
    outlived(RDM);
}

#[test]
fn a_silent_success_is_told_of_when_asked_connected() {
    silent_success(MSG);
}

#[test]
fn a_silent_success_is_told_of_when_asked_in_frames() {
    silent_success(FRAMED);
}

#[test]
fn a_silent_success_is_told_of_when_asked_datagrams() {
    silent_success(RDM);
}

#[test]
fn a_shared_queue_feeds_all_its_channels_connected() {
    shared_queue(MSG);
}

#[test]
fn a_shared_queue_feeds_all_its_channels_in_frames() {
    shared_queue(FRAMED);
}

#[test]
fn a_shared_queue_feeds_all_its_channels_datagrams() {
    shared_queue(RDM);
}

#[test]
fn many_queues_can_be_slept_on_connected() {
    many_sleepers(MSG);
}

#[test]
fn many_queues_can_be_slept_on_datagrams() {
    many_sleepers(RDM);
}

#[test]
fn a_fabric_that_is_not_there_is_refused_by_name() {
    let Err(failure) = open(&[("fabric", "warp")], "0") else { panic!("opened") };
    let there = installed();
    assert_eq!(failure.status, Status::NO_DEVICE, "{failure}");
    assert!(failure.message.contains(if there { "\"warp\"" } else { "libfabric.so.1" }), "{failure}");
}

#[test]
fn probing_names_the_library_and_each_fabric() {
    let config = Config { ia_name: "ofi".into(), ..Config::default() };
    let probes = Plugin::of::<Libfabric>().probe(&config);
    let first = probes.first().expect("at least the library");
    assert_eq!(first.candidate, "libfabric");
    if installed() {
        assert!(first.usable && first.reason.contains("libfabric.so"), "{first:?}");
        assert!(probes.iter().any(|probe| probe.candidate == "tcp (msg)" && probe.usable), "{probes:?}");
        assert!(
            probes.iter().any(|probe| probe.candidate == "tcp;ofi_rxm (rdm)" && probe.usable),
            "{probes:?}"
        );
    }
}

/// Strangers say anything at a port, before and while a peer uses it.
fn garbage(params: &[(&str, &str)]) {
    let Some((a, b)) = pair_of_devices(params, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let at: SocketAddr = format!("127.0.0.1:{}", listener.port()).parse().expect("an address");
    let mut random = 0x2545_F491_4F6C_DD1Du64;
    for round in 0..150usize {
        if let Ok(mut stranger) = TcpStream::connect(at) {
            let bytes: Vec<u8> = (0..round * 3)
                .map(|_| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random as u8
                })
                .collect();
            let _ = stranger.write_all(&bytes);
        }
        assert!(a.poll().is_none());
        assert_eq!(b.poll().map(|event| event.kind), None, "a stranger became a request");
    }
    let [a, b] = connect(a, b, &listener);
    exchange(&a, &b);
}

/// Peers whose connection was taken in when the listener closed, and who say only then what they want, are refused; the
/// port is free at once. libfabric's own books of them outlive the listener.
fn late_requests(params: &[(&str, &str)]) {
    let Some((_, b)) = pair_of_devices(params, "0") else { return };
    // Freed memory is overwritten, so that its use is a crash and not an accident.
    // SAFETY: no memory of ours is touched.
    unsafe { libc::mallopt(libc::M_PERTURB, 0x5A) };
    let mut taken = 0;
    for _ in 0..100 {
        let listener = b.device.listen(0, 9).expect("a port");
        let at: SocketAddr = format!("127.0.0.1:{}", listener.port()).parse().expect("an address");
        let mut peers: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(at).expect("taken in")).collect();
        for _ in 0..8 {
            assert!(b.poll().is_none());
        }
        drop(listener);
        let again = match std::net::TcpListener::bind(at) {
            Ok(again) => again,
            // Once in a while the system gives a port that has become free to somebody else right away.
            Err(why) => {
                taken += 1;
                assert!(taken < 10, "the port is not free: {why}");
                continue;
            }
        };
        for peer in &mut peers {
            // libfabric's head of a request, without data.
            let mut head = [0; 32];
            (head[0], head[16]) = (3, 1);
            let _ = peer.write_all(&head);
        }
        for peer in &mut peers {
            peer.set_nonblocking(true).expect("a socket");
            let start = Instant::now();
            while matches!(peer.read(&mut [0; 64]), Err(why) if why.kind() == std::io::ErrorKind::WouldBlock)
            {
                assert!(b.poll().is_none(), "a request for a listener that is closed");
                assert!(start.elapsed() < LONG, "a peer is kept waiting");
            }
        }
        drop(again);
    }
}

/// Peers that asked and were not heard when a device closes are hung up on: none of their connections is left open.
#[test]
fn a_device_that_closes_hangs_up_on_who_was_not_heard() {
    let Some((_, b)) = pair_of_devices(MSG, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let at: SocketAddr = format!("127.0.0.1:{}", listener.port()).parse().expect("an address");
    let mut peers: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(at).expect("taken in")).collect();
    for _ in 0..8 {
        assert!(b.poll().is_none());
    }
    let mut head = [0; 32];
    (head[0], head[16]) = (3, 1);
    peers.iter_mut().for_each(|peer| peer.write_all(&head).expect("says what it wants"));
    drop(listener);
    drop(b);
    for peer in &mut peers {
        peer.set_read_timeout(Some(LONG)).expect("a socket");
        let mut answer = Vec::new();
        let end = peer.read_to_end(&mut answer);
        assert!(
            end.as_ref().is_ok_and(|_| !answer.is_empty())
                || end.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionReset),
            "not refused"
        );
    }
}

/// Linux lets one descriptor wake only so many through a chain of epoll descriptors; whoever sleeps beyond is woken all
/// the same.
fn many_sleepers(params: &[(&str, &str)]) {
    const MANY: usize = 150;
    // Of a queue, and of its sleeper; other tests of this file run meanwhile.
    if !descriptors(4 * MANY + 200, "many sleepers") {
        return;
    }
    let Some((a, b)) = pair_of_devices(params, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let [a, b] = connect(a, b, &listener);
    let queues: Vec<Queue> = (0..MANY).map(|_| b.device.open_queue(8).expect("a queue")).collect();
    let sleeper = |queue: &Queue| {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
        let fd = queue.fd().expect("a queue has one");
        epoll::add(&poller, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .expect("one more sleeper");
        assert!(queue.arm());
        poller
    };
    let _sleepers: Vec<_> = queues.iter().map(sleeper).collect();
    let last = sleeper(&b.recvs);
    assert_eq!(b.recv(1), Status::OK);
    assert_eq!(a.send(1), Status::OK);
    let start = Instant::now();
    let mut ready = Vec::with_capacity(1);
    while ready.is_empty() {
        // What the event threads do.
        assert!(a.poll().is_none() && b.poll().is_none());
        let moment = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        epoll::wait(&last, rustix::buffer::spare_capacity(&mut ready), Some(&moment)).expect("waits");
        assert!(start.elapsed() < LONG, "nobody woke the sleeper");
    }
    let mut out = [Completion::default()];
    assert_eq!((b.recvs.poll(&mut out), out[0].token), (1, 1));
}

/// Three peers send bursts to channels that share four receives: everything arrives once and in order, whoever's turn it
/// is. One that ends while its message waits for a receive leaves the receive to the others.
fn shared_queue(params: &[(&str, &str)]) {
    const MESSAGES: u32 = 200;
    let Some((a, b)) = pair_of_devices(params, "0") else { return };
    let attr = SrqAttr { user: 7, depth: 4, max_segments: 1, domain: 5, reserved: 0 };
    let srq = Arc::new(b.device.open_srq(&attr).expect("a shared queue"));
    let listener = b.device.listen(0, 9).expect("a port");
    let pairs: Vec<[End; 2]> = (1..4)
        .map(|number| {
            let from = End::new(a.device.clone(), number * 1000);
            let to = End::sharing(b.device.clone(), number * 1000, Some(&srq));
            connect(from, to, &listener)
        })
        .collect();
    let post = |token| {
        let segment = [pairs[0][1].segment(Access::LOCAL_WRITE)];
        assert_eq!(srq.post_recv(PostFlag::NONE, token, &segment, 64), Status::OK);
    };
    (0..4).for_each(post);
    let segment = [pairs[0][1].segment(Access::LOCAL_WRITE)];
    assert_eq!(srq.post_recv(PostFlag::NONE, 4, &segment, 64), Status::NO_RESOURCE);
    let (mut sent, mut done, mut came) = ([0; 3], [0; 3], [0; 3]);
    let start = Instant::now();
    let mut out = [Completion::default()];
    while done != [MESSAGES; 3] || came != [MESSAGES; 3] {
        assert!(start.elapsed() < 2 * LONG, "sent {sent:?}, done {done:?}, came {came:?}");
        for (at, [from, to]) in pairs.iter().enumerate() {
            while sent[at] < MESSAGES && sent[at] - done[at] < 16 {
                assert_eq!(from.send_some(sent[at].into(), sent[at] % 64 + 1), Status::OK);
                sent[at] += 1;
            }
            if from.sends.poll(&mut out) == 1 {
                assert_eq!((out[0].token, out[0].status), (done[at].into(), CompletionStatus::SUCCESS));
                done[at] += 1;
            }
            if to.recvs.poll(&mut out) == 1 {
                assert_eq!((out[0].user, out[0].status), (to.user + 2, CompletionStatus::SUCCESS));
                assert_eq!(out[0].length, came[at] % 64 + 1, "out of order");
                came[at] += 1;
                post(out[0].token);
            }
        }
    }
    // Four receives are left; five messages come, and the last two wait.
    let [[from, to], [other, last], _] = &pairs[..] else { panic!("three pairs") };
    for token in 0..4 {
        assert_eq!(from.send(token), Status::OK);
        assert_eq!(to.completion(&to.recvs, [from, to]).status, CompletionStatus::SUCCESS);
    }
    assert_eq!((from.send(4), other.send(5)), (Status::OK, Status::OK));
    for _ in 0..20 {
        assert!(a.poll().is_none() && b.poll().is_none());
        assert_eq!(to.recvs.poll(&mut out) + last.recvs.poll(&mut out), 0, "there is no receive");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!([Status::OK, Status::PENDING].contains(&to.channel.disconnect()));
    from.until("the end", |event| event.kind == EventKind::DISCONNECTED && event.user == from.user);
    post(9);
    let start = Instant::now();
    while last.recvs.poll(&mut out) == 0 {
        // The end of the other one, if it had to be waited for.
        let _ = (a.poll(), b.poll());
        assert!(start.elapsed() < LONG, "the receive went to a connection that is over");
    }
    assert_eq!((out[0].token, out[0].user), (9, last.user + 2));
    // Fewer than one are left.
    assert_eq!(srq.arm(1), Status::OK);
    assert_eq!(b.until("the limit", |event| event.kind == EventKind::SRQ_LIMIT).user, 7);
    post(10);
    assert_eq!((srq.resize(0), srq.resize(8)), (Status::INVALID, Status::OK));
    (11..18).for_each(post);
}

/// A peer whose device nobody drives says nothing any more, as one behind a pulled cable.
fn silence(params: &[(&str, &str)]) {
    let Some((a, b)) = pair_of_devices(params, "400") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let [a, b] = connect(a, b, &listener);
    exchange(&a, &b);
    let start = Instant::now();
    let told = a.until("the end", |event| event.kind == EventKind::BROKEN);
    assert_eq!(told.user, a.user);
    // Time of the system's scheduling, and a last sign of life just before.
    assert!(start.elapsed() < Duration::from_secs(5), "after {:?}", start.elapsed());
    assert_eq!(a.send(1), Status::NOT_CONNECTED);
    drop(b);
}

/// The asking side has a receive at the fabric, which has to hand it back before the end is told.
fn rejection(params: &[(&str, &str)]) {
    let Some((a, b)) = pair_of_devices(params, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    assert_eq!(a.recv(1), Status::OK);
    let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"ask" };
    a.channel.connect(&param).expect("begins");
    let request = await_event([&a, &b], 1, |event| event.kind == EventKind::REQUEST);
    assert_eq!(b.device.reject(request.request, RejectReason::CONSUMER, b"no room"), Status::OK);
    let told = await_event([&a, &b], 0, |_| true);
    assert_eq!((told.kind, told.user, told.data()), (EventKind::REJECTED, a.user, &b"no room"[..]));
}

/// Whoever knocks at a port whose listener, or device, is closed finds nobody, though a program was started meanwhile.
fn outlived(params: &[(&str, &str)]) {
    let Some((a, b)) = pair_of_devices(params, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let ip = b.device.attr().address.to_std().expect("an address").ip();
    let at = SocketAddr::new(ip, listener.port() as u16);
    let mut child = Command::new("sleep").arg("1000").spawn().expect("a process");
    let before = TcpStream::connect(at).map(drop);
    drop((a, b, listener));
    let closed = Instant::now();
    let after = loop {
        match TcpStream::connect(at).map(drop) {
            // A child is said to be started a moment before it closes what it is not to have.
            Ok(()) if closed.elapsed() < LONG => std::thread::sleep(Duration::from_millis(10)),
            other => break other,
        }
    };
    child.kill().and_then(|()| child.wait()).expect("it ran");
    before.expect("listens");
    assert_eq!(after.expect_err("closed").kind(), std::io::ErrorKind::ConnectionRefused);
}

fn silent_success(params: &[(&str, &str)]) {
    let Some((a, b)) = pair_of_devices(params, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let [a, b] = connect(a, b, &listener);
    let silent = |token| {
        assert_eq!(b.recv(token), Status::OK);
        assert_eq!(a.send_with(PostFlag::UNSIGNALLED, token), Status::OK);
        let done = b.completion(&b.recvs, [&a, &b]);
        assert_eq!((done.token, done.status), (token, CompletionStatus::SUCCESS));
    };
    let told = |settle: bool| {
        let start = Instant::now();
        let mut out = [Completion::default()];
        loop {
            if settle {
                a.channel.settle();
            }
            assert!(b.poll().is_none() && b.recvs.poll(&mut out) == 0);
            if a.sends.poll(&mut out) == 1 {
                return (out[0].token, out[0].status, out[0].length);
            }
            assert!(start.elapsed() < LONG, "nobody told of a silent success");
        }
    };
    silent(1);
    assert_eq!(told(true), (1, CompletionStatus::SUCCESS, 64));
    a.channel.settle();
    assert_eq!(a.sends.poll(&mut [Completion::default()]), 0, "told twice");
    // A success that is not silent tells of those before it.
    silent(2);
    assert_eq!((b.recv(3), a.send(3)), (Status::OK, Status::OK));
    assert_eq!(b.completion(&b.recvs, [&a, &b]).token, 3);
    assert_eq!(told(false).0, 3);
    a.channel.settle();
    assert_eq!(a.sends.poll(&mut [Completion::default()]), 0, "told twice");
    // So does the end. The peer's next message says that the one before it was consumed.
    silent(4);
    assert_eq!((a.recv(5), b.send(5)), (Status::OK, Status::OK));
    assert_eq!(a.completion(&a.recvs, [&a, &b]).token, 5);
    assert_eq!(b.completion(&b.sends, [&a, &b]).token, 5);
    assert_eq!(b.channel.disconnect(), Status::OK);
    let end = await_event([&a, &b], 0, |_| true);
    assert_eq!((end.kind, end.user), (EventKind::DISCONNECTED, a.user));
    assert_eq!(told(false), (4, CompletionStatus::SUCCESS, 64));
}

/// The next event of `ends[which]` that is wanted; the other one has none.
fn await_event(ends: [&End; 2], which: usize, wanted: impl Fn(&Event) -> bool) -> Event {
    let start = Instant::now();
    loop {
        assert!(ends[1 - which].poll().is_none(), "an event that should not be there");
        if let Some(event) = ends[which].poll().filter(&wanted) {
            return event;
        }
        assert!(start.elapsed() < LONG, "an event did not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn exchange(a: &End, b: &End) {
    for token in 0..10 {
        assert_eq!(b.recv(token), Status::OK);
        assert_eq!(a.send(token), Status::OK);
        for (queue, end) in [(&b.recvs, b), (&a.sends, a)] {
            let done = end.completion(queue, [a, b]);
            assert_eq!((done.token, done.status), (token, CompletionStatus::SUCCESS));
        }
    }
}

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

const ROOM: u64 = 4096;

impl End {
    fn new(device: Device, user: u64) -> End {
        End::sharing(device, user, None)
    }

    fn sharing(device: Device, user: u64, srq: Option<&Arc<Srq>>) -> End {
        let queue = || Arc::new(device.open_queue(64).expect("a queue"));
        let (sends, recvs) = (queue(), queue());
        let attr = ChannelAttr {
            user,
            send_user: user + 1,
            recv_user: user + 2,
            domain: 5,
            max_requests: 16,
            max_recvs: 16,
            max_request_segments: 1,
            max_recv_segments: 1,
            max_reads_out: 1,
            max_reads_in: 1,
            max_message: ROOM,
            ..ChannelAttr::default()
        };
        let channel = device.open_channel(&attr, Some(&sends), Some(&recvs), srq).expect("a channel");
        let memory = Memory::heap(ROOM as usize);
        let registration = device.register(memory.clone(), Access(0x33), 5).expect("registered");
        let spans = SpanTable::new();
        let Ok(context) = spans.insert(registration) else { panic!("no room in a new table") };
        End { channel, sends, recvs, spans, context, memory, device, user }
    }

    fn segment(&self, access: Access) -> dat_plugin::Segment {
        self.spans.segment(self.context, self.memory.addr(), 64, 5, access).expect("registered")
    }

    fn send(&self, token: u64) -> Status {
        self.send_with(PostFlag::NONE, token)
    }

    fn send_some(&self, token: u64, len: u32) -> Status {
        let right = Access::LOCAL_READ;
        let segment =
            self.spans.segment(self.context, self.memory.addr(), len, 5, right).expect("registered");
        self.channel.post(Opcode::SEND, PostFlag::NONE, token, &[segment], len.into(), Remote::default())
    }

    fn send_with(&self, flags: PostFlag, token: u64) -> Status {
        let segment = [self.segment(Access::LOCAL_READ)];
        self.channel.post(Opcode::SEND, flags, token, &segment, 64, Remote::default())
    }

    fn recv(&self, token: u64) -> Status {
        self.channel.post_recv(PostFlag::NONE, token, &[self.segment(Access::LOCAL_WRITE)], 64)
    }

    fn poll(&self) -> Option<Event> {
        let mut out = [Event::new(EventKind(0), 0)];
        (self.device.poll_events(&mut out) == 1).then_some(out[0])
    }

    fn until(&self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let start = Instant::now();
        loop {
            if let Some(event) = self.poll().filter(&wanted) {
                return event;
            }
            assert!(start.elapsed() < LONG, "did not come: {what}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn completion(&self, queue: &Queue, ends: [&End; 2]) -> Completion {
        let start = Instant::now();
        let mut out = [Completion::default()];
        loop {
            for end in ends {
                assert!(end.poll().is_none(), "an event that should not be there");
            }
            if queue.poll(&mut out) == 1 {
                return out[0];
            }
            assert!(start.elapsed() < LONG, "no completion");
        }
    }
}

fn open(params: &[(&str, &str)], keepalive: &str) -> Result<Device, dat_plugin::Failure> {
    let mut all: std::collections::BTreeMap<String, String> =
        params.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    all.insert("keepalive_ms".into(), keepalive.into());
    Plugin::of::<Libfabric>().open(&Config { ia_name: "ofi".into(), params: all })
}

fn installed() -> bool {
    libfabric_sys::Library::get().is_ok()
}

/// `None`: there is no libfabric.
fn pair_of_devices(params: &[(&str, &str)], keepalive: &str) -> Option<(End, End)> {
    if !installed() {
        println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
        let required = std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_some();
        assert!(!required, "DAT_REQUIRE_LIBFABRIC is set, and there is no libfabric");
        return None;
    }
    let device = || open(params, keepalive).expect("a device");
    Some((End::new(device(), 100), End::new(device(), 200)))
}

fn connect(a: End, b: End, listener: &Listener) -> [End; 2] {
    let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"hello" };
    a.channel.connect(&param).expect("begins");
    let start = Instant::now();
    let mut up = [false; 2];
    while up != [true; 2] {
        for (index, end) in [&a, &b].into_iter().enumerate() {
            match end.poll() {
                None => {}
                Some(event) if event.kind == EventKind::REQUEST => {
                    assert_eq!(event.data(), b"hello");
                    b.channel.accept(event.request, b"").expect("accepts");
                }
                Some(event) => {
                    assert_eq!((event.kind, event.user), (EventKind::ESTABLISHED, end.user));
                    up[index] = true;
                }
            }
        }
        assert!(start.elapsed() < LONG, "not connected");
        std::thread::sleep(Duration::from_micros(100));
    }
    [a, b]
}
