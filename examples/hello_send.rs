//! One process sends a message, the other receives it.
//!
//! `hello_send [NAME]` starts both processes over the provider NAME (`shm0` by default).
//! In two terminals: `hello_send NAME server`, then `hello_send NAME client`.
//! In one process: `hello_send NAME threads`; the only way with `loopback0`.
#![forbid(unsafe_code)]

use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use dat::{CloseFlags, ConnectionKind, DtoCompletion, Evd, Event};

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
    // The adapter, and a protection zone: memory and endpoints of one zone may be used together.
    let ia = dat::open(name)?;
    let pz = ia.pz()?;
    // Two dispatchers: one for connections, one for completions. They have room for all events that can be pending.
    let (connections, completions) = (ia.evd(8)?, ia.evd(32)?);
    let ep =
        ia.ep(&pz).connect_evd(&connections).request_evd(&completions).recv_evd(&completions).create()?;
    // A message needs a posted receive. The endpoint owns the buffer from here on.
    ep.recv(pz.buffer(64)?).map_err(|refused| refused.error)?;

    let listener = port.map_or_else(|| ia.listen_any(&connections), |port| ia.listen(port, &connections))?;
    listening(listener.conn_qual());
    let Some(Event::Request(mut request)) = connections.wait(LIMIT)? else {
        return Err("no connection request within the limit".into());
    };
    println!("server: {:?} wants to connect", String::from_utf8_lossy(request.private_data()));
    request.accept(&ep, b"welcome")?;
    expect(&connections, ConnectionKind::Established)?;

    let done = completion(&completions)?;
    // `reclaim` returns the buffer of the completion.
    let buffer = ep.reclaim(&done).ok_or("the completion is of another endpoint")?;
    println!("server: received {:?}", String::from_utf8_lossy(&buffer[..done.length as usize]));
    // The client disconnects.
    expect(&connections, ConnectionKind::Disconnected)
}

fn client(name: &str, port: u64) -> Outcome<()> {
    let ia = dat::open(name)?;
    let pz = ia.pz()?;
    let (connections, completions) = (ia.evd(8)?, ia.evd(32)?);
    let ep =
        ia.ep(&pz).connect_evd(&connections).request_evd(&completions).recv_evd(&completions).create()?;
    // The peer is on this host, so its adapter has the address of ours.
    let greeting = ep.connect(ia.address()?, port).private_data(b"a client").timeout(LIMIT).establish()?;
    println!("client: connected, the server answered {:?}", String::from_utf8_lossy(&greeting));

    let text = b"hello through shared memory, or any other provider";
    let mut buffer = pz.buffer(64)?;
    buffer[..text.len()].copy_from_slice(text);
    ep.send(buffer, ..text.len()).map_err(|refused| refused.error)?;
    // Success means that the message is in the server's buffer.
    let done = completion(&completions)?;
    println!("client: sent {} bytes", done.length);
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
