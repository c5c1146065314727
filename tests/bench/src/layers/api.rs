//! The safe API, by name and through `dlopen`, as an application uses it.

use std::time::Duration;

use dat::{Ep, Evd, Event, Ia, Privileges, Slice};

use super::layer::{BATCH, Layer};

pub(crate) struct Api {
    sides: [Side; 2],
}

struct Side {
    ep: Ep,
    evd: Evd,
    slice: Slice,
    _region: dat::Region,
    ia: Ia,
}

impl Side {
    fn new(ia: Ia) -> Side {
        let pz = ia.pz().expect("a zone");
        let evd = ia.evd(8 * BATCH as u32).expect("a dispatcher");
        let region = pz.region(4096, Privileges::ALL).expect("a region");
        let count = 2 * BATCH as u32;
        let ep = ia.ep(&pz).evd(&evd).max_recvs(count).max_requests(count).create().expect("an endpoint");
        Side { ep, evd, slice: region.slice(..8), _region: region, ia }
    }

    fn next(&self) -> Event {
        self.evd.wait(Duration::from_secs(10)).expect("no error").expect("an event within 10 s")
    }

    fn take(&self) {
        let mut left = BATCH;
        while left > 0 {
            if let Some(event) = self.evd.poll().expect("no error") {
                assert!(matches!(event, Event::Completion(done) if done.status.is_success()));
                left -= 1;
            }
        }
    }
}

impl Api {
    /// Over two adapters that `open` gives.
    pub(crate) fn new(open: impl Fn() -> Ia) -> Api {
        let sides = [0; 2].map(|_| Side::new(open()));
        let psp = sides[1].ia.listen_any(&sides[1].evd).expect("a service point");
        let address = sides[1].ia.address().expect("an address");
        sides[0].ep.connect(address, psp.conn_qual()).start().expect("a connect");
        let Event::Request(mut request) = sides[1].next() else { panic!("no request") };
        request.accept(&sides[1].ep, &[]).expect("an accept");
        for side in &sides {
            assert!(matches!(side.next(), Event::Connection { .. }), "not connected");
        }
        Api { sides }
    }
}

impl Layer for Api {
    fn name(&self) -> &'static str {
        "api"
    }

    fn post_recvs(&mut self) {
        let side = &self.sides[1];
        for cookie in 0..BATCH as u64 {
            side.ep.recv_into(&[side.slice]).cookie(cookie).post().expect("a receive");
        }
    }

    fn post_sends(&mut self) {
        let side = &self.sides[0];
        for cookie in 0..BATCH as u64 {
            side.ep.send_from(&[side.slice]).cookie(cookie).post().expect("a send");
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
            assert!(self.sides[1].evd.poll().expect("no error").is_none());
        }
    }

    fn idle(&mut self, side: usize) {
        assert!(self.sides[side].evd.poll().expect("no error").is_none());
    }
}
