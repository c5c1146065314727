//! The peer: a process or a thread that we started, or a process elsewhere.
//!
//! If the provider connects processes, the peer is a process of this binary, otherwise a thread.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dat::Ia;

use crate::cpu;
use crate::failure::{Context, Failure, Outcome};
use crate::output::Shared;
use crate::serve::{self, Serving};
use crate::units::{Cpus, Target};

/// Time limit for a peer to end before it is killed.
const GRACE: Duration = Duration::from_secs(1);

/// A peer. Dropping it ends a peer that we started.
#[derive(Debug)]
pub struct Peer {
    /// Where it listens.
    pub target: Target,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Process { child: Child, input: Option<ChildStdin> },
    Thread { stop: Arc<AtomicBool>, thread: Option<JoinHandle<()>> },
    Elsewhere,
}

impl Peer {
    /// A peer that runs already.
    pub fn elsewhere(target: Target) -> Peer {
        Peer { target, kind: Kind::Elsewhere }
    }

    /// Starts one for this adapter, and binds both sides to their processors if there are any.
    pub fn start(shared: &Shared, ia: &Ia, limit: Duration, cpus: Option<Cpus>) -> Outcome<Peer> {
        // The peer inherits its processor at its start. Otherwise it could wait behind our own polling.
        if let Some(cpus) = cpus {
            cpu::pin(cpus.peer)?;
        }
        let started =
            if joins_processes(ia)? { process(shared, ia, limit) } else { in_thread(shared, ia, limit) };
        if let Some(cpus) = cpus {
            cpu::pin(cpus.own)?;
        }
        started.context(|| format!("the peer for {} did not start", ia.name()))
    }

    /// What it is, for people.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Process { child, .. } => format!("process {} at {}", child.id(), self.target),
            Kind::Thread { .. } => format!("thread of this process at {}", self.target),
            Kind::Elsewhere => self.target.to_string(),
        }
    }

    /// Whether it runs on this machine, under our control.
    pub fn is_ours(&self) -> bool {
        !matches!(self.kind, Kind::Elsewhere)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Process { child, input } => {
                // It ends at the end of its input.
                drop(input.take());
                let deadline = Instant::now() + GRACE;
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(2));
                }
                // Both fail if it has ended already.
                let _ = child.kill();
                let _ = child.wait();
            }
            Kind::Thread { stop, thread } => {
                stop.store(true, Ordering::Release);
                let _ = thread.take().map(JoinHandle::join);
            }
            Kind::Elsewhere => {}
        }
    }
}

/// Whether the provider connects processes, by its own attribute.
fn joins_processes(ia: &Ia) -> Outcome<bool> {
    let attr = ia.provider_attr()?;
    let own = attr.provider_specific.iter().find(|(name, _)| name == "DAT_INTER_PROCESS");
    Ok(own.is_none_or(|(_, value)| value != "FALSE"))
}

fn process(shared: &Shared, ia: &Ia, limit: Duration) -> Outcome<Peer> {
    let binary = std::env::current_exe().context(|| "the path of this program is unknown".into())?;
    let mut command = Command::new(&binary);
    if let Some(file) = &shared.plugins {
        command.arg("--plugins").arg(file);
    }
    command.arg("peer").arg(ia.name()).arg(limit.as_millis().to_string());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context(|| format!("{} cannot be started", binary.display()))?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    // Owned from here on, so every return ends the process.
    let unknown = Target { address: std::net::Ipv4Addr::UNSPECIFIED.into(), qual: 0 };
    let mut peer = Peer { target: unknown, kind: Kind::Process { child, input } };
    let output = output.ok_or_else(|| Failure::new("the peer's output is not readable"))?;
    let (sender, receiver) = mpsc::channel();
    // Reads have no time-out; the thread ends with the child at the latest.
    thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let _ = sender.send(read.map(|_| line));
    });
    let line = receiver
        .recv_timeout(limit)
        .map_err(|_| Failure::new(format!("the peer process was not ready within {limit:?}")))??;
    peer.target = serve::parse_ready(&line)
        .ok_or_else(|| Failure::new("the peer process ended before it was ready; see its error above"))?;
    Ok(peer)
}

fn in_thread(shared: &Shared, ia: &Ia, limit: Duration) -> Outcome<Peer> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let (builder, stopped) = (shared.ia(ia.name()), stop.clone());
    let thread = thread::spawn(move || {
        let ready = |target| {
            // The receiver is dropped only if the start failed; `stop` is set then.
            let _ = sender.send(target);
            Ok(())
        };
        let serving = Serving { qual: None, once: false, limit, stop: &stopped };
        let outcome = builder.open().map_err(Failure::from).and_then(|ia| serve::serve(&ia, &serving, ready));
        if let Err(failure) = outcome {
            eprintln!("{}", failure.because_of("the peer thread ended"));
        }
    });
    let unknown = Target { address: std::net::Ipv4Addr::UNSPECIFIED.into(), qual: 0 };
    let mut peer = Peer { target: unknown, kind: Kind::Thread { stop, thread: Some(thread) } };
    peer.target = receiver
        .recv_timeout(limit)
        .map_err(|_| Failure::new(format!("the peer thread was not ready within {limit:?}")))?;
    Ok(peer)
}
