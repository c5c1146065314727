//! The other end of `rping`, the RDMA CM test program of rdma-core, which does not use DAT.
//!
//! `rping NAME server PORT` serves one `rping -c`; `rping NAME client ADDRESS PORT COUNT` asks an `rping -s`. NAME is an
//! adapter of the ibverbs provider. The client of `rping` offers memory and the server reads it. Then the client offers
//! other memory, the server writes the same bytes there, and the client compares. Offers are 16 bytes in network order.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::time::Duration;

use dat::{
    CloseFlags, ConnectionKind, DtoOperation, DtoStatus, Ep, Evd, Event, Ia, Privileges, Pz, Region,
    RmrTriplet,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Time limit of each wait.
const LIMIT: Duration = Duration::from_secs(30);
/// An offer: address and length of memory, and its key.
const OFFER: usize = 16;
/// `rping` sends 64 bytes by default.
const BYTES: usize = 4096;
const PING: usize = 64;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [name, "server", port] => server(name, port.parse()?),
        [name, "client", address, port, count] => {
            client(name, address.parse()?, port.parse()?, count.parse()?)
        }
        _ => Err("usage: rping NAME server PORT | rping NAME client ADDRESS PORT COUNT".into()),
    }
}

fn server(name: &str, port: u64) -> Outcome<()> {
    let ia = dat::open(name)?;
    let end = End::new(&ia)?;
    let listener = ia.listen(port, &end.connections)?;
    println!("server: listening on {}", listener.conn_qual());
    let Some(Event::Request(mut request)) = end.connections.wait(LIMIT)? else {
        return Err("no connection request within the limit".into());
    };
    let peer = request.peer().map_or_else(|| "somebody".to_owned(), |peer| peer.ip().to_string());
    println!("server: {peer} asks, with {} bytes of private data", request.private_data().len());
    end.listen_for_offer()?;
    request.accept(&end.ep, b"")?;
    end.expect(ConnectionKind::Established)?;
    let mut pings = 0;
    // The client makes offers until it disconnects.
    while let Some(source) = end.offer()? {
        let length = source.length as usize;
        if length > BYTES {
            return Err(format!("an offer of {length} bytes; there is room for {BYTES}").into());
        }
        end.ep.read_into(&[end.data.slice(..length)], source).post()?;
        end.finished(DtoOperation::RdmaRead)?;
        let text = end.text(length);
        println!("server: read {:?}", text.get(..40).unwrap_or(&text));
        end.say(RmrTriplet::default())?;
        let Some(sink) = end.offer()? else { return Err("the client left in the middle".into()) };
        end.ep.write_from(&[end.data.slice(..length)], sink).post()?;
        end.finished(DtoOperation::RdmaWrite)?;
        end.say(RmrTriplet::default())?;
        pings += 1;
    }
    println!("server: {pings} pings, and the client left");
    Ok(())
}

fn client(name: &str, address: IpAddr, port: u64, count: usize) -> Outcome<()> {
    let ia = dat::open(name)?;
    let end = End::new(&ia)?;
    end.listen_for_offer()?;
    end.ep.connect(address, port).timeout(LIMIT).establish()?;
    println!("client: connected, {}", end.ep.path());
    for ping in 0..count {
        let words = format!("dat-ping-{ping}: ");
        let mut text: Vec<u8> = words.bytes().chain(b'A'..=b'z').cycle().take(PING).collect();
        // The server writes back a C string: up to its end.
        text[PING - 1] = 0;
        end.data.write(0, &text);
        end.data.write(BYTES / 2, &[0; PING]);
        end.say(end.data.remote(..PING))?;
        end.offer()?.ok_or("the server left before it read")?;
        end.say(end.data.remote(BYTES / 2..BYTES / 2 + PING))?;
        end.offer()?.ok_or("the server left before it wrote")?;
        let mut back = [0; PING];
        end.data.read(BYTES / 2, &mut back);
        if back[..] != text[..] {
            return Err(format!("ping {ping} came back changed: {:?}", String::from_utf8_lossy(&back)).into());
        }
        println!("client: ping {ping} came back whole");
    }
    end.ep.disconnect(CloseFlags::Graceful)?;
    end.expect(ConnectionKind::Disconnected)
}

/// One end: an endpoint, memory for offers out and in, and memory that is offered.
struct End {
    ep: Ep,
    connections: Evd,
    completions: Evd,
    offers: Region,
    data: Region,
}

impl End {
    fn new(ia: &Ia) -> Outcome<End> {
        let pz: Pz = ia.pz()?;
        let (connections, completions) = (ia.evd(8)?, ia.evd(32)?);
        let ep =
            ia.ep(&pz).connect_evd(&connections).request_evd(&completions).recv_evd(&completions).create()?;
        let own = Privileges::LOCAL_READ | Privileges::LOCAL_WRITE;
        let offers = pz.region(2 * OFFER, own)?;
        let data = pz.region(BYTES, own | Privileges::REMOTE_READ | Privileges::REMOTE_WRITE)?;
        Ok(End { ep, connections, completions, offers, data })
    }

    /// Posts the receive for the next offer.
    fn listen_for_offer(&self) -> Outcome<()> {
        Ok(self.ep.recv_into(&[self.offers.slice(OFFER..)]).post()?)
    }

    /// The peer's next offer; `None` after its disconnect. The server's offers are empty acknowledgements.
    fn offer(&self) -> Outcome<Option<RmrTriplet>> {
        if !self.finished(DtoOperation::Receive)? {
            return Ok(None);
        }
        let mut raw = [0; OFFER];
        self.offers.read(OFFER, &mut raw);
        self.listen_for_offer()?;
        let word = |at: usize| u32::from_be_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let address = u64::from(word(0)) << 32 | u64::from(word(4));
        Ok(Some(RmrTriplet { address, length: word(12), context: word(8) }))
    }

    fn say(&self, memory: RmrTriplet) -> Outcome<()> {
        let mut raw = Vec::from(memory.address.to_be_bytes());
        raw.extend(memory.context.to_be_bytes());
        raw.extend(memory.length.to_be_bytes());
        self.offers.write(0, &raw);
        self.ep.send_from(&[self.offers.slice(..OFFER)]).post()?;
        Ok(())
    }

    /// Waits for the completion of an operation, and skips those of earlier sends. `false`: the peer disconnected.
    fn finished(&self, wanted: DtoOperation) -> Outcome<bool> {
        loop {
            match self.completions.wait(LIMIT)? {
                Some(Event::Completion(done)) if done.status == DtoStatus::Flushed => return Ok(false),
                Some(Event::Completion(done)) if !done.status.is_success() => {
                    return Err(format!("{:?} failed: {:?}", done.operation, done.status).into());
                }
                Some(Event::Completion(done)) if done.operation == wanted => return Ok(true),
                Some(Event::Completion(done)) if done.operation == DtoOperation::Send => {}
                other => return Err(format!("expected the completion of {wanted:?}, got {other:?}").into()),
            }
        }
    }

    fn text(&self, length: usize) -> String {
        let mut raw = vec![0; length];
        self.data.read(0, &mut raw);
        String::from_utf8_lossy(&raw).into_owned()
    }

    fn expect(&self, wanted: ConnectionKind) -> Outcome<()> {
        match self.connections.wait(LIMIT)? {
            Some(Event::Connection { kind, .. }) if kind == wanted => Ok(()),
            other => Err(format!("expected {wanted:?}, got {other:?}").into()),
        }
    }
}
