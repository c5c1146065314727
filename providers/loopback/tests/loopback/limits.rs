//! Limits, injected failures, parameters, and invalid input.

use std::sync::Arc;

use dat_loopback::Loopback;
use dat_plugin::host::{Memory, Plugin, Remote};
use dat_plugin::{Access, ChannelAttr, ConnectParam, EventKind, Opcode, PostFlag, Status};

use crate::setup::*;

#[test]
fn a_full_channel_takes_no_more_and_changes_nothing() {
    let (a, b) = connected("full", &[]);
    for token in 0..4 {
        assert_eq!(a.send(token, PostFlag::NONE, &[]), Status::OK);
    }
    assert_eq!(a.send(4, PostFlag::NONE, &[]), Status::NO_RESOURCE);
    assert_eq!(a.write(4, &[], 0, 0), Status::NO_RESOURCE);
    for token in 0..4 {
        assert_eq!(a.recv(token, &[]), Status::OK);
    }
    assert_eq!(a.recv(4, &[]), Status::NO_RESOURCE);
    assert_eq!(b.recv(0, &[]), Status::OK);
    assert_eq!(a.send(4, PostFlag::NONE, &[]), Status::OK, "there is room again");
    for token in 1..4 {
        assert_eq!(b.recv(token, &[]), Status::OK);
    }
    let tokens: Vec<u64> = a.sent().iter().map(|done| done.0).collect();
    assert_eq!(tokens, [0, 1, 2, 3]);
}

#[test]
fn a_post_that_contradicts_itself_is_refused() {
    let (a, b) = connected("nonsense", &[]);
    let buffer = a.buffer(&[0; 64]);
    let one = [a.segment(&buffer, 0, 8, Access::LOCAL_READ)];
    let none = Remote::default();
    let post = |opcode, segments: &[_], total, remote| {
        a.channel.post(opcode, PostFlag(0xFFFF), 1, segments, total, remote)
    };
    assert_eq!(post(Opcode::FETCH_ADD, &one, 8, none), Status::INVALID);
    assert_eq!(post(Opcode(u16::MAX), &[], 0, none), Status::INVALID);
    assert_eq!(post(Opcode::SEND, &one, 9, none), Status::INVALID);
    assert_eq!(post(Opcode::SEND, &[], u64::MAX, none), Status::INVALID);
    assert_eq!(post(Opcode::SEND, &[one[0]; 5], 40, none), Status::INVALID);
    assert_eq!(post(Opcode::READ, &one, 8, Remote { len: 9, ..none }), Status::INVALID);
    assert_eq!(a.channel.post_recv(PostFlag::NONE, 1, &one, 7), Status::INVALID);
    assert_eq!(a.channel.post_recv(PostFlag::NONE, 1, &[one[0]; 5], 40), Status::INVALID);
    assert_eq!(b.recv(1, &[]), Status::OK);
    assert!(a.sent().is_empty() && b.received().is_empty());
    no_event(&a.device);
    assert_eq!(a.send(2, PostFlag::NONE, &[]), Status::OK, "the connection is as good as before");
    assert_eq!(b.received().len(), 1);
}

#[test]
fn a_direction_without_a_queue_takes_no_posts() {
    let device = device("half", &[]);
    let queue = Arc::new(device.open_queue(0).unwrap());
    let channel = device.open_channel(&attr(1, 0), Some(&queue), None, None).unwrap();
    assert_eq!(channel.post_recv(PostFlag::NONE, 0, &[], 0), Status::INVALID);
    let other = device.open_channel(&ChannelAttr::default(), None, Some(&queue), None).unwrap();
    assert_eq!(
        other.post_recv(PostFlag::NONE, 0, &[], 0),
        Status::NO_RESOURCE,
        "room for none was asked for"
    );
}

#[test]
fn what_the_device_does_not_offer_is_refused() {
    let device = device("offer", &[]);
    let offered = *device.attr();
    let open = |attr: ChannelAttr| device.open_channel(&attr, None, None, None).map_err(|f| f.status);
    let base = attr(1, 0);
    let max = ChannelAttr {
        max_requests: offered.max_requests_per_channel,
        max_recvs: offered.max_recvs_per_channel,
        max_request_segments: offered.max_segments,
        max_recv_segments: offered.max_segments,
        max_message: offered.max_message,
        ..base
    };
    assert!(open(max).is_ok());
    for bad in [
        ChannelAttr { max_requests: max.max_requests + 1, ..base },
        ChannelAttr { max_recvs: u32::MAX, ..base },
        ChannelAttr { max_request_segments: u32::MAX, ..base },
        ChannelAttr { max_recv_segments: max.max_recv_segments + 1, ..base },
        ChannelAttr { max_message: u64::MAX, ..base },
    ] {
        assert_eq!(open(bad).unwrap_err(), Status::INVALID);
    }
    let depth = offered.max_queue_depth;
    assert_eq!(device.open_queue(depth + 1).unwrap_err().status, Status::NO_RESOURCE);
    let memory = Memory::heap(16);
    let register = |access| device.register(memory.clone(), access, 0).map(drop).map_err(|f| f.status);
    assert_eq!(register(Access(0x100)), Err(Status::INVALID));
    assert_eq!(register(ALL), Ok(()));
    assert_eq!(device.register(Memory::heap(0), ALL, 0).unwrap_err().status, Status::INVALID);
}

