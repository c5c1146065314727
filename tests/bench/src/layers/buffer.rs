//! The safe API with buffers that move into the endpoint and come back.

use std::time::Duration;

use dat::{Buffer, Ep, Evd, Event, Ia};

use super::layer::{BATCH, Layer};

pub(crate) struct Buffers {
    sides: [Side; 2],
}

struct Side {
    ep: Ep,
    evd: Evd,
    /// Those that are not posted.
    idle: Vec<Buffer>,
    ia: Ia,
}

impl Side {
    fn new(ia: Ia) -> Side {
        let pz = ia.pz().expect("a zone");
        let evd = ia.evd(8 * BATCH as u32).expect("a dispatcher");
        let count = 2 * BATCH as u32;
        let ep = ia.ep(&pz).evd(&evd).max_recvs(count).max_requests(count).create().expect("an endpoint");
        let idle = (0..BATCH).map(|_| pz.buffer(8).expect("a buffer")).collect();
        Side { ep, evd, idle, ia }
    }

    fn next(&self) -> Event {
        self.evd.wait(Duration::from_secs(10)).expect("no error").expect("an event within 10 s")
    }

    fn post(&mut self, post: impl Fn(&Ep, Buffer)) {
        for _ in 0..BATCH {
            let buffer = self.idle.pop().expect("a buffer that came back");
            post(&self.ep, buffer);
        }
    }

    fn take(&mut self) {
        while self.idle.len() < BATCH {
            if let Some(event) = self.evd.poll().expect("no error") {
                let Event::Completion(done) = event else { panic!("{event:?}") };
                assert!(done.status.is_success());
                self.idle.push(self.ep.reclaim(&done).expect("its buffer"));
            }
        }
    }
}

impl Buffers {
    /// Over two adapters that `open` gives.
    pub(crate) fn new(open: impl Fn() -> Ia) -> Buffers {
        let sides = [0; 2].map(|_| Side::new(open()));
        let psp = sides[1].ia.listen_any(&sides[1].evd).expect("a service point");
        let address = sides[1].ia.address().expect("an address");
        sides[0].ep.connect(address, psp.conn_qual()).start().expect("a connect");
        let Event::Request(mut request) = sides[1].next() else { panic!("no request") };
        request.accept(&sides[1].ep, &[]).expect("an accept");
        for side in &sides {
            assert!(matches!(side.next(), Event::Connection { .. }), "not connected");
        }
        Buffers { sides }
    }
}

impl Layer for Buffers {
    fn name(&self) -> &'static str {
        "buffer"
    }

    fn post_recvs(&mut self) {
        self.sides[1].post(|ep, buffer| ep.recv(buffer).expect("a receive"));
    }

    fn post_sends(&mut self) {
        self.sides[0].post(|ep, buffer| ep.send(buffer, ..).expect("a send"));
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
