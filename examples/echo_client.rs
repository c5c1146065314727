//! A client of `echo_server`: sends messages, checks the echoes, and prints the time of a round trip.
//!
//! `echo_client [NAME [PORT [MESSAGES]]]`: over the provider NAME (`shm0`), to PORT (4712), 1000 messages.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use dat::{CloseFlags, DtoCompletion, DtoOperation, Ep, Evd, Event};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const BYTES: usize = 64;
const LIMIT: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("shm0", String::as_str);
    let port = arguments.get(1).map_or(Ok(4712), |port| port.parse())?;
    let messages: u32 = arguments.get(2).map_or(Ok(1000), |messages| messages.parse())?;
    if messages == 0 {
        return Err("0 messages: there is nothing to do; give a number above 0".into());
    }

    let ia = dat::open(name)?;
    let pz = ia.pz()?;
    let (connections, completions) = (ia.evd(8)?, ia.evd(32)?);
    let ep =
        ia.ep(&pz).connect_evd(&connections).recv_evd(&completions).request_evd(&completions).create()?;
    ep.connect(ia.address()?, port).timeout(LIMIT).establish()?;

    let (mut outgoing, mut incoming) = (pz.buffer(BYTES)?, pz.buffer(BYTES)?);
    let start = Instant::now();
    for number in 0..messages {
        outgoing[..4].copy_from_slice(&number.to_le_bytes());
        // First the receive, then the send: the echo needs a posted receive.
        ep.recv(incoming).map_err(|refused| refused.error)?;
        ep.send(outgoing, ..).map_err(|refused| refused.error)?;
        (outgoing, incoming) = round_trip(&ep, &completions)?;
        if incoming[..4] != number.to_le_bytes() {
            return Err(format!("message {number} came back as {:?}", &incoming[..4]).into());
        }
    }
    let each = start.elapsed() / messages;
    println!("{messages} messages of {BYTES} bytes came back, {each:?} each; path: {}", ep.path());
    ep.disconnect(CloseFlags::Graceful)?;
    connections.wait(LIMIT)?.ok_or("the disconnect did not finish in time")?;
    Ok(())
}

/// Waits for both completions, in any order, and returns the buffers: sent, received.
fn round_trip(ep: &Ep, evd: &Evd) -> Outcome<(dat::Buffer, dat::Buffer)> {
    let (mut sent, mut received) = (None, None);
    for _ in 0..2 {
        let done = completion(evd)?;
        let buffer = ep.reclaim(&done);
        match done.operation {
            DtoOperation::Receive => received = buffer,
            _ => sent = buffer,
        }
    }
    sent.zip(received).ok_or_else(|| "completions of another endpoint".into())
}

/// The next completion. A failed operation or a time-out is an error.
fn completion(evd: &Evd) -> Outcome<DtoCompletion> {
    match evd.wait(LIMIT)? {
        Some(Event::Completion(done)) if done.status.is_success() => Ok(done),
        other => Err(format!("expected a completion, got {other:?}").into()),
    }
}
