//! The server of docs/tutorial.md: prints messages, and keeps their number where clients can read it.
//!
//! `tutorial_server [NAME [PORT]]`: over the provider NAME (`shm0`), on PORT (4713). It serves one client and ends.
#![forbid(unsafe_code)]

use std::time::Duration;

use dat::{ConnectionKind, DtoStatus, Event, Privileges, RmrTriplet};

const LIMIT: Duration = Duration::from_secs(60);
/// Receives that are posted at any time.
const DEPTH: u32 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or("shm0".into());
    let port = arguments.next().map_or(Ok(4713), |port| port.parse())?;

    // Adapter, protection zone, and one dispatcher for all events.
    let ia = dat::open(&name)?;
    let pz = ia.pz()?;
    let evd = ia.evd(64)?;

    // Receives are posted before a client connects.
    let ep = ia.ep(&pz).evd(&evd).max_recvs(DEPTH).create()?;
    for _ in 0..DEPTH {
        ep.recv(pz.buffer(256)?)?;
    }

    // Memory that a client may read.
    let count = pz.region(8, Privileges::LOCAL_READ | Privileges::REMOTE_READ)?;
    count.write(0, &0u64.to_le_bytes());

    let listener = ia.listen(port, &evd)?;
    println!("listening on {} of {name}", listener.conn_qual());

    let mut messages = 0u64;
    loop {
        match evd.wait(LIMIT)?.ok_or("no event within the limit")? {
            // The client gets the key of the memory with the answer.
            Event::Request(mut request) => request.accept(&ep, &encode(count.remote(..8)))?,
            Event::Completion(done) if done.status == DtoStatus::Success => {
                let buffer = ep.reclaim(&done).ok_or("a completion without a buffer")?;
                println!("message: {}", String::from_utf8_lossy(&buffer[..done.length as usize]));
                messages += 1;
                count.write(0, &messages.to_le_bytes());
                ep.recv(buffer)?;
            }
            // Receives that are still posted are flushed when the client disconnects.
            Event::Completion(_) => {}
            Event::Connection { kind: ConnectionKind::Established, .. } => println!("connected"),
            Event::Connection { kind, .. } => {
                println!("connection: {kind:?}");
                return Ok(());
            }
            other => println!("ignored: {other:?}"),
        }
    }
}

/// Address, length and key of memory: 16 bytes, little-endian.
fn encode(memory: RmrTriplet) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&memory.address.to_le_bytes());
    bytes[8..12].copy_from_slice(&memory.length.to_le_bytes());
    bytes[12..].copy_from_slice(&memory.context.to_le_bytes());
    bytes
}
