//! The engine, one DAT call at a time.

use dat_engine::{ConnectOptions, Ep, Evd, Ia, IaOptions, Plugin};
use dat_plugin::Config;
use dat_types::{
    CompletionFlags, ConnectionKind, EpAttr, EvdFlags, EventData, LmrTriplet, Privileges, PspFlags,
    RmrTriplet, Timeout,
};

use super::layer::{BATCH, Layer};

pub(crate) struct Engine {
    sides: [Side; 2],
}

struct Side {
    ep: Ep,
    evd: Evd,
    iov: [LmrTriplet; 1],
    /// The same bytes, for the other side.
    remote: RmrTriplet,
    _ia: Ia,
}

impl Side {
    fn new(plugin: &Plugin, config: &Config, single: bool) -> Side {
        let device = plugin.open(config).expect("the provider opens");
        let ia = Ia::open(device, "bench", "0", IaOptions::default()).expect("an IA");
        let pz = ia.pz_create().expect("a zone");
        let kinds = EvdFlags::DTO | EvdFlags::CONNECTION | EvdFlags::CR;
        let evd = ia.evd_create(8 * BATCH as i32, kinds).expect("a dispatcher");
        let lmr = ia.lmr_create(&pz, ia.alloc(4096).expect("memory"), Privileges::ALL).expect("a region");
        let attr = EpAttr {
            max_recv_dtos: 2 * BATCH as u32,
            max_request_dtos: 2 * BATCH as u32,
            max_message_size: 1 << 20,
            max_rdma_size: 1 << 20,
            ..EpAttr::default()
        };
        let attr = if single { attr.single_threaded() } else { attr };
        let ep =
            ia.ep_create(Some(&pz), Some(&evd), Some(&evd), Some(&evd), Some(&attr)).expect("an endpoint");
        Side { ep, evd, iov: [lmr.triplet(0, 8)], remote: lmr.remote_triplet(0, 8), _ia: ia }
    }

    fn next(&self) -> EventData {
        self.evd.wait(Timeout::from_millis(10_000), 1).expect("an event within 10 s").0.data
    }

    fn take(&self) {
        let mut left = BATCH;
        while left > 0 {
            if let Ok(event) = self.evd.dequeue() {
                assert!(matches!(event.data, EventData::Dto(dto) if dto.status.is_success()));
                left -= 1;
            }
        }
    }
}

impl Engine {
    pub(crate) fn new(plugin: &Plugin, config: &Config) -> Engine {
        Engine::declared(plugin, config, false)
    }

    /// `single`: the endpoints are declared to be used by one thread.
    pub(crate) fn declared(plugin: &Plugin, config: &Config, single: bool) -> Engine {
        let sides = [0; 2].map(|_| Side::new(plugin, config, single));
        let psp = sides[1]._ia.psp_create_any(&sides[1].evd, PspFlags::Consumer).expect("a service point");
        let address = sides[1]._ia.query().expect("attributes").address;
        sides[0].ep.connect(&ConnectOptions::new((address, 0).into(), psp.conn_qual())).expect("a connect");
        let EventData::ConnectionRequest { cr, .. } = sides[1].next() else { panic!("no request") };
        sides[1]._ia.cr(cr).and_then(|cr| cr.accept(Some(&sides[1].ep), &[])).expect("an accept");
        for side in &sides {
            let up = matches!(side.next(), EventData::Connection { kind: ConnectionKind::Established, .. });
            assert!(up, "not connected");
        }
        psp.free().expect("the service point goes");
        Engine { sides }
    }

    /// The endpoints, for another thread to look at.
    #[allow(dead_code, reason = "not every program that times layers does")]
    pub(crate) fn endpoints(&self) -> [Ep; 2] {
        self.sides.each_ref().map(|side| side.ep.clone())
    }

    /// Writes of eight bytes to the other side's memory.
    #[allow(dead_code, reason = "not every program that times layers times it")]
    pub(crate) fn post_writes(&self, flags: CompletionFlags) {
        let [side, other] = &self.sides;
        for cookie in 0..BATCH as u64 {
            side.ep.post_rdma_write(&side.iov, cookie, other.remote, flags).expect("a write");
        }
    }
}

impl Layer for Engine {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn post_recvs(&mut self) {
        let side = &self.sides[1];
        for cookie in 0..BATCH as u64 {
            side.ep.post_recv(&side.iov, cookie, CompletionFlags::empty()).expect("a receive");
        }
    }

    fn post_sends(&mut self) {
        let side = &self.sides[0];
        for cookie in 0..BATCH as u64 {
            side.ep.post_send(&side.iov, cookie, CompletionFlags::empty()).expect("a send");
        }
    }

    fn take_recvs(&mut self) {
        self.sides[1].take();
    }

    fn take_sends(&mut self) {
        self.sides[0].take();
    }

    fn poll_nothing(&mut self) {
        for _ in 0..BATCH {
            assert!(self.sides[1].evd.dequeue().is_err());
        }
    }

    fn idle(&mut self, side: usize) {
        assert!(self.sides[side].evd.dequeue().is_err());
    }
}
