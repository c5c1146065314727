//! Layers over the loopback provider, used as the engine uses a device.

mod support;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_layers::Spec;
use dat_layers::stats;
use dat_plugin::host::Plugin;
use dat_plugin::{CompletionStatus, Config, EventKind, Opcode, Status};
use support::{Pair, Side, collect, device};

fn spec(text: &str) -> Spec {
    Spec::parse(text).expect("a layer")
}

#[test]
fn without_a_layer_a_device_is_the_providers_own() {
    let own = Plugin::of::<dat_loopback::Loopback>();
    for (layers, direct) in [(&[][..], true), (&[spec("count")], false), (&[spec("trace")], false)] {
        let plugin = dat_layers::over(own.clone(), layers).expect("layers");
        let device = plugin.open(&Config { ia_name: "none".into(), ..Config::default() }).expect("opens");
        // The very functions of the plugin are called: no instruction more than if there were no layers at all.
        assert_eq!(device.is_directly_of(&own), direct, "{layers:?}");
        assert_eq!(device.describe().contains("through"), !direct);
    }
}

#[test]
fn a_list_of_layers_is_read_as_it_is_shown() {
    let read = |text: &str| Spec::parse_list(text);
    let shown = |list: &[Spec]| list.iter().map(Spec::to_string).collect::<Vec<_>>().join(",");
    let text = "trace,faults:delay_us=300,seed=7,count";
    let list = read(text).expect("layers");
    assert_eq!(list.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>(), ["trace", "faults", "count"]);
    assert_eq!(list[1].params["seed"], "7");
    assert_eq!(shown(&list), text);
    for (wrong, said) in [
        ("tracer", "the layers are: trace, count, faults"),
        ("trace,seed=7", "unknown parameter \"seed\""),
        ("seed=7", "there is no layer \"seed=7\""),
        ("trace,,count", "there is no layer \"\""),
        ("", "there is no layer \"\""),
        ("faults:delay_us", "\"delay_us\" is no KEY=VALUE"),
    ] {
        let message = read(wrong).expect_err(wrong).message;
        assert!(message.contains(said), "{wrong}: {message}");
    }
}

#[test]
fn everything_goes_through_a_stack_of_layers() {
    let stack = [spec("trace"), spec("count"), spec("faults:delay_us=200,reorder_one_in=3")];
    let pair = Pair::connected("stack", &stack);
    assert!(pair.a.device.describe().ends_with("(through faults) (through count) (through trace)"));
    pair.b.recv(1, 0, 64);
    pair.a.memory.write(0, b"a message");
    pair.a.send(2, 0, 9);
    assert_eq!(pair.a.completion().token, 2);
    let got = pair.b.completion();
    assert_eq!((got.token, got.length, got.status), (1, 9, CompletionStatus::SUCCESS));
    let mut bytes = [0; 9];
    pair.b.memory.read(0, &mut bytes);
    assert_eq!(&bytes, b"a message");
    pair.a.memory.write(100, b"written");
    pair.a.one_sided(Opcode::WRITE, 3, 100, 7, &pair.b, 200);
    pair.b.memory.write(300, b"to be read");
    pair.a.one_sided(Opcode::READ, 4, 400, 10, &pair.b, 300);
    assert_eq!([pair.a.completion().token, pair.a.completion().token], [3, 4]);
    let mut read = [0; 10];
    pair.a.memory.read(400, &mut read);
    assert_eq!(&read, b"to be read");
    let mut written = [0; 7];
    pair.b.memory.read(200, &mut written);
    assert_eq!(&written, b"written");
    assert_eq!(pair.a.channel().disconnect(), Status::OK);
    assert_eq!(pair.b.event().kind, EventKind::DISCONNECTED);
}

