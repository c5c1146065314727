//! No sequence of safe calls gives a reference to memory that a provider may write, or posts memory that is not the
//! caller's. Each test but the last failed before the rule it names was kept.

use std::time::Duration;

use dat::registry::Registry;
use dat::{
    CompletionFlags, DtoCompletion, DtoOperation, DtoStatus, Ep, Evd, Event, Ia, IaBuilder, LmrTriplet,
    Privileges, Pz, ReturnType,
};

const LONG: Duration = Duration::from_secs(20);

struct Node {
    ia: Ia,
    pz: Pz,
    evd: Evd,
    ep: Ep,
}

impl Node {
    fn new(spin: Duration) -> Node {
        let plugin = dat::engine::Plugin::of::<dat_loopback::Loopback>();
        let toml = "[provider.lo]\nlibrary = \"builtin:loopback\"\n";
        let registry = Registry::from_str("test.toml", toml).unwrap().with_static(plugin);
        let ia = IaBuilder::new("lo").spin(spin).open_in(&registry).unwrap();
        let pz = ia.pz().unwrap();
        let evd = ia.evd(64).unwrap();
        let ep = ia.ep(&pz).evd(&evd).create().unwrap();
        Node { ia, pz, evd, ep }
    }

    fn completion(&self) -> DtoCompletion {
        match self.evd.wait(LONG).unwrap().expect("an event in time") {
            Event::Completion(done) => done,
            other => panic!("{other:?}"),
        }
    }
}

fn connected() -> (Node, Node) {
    let (a, b) = (Node::new(Duration::ZERO), Node::new(Duration::ZERO));
    let psp = b.ia.listen_any(&b.evd).unwrap();
    a.ep.connect(b.ia.address().unwrap(), psp.conn_qual()).timeout(LONG).start().unwrap();
    match b.evd.wait(LONG).unwrap().expect("a request in time") {
        Event::Request(mut request) => request.accept(&b.ep, &[]).unwrap(),
        other => panic!("{other:?}"),
    }
    for node in [&a, &b] {
        assert!(matches!(node.evd.wait(LONG).unwrap(), Some(Event::Connection { .. })));
    }
    (a, b)
}

/// A completion as any program can write one down, of the first buffer posted at `ep`.
fn forged(ep: &Ep, operation: DtoOperation, generation: u64) -> DtoCompletion {
    let cookie = 1 << 63 | generation << 32;
    DtoCompletion { ep: ep.id(), cookie, status: DtoStatus::Success, operation, length: 0, value: 0 }
}

#[test]
fn a_forged_completion_gives_no_buffer_that_is_posted() {
    let (a, b) = connected();
    b.ep.recv(b.pz.buffer(8).unwrap()).unwrap();
    for operation in [DtoOperation::Receive, DtoOperation::Send] {
        assert!(b.ep.reclaim(&forged(&b.ep, operation, 1)).is_none(), "{operation:?}");
    }
    a.ep.send(a.pz.buffer(8).unwrap(), ..).unwrap();
    let done = b.completion();
    assert_eq!(done.cookie, forged(&b.ep, done.operation, 1).cookie, "the forged one was the right one");
    assert!(b.ep.reclaim(&done).is_some());
}

#[test]
fn a_completion_used_again_gives_no_buffer_that_is_posted() {
    let (a, b) = connected();
    b.ep.recv(b.pz.buffer(8).unwrap()).unwrap();
    a.ep.send(a.pz.buffer(8).unwrap(), ..).unwrap();
    let done = b.completion();
    let buffer = b.ep.reclaim(&done).unwrap();
    b.ep.recv(buffer).unwrap();
    let newer = forged(&b.ep, done.operation, 2);
    assert!(b.ep.reclaim(&done).is_none() && b.ep.reclaim(&newer).is_none());
}

#[test]
fn a_buffer_of_a_shared_queue_comes_back_with_its_completion_only() {
    let node = Node::new(Duration::ZERO);
    let srq = node.pz.srq(4, 1).unwrap();
    let ep = node.ia.ep(&node.pz).evd(&node.evd).srq(&srq).create().unwrap();
    srq.recv(node.pz.buffer(8).unwrap()).unwrap();
    assert!(ep.reclaim(&forged(&ep, DtoOperation::Receive, 1)).is_none());
    assert!(ep.query().unwrap().srq.is_none(), "a queue of the engine's posts what it is given");
}

#[test]
fn a_flushed_or_refused_buffer_comes_back() {
    let node = Node::new(Duration::ZERO);
    let refused = node.ep.send(node.pz.buffer(8).unwrap(), ..).unwrap_err();
    assert_eq!(refused.error.kind(), ReturnType::InvalidState);
    let (a, b) = connected();
    drop(b);
    a.ep.recv(refused.buffer).expect_err("a buffer of another adapter");
    a.ep.recv(a.pz.buffer(8).unwrap()).unwrap();
    let done = loop {
        match a.evd.wait(LONG).unwrap().expect("an event in time") {
            Event::Completion(done) => break done,
            other => drop(other),
        }
    };
    assert_eq!(done.status, DtoStatus::Flushed);
    assert!(a.ep.reclaim(&done).is_some());
}

#[test]
fn no_triplet_names_the_memory_of_a_buffer() {
    let (a, b) = connected();
    let buffer = b.pz.buffer(64).unwrap();
    // SAFETY: every post below is refused, which is what is tested.
    let engine = unsafe { b.ep.engine() };
    for context in (0x1_0000..0x1_0040).chain(0x2_0000..0x2_0040) {
        let triplet = LmrTriplet { address: buffer.as_ptr() as u64, length: 64, context };
        let error = engine.post_recv(&[triplet], 1, CompletionFlags::empty()).unwrap_err();
        assert_eq!(error.kind(), ReturnType::PrivilegesViolation, "context {context:#x}");
    }
    drop(a);
}

#[test]
fn a_slice_of_a_freed_region_posts_nothing() {
    let (a, _b) = connected();
    let region = a.pz.region(64, Privileges::ALL).unwrap();
    let slice = region.slice(..);
    drop(region);
    let _others: Vec<_> = (0..8).map(|_| a.pz.region(64, Privileges::ALL).unwrap()).collect();
    let error = a.ep.send_from(&[slice]).post().unwrap_err();
    assert_eq!(error.kind(), ReturnType::PrivilegesViolation);
    let (posted, result) = a.ep.recv_each(&[(slice, 1)]);
    assert_eq!((posted, result.unwrap_err().kind()), (0, ReturnType::PrivilegesViolation));
}

#[test]
fn a_slice_posts_nothing_on_another_adapter() {
    let (a, b) = connected();
    // The same context on both adapters.
    let here = a.pz.region(64, Privileges::ALL).unwrap();
    let _there = b.pz.region(64, Privileges::ALL).unwrap();
    let error = b.ep.recv_into(&[here.slice(..)]).post().unwrap_err();
    assert_eq!(error.kind(), ReturnType::PrivilegesViolation);
}

#[test]
fn a_wait_may_spin_for_longer_than_the_clock_goes() {
    let node = Node::new(Duration::MAX);
    assert!(node.evd.wait(Duration::from_millis(1)).unwrap().is_none());
    let cno = node.ia.cno().unwrap();
    assert!(cno.wait(Duration::from_millis(1)).unwrap().is_none());
    assert!(node.evd.poll().unwrap().is_none(), "the dispatcher is open to all threads again");
}
