//! Dispatchers under an executor, here tokio: a stream of events, and a watched descriptor.
//!
//! `async_tokio [NAME]` runs both sides as tasks of one thread over the provider NAME (`shm0`).
//! In two terminals: `async_tokio NAME server`, then `async_tokio NAME client`.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::time::Duration;

use dat::{CloseFlags, ConnectionKind, Evd, Event, Ia};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::timeout;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PORT: u64 = 4713;
const MESSAGES: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("shm0", String::as_str);
    let ia = dat::open(name)?;
    let (port_sender, port_receiver) = oneshot::channel();
    match arguments.get(1).map(String::as_str) {
        Some("server") => server(&ia, Some(PORT), port_sender).await,
        Some("client") => client(&ia, PORT).await,
        Some(other) => Err(format!("{other}: the role is server or client").into()),
        None => {
            // The executor handles the time-out. Dropping the future stops the wait, and no event is lost.
            let client = async { client(&ia, port_receiver.await?).await };
            let both = async { tokio::try_join!(server(&ia, None, port_sender), client) };
            timeout(Duration::from_secs(20), both).await??;
            Ok(())
        }
    }
}

/// Takes events from a stream. It needs no particular executor.
async fn server(ia: &Ia, port: Option<u64>, port_sender: oneshot::Sender<u64>) -> Outcome<()> {
    let pz = ia.pz()?;
    let evd = ia.evd(64)?;
    let mut events = evd.stream()?;
    let ep = ia.ep(&pz).evd(&evd).create()?;
    for _ in 0..4 {
        ep.recv(pz.buffer(64)?).map_err(|refused| refused.error)?;
    }
    let listener = port.map_or_else(|| ia.listen_any(&evd), |port| ia.listen(port, &evd))?;
    println!("server: listening on {}", listener.conn_qual());
    let _ = port_sender.send(listener.conn_qual());
    let mut received = 0;
    loop {
        match events.next().await? {
            Event::Request(mut request) => request.accept(&ep, b"")?,
            Event::Connection { kind: ConnectionKind::Established, .. } => println!("server: connected"),
            Event::Connection { kind, .. } => {
                println!("server: {kind:?} after {received} messages");
                return if received == MESSAGES { Ok(()) } else { Err("messages are missing".into()) };
            }
            Event::Completion(done) if done.status.is_success() => {
                received += 1;
                let buffer = ep.reclaim(&done).ok_or("the completion is of another endpoint")?;
                ep.recv(buffer).map_err(|refused| refused.error)?;
            }
            Event::Completion(_) => {} // A receive that was still posted when the connection ended.
            other => return Err(format!("unexpected: {other:?}").into()),
        }
    }
}

/// Watches the dispatchers' descriptors with tokio's own reactor.
async fn client(ia: &Ia, port: u64) -> Outcome<()> {
    let pz = ia.pz()?;
    let (connections, completions) = (Watched::new(ia.evd(8)?)?, Watched::new(ia.evd(16)?)?);
    // Without a dispatcher for receives there are none.
    let ep = ia.ep(&pz).connect_evd(&connections.evd).request_evd(&completions.evd).create()?;
    ep.connect(ia.address()?, port).timeout(Duration::from_secs(10)).start()?;
    let outcome = connections.next().await?;
    println!("client: {outcome:?}");
    let mut buffer = pz.buffer(64)?;
    for number in 0..MESSAGES {
        buffer[0] = number as u8;
        ep.send(buffer, ..1).map_err(|refused| refused.error)?;
        buffer = match completions.next().await? {
            Event::Completion(done) if done.status.is_success() => ep.reclaim(&done).ok_or("not ours")?,
            other => return Err(format!("message {number}: {other:?}").into()),
        };
    }
    println!("client: {MESSAGES} messages sent");
    ep.disconnect(CloseFlags::Graceful)?;
    connections.next().await?;
    Ok(())
}

/// A dispatcher, and its descriptor as tokio watches it.
struct Watched {
    evd: Evd,
    descriptor: AsyncFd<OwnedFd>,
}

impl Watched {
    #[allow(deprecated, reason = "sound with a descriptor of one's own; what replaces it is unsafe to call")]
    fn new(evd: Evd) -> Outcome<Watched> {
        let descriptor = AsyncFd::new(evd.fd()?.try_clone_to_owned()?)?;
        Ok(Watched { evd, descriptor })
    }

    /// Arm, then sleep: armed, the descriptor becomes readable with the next event. It is never read.
    async fn next(&self) -> Outcome<Event> {
        loop {
            if let Some(event) = self.evd.poll()? {
                return Ok(event);
            }
            if self.evd.arm()? {
                self.descriptor.readable().await?.clear_ready();
            }
        }
    }
}