#[test]
fn limits_of_the_device_hold_and_closing_makes_room() {
    let device = device("counts", &[("max_channels", "2"), ("max_regions", "1")]);
    assert_eq!((device.attr().max_channels, device.attr().max_regions), (2, 1));
    let open = || device.open_channel(&attr(1, 0), None, None, None);
    let first = open().unwrap();
    let _second = open().unwrap();
    assert_eq!(open().unwrap_err().status, Status::NO_RESOURCE);
    drop(first);
    open().unwrap();
    let register = || device.register(Memory::heap(16), ALL, 0);
    let first = register().unwrap();
    let full = register().unwrap_err();
    assert_eq!(full.status, Status::NO_RESOURCE);
    assert!(full.message.contains("max_regions"), "{full}");
    drop(first);
    register().unwrap();
}

#[test]
fn injected_failures_hit_the_named_calls_only() {
    let calls = ["open_queue", "open_channel", "listen", "register", "alloc", "connect", "accept"];
    for failing in calls {
        let network = format!("inject {failing}");
        let device = device(&network, &[("fail", failing)]);
        let good = crate::setup::device(&network, &[]);
        let param = ConnectParam { addr: LOCALHOST.into(), port: 1, qos: 0, data: b"" };
        let channel = device.open_channel(&attr(1, 0), None, None, None);
        let on = channel.as_ref().ok();
        let good_channel = good.open_channel(&attr(1, 0), None, None, None).unwrap();
        // An accept of no request fails anyhow; what counts is how.
        let accept = on.unwrap_or(&good_channel).accept(1, b"");
        let connect = on.unwrap_or(&good_channel).connect(&param);
        let results = [
            ("open_queue", device.open_queue(1).err()),
            ("open_channel", channel.as_ref().err().cloned()),
            ("listen", device.listen(0, 0).err()),
            ("register", device.register(Memory::heap(1), ALL, 0).err()),
            ("alloc", device.alloc(1).err()),
            ("connect", connect.err()),
            ("accept", accept.err().filter(|failure| failure.status != Status::INVALID)),
        ];
        for (call, failure) in results {
            assert_eq!(failure.is_some(), call == failing, "{call} with fail = {failing}");
            if let Some(failure) = failure {
                assert_eq!(failure.status, Status::NO_RESOURCE);
                assert!(failure.message.contains("parameter fail"), "{failure}");
            }
        }
    }
}

#[test]
fn a_silent_connect_gets_no_answer() {
    let a = device("silent", &[("fail", "silent_connect")]);
    let _listener = a.listen(6000, 0).unwrap();
    let side = Side::new(&a, 1, 0);
    side.connect(6000, b"");
    no_event(&a);
    assert_eq!(side.channel.disconnect(), Status::OK);
    no_event(&a);
}

#[test]
fn a_bad_parameter_is_named() {
    for (key, value) in [
        ("adress", "127.0.0.1"),
        ("address", "localhost"),
        ("rnr_timeout_ms", "-1"),
        ("max_channels", "many"),
        ("fail", "listen, opne_queue"),
    ] {
        let refused = try_device("params", &[(key, value)]).map(drop).unwrap_err();
        assert_eq!(refused.status, Status::BAD_CONFIG);
        assert!(refused.message.contains(key) && refused.message.contains("loop0"), "{refused}");
        let probes = Plugin::of::<Loopback>().probe(&config("params", &[(key, value)]));
        assert!(!probes[0].usable && probes[0].reason.contains(key));
    }
}

#[test]
fn it_says_who_it_is() {
    let plugin = Plugin::of::<Loopback>();
    assert_eq!(plugin.name(), "loopback");
    let probes = plugin.probe(&config("who", &[]));
    assert_eq!((probes.len(), probes[0].candidate.as_str(), probes[0].usable), (1, "in-process", true));
    let device = device("who", &[("address", "192.0.2.1")]);
    assert!(device.describe().contains("192.0.2.1"), "{}", device.describe());
}

#[test]
fn networks_do_not_see_each_other() {
    let (a, b) = (device("here", &[]), device("there", &[]));
    let _listener = b.listen(6001, 0).unwrap();
    let side = Side::new(&a, 1, 0);
    side.connect(6001, b"");
    side.expect(EventKind::REFUSED);
    no_event(&b);
}