#[test]
fn counters_can_be_read_from_outside_and_end_with_the_device() {
    let pair = Pair::connected("counted", &[spec("count")]);
    for token in 0..10 {
        pair.b.recv(token, 0, 64);
        pair.a.send(token, 0, 32);
        assert_eq!(pair.a.completion().token, token);
        assert_eq!(pair.b.completion().token, token);
    }
    pair.a.one_sided(Opcode::WRITE, 99, 0, 1000, &pair.b, 0);
    pair.a.completion();
    // The descriptors do what they say: the answer comes from another thread of this process.
    let all = stats::read(std::process::id(), Duration::from_secs(10)).expect("counters");
    let of = |ia: &str| all.devices.iter().find(|device| device.ia == ia).expect("the device");
    let op = |ia: &str, name: &str| of(ia).totals.iter().find(|op| op.op == name).expect("used").clone();
    let sends = op("counted.a", "send");
    assert_eq!((sends.posted, sends.completed, sends.failed, sends.bytes), (10, 10, 0, 320));
    assert_eq!(sends.latency.count(), 10);
    assert!(sends.latency.quantile(0.5) <= sends.latency.max_ns && sends.latency.sum_ns > 0);
    assert_eq!(op("counted.a", "write").bytes, 1000);
    let recvs = op("counted.b", "recv");
    assert_eq!((recvs.posted, recvs.completed, recvs.bytes), (10, 10, 320));
    assert_eq!(of("counted.a").calls["register"], [1, 0]);
    assert_eq!(of("counted.b").events["REQUEST"], 1);
    assert_eq!(of("counted.a").channels[0].state, "connected");
    let page = all.to_prometheus();
    assert!(page.contains("ia=\"counted.a\",provider=\"loopback\",op=\"send\"} 10\n"), "{page}");
    let Pair { a, b } = pair;
    drop(a.channel);
    let all = stats::read(std::process::id(), Duration::from_secs(10)).expect("counters");
    let a_now = all.devices.iter().find(|device| device.ia == "counted.a").expect("still open");
    assert_eq!((a_now.closed_channels, a_now.channels.len()), (1, 0));
    let kept = a_now.totals.iter().find(|op| op.op == "send").expect("kept");
    assert_eq!(kept.posted, 10);
    drop(b);
}

#[test]
fn nobody_counts_in_a_process_without_the_layer() {
    // Process 1 has no counters of ours; a process that does not exist is another error.
    let error = stats::read(1, Duration::from_secs(1)).expect_err("no counters");
    assert!(error.contains("no open device with the layer"), "{error}");
    let error = stats::read(i32::MAX as u32, Duration::from_secs(1)).expect_err("no process");
    assert!(error.contains("there is no process"), "{error}");
}

#[test]
fn a_trace_has_every_call_post_completion_and_event() {
    let lines = collect("dat.trace", || {
        let pair = Pair::connected("traced", &[spec("trace")]);
        pair.b.recv(1, 0, 64);
        pair.a.send(2, 0, 8);
        pair.a.completion();
        pair.b.completion();
    });
    let has = |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(&["ia=traced.a", "op=\"send\"", "token=2", "bytes=8", "status=OK"]), "{lines:#?}");
    assert!(has(&["ia=traced.b", "direction=Recv", "token=1", "status=SUCCESS"]), "{lines:#?}");
    assert!(has(&["Register { len: 8192"]) && has(&["kind=ESTABLISHED"]), "{lines:#?}");
    assert!(has(&["kind=REQUEST", "ia=traced.b"]), "{lines:#?}");
}

/// What a small program over two connections meets.
fn faults_met(seed: u32) -> Vec<String> {
    let layer =
        spec(&format!("faults:seed={seed},delay_us=50,delay_one_in=2,reorder_one_in=4,fail_register=3"));
    let mut lines = collect("dat.faults", || {
        for world in ["first", "second"] {
            let pair = Pair::connected(&format!("{world}{seed}"), std::slice::from_ref(&layer));
            for token in 0..40 {
                pair.b.recv(token, 0, 64);
                pair.a.send(token, 0, 8);
                pair.a.completion();
                pair.b.completion();
            }
        }
    });
    lines.sort();
    lines
}

#[test]
fn the_same_seed_makes_the_same_faults_and_another_makes_others() {
    let (once, again) = (faults_met(7), faults_met(7));
    assert!(once.len() > 80, "{}", once.len());
    assert_eq!(once, again);
    let without_seed = |lines: Vec<String>| -> Vec<String> {
        lines
            .iter()
            .map(|line| line.replace("seed=7", "").replace("seed=8", "").replace("7.", "").replace("8.", ""))
            .collect()
    };
    assert_ne!(without_seed(once), without_seed(faults_met(8)));
}

#[test]
fn a_delayed_completion_is_there_when_the_descriptor_says_so() {
    let pair = Pair::connected("delayed", &[spec("faults:delay_us=100000")]);
    for token in 0..8 {
        pair.b.recv(token, 0, 64);
        let posted = Instant::now();
        pair.a.send(token, 0, 8);
        let mut none = [dat_plugin::Completion::default(); 4];
        let at_once = pair.a.queue.poll(&mut none);
        if at_once > 0 {
            continue;
        }
        // Sleeping on the descriptor is enough, and the completion comes within the bound.
        while !pair.a.queue.arm() {}
        assert!(support::readable(pair.a.queue.fd().expect("a descriptor").as_fd(), Duration::from_secs(20)));
        assert_eq!(pair.a.queue.poll(&mut none), 1);
        assert!(posted.elapsed() < Duration::from_secs(10));
        return;
    }
    panic!("eight draws of up to 100 ms, and none was noticed");
}

