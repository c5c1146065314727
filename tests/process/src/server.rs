//! The accepting side: one dispatcher, any number of clients, each with the service it requests.

use std::collections::HashMap;
use std::time::Duration;

use dat::{
    ConnectionKind, DtoCompletion, DtoOperation, Ep, Evd, Event, Ia, ObjectId, Privileges, Psp, Pz, Region,
    Result, RmrTriplet,
};

use crate::service::BYTES;
pub use crate::service::{DEAF, ECHO, IDLE, LIGHT, SINK};

/// Serves every client until it goes.
#[derive(Debug)]
pub struct Server {
    ia: Ia,
    pz: Pz,
    evd: Evd,
    psp: Psp,
    region: Region,
    clients: HashMap<ObjectId, Client>,
    /// Set: requests are kept and never answered.
    silent: bool,
    kept: Vec<dat::Request>,
}

#[derive(Debug)]
struct Client {
    ep: Ep,
    echo: bool,
    outstanding: u32,
    gone: bool,
}

/// What a turn was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A client is connected.
    Connected,
    /// A client is gone, or never came to be.
    Gone(ConnectionKind),
    /// Something else.
    Other,
}

impl Server {
    /// Listens on a free connection qualifier.
    pub fn new(ia: &Ia) -> Result<Server> {
        let pz = ia.pz()?;
        let region = pz.region(BYTES, Privileges::ALL)?;
        Server::of(ia, pz, region)
    }

    /// The same with memory of the heap: its pages go back to the allocator.
    pub fn with_heap(ia: &Ia) -> Result<Server> {
        let pz = ia.pz()?;
        let region = pz.heap_region(BYTES, Privileges::ALL)?;
        Server::of(ia, pz, region)
    }

    fn of(ia: &Ia, pz: Pz, region: Region) -> Result<Server> {
        let evd = ia.evd(8192)?;
        let psp = ia.listen_any(&evd)?;
        Ok(Server {
            ia: ia.clone(),
            pz,
            evd,
            psp,
            region,
            clients: HashMap::new(),
            silent: false,
            kept: Vec::new(),
        })
    }

    /// From now on requests are kept and never answered.
    pub fn be_silent(&mut self) {
        self.silent = true;
    }

    /// Where it listens.
    pub fn port(&self) -> u64 {
        self.psp.conn_qual()
    }

    /// The memory clients may read and write.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Clients connected, about to be, or gone with work that has not completed. What was posted when the connection
    /// had ended, but its event was not yet taken, is flushed after that event.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Ends every connection.
    pub fn drop_clients(&mut self) {
        self.clients.clear();
    }

    /// Takes one event, waiting at most `limit`.
    pub fn turn(&mut self, limit: Duration) -> Result<Option<Note>> {
        let Some(event) = self.evd.wait(limit)? else { return Ok(None) };
        match event {
            Event::Request(request) if self.silent => self.kept.push(request),
            Event::Request(request) => self.accept(request)?,
            Event::Connection { kind: ConnectionKind::Established, .. } => return Ok(Some(Note::Connected)),
            Event::Connection { kind, ep, .. } => {
                if let Some(client) = self.clients.get_mut(&ep) {
                    client.gone = true;
                }
                self.forget(ep);
                return Ok(Some(Note::Gone(kind)));
            }
            Event::Completion(done) => self.completed(&done)?,
            other => panic!("{other:?} is no event for a server"),
        }
        Ok(Some(Note::Other))
    }

    fn accept(&mut self, mut request: dat::Request) -> Result<()> {
        let mode = request.private_data().to_owned();
        let (receives, bytes) = match &mode[..] {
            ECHO => (8, 4096),
            SINK => (2, 1 << 20),
            LIGHT => (1, 64),
            _ => (0, 0),
        };
        let ep = self
            .ia
            .ep(&self.pz)
            .evd(&self.evd)
            .max_recvs(receives.max(1))
            .max_requests(receives.max(1))
            .create()?;
        let client = Client {
            ep: ep.clone(),
            echo: mode == ECHO || mode == LIGHT,
            outstanding: receives,
            gone: false,
        };
        for _ in 0..receives {
            ep.recv(self.pz.buffer(bytes)?)?;
        }
        request.accept(&ep, &encode(self.region.remote(..)))?;
        self.clients.insert(ep.id(), client);
        Ok(())
    }

    fn completed(&mut self, done: &DtoCompletion) -> Result<()> {
        let Some(client) = self.clients.get_mut(&done.ep) else { return Ok(()) };
        client.outstanding =
            client.outstanding.checked_sub(1).expect("a completion of something that was posted");
        let buffer = client.ep.reclaim(done).expect("every operation here is on a buffer");
        if !done.status.is_success() {
            self.forget(done.ep);
            return Ok(());
        }
        match (client.echo, done.operation) {
            (true, DtoOperation::Receive) => client.ep.send(buffer, ..done.length as usize)?,
            _ => client.ep.recv(buffer)?,
        }
        client.outstanding += 1;
        Ok(())
    }

    /// Frees the endpoint of a client that is gone altogether.
    fn forget(&mut self, ep: ObjectId) {
        if self.clients.get(&ep).is_some_and(|client| client.gone && client.outstanding == 0) {
            self.clients.remove(&ep);
        }
    }
}

/// What a client must know of the server's memory.
pub fn encode(memory: RmrTriplet) -> Vec<u8> {
    [&memory.address.to_le_bytes()[..], &memory.length.to_le_bytes(), &memory.context.to_le_bytes()].concat()
}

/// See [`encode`].
pub fn decode(bytes: &[u8]) -> Option<RmrTriplet> {
    let (address, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (context, _) = rest.split_first_chunk()?;
    Some(RmrTriplet {
        address: u64::from_le_bytes(*address),
        length: u32::from_le_bytes(*length),
        context: u32::from_le_bytes(*context),
    })
}
