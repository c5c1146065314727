//! Making and ending connections.

use dat_plugin::{ConnectParam, EventKind, PostFlag, RejectReason, SockAddr, Status};

use crate::setup::*;

#[test]
fn a_request_is_accepted_and_private_data_goes_both_ways() {
    let (a, b) = (device("accept", &[]), device("accept", &[("address", "10.0.0.2")]));
    let listener = b.listen(7000, 55).unwrap();
    let (active, passive) = (Side::new(&a, 1, 0), Side::new(&b, 2, 0));
    let data: Vec<u8> = (0..=255).collect();
    let param = ConnectParam { addr: address("10.0.0.2"), port: listener.port(), qos: 3, data: &data };
    active.channel.connect(&param).unwrap();
    no_event(&a);
    let request = event(&b);
    assert_eq!((request.kind, request.user, request.port), (EventKind::REQUEST, 55, 7000));
    assert_eq!((request.qos, request.peer), (3, LOCALHOST.into()));
    assert_eq!((request.data(), request.peer_port), (&data[..], active.channel.local_port()));
    assert_ne!(request.peer_port, 0);
    passive.channel.accept(request.request, b"welcome").unwrap();
    assert_eq!(active.expect(EventKind::ESTABLISHED).data(), b"welcome");
    assert_eq!(passive.expect(EventKind::ESTABLISHED).data(), b"");
    assert_eq!(passive.channel.local_port(), 7000);
    assert!(active.channel.describe().contains("connected to port 7000"), "{}", active.channel.describe());
}

#[test]
fn an_answer_can_be_given_once() {
    let (a, b) = (device("once", &[]), device("once", &[]));
    let listener = b.listen(0, 0).unwrap();
    let (active, passive) = (Side::new(&a, 1, 0), Side::new(&b, 2, 0));
    active.connect(listener.port(), b"");
    let request = event(&b).request;
    let stranger = Side::new(&a, 3, 0);
    let refused = stranger.channel.accept(request, b"").unwrap_err();
    assert_eq!(refused.status, Status::INVALID, "it is another device's request");
    assert_eq!(a.reject(request, RejectReason::CONSUMER, b""), Status::INVALID);
    passive.channel.accept(request, b"").unwrap();
    assert_eq!(b.reject(request, RejectReason::CONSUMER, b""), Status::INVALID);
    let again = Side::new(&b, 4, 0);
    assert_eq!(again.channel.accept(request, b"").unwrap_err().status, Status::INVALID);
    let used = passive.channel.accept(request, b"").unwrap_err();
    assert_eq!(used.status, Status::INVALID);
    active.expect(EventKind::ESTABLISHED);
    no_event(&a);
}

#[test]
fn a_rejection_says_whose_it_is() {
    for (reason, kind) in
        [(RejectReason::CONSUMER, EventKind::REJECTED), (RejectReason::PROVIDER, EventKind::REFUSED)]
    {
        let (a, b) = (device("reject", &[]), device("reject", &[]));
        let listener = b.listen(0, 0).unwrap();
        let active = Side::new(&a, 1, 0);
        active.connect(listener.port(), b"");
        let request = event(&b).request;
        assert_eq!(b.reject(request, RejectReason(9), b""), Status::INVALID);
        assert_eq!(b.reject(request, reason, &[0; 257]), Status::INVALID);
        assert_eq!(b.reject(request, reason, b"no"), Status::OK);
        assert_eq!(active.expect(kind).data(), b"no");
        assert_eq!(active.recv(0, &[]), Status::NOT_CONNECTED, "the channel has stopped");
        no_event(&b);
    }
}

#[test]
fn nobody_listening_is_told_by_an_event() {
    let a = device("refused", &[]);
    let active = Side::new(&a, 1, 0);
    active.connect(4711, b"");
    active.expect(EventKind::REFUSED);
    no_event(&a);
}

