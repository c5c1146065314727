//! What the tests of objects have: adapters of the loopback provider with one of everything.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_engine::{ConnectOptions, Cr, Ep, Evd, Ia, IaOptions, Lmr, Plugin, Pz};
use dat_plugin::Config;
use dat_plugin::host::Device;
use dat_types::{
    CloseFlags, ConnectionKind, DtoCompletion, EvdFlags, EventData, ObjectId, Privileges, Timeout,
};

pub const LONG: Timeout = Timeout::from_millis(20_000);
pub const SHORT: Timeout = Timeout::from_millis(30);

/// An adapter and an endpoint with its dispatchers.
pub struct Node {
    pub ep: Ep,
    pub lmr: Lmr,
    pub dto: Evd,
    pub conn: Evd,
    pub pz: Pz,
    pub ia: Arc<Ia>,
}

pub fn device(domain: &str) -> Device {
    let mut config = Config::default();
    config.params.insert("domain".into(), domain.into());
    Plugin::of::<dat_loopback::Loopback>().open(&config).unwrap()
}

/// A network of its own for each test: ports are not shared between them.
pub fn domain() -> String {
    std::thread::current().name().unwrap_or("main").to_owned()
}

impl Node {
    pub fn new() -> Node {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("loopback{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let ia = Ia::open(device(&domain()), &name, "0", IaOptions::default()).unwrap();
        Node::of(Arc::new(ia))
    }

    /// Another endpoint of the same adapter.
    pub fn another(&self) -> Node {
        Node::of(self.ia.clone())
    }

    pub fn of(ia: Arc<Ia>) -> Node {
        let pz = ia.pz_create().unwrap();
        let dto = ia.evd_create(64, EvdFlags::DTO).unwrap();
        let conn = ia.evd_create(8, EvdFlags::CONNECTION | EvdFlags::CR).unwrap();
        let lmr = ia.lmr_create(&pz, ia.alloc(8192).unwrap(), Privileges::ALL).unwrap();
        let ep = ia.ep_create(Some(&pz), Some(&dto), Some(&dto), Some(&conn), None).unwrap();
        Node { ep, lmr, dto, conn, pz, ia }
    }

    /// Sends a request to the listener on this port of the test's network.
    pub fn connect(&self, port: u64) {
        let address = self.ia.query().unwrap().address;
        let options = ConnectOptions {
            private_data: b"hello",
            timeout: LONG,
            ..ConnectOptions::new((address, 0).into(), port)
        };
        self.ep.connect(&options).unwrap();
    }

    /// The next connection event of the endpoint.
    pub fn conn(&self) -> ConnectionKind {
        match self.conn.wait(LONG, 1).unwrap().0.data {
            EventData::Connection { kind, ep, .. } => {
                assert_eq!(ep, self.ep.id());
                kind
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next connection request, and the service point it names.
    pub fn request(&self) -> (Cr, Option<ObjectId>) {
        match self.conn.wait(LONG, 1).unwrap().0.data {
            EventData::ConnectionRequest { cr, service_point, .. } => {
                (self.ia.cr(cr).unwrap(), service_point)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn dto(&self) -> DtoCompletion {
        match self.dto.wait(LONG, 1).unwrap().0.data {
            EventData::Dto(dto) => dto,
            other => panic!("{other:?}"),
        }
    }

    /// Frees everything in an allowed order; what else feeds the dispatchers makes it fail.
    pub fn conn_only_free(&self) {
        self.ep.free().unwrap();
        self.lmr.free().unwrap();
        self.dto.free().unwrap();
        self.conn.free().unwrap();
        self.pz.free().unwrap();
        self.ia.close(CloseFlags::Graceful).unwrap();
    }
}

/// Two sides, connected through `port`.
pub fn connected(port: u64) -> (Node, Node) {
    let (a, b) = (Node::new(), Node::new());
    let psp = b.ia.psp_create(port, &b.conn, dat_types::PspFlags::Consumer).unwrap();
    a.connect(port);
    b.request().0.accept(Some(&b.ep), b"").unwrap();
    assert_eq!((a.conn(), b.conn()), (ConnectionKind::Established, ConnectionKind::Established));
    psp.free().unwrap();
    (a, b)
}
