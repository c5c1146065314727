//! The safe API of service points, notification objects, connects that repeat one another, and counters.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::time::Duration;

use dat::registry::Registry;
use dat::{
    ConnectionKind, Ep, EpCounter, EpState, Evd, Event, Ia, IaBuilder, Privileges, Pz, Request, ReturnType,
};

const LONG: Duration = Duration::from_secs(20);

struct Node {
    ia: Ia,
    pz: Pz,
    evd: Evd,
    ep: Ep,
}

fn registry() -> Registry {
    let plugin = dat::engine::Plugin::of::<dat_loopback::Loopback>();
    // A network of its own for each test: ports are not shared between them.
    let name = std::thread::current().name().unwrap_or("main").to_owned();
    let toml = format!("[provider.lo]\nlibrary = \"builtin:loopback\"\nparams = {{ domain = \"{name}\" }}\n");
    Registry::from_str("test.toml", &toml).unwrap().with_static(plugin)
}

impl Node {
    fn new() -> Node {
        Node::of(&IaBuilder::new("lo").open_in(&registry()).unwrap())
    }

    fn of(ia: &Ia) -> Node {
        let pz = ia.pz().unwrap();
        let evd = ia.evd(64).unwrap();
        let ep = ia.ep(&pz).evd(&evd).create().unwrap();
        Node { ia: ia.clone(), pz, evd, ep }
    }

    fn kind(&self) -> ConnectionKind {
        match self.evd.wait(LONG).unwrap().expect("an event in time") {
            Event::Connection { kind, ep, .. } => {
                assert_eq!(ep, self.ep.id());
                kind
            }
            other => panic!("{other:?}"),
        }
    }

    fn request(&self) -> Request {
        match self.evd.wait(LONG).unwrap().expect("an event in time") {
            Event::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_reserved_endpoint_and_a_connect_like_it() {
    let (a, b) = (Node::new(), Node::new());
    let address = b.ia.address().unwrap();
    let rsp = b.ia.reserve(8001, &b.ep, &b.evd).unwrap();
    assert_eq!((rsp.conn_qual(), b.ep.state()), (8001, EpState::Reserved));
    drop(rsp);
    assert_eq!(b.ep.state(), EpState::Unconnected);
    let _rsp = b.ia.reserve(8001, &b.ep, &b.evd).unwrap();
    a.ep.connect(address, 8001).timeout(LONG).start().unwrap();
    b.request().accept_reserved(b"").unwrap();
    assert_eq!((a.kind(), b.kind()), (ConnectionKind::Established, ConnectionKind::Established));

    let (again, other) = (Node::of(&a.ia), Node::of(&b.ia));
    let _psp = b.ia.listen(8001, &other.evd).unwrap();
    again.ep.connect_like(&a.ep).timeout(LONG).private_data(b"again").start().unwrap();
    let mut request = other.request();
    assert_eq!((request.private_data(), request.conn_qual()), (&b"again"[..], 8001));
    let elsewhere = Node::of(&b.ia);
    let target = b.ia.listen_any(&elsewhere.evd).unwrap();
    assert_eq!(request.hand_off(1).unwrap_err().kind(), ReturnType::InvalidParameter);
    request.hand_off(target.conn_qual()).unwrap();
    elsewhere.request().accept(&elsewhere.ep, b"").unwrap();
    assert_eq!((again.kind(), elsewhere.kind()), (ConnectionKind::Established, ConnectionKind::Established));
}

#[test]
fn a_port_listens_and_is_connected_to() {
    let (a, b) = (Node::new(), Node::new());
    let csp = b.ia.listen_on(SocketAddr::new(b.ia.address().unwrap(), 0), &b.evd).unwrap();
    let address = SocketAddr::new(b.ia.address().unwrap(), csp.port());
    assert_eq!(b.ia.listen_on(address, &b.evd).unwrap_err().kind(), ReturnType::PortInUse);
    a.ep.connect_to(address).timeout(LONG).start().unwrap();
    b.request().accept(&b.ep, b"").unwrap();
    assert_eq!(a.kind(), ConnectionKind::Established);
    let connects = a.ep.counters(false).unwrap();
    assert!(connects.contains(&(EpCounter::Connect, 1)));
}

#[test]
fn notification_objects_live_as_long_as_they_are_referred_to() {
    let side = Node::new();
    let cno = side.ia.cno().unwrap();
    side.evd.notify(&cno).unwrap();
    let (to, from) = channel();
    cno.on_trigger(move |evd| to.send(evd).unwrap()).unwrap();
    side.evd.post(1).unwrap();
    assert_eq!(cno.wait(LONG).unwrap(), Some(side.evd.id()));
    assert_eq!(from.recv_timeout(LONG).unwrap(), Some(side.evd.id()));
    assert_eq!(cno.wait(Duration::from_millis(20)).unwrap(), None);
    let engine = cno.engine().clone();
    drop(cno);
    engine.query().expect("the dispatcher keeps it");
    let fd = side.ia.cno_fd().unwrap();
    side.evd.notify(&fd).unwrap();
    assert_eq!(engine.query().unwrap_err().kind(), ReturnType::InvalidHandle, "nothing keeps it any more");
    assert_eq!(fd.take().unwrap(), None);
    side.evd.post(2).unwrap();
    assert!(fd.as_fd().try_clone_to_owned().is_ok());
    assert_eq!((fd.take().unwrap(), fd.take().unwrap()), (Some(side.evd.id()), None));
    side.evd.set_enabled(false).unwrap();
    side.evd.post(3).unwrap();
    assert_eq!(fd.take().unwrap(), None);
    side.evd.notify_nobody().unwrap();
}

#[test]
fn a_region_over_a_region() {
    let side = Node::new();
    let first = side.pz.region(4096, Privileges::ALL).unwrap();
    let other = side.ia.pz().unwrap();
    let second = first.over(&other, Privileges::LOCAL_READ).unwrap();
    first.write(0, b"same");
    drop(first);
    let mut got = [0; 4];
    second.read(0, &mut got);
    assert_eq!(&got, b"same");
    assert_eq!(second.len(), 4096);
}

#[test]
fn memory_of_another_device_is_refused_where_it_cannot_be() {
    let side = Node::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    let refused = side.pz.register_dmabuf(file.into(), 0, 4096, 1 << 20, Privileges::ALL).unwrap_err();
    assert_eq!(refused.kind(), ReturnType::ModelNotSupported);
    assert!(refused.to_string().contains("dma-buf"), "{refused}");
}

#[test]
fn more_memory_than_there_is_is_an_error() {
    let side = Node::new();
    for len in [usize::MAX, usize::MAX / 2, 1 << 60, 1 << 50] {
        for refused in [
            side.pz.buffer(len).map(drop),
            side.pz.heap_region(len, Privileges::ALL).map(drop),
            side.pz.region(len, Privileges::ALL).map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), ReturnType::InsufficientResources, "{refused}");
        }
    }
}