#[test]
fn a_bad_address_is_told_at_once() {
    let a = device("address", &[("address", "10.0.0.1")]);
    let side = Side::new(&a, 1, 0);
    let connect = |addr: SockAddr| {
        side.channel.connect(&ConnectParam { addr, port: 1, qos: 0, data: b"" }).map_err(|f| f.status)
    };
    assert_eq!(connect(address("10.0.0.9")), Err(Status::UNREACHABLE));
    assert_eq!(connect(SockAddr::UNSPECIFIED), Err(Status::BAD_ADDRESS));
    assert_eq!(connect(SockAddr { family: 77, ..LOCALHOST.into() }), Err(Status::BAD_ADDRESS));
    let long = ConnectParam { addr: LOCALHOST.into(), port: 1, qos: 0, data: &[0; 257] };
    assert_eq!(side.channel.connect(&long).unwrap_err().status, Status::INVALID);
    no_event(&a);
    assert_eq!(connect(address("::1")), Ok(()), "the channel is still good");
    side.expect(EventKind::REFUSED);
    assert_eq!(connect(LOCALHOST.into()), Err(Status::INVALID), "it was used");
}

#[test]
fn a_requester_that_gave_up_makes_the_accept_fail_later() {
    let (a, b) = (device("gave up", &[]), device("gave up", &[]));
    let listener = b.listen(0, 0).unwrap();
    let (active, passive) = (Side::new(&a, 1, 0), Side::new(&b, 2, 0));
    active.connect(listener.port(), b"");
    assert_eq!(active.channel.disconnect(), Status::OK);
    let request = event(&b).request;
    passive.channel.accept(request, b"").unwrap();
    passive.expect(EventKind::ACCEPT_FAILED);
    no_event(&a);

    let closing = Side::new(&a, 3, 0);
    closing.connect(listener.port(), b"");
    drop(closing);
    let request = event(&b).request;
    assert_eq!(b.reject(request, RejectReason::CONSUMER, b""), Status::GONE);
    no_event(&a);
}

#[test]
fn giving_up_takes_back_an_outcome_that_was_not_handed_out() {
    let (a, b) = (device("take back", &[]), device("take back", &[]));
    let listener = b.listen(0, 0).unwrap();
    let (active, passive) = (Side::new(&a, 1, 0), Side::new(&b, 2, 0));
    active.connect(listener.port(), b"");
    passive.channel.accept(event(&b).request, b"").unwrap();
    assert_eq!(active.channel.disconnect(), Status::OK);
    no_event(&a);
    passive.expect(EventKind::ESTABLISHED);
    passive.expect(EventKind::DISCONNECTED);
    no_event(&b);
}

#[test]
fn closing_a_listener_refuses_what_was_not_handed_out() {
    let (a, b) = (device("listener", &[]), device("listener", &[]));
    let listener = b.listen(0, 0).unwrap();
    let (first, second) = (Side::new(&a, 1, 0), Side::new(&a, 2, 0));
    first.connect(listener.port(), b"");
    let request = event(&b).request;
    second.connect(listener.port(), b"");
    let port = listener.port();
    drop(listener);
    second.expect(EventKind::REFUSED);
    no_event(&b);
    Side::new(&b, 3, 0).channel.accept(request, b"").unwrap();
    first.expect(EventKind::ESTABLISHED);
    assert_eq!(b.listen(port, 0).unwrap().port(), port, "the port is free again");
}

#[test]
fn closing_a_device_refuses_its_unanswered_requests() {
    let (a, b) = (device("device", &[]), device("device", &[]));
    let listener = b.listen(0, 0).unwrap();
    let (seen, unseen) = (Side::new(&a, 1, 0), Side::new(&a, 2, 0));
    seen.connect(listener.port(), b"");
    event(&b);
    unseen.connect(listener.port(), b"");
    drop((listener, b));
    let mut users = [event(&a), event(&a)].map(|event| {
        assert_eq!(event.kind, EventKind::REFUSED);
        event.user
    });
    users.sort();
    assert_eq!(users, [1, 2]);
}

