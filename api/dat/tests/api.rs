//! The safe API over the loopback provider: what it adds to the engine.

use std::time::Duration;

use dat::registry::Registry;
use dat::{
    CloseFlags, CompletionFlags, ConnectionKind, DtoStatus, Ep, EpState, Evd, Event, Ia, IaBuilder,
    Privileges, Psp, Pz, ReturnType,
};

const LONG: Duration = Duration::from_secs(20);

struct Node {
    ia: Ia,
    pz: Pz,
    evd: Evd,
    ep: Ep,
}

fn open(name: &str, toml: &str) -> dat::Result<Ia> {
    let plugin = dat::engine::Plugin::of::<dat_loopback::Loopback>();
    let registry = Registry::from_str("test.toml", toml)?.with_static(plugin);
    IaBuilder::new(name).open_in(&registry)
}

impl Node {
    fn new() -> Node {
        let ia = open("lo", "[provider.lo]\nlibrary = \"builtin:loopback\"\n").unwrap();
        let pz = ia.pz().unwrap();
        let evd = ia.evd(64).unwrap();
        let ep = ia.ep(&pz).evd(&evd).create().unwrap();
        Node { ia, pz, evd, ep }
    }

    fn next(&self) -> Event {
        self.evd.wait(LONG).unwrap().expect("an event in time")
    }

    fn completion(&self) -> dat::DtoCompletion {
        match self.next() {
            Event::Completion(done) => done,
            other => panic!("{other:?}"),
        }
    }
}

fn connected() -> (Node, Node, Psp) {
    let (a, b) = (Node::new(), Node::new());
    let psp = b.ia.listen_any(&b.evd).unwrap();
    a.ep.connect(b.ia.address().unwrap(), psp.conn_qual()).timeout(LONG).start().unwrap();
    match b.next() {
        Event::Request(mut request) => request.accept(&b.ep, b"hi").unwrap(),
        other => panic!("{other:?}"),
    }
    for side in [&a, &b] {
        assert!(matches!(side.next(), Event::Connection { kind: ConnectionKind::Established, .. }));
    }
    (a, b, psp)
}

#[test]
fn a_buffer_goes_in_with_the_post_and_comes_back_with_the_completion() {
    let (a, b, _psp) = connected();
    let mut out = a.pz.buffer(16).unwrap();
    out[..5].copy_from_slice(b"hello");
    b.ep.recv(b.pz.buffer(16).unwrap()).unwrap();
    a.ep.send(out, ..5).unwrap();
    let done = b.completion();
    assert_eq!((done.status, done.length), (DtoStatus::Success, 5));
    let got = b.ep.reclaim(&done).expect("the buffer of the receive");
    assert_eq!(&got[..5], b"hello");
    assert!(b.ep.reclaim(&done).is_none(), "reclaimed twice");
    let sent = a.completion();
    assert!(b.ep.reclaim(&sent).is_none(), "of another endpoint");
    assert!(a.ep.reclaim(&sent).is_some());
}

#[test]
fn a_refused_post_gives_the_buffer_back() {
    let side = Node::new();
    let refused = side.ep.send(side.pz.buffer(8).unwrap(), ..).unwrap_err();
    assert_eq!(refused.error.kind(), ReturnType::InvalidState);
    assert_eq!(refused.buffer.len(), 8);
}

#[test]
fn flushed_buffers_can_be_reclaimed_and_dropped_ones_leave_nothing() {
    let (a, b, psp) = connected();
    for _ in 0..3 {
        a.ep.recv(a.pz.buffer(8).unwrap()).unwrap();
    }
    a.ep.disconnect(CloseFlags::Abrupt).unwrap();
    for _ in 0..3 {
        let done = a.completion();
        assert_eq!(done.status, DtoStatus::Flushed);
        assert!(a.ep.reclaim(&done).is_some());
    }
    assert!(matches!(a.next(), Event::Connection { kind: ConnectionKind::Disconnected, .. }));
    b.ep.recv(b.pz.buffer(8).unwrap()).unwrap();
    let ia = b.ia.clone();
    drop((b, psp));
    // Everything made from it is gone, so that even a graceful close works.
    // SAFETY: nothing is posted through it.
    unsafe { ia.engine() }.close(CloseFlags::Graceful).unwrap();
}

