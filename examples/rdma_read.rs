//! One process reads memory of another process, which does nothing.
//!
//! `rdma_read [NAME]` starts both processes over the provider NAME (`shm0` by default).
//! In two terminals: `rdma_read NAME server`, then `rdma_read NAME client`.
//! In one process: `rdma_read NAME threads`; the only way with `loopback0`.
#![forbid(unsafe_code)]

use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use dat::{CloseFlags, ConnectionKind, DtoCompletion, Evd, Event, Privileges, RmrTriplet};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The connection qualifier: to DAT what a port is to TCP.
const PORT: u64 = 4711;
/// Time limit of each wait.
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("shm0", String::as_str);
    let port = arguments.get(2).map_or(Ok(PORT), |port| port.parse())?;
    match arguments.get(1).map(String::as_str) {
        Some("server") => server(name, Some(port), |port| println!("server: listening on {port}")),
        Some("client") => client(name, port),
        Some("threads") => thread::scope(|scope| {
            let mut other = None;
            server(name, None, |port| other = Some(scope.spawn(move || client(name, port))))?;
            other.map_or(Ok(()), |client| client.join().expect("the client does not panic"))
        }),
        Some(other) => Err(format!("{other}: the role is server, client or threads").into()),
        None => {
            let mut other = None;
            server(name, None, |port| other = Some(start_client(name, port)))?;
            let status = other.ok_or("the client was not started")??.wait()?;
            if status.success() { Ok(()) } else { Err("the client failed".into()) }
        }
    }
}

/// Starts this program again, as the client.
fn start_client(name: &str, port: u64) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args([name, "client", &port.to_string()]).spawn()
}

fn server(name: &str, port: Option<u64>, listening: impl FnOnce(u64)) -> Outcome<()> {
    let ia = dat::open(name)?;
    let pz = ia.pz()?;
    let connections = ia.evd(8)?;
    // The server posts no operations, so its endpoint needs no dispatcher for completions.
    let ep = ia.ep(&pz).connect_evd(&connections).create()?;
    // Memory that peers may read.
    let text = b"read without the server's help";
    let region = pz.region(4096, Privileges::LOCAL_READ | Privileges::REMOTE_READ)?;
    region.write(0, text);

    let listener = port.map_or_else(|| ia.listen_any(&connections), |port| ia.listen(port, &connections))?;
    listening(listener.conn_qual());
    let Some(Event::Request(mut request)) = connections.wait(LIMIT)? else {
        return Err("no connection request within the limit".into());
    };
    // The client gets a key for these bytes, with the answer to its request.
    request.accept(&ep, encode(region.remote(..text.len())).as_bytes())?;
    expect(&connections, ConnectionKind::Established)?;
    println!("server: a client may read {} bytes; waiting for its disconnect", text.len());
    expect(&connections, ConnectionKind::Disconnected)
}

fn client(name: &str, port: u64) -> Outcome<()> {
    let ia = dat::open(name)?;
    let pz = ia.pz()?;
    let (connections, completions) = (ia.evd(8)?, ia.evd(32)?);
    let ep =
        ia.ep(&pz).connect_evd(&connections).request_evd(&completions).recv_evd(&completions).create()?;
    let data = ep.connect(ia.address()?, port).timeout(LIMIT).establish()?;
    let source = decode(&data)?;
    println!("client: may read {} bytes at {:#x} of the server", source.length, source.address);

    // `read` fills the whole buffer, so it has the length of the memory.
    let buffer = pz.buffer(source.length as usize)?;
    ep.read(buffer, source).map_err(|refused| refused.error)?;
    let done = completion(&completions)?;
    let buffer = ep.reclaim(&done).ok_or("the completion is of another endpoint")?;
    println!("client: read {:?}", String::from_utf8_lossy(&buffer));
    ep.disconnect(CloseFlags::Graceful)?;
    expect(&connections, ConnectionKind::Disconnected)
}

/// The next completion. A failed operation or a time-out is an error.
fn completion(evd: &Evd) -> Outcome<DtoCompletion> {
    match evd.wait(LIMIT)? {
        Some(Event::Completion(done)) if done.status.is_success() => Ok(done),
        other => Err(format!("expected a completion, got {other:?}").into()),
    }
}

/// The next connection event. Any other one is an error.
fn expect(evd: &Evd, wanted: ConnectionKind) -> Outcome<()> {
    match evd.wait(LIMIT)? {
        Some(Event::Connection { kind, .. }) if kind == wanted => Ok(()),
        other => Err(format!("expected {wanted:?}, got {other:?}").into()),
    }
}

/// Address, length and key of the server's memory, in a form that both sides know.
fn encode(memory: RmrTriplet) -> String {
    format!("{} {} {}", memory.address, memory.length, memory.context)
}

fn decode(data: &[u8]) -> Outcome<RmrTriplet> {
    let mut words = std::str::from_utf8(data)?.split(' ');
    let mut next = || words.next().ok_or("the server sent no memory");
    Ok(RmrTriplet { address: next()?.parse()?, length: next()?.parse()?, context: next()?.parse()? })
}
