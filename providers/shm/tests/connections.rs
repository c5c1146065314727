//! Connecting and its ends, between two devices of one process.

mod common;

use common::*;
use dat_plugin::host::Plugin;
use dat_plugin::{Config, ConnectParam, EventKind, RejectReason, SockAddr, Status};
use dat_shm::Shm;

#[test]
fn a_port_is_taken_once_and_free_again_after_close() {
    let host = Host::open(&[]);
    let first = host.device.listen(0, 1).unwrap();
    assert!(first.port() >= 1024);
    let failure = host.device.listen(first.port(), 1).unwrap_err();
    assert_eq!(failure.status, Status::IN_USE);
    assert!(failure.message.contains(&first.port().to_string()), "{failure}");
    let port = first.port();
    drop(first);
    assert_eq!(host.device.listen(port, 1).unwrap().port(), port);
}

#[test]
fn nobody_listens() {
    let mut host = Host::open(&[]);
    let end = host.end(3);
    let addr = host.device.attr().address;
    end.channel.connect(&ConnectParam { addr, port: 3, qos: 0, data: b"" }).unwrap();
    assert_eq!(host.wait(EventKind::REFUSED).user, 3);
}

#[test]
fn addresses_of_others_are_refused_at_once() {
    let host = Host::open(&[]);
    let connect = |addr: SockAddr| {
        host.end(1).channel.connect(&ConnectParam { addr, port: 3, qos: 0, data: b"" }).unwrap_err().status
    };
    assert_eq!(connect("192.0.2.1:0".parse::<std::net::SocketAddr>().unwrap().into()), Status::UNREACHABLE);
    assert_eq!(
        connect("[2001:db8::1]:0".parse::<std::net::SocketAddr>().unwrap().into()),
        Status::UNREACHABLE
    );
    assert_eq!(connect("224.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()), Status::BAD_ADDRESS);
    assert_eq!(connect(SockAddr::UNSPECIFIED), Status::BAD_ADDRESS);
}

#[test]
fn private_data_is_limited() {
    let host = Host::open(&[]);
    let addr = host.device.attr().address;
    let data = vec![1; host.device.attr().max_private_data as usize + 1];
    let end = host.end(1);
    let failure = end.channel.connect(&ConnectParam { addr, port: 3, qos: 0, data: &data }).unwrap_err();
    assert_eq!(failure.status, Status::INVALID);
}

#[test]
fn a_rejection_carries_its_reason() {
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 9).unwrap();
    let addr = b.device.attr().address;
    for (reason, kind) in
        [(RejectReason::CONSUMER, EventKind::REJECTED), (RejectReason::PROVIDER, EventKind::REFUSED)]
    {
        let end = a.end(4);
        end.channel.connect(&ConnectParam { addr, port: listener.port(), qos: 0, data: &[7; 256] }).unwrap();
        let request = b.wait(EventKind::REQUEST);
        assert_eq!(request.data(), [7; 256]);
        assert_eq!(b.device.reject(request.request, reason, b"no"), Status::OK);
        assert_eq!(b.device.reject(request.request, reason, b"no"), Status::GONE);
        let event = a.wait(kind);
        assert_eq!((event.user, event.data()), (4, &b"no"[..]));
        assert!(a.events().is_empty());
    }
}

#[test]
fn an_orderly_end_is_told_to_the_peer_only() {
    let (mut a, mut b, from, to) = pair(&[]);
    assert_eq!(from.channel.disconnect(), Status::OK);
    assert_eq!(b.wait(EventKind::DISCONNECTED).user, 2);
    assert_eq!(to.channel.disconnect(), Status::OK);
    assert!(a.events().is_empty() && b.events().is_empty());
    let src = a.area(8);
    assert_eq!(from.post_send(1, &[src.seg(0, 8)]), Status::NOT_CONNECTED);
}

#[test]
fn what_was_sent_before_the_end_arrives() {
    let (mut a, mut b, from, to) = pair(&[]);
    let (src, dst) = (a.area(8), b.area(8));
    assert_eq!(to.post_recv(1, &[dst.seg(0, 8)]), Status::OK);
    assert_eq!(from.post_send(1, &[src.seg(0, 8)]), Status::OK);
    assert_eq!(from.channel.disconnect(), Status::OK);
    b.wait(EventKind::DISCONNECTED);
    assert_ok(&to.received(&mut [&mut a, &mut b]), 1, 8);
}

#[test]
fn an_accept_after_the_peer_gave_up_fails_by_event() {
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 9).unwrap();
    let addr = b.device.attr().address;
    let (from, to) = (a.end(4), b.end(5));
    from.channel.connect(&ConnectParam { addr, port: listener.port(), qos: 0, data: b"" }).unwrap();
    let request = b.wait(EventKind::REQUEST);
    assert_eq!(from.channel.disconnect(), Status::OK);
    b.pump();
    to.channel.accept(request.request, b"").unwrap();
    assert_eq!(b.wait(EventKind::ACCEPT_FAILED).user, 5);
    assert!(a.events().is_empty());
    let failure = b.end(6).channel.accept(request.request, b"").unwrap_err();
    assert_eq!(failure.status, Status::GONE);
}