#[test]
fn regions_are_shared_with_peers() {
    let (a, b, _psp) = connected();
    let here = a.pz.region(64, Privileges::ALL).unwrap();
    let there = b.pz.region(64, Privileges::ALL).unwrap();
    here.write(0, b"remote");
    a.ep.write_from(&[here.slice(..6)], there.remote(8..14)).cookie(5).post().unwrap();
    let done = a.completion();
    assert_eq!((done.cookie, done.status), (5, DtoStatus::Success));
    let mut got = [0; 6];
    there.read(8, &mut got);
    assert_eq!(&got, b"remote");
    assert_eq!(there.poll_byte(8), b'r');

    there.free().unwrap();
    a.ep.write_from(&[here.slice(..6)], there.remote(8..14)).post().unwrap();
    assert_eq!(a.completion().status, DtoStatus::RemoteAccess);
    assert!(matches!(a.next(), Event::Connection { kind: ConnectionKind::Broken, .. }));
    assert_eq!(a.ep.state(), EpState::Disconnected);
}

#[test]
fn a_region_without_a_right_or_of_another_zone_is_refused() {
    let (a, _b, _psp) = connected();
    let write_only = a.pz.region(64, Privileges::LOCAL_WRITE).unwrap();
    let error = a.ep.send_from(&[write_only.slice(..)]).post().unwrap_err();
    assert_eq!(error.kind(), ReturnType::PrivilegesViolation);
    let other = a.ia.pz().unwrap().region(64, Privileges::ALL).unwrap();
    let error = a.ep.send_from(&[other.slice(..)]).post().unwrap_err();
    assert_eq!(error.kind(), ReturnType::ProtectionViolation);
    let error = a.ep.send_from(&[]).cookie(1 << 63).post().unwrap_err();
    assert_eq!(error.kind(), ReturnType::InvalidParameter);
    let error = a.ep.send_from(&[]).flags(CompletionFlags::UNSIGNALLED).post().unwrap_err();
    assert_eq!(error.kind(), ReturnType::InvalidParameter);
}

#[test]
fn a_request_dropped_undecided_is_rejected() {
    let (a, b) = (Node::new(), Node::new());
    let psp = b.ia.listen_any(&b.evd).unwrap();
    let address = b.ia.address().unwrap();
    let qual = psp.conn_qual();
    let connecting = std::thread::spawn(move || a.ep.connect(address, qual).timeout(LONG).establish());
    assert!(matches!(b.next(), Event::Request(_)));
    let error = connecting.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("rejected"), "{error}");
}

#[test]
fn establish_says_why_not() {
    let side = Node::new();
    let address = side.ia.address().unwrap();
    let error = side.ep.connect(address, 3).timeout(LONG).establish().unwrap_err();
    assert!(error.to_string().contains("listens"), "{error}");
}

#[test]
fn a_chain_opens_the_first_that_can_and_tells() {
    let toml = "[provider.no]\nlibrary = \"/nowhere/libdat_no.so\"\n[provider.lo]\nlibrary = \
                \"builtin:loopback\"\n[chain]\nany = [\"no\", \"lo\"]\n";
    let ia = open("any", toml).unwrap();
    assert_eq!(ia.name(), "lo");
    let steps: Vec<(&str, bool)> = ia.steps().iter().map(|step| (&*step.name, step.opened)).collect();
    assert_eq!(steps, [("no", false), ("lo", true)]);
    let error = open("no", toml).unwrap_err();
    assert_eq!(error.kind(), ReturnType::ProviderNotFound);
    assert!(error.to_string().contains("libdat_no.so"), "{error}");
}

#[cfg(feature = "async")]
#[test]
fn events_as_a_stream() {
    let (a, b, _psp) = connected();
    let mut stream = b.evd.stream().unwrap();
    let sender = std::thread::spawn(move || {
        for n in 0..20 {
            std::thread::sleep(Duration::from_millis(n % 3));
            a.ep.send(a.pz.buffer(8).unwrap(), ..).unwrap();
            a.completion();
        }
        a
    });
    for _ in 0..20 {
        b.ep.recv(b.pz.buffer(8).unwrap()).unwrap();
        let event = async_io::block_on(stream.next()).unwrap();
        assert!(matches!(event, Event::Completion(done) if done.status.is_success()));
    }
    sender.join().unwrap();
}