#[test]
fn what_is_held_back_is_handed_out_when_the_channel_stops() {
    let pair = Pair::connected("stopped", &[spec("faults:delay_us=1000000,seed=5")]);
    for token in 0..4 {
        pair.b.recv(token, 0, 64);
        pair.a.send(token, 0, 8);
    }
    assert_eq!(pair.a.channel().disconnect(), Status::OK);
    let mut out = [dat_plugin::Completion::default(); 8];
    let count = pair.a.queue.poll(&mut out);
    assert_eq!(out[..count].iter().map(|c| c.token).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(pair.b.event().kind, EventKind::DISCONNECTED);
    let count = pair.b.queue.poll(&mut out);
    assert_eq!(out[..count].iter().map(|c| c.token).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_connection_is_dropped_after_the_posts_that_were_asked_for() {
    let pair = Pair::connected("dropped", &[spec("faults:drop_after=3")]);
    for token in 0..3 {
        pair.b.recv(token, 0, 64);
        assert_eq!(pair.a.try_send(token, 0, 8), Status::OK);
    }
    assert_eq!(pair.a.try_send(3, 0, 8), Status::NOT_CONNECTED);
    assert!(support::readable(pair.a.device.event_fd().expect("a descriptor"), Duration::from_secs(20)));
    assert_eq!(pair.a.event().kind, EventKind::BROKEN);
    assert_eq!(pair.b.event().kind, EventKind::DISCONNECTED);
    // What was done before has completed, on both sides, and nothing else comes.
    for side in [&pair.a, &pair.b] {
        let mut out = [dat_plugin::Completion::default(); 8];
        let count = side.queue.poll(&mut out);
        assert_eq!(out[..count].iter().map(|c| c.token).collect::<Vec<_>>(), [0, 1, 2]);
    }
    assert_eq!(pair.a.channel().disconnect(), Status::OK);
    assert!(pair.a.no_event());
}

#[test]
fn the_nth_registration_fails_and_the_next_does_not() {
    let device = device("registrations", &[spec("faults:fail_register=2")]);
    assert!(Side::register(&device).is_ok());
    let failure = Side::register(&device).expect_err("the second");
    assert_eq!(failure.status, Status::NO_RESOURCE);
    assert!(failure.message.contains("on purpose"), "{failure}");
    assert!(Side::register(&device).is_ok());
}

#[test]
fn a_slow_receiver_takes_its_completions_one_at_a_time() {
    let pair = Pair::connected("slow", &[spec("faults:slow_recv_us=20000")]);
    for token in 0..4 {
        pair.b.recv(token, 0, 64);
    }
    for token in 0..4 {
        pair.a.send(token, 0, 8);
        pair.a.completion();
    }
    let start = Instant::now();
    for token in 0..4 {
        assert_eq!(pair.b.completion().token, token);
    }
    // The first comes at once, three more 20 ms apart; the clock began a little before the measurement.
    assert!(start.elapsed() > Duration::from_millis(40), "{:?}", start.elapsed());
}

#[test]
fn threads_that_post_and_poll_lose_nothing_under_a_stack_of_layers() {
    const MESSAGES: u64 = 3_000;
    let stack = [spec("trace"), spec("count"), spec("faults:delay_us=40,delay_one_in=3,reorder_one_in=5")];
    let pair = Pair::connected("threads", &stack);
    let deadline = Instant::now() + Duration::from_secs(60);
    let check = |what: &str| assert!(Instant::now() < deadline, "{what} took too long");
    // As the engine does: no more under way than was asked for, counted until a completion is taken.
    let taken = AtomicU64::new(0);
    let in_order = |side: &Side, what: &str, taken: &AtomicU64| {
        let (mut next, mut out) = (0, [dat_plugin::Completion::default(); 16]);
        while next < MESSAGES {
            check(what);
            let count = side.queue.poll(&mut out);
            for done in &out[..count] {
                assert_eq!((done.token, done.status), (next, CompletionStatus::SUCCESS), "{what}");
                next += 1;
            }
            taken.store(next, Ordering::Release);
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| in_order(&pair.a, "sends", &taken));
        scope.spawn(|| in_order(&pair.b, "receives", &AtomicU64::new(0)));
        scope.spawn(|| {
            for token in 0..MESSAGES {
                while pair.b.try_recv(token, 0, 64) != Status::OK {
                    check("posting receives");
                    std::thread::yield_now();
                }
            }
        });
        for token in 0..MESSAGES {
            while token - taken.load(Ordering::Acquire) >= 64 || pair.a.try_send(token, 0, 8) != Status::OK {
                check("posting sends");
                std::thread::yield_now();
            }
        }
    });
    let stats = stats::read(std::process::id(), Duration::from_secs(10)).expect("counters");
    let of = |ia: &str, op: &str| {
        let device = stats.devices.iter().find(|device| device.ia == ia).expect("the device");
        device.totals.iter().find(|known| known.op == op).expect("used").completed
    };
    assert_eq!((of("threads.a", "send"), of("threads.b", "recv")), (MESSAGES, MESSAGES));
}
