//! Many endpoints of one process at work: messages, connects, regions that come and go.

use std::time::Duration;

use dat::{CloseFlags, ConnectionKind, Ep, Evd, Event, Ia, Privileges, Pz, Region, Result, RmrTriplet};
use fastrand::Rng;

use crate::LONG;
use crate::server::decode;
use crate::service::LIGHT;

/// Bytes of a message, and of the regions that come and go.
const MESSAGE: usize = 64;
const CHURN: usize = 64 << 10;

/// The endpoints of one process, and what they share.
#[derive(Debug)]
pub struct Crowd {
    ia: Ia,
    pz: Pz,
    evd: Evd,
    region: Region,
    remote: RmrTriplet,
    port: u64,
    eps: Vec<Ep>,
}

impl Crowd {
    /// Connects so many endpoints to the server at this port.
    pub fn new(ia: &Ia, port: u64, count: usize) -> Result<Crowd> {
        let pz = ia.pz()?;
        let (evd, region) = (ia.evd(8192)?, pz.region(2 * MESSAGE, Privileges::ALL)?);
        let remote = RmrTriplet::default();
        let mut crowd = Crowd { ia: ia.clone(), pz, evd, region, remote, port, eps: Vec::new() };
        for _ in 0..count {
            let ep = ia.ep(&crowd.pz).evd(&crowd.evd).max_recvs(1).max_requests(2).create()?;
            crowd.connect(&ep)?;
            crowd.eps.push(ep);
        }
        Ok(crowd)
    }

    /// One piece of work of one endpoint.
    pub fn work(&mut self, random: &mut Rng) -> Result<()> {
        let ep = self.eps[random.usize(..self.eps.len())].clone();
        match random.u8(..16) {
            0 => {
                ep.disconnect(CloseFlags::Abrupt)?;
                self.kind(&ep)?;
                ep.reset()?;
                self.connect(&ep)
            }
            1 | 2 => self.write(&ep),
            _ => self.echo(&ep),
        }
    }

    fn connect(&mut self, ep: &Ep) -> Result<()> {
        ep.connect(self.ia.address()?, self.port).private_data(LIGHT).timeout(LONG).start()?;
        let (kind, data) = self.kind(ep)?;
        assert_eq!(kind, ConnectionKind::Established, "a connect of a crowd");
        self.remote = decode(&data).expect("a server of these tests tells its memory");
        Ok(())
    }

    /// The next connection event, which is this endpoint's. Work that was flushed is forgotten.
    fn kind(&self, ep: &Ep) -> Result<(ConnectionKind, Box<[u8]>)> {
        loop {
            match self.evd.wait(LONG)? {
                Some(Event::Connection { kind, ep: id, private_data, .. }) if id == ep.id() => {
                    return Ok((kind, private_data));
                }
                Some(Event::Completion(_)) => {}
                other => panic!("{other:?} in place of a connection's event"),
            }
        }
    }

    fn echo(&self, ep: &Ep) -> Result<()> {
        ep.recv_into(&[self.region.slice(..MESSAGE)]).post()?;
        ep.send_from(&[self.region.slice(MESSAGE..)]).post()?;
        self.complete()?;
        self.complete()
    }

    /// A write out of a region that exists for it alone.
    fn write(&self, ep: &Ep) -> Result<()> {
        let region = self.pz.region(CHURN, Privileges::ALL)?;
        ep.write_from(&[region.slice(..)], RmrTriplet { length: CHURN as u32, ..self.remote }).post()?;
        self.complete()
    }

    fn complete(&self) -> Result<()> {
        // A process that was stopped goes on in the middle; only its server's end is a reason to fail.
        match self.evd.wait(LONG + Duration::from_secs(10))? {
            Some(Event::Completion(done)) if done.status.is_success() => Ok(()),
            other => panic!("{other:?} in place of a completion"),
        }
    }
}
