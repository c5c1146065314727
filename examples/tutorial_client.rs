//! The client of docs/tutorial.md: sends its words, then reads the server's count by RDMA.
//!
//! `tutorial_client [NAME [PORT [WORD...]]]`: over the provider NAME (`shm0`), to PORT (4713) of this host.
#![forbid(unsafe_code)]

use std::time::Duration;

use dat::{CloseFlags, ConnectionKind, DtoCompletion, Evd, Event, RmrTriplet};

const LIMIT: Duration = Duration::from_secs(10);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or("shm0".into());
    let port = arguments.next().map_or(Ok(4713), |port| port.parse())?;
    let mut words: Vec<String> = arguments.collect();
    if words.is_empty() {
        words = vec!["hello".into(), "world".into()];
    }

    let ia = dat::open(&name)?;
    let pz = ia.pz()?;
    let (connections, completions) = (ia.evd(8)?, ia.evd(32)?);
    let ep = ia.ep(&pz).connect_evd(&connections).request_evd(&completions).create()?;

    // Connects and waits. The result is the server's private data.
    let data = ep.connect(ia.address()?, port).timeout(LIMIT).establish()?;
    println!("connected; path: {}", ep.path());

    // A message goes out from a buffer. Its completion returns the buffer.
    let mut buffer = pz.buffer(256)?;
    for word in &words {
        let length = word.len().min(buffer.len());
        buffer[..length].copy_from_slice(&word.as_bytes()[..length]);
        ep.send(buffer, ..length)?;
        buffer = ep.reclaim(&completion(&completions)?).ok_or("a completion without a buffer")?;
    }

    // RDMA read: the server's application takes no part in it. Its count may lag behind the last message.
    let memory = decode(&data).ok_or("the server sent no memory")?;
    let mut count = 0;
    while count < words.len() as u64 {
        ep.read(pz.buffer(8)?, memory)?;
        let bytes = ep.reclaim(&completion(&completions)?).ok_or("a completion without a buffer")?;
        count = u64::from_le_bytes(bytes[..8].try_into()?);
    }
    println!("the server has {count} messages");

    // A graceful disconnect ends when all posted requests have completed.
    ep.disconnect(CloseFlags::Graceful)?;
    match connections.wait(LIMIT)? {
        Some(Event::Connection { kind: ConnectionKind::Disconnected, .. }) => Ok(()),
        other => Err(format!("expected the disconnect, got {other:?}").into()),
    }
}

/// The next completion. A failed operation is an error here.
fn completion(evd: &Evd) -> Outcome<DtoCompletion> {
    match evd.wait(LIMIT)? {
        Some(Event::Completion(done)) if done.status.is_success() => Ok(done),
        other => Err(format!("expected a completion, got {other:?}").into()),
    }
}

/// Address, length and key of memory: 16 bytes, little-endian.
fn decode(bytes: &[u8]) -> Option<RmrTriplet> {
    let address = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let length = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
    let context = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?);
    Some(RmrTriplet { address, length, context })
}