#[test]
fn buffers_of_a_shared_queue_come_back_from_the_endpoint_that_took_them() {
    let (a, b) = (Node::new(), Node::new());
    let srq = b.pz.srq(4, 1).unwrap();
    let ep = b.ia.ep(&b.pz).evd(&b.evd).srq(&srq).create().unwrap();
    let psp = b.ia.listen_any(&b.evd).unwrap();
    a.ep.connect(b.ia.address().unwrap(), psp.conn_qual()).timeout(LONG).start().unwrap();
    match b.next() {
        Event::Request(mut request) => request.accept(&ep, b"").unwrap(),
        other => panic!("{other:?}"),
    }
    for side in [&a, &b] {
        assert!(matches!(side.next(), Event::Connection { kind: ConnectionKind::Established, .. }));
    }
    srq.recv(b.pz.buffer(16).unwrap()).unwrap();
    let mut out = a.pz.buffer(3).unwrap();
    out.copy_from_slice(b"srq");
    a.ep.send(out, ..).unwrap();
    let done = b.completion();
    assert_eq!(&ep.reclaim(&done).expect("the shared receive")[..3], b"srq");
    assert_eq!(srq.query().unwrap().outstanding, 0);
}

#[test]
fn a_window_is_given_to_a_peer_and_taken_back() {
    let (a, b, _psp) = connected();
    let (mine, theirs) =
        (a.pz.region(64, Privileges::ALL).unwrap(), b.pz.region(64, Privileges::ALL).unwrap());
    theirs.write(8, b"seen");
    let window = b.pz.window().unwrap();
    let key = b.ep.bind(&window, &theirs, 8..12, Privileges::REMOTE_READ, 5).unwrap();
    assert!(matches!(b.next(), Event::Bind { cookie: 5, status: DtoStatus::Success, .. }));
    a.ep.read_into(&[mine.slice(..4)], key).cookie(1).post().unwrap();
    assert_eq!(a.completion().status, DtoStatus::Success);
    let mut got = [0; 4];
    mine.read(0, &mut got);
    assert_eq!(&got, b"seen");
    b.ep.unbind(&window, 6).unwrap();
    assert!(matches!(b.next(), Event::Bind { cookie: 6, .. }));
    a.ep.read_into(&[mine.slice(..4)], key).cookie(2).post().unwrap();
    assert_eq!(a.completion().status, DtoStatus::RemoteAccess);
}

#[test]
fn words_and_values() {
    let (a, b, _psp) = connected();
    let (mine, theirs) = (
        a.pz.region(64, Privileges::ALL).unwrap(),
        b.pz.region(64, Privileges::ALL | Privileges::REMOTE_ATOMIC).unwrap(),
    );
    a.ep.fetch_add(&[mine.slice(..8)], theirs.remote(..8), 7).post().unwrap();
    a.ep.compare_swap(&[mine.slice(8..16)], theirs.remote(..8), 7, 9).post().unwrap();
    assert_eq!([a.completion().length, a.completion().length], [8, 8]);
    let mut word = [0; 8];
    theirs.read(0, &mut word);
    assert_eq!(u64::from_ne_bytes(word), 9);
    b.ep.recv(b.pz.buffer(8).unwrap()).unwrap();
    a.ep.write_immediate_from(&[mine.slice(..4)], theirs.remote(16..20), 77).post().unwrap();
    let done = b.completion();
    assert_eq!((done.immediate(), done.length), (Some(77), 4));
    assert!(b.ep.reclaim(&done).is_some());
}

#[test]
fn several_posts_in_one_call() {
    let (a, b, _psp) = connected();
    let (mine, theirs) =
        (a.pz.region(256, Privileges::ALL).unwrap(), b.pz.region(256, Privileges::ALL).unwrap());
    let slices = |region: &dat::Region| -> Vec<_> {
        (0..20usize).map(|i| (region.slice(i * 8..i * 8 + 8), i as u64)).collect()
    };
    let (posted, why) = b.ep.recv_each(&slices(&theirs));
    assert_eq!((posted, why.unwrap_err().kind()), (16, ReturnType::InsufficientResources));
    assert_eq!(a.ep.send_each(&slices(&mine)[..16], CompletionFlags::SUPPRESS).0, 16);
    for cookie in 0..16 {
        let done = b.completion();
        assert_eq!((done.cookie, done.length, done.status), (cookie, 8, DtoStatus::Success));
    }
    let taken = [(mine.slice(..8), 1 << 63)];
    assert_eq!(
        a.ep.send_each(&taken, CompletionFlags::empty()).1.unwrap_err().kind(),
        ReturnType::InvalidParameter
    );
}
