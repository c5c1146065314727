//! A server for many clients with one event dispatcher: it returns every message to its sender.
//!
//! `echo_server [NAME [PORT [CLIENTS]]]`: over the provider NAME (`shm0`), listening on PORT (4712), until CLIENTS
//! clients have come and gone (forever). `echo_client` is the other side.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::time::Duration;

use dat::{ConnectionKind, DtoCompletion, DtoOperation, DtoStatus, Ep, Evd, Event, Ia, ObjectId, Pz};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Posted receives for each client. It may have this number of messages outstanding.
const DEPTH: u32 = 8;
/// Longest message.
const BYTES: usize = 4096;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("shm0", String::as_str);
    let port = arguments.get(1).map_or(Ok(4712), |port| port.parse())?;
    let limit = arguments.get(2).map_or(Ok(u64::MAX), |clients| clients.parse())?;

    let ia = dat::open(name)?;
    let pz = ia.pz()?;
    // All events arrive here: connection requests, connection events, completions of all clients.
    let evd = ia.evd(4096)?;
    let listener = ia.listen(port, &evd)?;
    println!("listening on {} of {name}", listener.conn_qual());

    let mut server = Server { ia, pz, evd, clients: HashMap::new(), served: 0, echoed: 0 };
    while server.served < limit {
        // The event loop. It sleeps while there are no events.
        if let Some(event) = server.evd.wait(Duration::from_secs(1))? {
            server.on(event)?;
        }
    }
    println!("{} clients, {} messages", server.served, server.echoed);
    Ok(())
}

struct Server {
    ia: Ia,
    pz: Pz,
    evd: Evd,
    /// Events contain the id of their endpoint.
    clients: HashMap<ObjectId, Ep>,
    served: u64,
    echoed: u64,
}

impl Server {
    fn on(&mut self, event: Event) -> Outcome<()> {
        match event {
            Event::Request(mut request) => {
                // One endpoint for each client, all on one dispatcher.
                let ep = self.ia.ep(&self.pz).evd(&self.evd).max_recvs(DEPTH).max_requests(DEPTH).create()?;
                for _ in 0..DEPTH {
                    ep.recv(self.pz.buffer(BYTES)?).map_err(|refused| refused.error)?;
                }
                // If the client gives up in the meantime, an event reports it.
                request.accept(&ep, b"")?;
                self.clients.insert(ep.id(), ep);
            }
            Event::Connection { kind: ConnectionKind::Established, .. } => {}
            Event::Connection { kind, ep, .. } => {
                // The client has left or died, or never connected. Dropping the endpoint frees it with its buffers.
                if self.clients.remove(&ep).is_some() {
                    self.served += 1;
                    println!("client {ep}: {kind:?}");
                }
            }
            Event::Completion(done) => self.completed(&done)?,
            other => println!("ignored: {other:?}"),
        }
        Ok(())
    }

    fn completed(&mut self, done: &DtoCompletion) -> Outcome<()> {
        // The last completions of a client may arrive after its end.
        let Some(ep) = self.clients.get(&done.ep) else { return Ok(()) };
        let Some(buffer) = ep.reclaim(done) else { return Ok(()) };
        // Flushed at the end of the connection, or failed because a message was too long. The connection event follows.
        if done.status != DtoStatus::Success {
            return Ok(());
        }
        let posted = match done.operation {
            DtoOperation::Receive => {
                self.echoed += 1;
                ep.send(buffer, ..done.length as usize)
            }
            // The echo arrived: the buffer is free for the next message.
            _ => ep.recv(buffer),
        };
        posted.map_err(|refused| refused.error)?;
        Ok(())
    }
}
