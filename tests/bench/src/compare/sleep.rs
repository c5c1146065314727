//! Waking a sleeper on another processor: half a round trip of messages between two threads that never poll before they
//! sleep, and the same over two event descriptors and nothing else.

use std::time::{Duration, Instant};

use dat::{ConnectionKind, Ep, Evd, EvdFlags, Event, Ia, IaBuilder, Privileges, Slice};
use dat_measure::cpu::{self, Placement};
use rustix::event::{EventfdFlags, eventfd};

use super::figures::median;
use super::points::{Contender, Point, Test};

const ROUNDS: usize = 2000;
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct EventFd(pub(crate) (usize, usize));

impl Contender for EventFd {
    fn name(&self) -> &str {
        "eventfd"
    }

    fn takes(&self, (test, _): Point) -> bool {
        test == Test::WakeUp
    }

    fn measure(&mut self, _: Point) -> Result<Vec<(Option<Placement>, f64)>, String> {
        let make = || eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| format!("eventfd: {error}"));
        let (there, back) = (make()?, make()?);
        let one = 1u64.to_ne_bytes();
        let times = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut count = [0; 8];
                let answer = || -> rustix::io::Result<()> {
                    for _ in 0..ROUNDS {
                        rustix::io::read(&there, &mut count)?;
                        rustix::io::write(&back, &one)?;
                    }
                    Ok(())
                };
                cpu::pin(self.0.1).map_err(|error| error.to_string())?;
                let mut answer = answer;
                answer().map_err(|error| error.to_string())
            });
            let mut times = Vec::with_capacity(ROUNDS);
            let mut count = [0; 8];
            for _ in 0..ROUNDS {
                let start = Instant::now();
                rustix::io::write(&there, &one)?;
                rustix::io::read(&back, &mut count)?;
                times.push(start.elapsed().as_nanos() as f64 / 2.0);
            }
            Ok(times)
        });
        let times = times.map_err(|error: rustix::io::Errno| format!("eventfd: {error}"))?;
        Ok(vec![(None, median(&times))])
    }
}

/// Ours: `evd.wait` without a moment of polling.
pub(crate) struct Sleepers(pub(crate) (usize, usize));

impl Contender for Sleepers {
    fn name(&self) -> &str {
        "dat"
    }

    fn takes(&self, (test, _): Point) -> bool {
        test == Test::WakeUp
    }

    fn measure(&mut self, _: Point) -> Result<Vec<(Option<Placement>, f64)>, String> {
        let times = std::thread::scope(|scope| {
            let (tell, hear) = std::sync::mpsc::channel();
            let answering = scope.spawn(move || {
                cpu::pin(self.0.1).map_err(|error| error.to_string())?;
                let side = Sleeper::new()?;
                let psp = side.ia.listen_any(&side.connections).map_err(text)?;
                tell.send((side.ia.address().map_err(text)?, psp.conn_qual())).map_err(text)?;
                side.accept()?;
                for _ in 0..ROUNDS {
                    side.receive()?;
                    side.send()?;
                }
                // Until the last answer has been taken.
                side.disconnected()
            });
            let asked = Sleeper::new().and_then(|side| {
                let (address, qual) = hear.recv_timeout(LIMIT).map_err(text)?;
                side.ep.connect(address, qual).timeout(LIMIT).establish().map_err(text)?;
                let mut times = Vec::with_capacity(ROUNDS);
                for _ in 0..ROUNDS {
                    let start = Instant::now();
                    side.send()?;
                    side.receive()?;
                    times.push(start.elapsed().as_nanos() as f64 / 2.0);
                }
                side.ep.disconnect(dat::CloseFlags::Abrupt).map_err(text)?;
                Ok(times)
            });
            let answered = answering.join().unwrap_or_else(|_| Err("the other side panicked".to_owned()));
            asked.and_then(|times| answered.map(|()| times))
        })?;
        Ok(vec![(None, median(&times))])
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

struct Sleeper {
    ep: Ep,
    connections: Evd,
    completions: Evd,
    _sends: Evd,
    into: Slice,
    from: Slice,
    _region: dat::Region,
    ia: Ia,
}

impl Sleeper {
    fn new() -> Result<Sleeper, String> {
        let ia = IaBuilder::new("shm0").spin(Duration::ZERO).open().map_err(text)?;
        let pz = ia.pz().map_err(text)?;
        let region = pz.region(16, Privileges::ALL).map_err(text)?;
        let connections = ia.evd_of(8, EvdFlags::CONNECTION | EvdFlags::CR).map_err(text)?;
        let completions = ia.evd_of(64, EvdFlags::DTO).map_err(text)?;
        // A sent message must wake no thread.
        let sends = ia.evd_of(64, EvdFlags::DTO).map_err(text)?;
        let ep = ia.ep(&pz).connect_evd(&connections).recv_evd(&completions).request_evd(&sends);
        let ep = ep.max_recvs(4).max_requests(4).create().map_err(text)?;
        let (into, from) = (region.slice(..8), region.slice(8..16));
        ep.recv_into(&[into]).post().map_err(text)?;
        Ok(Sleeper { ep, connections, completions, _sends: sends, into, from, _region: region, ia })
    }

    fn accept(&self) -> Result<(), String> {
        match self.connections.wait(LIMIT).map_err(text)? {
            Some(Event::Request(mut request)) => request.accept(&self.ep, &[]).map_err(text)?,
            other => return Err(format!("instead of a request: {other:?}")),
        }
        match self.connections.wait(LIMIT).map_err(text)? {
            Some(Event::Connection { kind: ConnectionKind::Established, .. }) => Ok(()),
            other => Err(format!("instead of a connection: {other:?}")),
        }
    }

    fn send(&self) -> Result<(), String> {
        self.ep.send_from(&[self.from]).suppress().post().map_err(text)
    }

    /// The next message.
    fn receive(&self) -> Result<(), String> {
        match self.completions.wait(LIMIT).map_err(text)? {
            Some(Event::Completion(done)) if done.status.is_success() => {
                self.ep.recv_into(&[self.into]).post().map_err(text)
            }
            other => Err(format!("instead of a completion: {other:?}")),
        }
    }

    fn disconnected(&self) -> Result<(), String> {
        match self.connections.wait(LIMIT).map_err(text)? {
            Some(Event::Connection { .. }) => Ok(()),
            other => Err(format!("instead of the end: {other:?}")),
        }
    }
}