#[test]
fn a_port_has_one_listener_in_a_network() {
    let (a, b, other) = (device("port", &[]), device("port", &[]), device("other port", &[]));
    let listener = a.listen(5000, 0).unwrap();
    let taken = b.listen(5000, 0).unwrap_err();
    assert_eq!(taken.status, Status::IN_USE);
    assert!(taken.message.contains("5000"), "{taken}");
    assert_eq!(other.listen(5000, 0).unwrap().port(), 5000);
    let free: Vec<_> = (0..3).map(|_| b.listen(0, 0).unwrap()).collect();
    let mut ports: Vec<u64> = free.iter().map(|listener| listener.port()).collect();
    assert!(ports.iter().all(|port| *port >= 1024));
    ports.push(listener.port());
    ports.sort();
    ports.dedup();
    assert_eq!(ports.len(), 4);
}

#[test]
fn a_disconnect_is_told_to_the_peer_after_the_work_it_did() {
    let (a, b) = connected("disconnect", &[]);
    let (from, to) = (a.buffer(b"last words"), b.buffer(&[0; 10]));
    assert_eq!(b.recv(1, &[(&to, 0, 10)]), Status::OK);
    assert_eq!(b.recv(2, &[]), Status::OK);
    assert_eq!(a.send(3, PostFlag::NONE, &[(&from, 0, 10)]), Status::OK);
    assert_eq!(a.channel.disconnect(), Status::OK);
    no_event(&a.device);
    assert_eq!(b.received(), [(1, dat_plugin::CompletionStatus::SUCCESS, 10)]);
    b.expect(EventKind::DISCONNECTED);
    assert_eq!(b.send(0, PostFlag::NONE, &[]), Status::NOT_CONNECTED);
    assert_eq!(b.channel.disconnect(), Status::OK);
    assert_eq!(a.channel.disconnect(), Status::OK, "twice does no harm");
    no_event(&a.device);
    no_event(&b.device);
    assert_eq!(a.sent().len(), 1);
    assert!(b.received().is_empty(), "what did not happen is flushed by the engine");
}

#[test]
fn closing_a_channel_disconnects_its_peer() {
    let (a, b) = connected("close", &[]);
    let device = a.device.clone();
    drop(a);
    b.expect(EventKind::DISCONNECTED);
    no_event(&device);
}

#[test]
fn a_device_can_connect_to_itself() {
    let device = device("self", &[]);
    let listener = device.listen(0, 9).unwrap();
    let (active, passive) = (Side::new(&device, 1, 0), Side::new(&device, 2, 0));
    active.connect(listener.port(), b"");
    let request = event(&device).request;
    let own = active.channel.accept(request, b"").unwrap_err();
    assert_eq!(own.status, Status::INVALID, "a channel cannot accept its own request");
    passive.channel.accept(request, b"").unwrap();
    active.expect(EventKind::ESTABLISHED);
    passive.expect(EventKind::ESTABLISHED);
    assert_eq!(passive.recv(1, &[]), Status::OK);
    assert_eq!(active.send(2, PostFlag::NONE, &[]), Status::OK);
    assert_eq!((active.sent().len(), passive.received().len()), (1, 1));
}

#[test]
#[cfg_attr(miri, ignore = "miri has no poll(2)")]
fn the_event_descriptor_is_readable_while_there_are_events() {
    let a = device("event fd", &[]);
    let readable = || crate::queue::readable(a.event_fd().unwrap());
    assert!(!readable());
    let sides = [Side::new(&a, 1, 0), Side::new(&a, 2, 0)];
    sides.iter().for_each(|side| side.connect(1, b""));
    assert!(readable());
    event(&a);
    assert!(readable(), "one is left");
    event(&a);
    assert!(!readable());
}