#[test]
fn a_closed_channel_breaks_nothing() {
    let (mut a, mut b, from, to) = pair(&[]);
    drop(from);
    assert_eq!(b.wait(EventKind::DISCONNECTED).user, 2);
    drop(to);
    assert!(a.events().is_empty());
}

#[test]
fn limits_and_parameters_are_checked() {
    let host = Host::open(&[("max_channels", "2")]);
    let _ends = [host.end(1), host.end(2)];
    let queue = std::sync::Arc::new(host.device.open_queue(8).unwrap());
    let failure =
        host.device.open_channel(&Default::default(), Some(&queue), Some(&queue), None).unwrap_err();
    assert_eq!(failure.status, Status::NO_RESOURCE);
    for (key, value) in [
        ("colour", "red"),
        ("ring_bytes", "5000"),
        ("one_sided", "x"),
        ("allow_users", "me"),
        ("address", "192.0.2.7"),
    ] {
        let params = [(key.to_string(), value.to_string())].into();
        let failure = Plugin::of::<Shm>().open(&Config { ia_name: "shm0".into(), params }).unwrap_err();
        assert_eq!(failure.status, Status::BAD_CONFIG, "{failure}");
        assert!(failure.message.contains(key) && failure.message.contains("shm0"), "{failure}");
    }
}

#[test]
fn a_thousand_connections_share_two_queues_and_no_thread() {
    const COUNT: u64 = 1000;
    // Both ends, and what other tests of this file use.
    if !descriptors::descriptors(
        2 * COUNT as usize + 500,
        "a_thousand_connections_share_two_queues_and_no_thread",
    ) {
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 9).unwrap();
    let addr = b.device.attr().address;
    let queue = |host: &Host| std::sync::Arc::new(host.device.open_queue(4096).unwrap());
    let (qa, qb) = (queue(&a), queue(&b));
    let attr = dat_plugin::ChannelAttr {
        max_requests: 16,
        max_recvs: 16,
        max_recv_segments: 1,
        max_request_segments: 1,
        domain: 7,
        ..Default::default()
    };
    let before = threads();
    let mut ends = Vec::new();
    for user in 0..COUNT {
        let attr = dat_plugin::ChannelAttr { user, recv_user: user, ..attr };
        let from = a.device.open_channel(&attr, Some(&qa), Some(&qa), None).unwrap();
        let to = b.device.open_channel(&attr, Some(&qb), Some(&qb), None).unwrap();
        from.connect(&ConnectParam { addr, port: listener.port(), qos: 0, data: b"" }).unwrap();
        let request = b.wait(EventKind::REQUEST);
        to.accept(request.request, b"").unwrap();
        a.wait(EventKind::ESTABLISHED);
        b.wait(EventKind::ESTABLISHED);
        ends.push((from, to));
    }
    // Other tests of this file run meanwhile, a thread each; an endpoint each would be a thousand.
    assert!(threads() < before + 100);
    let (src, dst) = (a.area(8), b.area(8 * COUNT as usize));
    for (index, (from, to)) in ends.iter().enumerate() {
        let seg = [dst.seg(8 * index as u64, 8)];
        assert_eq!(to.post_recv(dat_plugin::PostFlag::NONE, 1, &seg, 8), Status::OK);
        let none = dat_plugin::host::Remote::default();
        let status =
            from.post(dat_plugin::Opcode::SEND, dat_plugin::PostFlag::NONE, 2, &[src.seg(0, 8)], 8, none);
        assert_eq!(status, Status::OK);
    }
    let mut seen = vec![false; COUNT as usize];
    for _ in 0..COUNT {
        let got = next(&qb, &mut [&mut a, &mut b]);
        assert_ok(&got, 1, 8);
        assert!(!std::mem::replace(&mut seen[got.user as usize], true));
        assert_ok(&next(&qa, &mut [&mut a, &mut b]), 2, 8);
    }
}
