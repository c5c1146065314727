//! Two devices over a real libfabric: silent peers, rejections, shared queues, sleepers. Without libfabric the tests print
//! that they did not run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_libfabric::Libfabric;
use dat_plugin::host::{Plugin, Queue};
use dat_plugin::{
    Access, Completion, CompletionStatus, Config, ConnectParam, EventKind, PostFlag, RejectReason, SrqAttr,
    Status,
};
use rustix::event::epoll;

#[path = "../../../tests/process/src/descriptors.rs"]
mod descriptors;
mod ends;

use descriptors::descriptors;
use ends::*;

#[test]
fn a_silent_peer_breaks_the_connection_connected() {
    silence(MSG);
}

#[test]
fn a_silent_peer_breaks_the_connection_in_frames() {
    silence(FRAMED);
}

#[test]
fn a_silent_peer_breaks_the_connection_datagrams() {
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

/// A listener closes when its request has arrived; a late answer is still waited for.
#[test]
fn a_late_answer_from_a_closed_port_is_waited_for() {
    let Some((a, b)) = pair_of_devices(RDM, "0") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"ask" };
    a.channel.connect(&param).expect("begins");
    let request = await_event([&a, &b], 1, |event| event.kind == EventKind::REQUEST);
    drop(listener);
    // No thread drives either side, so no frame arrives.
    std::thread::sleep(Duration::from_millis(1500));
    for _ in 0..1000 {
        assert!(a.poll().is_none(), "given up");
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(b.device.reject(request.request, RejectReason::CONSUMER, b"late"), Status::OK);
    let told = await_event([&a, &b], 0, |_| true);
    assert_eq!((told.kind, told.data()), (EventKind::REJECTED, &b"late"[..]));
}

#[test]
fn an_unsignalled_success_is_reported_on_request_connected() {
    unsignalled_success(MSG);
}

#[test]
fn an_unsignalled_success_is_reported_on_request_in_frames() {
    unsignalled_success(FRAMED);
}

#[test]
fn an_unsignalled_success_is_reported_on_request_datagrams() {
    unsignalled_success(RDM);
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
fn many_queues_can_have_sleepers_connected() {
    many_sleepers(MSG);
}

#[test]
fn many_queues_can_have_sleepers_datagrams() {
    many_sleepers(RDM);
}

#[test]
fn a_missing_fabric_is_refused_with_its_name() {
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

/// Linux limits how many descriptors one descriptor wakes through a chain of epoll descriptors. Sleepers beyond the limit
/// are woken all the same.
fn many_sleepers(params: &[(&str, &str)]) {
    const MANY: usize = 150;
    // For each queue and its sleeper; other tests of this file run at the same time.
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
        // As the event threads do.
        assert!(a.poll().is_none() && b.poll().is_none());
        let moment = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        epoll::wait(&last, rustix::buffer::spare_capacity(&mut ready), Some(&moment)).expect("waits");
        assert!(start.elapsed() < LONG, "the sleeper was not woken");
    }
    let mut out = [Completion::default()];
    assert_eq!((b.recvs.poll(&mut out), out[0].token), (1, 1));
}

/// Three peers send bursts to channels that share four receives. Each message arrives once and in order. A channel that
/// ends while its message waits for a receive leaves the receive to the others.
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
        // The other channel's end, if it was pending.
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

/// A peer whose device no thread drives is silent, like one behind a pulled cable.
fn silence(params: &[(&str, &str)]) {
    let Some((a, b)) = pair_of_devices(params, "400") else { return };
    let listener = b.device.listen(0, 9).expect("a port");
    let [a, b] = connect(a, b, &listener);
    exchange(&a, &b);
    let start = Instant::now();
    let told = a.until("the end", |event| event.kind == EventKind::BROKEN);
    assert_eq!(told.user, a.user);
    // Includes scheduling, and a last sign of life just before.
    assert!(start.elapsed() < Duration::from_secs(5), "after {:?}", start.elapsed());
    assert_eq!(a.send(1), Status::NOT_CONNECTED);
    drop(b);
}

/// The connecting side has a posted receive, which the fabric hands back before the event.
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

fn unsignalled_success(params: &[(&str, &str)]) {
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
            assert!(start.elapsed() < LONG, "no completion of an unsignalled success");
        }
    };
    silent(1);
    assert_eq!(told(true), (1, CompletionStatus::SUCCESS, 64));
    a.channel.settle();
    assert_eq!(a.sends.poll(&mut [Completion::default()]), 0, "reported twice");
    // A signalled success covers those before it.
    silent(2);
    assert_eq!((b.recv(3), a.send(3)), (Status::OK, Status::OK));
    assert_eq!(b.completion(&b.recvs, [&a, &b]).token, 3);
    assert_eq!(told(false).0, 3);
    a.channel.settle();
    assert_eq!(a.sends.poll(&mut [Completion::default()]), 0, "reported twice");
    // So does the end. The peer's next message reports that the one before it was consumed.
    silent(4);
    assert_eq!((a.recv(5), b.send(5)), (Status::OK, Status::OK));
    assert_eq!(a.completion(&a.recvs, [&a, &b]).token, 5);
    assert_eq!(b.completion(&b.sends, [&a, &b]).token, 5);
    assert_eq!(b.channel.disconnect(), Status::OK);
    let end = await_event([&a, &b], 0, |_| true);
    assert_eq!((end.kind, end.user), (EventKind::DISCONNECTED, a.user));
    assert_eq!(told(false), (4, CompletionStatus::SUCCESS, 64));
}
