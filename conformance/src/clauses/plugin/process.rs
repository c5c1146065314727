//! The process around a provider: threads, leaks, signal handlers, environment.

use std::collections::BTreeSet;

use dat_plugin::host::Memory;
use dat_plugin::{Caps, Status};

use super::pair::*;
use crate::clause::PLUGIN;
use crate::clauses::prelude::*;
use crate::os;

clauses! {
    PLUGIN + 15 "Several threads open and close devices" => [Alone] threads;
    PLUGIN + 16 "A connection and its devices leave no descriptor, thread, memory or mapping behind" => [Alone] leaks;
    PLUGIN + 17 "Signal handlers, environment and working directory are unchanged" => [Alone] surroundings;
}

fn threads(t: &TestContext) -> Outcome {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..10).try_for_each(|_| {
                        let (a, b) = connected(t)?;
                        ensure_eq("post", b.recv(1, 64), Status::OK)?;
                        ensure_eq("post", a.send(1, 8), Status::OK)?;
                        completion(t, &b.recvs, [&a.device, &b.device]).map(|_| ())
                    })
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(_) => fail("a thread panicked"),
        })
    })
}

fn entries(folder: &str) -> Result<usize, Stop> {
    match std::fs::read_dir(folder) {
        Ok(entries) => Ok(entries.count()),
        Err(error) => fail(format!("{folder}: {error}")),
    }
}

/// Lines of /proc/self/maps that are not the allocator's or a stack's, which come and go.
fn mappings() -> Result<usize, Stop> {
    let maps = std::fs::read_to_string("/proc/self/maps");
    let maps = maps.map_err(|error| Stop::Failed(format!("/proc/self/maps: {error}")))?;
    Ok(maps
        .lines()
        .filter(|line| line.split_whitespace().nth(5).is_some_and(|file| !file.starts_with('[')))
        .count())
}

fn leaks(t: &TestContext) -> Outcome {
    let round = || {
        let (a, b) = connected(t)?;
        ensure_eq("post", b.recv(1, 64), Status::OK)?;
        ensure_eq("post", a.send(1, 8), Status::OK)?;
        completion(t, &b.recvs, [&a.device, &b.device])?;
        let memory = match a.device.attr().caps.contains(Caps::ALLOC) {
            true => a.device.alloc(1 << 20).map_err(unexpected)?,
            false => Memory::heap(1 << 20),
        };
        a.device.register(memory, ALL, DOMAIN).map(|_| ()).map_err(unexpected)
    };
    // What is made once for the process.
    round()?;
    let before =
        || Ok::<_, Stop>([entries("/proc/self/fd")?, entries("/proc/self/task")?, mappings()?, os::heap()]);
    let start = before()?;
    for _ in 0..10 {
        round()?;
    }
    let most = [start[0], start[1], start[2], start[3] + HEAP_SLACK];
    // Threads that end take a moment.
    let mut now = start;
    let given_back = t.until("what ten connections used to be given back", || {
        now = before()?;
        Ok(now.iter().zip(most).all(|(now, most)| *now <= most))
    });
    given_back.or_else(|_| {
        let what = ["descriptors", "threads", "mappings", "bytes of the heap"];
        let counts: Vec<String> = what
            .iter()
            .zip(now.iter().zip(start))
            .map(|(what, (now, start))| format!("{now} {what} ({start} before)"))
            .collect();
        fail(format!("after ten connections were closed there are {}", counts.join(", ")))
    })
}

/// How much more of the heap may be in use after ten connections: threads and lists keep some at hand.
const HEAP_SLACK: usize = 64 << 10;

fn surroundings(t: &TestContext) -> Outcome {
    let handlers = || {
        let status = std::fs::read_to_string("/proc/self/status");
        let status = status.map_err(|error| Stop::Failed(format!("/proc/self/status: {error}")))?;
        let wanted = |line: &&str| line.starts_with("SigCgt") || line.starts_with("SigIgn");
        Ok::<_, Stop>(status.lines().filter(wanted).map(str::to_owned).collect::<Vec<_>>())
    };
    let environment = || std::env::vars_os().collect::<BTreeSet<_>>();
    let folder = std::env::current_dir().ok();
    let before = (handlers()?, environment());
    let (a, b) = connected(t)?;
    ensure_eq("post", b.recv(1, 64), Status::OK)?;
    ensure_eq("post", a.send(1, 8), Status::OK)?;
    completion(t, &b.recvs, [&a.device, &b.device])?;
    ensure_eq("caught and ignored signals while it is used", handlers()?, before.0.clone())?;
    drop((a, b));
    ensure_eq("caught and ignored signals afterwards", handlers()?, before.0)?;
    ensure_eq("environment", environment(), before.1)?;
    ensure_eq("working directory", std::env::current_dir().ok(), folder)
}
