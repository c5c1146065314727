//! The listening side of ping and perf. It executes the connecting side's commands, one connection after the other.

pub mod perf;
pub mod ping;

use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dat::{EvdFlags, Event, Ia};
use serde_json::json;

use crate::args::{Peer, PeerOptions};
use crate::failure::{Failure, Outcome};
use crate::link::{self, Link};
use crate::output::{self, Shared};
use crate::protocol::Control;
use crate::units::Target;

/// How to serve.
#[derive(Debug)]
pub struct Serving<'a> {
    /// Where to listen; a free qualifier otherwise.
    pub qual: Option<u64>,
    /// End after one peer, with all its connections.
    pub once: bool,
    /// Longest wait for anything within a connection's work.
    pub limit: Duration,
    /// Set by the caller to end serving.
    pub stop: &'a AtomicBool,
}

/// Serves until `stop` is set.
pub fn serve(ia: &Ia, serving: &Serving<'_>, ready: impl FnOnce(Target) -> Outcome) -> Outcome {
    let requests = ia.evd_of(64, EvdFlags::CR)?;
    let psp = link::listen(ia, serving.qual, &requests)?;
    ready(Target { address: ia.address()?, qual: psp.conn_qual() })?;
    let stopped = || serving.stop.load(Ordering::Acquire);
    while !stopped() {
        let Some(Event::Request(request)) = requests.wait(Duration::from_millis(50))? else { continue };
        let outcome = Link::accept(ia, request, serving.limit).and_then(|link| session(link, &stopped));
        // An error of a peer does not end the server.
        match outcome {
            Ok(more) if serving.once && !more => break,
            Ok(_) => {}
            Err(failure) if serving.once => return Err(failure.because_of("the connection failed")),
            Err(failure) => eprintln!("{}", failure.because_of("a connection failed; still listening")),
        }
    }
    Ok(())
}

/// Executes the commands of one connection. Returns whether the peer announced another one.
fn session(mut link: Link, stopped: &impl Fn() -> bool) -> Outcome<bool> {
    let mut more = false;
    while let Some(control) = link.next_command(stopped)? {
        match control {
            Control::Echo { seed, length } => ping::echo(&mut link, seed, length)?,
            Control::Verify { seed, length } => ping::verify(&mut link, seed, length)?,
            Control::Fill { seed, length } => ping::fill(&mut link, seed, length)?,
            Control::PingPong { messages, length } => perf::ping_pong(&mut link, messages, length)?,
            Control::Sink { messages, batches } => perf::sink(&mut link, messages, batches)?,
            Control::WritePong { writes, length } => perf::write_pong(&mut link, writes, length)?,
            Control::More => {
                more = true;
                link.send_control(Control::Done)?;
            }
            other => return Err(Failure::new(format!("the peer sent an unexpected command: {other:?}"))),
        }
    }
    Ok(more)
}

/// `--listen`.
pub fn listening(shared: &Shared, name: &str, qual: u64, side: &PeerOptions) -> Outcome<ExitCode> {
    let ia = shared.ia(name).open()?;
    let stop = AtomicBool::new(false);
    let serving = Serving { qual: Some(qual), once: side.once, limit: side.timeout, stop: &stop };
    serve(&ia, &serving, |target| {
        shared.print(
            || json!({ "ready": { "address": target.address, "qual": target.qual } }),
            || show_ready(target),
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The hidden command: a peer that ping or perf started.
pub fn as_child(shared: &Shared, peer: &Peer) -> Outcome<ExitCode> {
    let ia = shared.ia(&peer.name).open()?;
    // Detached: it ends the process when the parent has ended, for any reason.
    thread::spawn(|| {
        let mut byte = [0];
        while matches!(io::stdin().read(&mut byte), Ok(1..)) {}
        std::process::exit(0);
    });
    let stop = AtomicBool::new(false);
    let limit = Duration::from_millis(peer.timeout_ms);
    let serving = Serving { qual: None, once: false, limit, stop: &stop };
    serve(&ia, &serving, |target| output::print(&show_ready(target)))?;
    Ok(ExitCode::SUCCESS)
}

/// The first line of a listening side's output.
fn show_ready(target: Target) -> String {
    format!("ready {} {}", target.address, target.qual)
}

/// The reverse.
pub fn parse_ready(line: &str) -> Option<Target> {
    let mut words = line.strip_prefix("ready ")?.split_whitespace();
    Some(Target { address: words.next()?.parse().ok()?, qual: words.next()?.parse().ok()? })
}
