//! Queues: tokens, polling, descriptors.

use dat_plugin::host::{Device, Queue};
use dat_plugin::{CompletionStatus, Event, EventKind, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::pair::*;
use crate::clause::PLUGIN;
use crate::clauses::prelude::*;

clauses! {
    PLUGIN + 6 "Polling with room for no entry loses no entry" => no_room;
    PLUGIN + 7 "Tokens come back with every value unchanged" => tokens;
    PLUGIN + 8 "Arm: a completion makes the descriptor readable; a late arm reports it" => arm;
    PLUGIN + 9 "Disarm: the descriptor is not readable" => disarm;
}

fn no_room(t: &TestContext) -> Outcome {
    let (a, b) = connected(t)?;
    ensure_eq("post", b.recv(1, 64), Status::OK)?;
    ensure_eq("post", a.send(2, 8), Status::OK)?;
    for _ in 0..100 {
        ensure_eq("completions into no room", b.recvs.poll(&mut []), 0)?;
        ensure_eq("completions into no room", a.sends.poll(&mut []), 0)?;
        ensure_eq("events into no room", a.device.poll_events(&mut []), 0)?;
    }
    let devices = [&a.device, &b.device];
    ensure_eq("status", completion(t, &b.recvs, devices)?.status, CompletionStatus::SUCCESS)?;
    ensure_eq("status", completion(t, &a.sends, devices)?.status, CompletionStatus::SUCCESS)?;
    a.channel.disconnect();
    b.device.poll_events(&mut []);
    let mut out = [Event::new(EventKind(0), 0)];
    t.until("the end of the connection", || {
        ensure_eq("events into no room", b.device.poll_events(&mut []), 0)?;
        Ok(b.device.poll_events(&mut out) == 1)
    })?;
    ensure_eq("event", out[0].kind, EventKind::DISCONNECTED)
}

fn tokens(t: &TestContext) -> Outcome {
    let (a, b) = connected(t)?;
    let given = [0, u64::MAX, 7, 7, 1 << 63, 0xDEAD_BEEF];
    for token in given {
        ensure_eq("post of a receive", b.recv(token, 64), Status::OK)?;
    }
    for token in given {
        ensure_eq("post of a send", a.send(token ^ 1, 8), Status::OK)?;
    }
    let devices = [&a.device, &b.device];
    for token in given {
        let done = completion(t, &b.recvs, devices)?;
        ensure_eq("receive (token, user)", (done.token, done.user), (token, b.user + 2))?;
        let done = completion(t, &a.sends, devices)?;
        ensure_eq("send (token, user)", (done.token, done.user), (token ^ 1, a.user + 1))?;
    }
    Ok(())
}

fn readable(queue: &Queue, patience: Duration) -> Result<bool, Stop> {
    let Some(fd) = queue.fd() else { return not_supported("the provider's queues have no descriptor") };
    let limit = Timespec { tv_sec: patience.as_secs() as _, tv_nsec: patience.subsec_nanos() as _ };
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(errno) => fail(format!("polling the descriptor: {errno}")),
    }
}

/// Whether the descriptor becomes readable, other devices being polled meanwhile.
fn wakes(t: &TestContext, queue: &Queue, device: &Device) -> Outcome {
    t.until("the queue's descriptor to be readable", || {
        progress(device)?;
        readable(queue, Duration::from_millis(1))
    })
}

fn arm(t: &TestContext) -> Outcome {
    let (a, b) = connected(t)?;
    for round in 0..20 {
        ensure_eq("post", b.recv(round, 64), Status::OK)?;
        ensure(b.recvs.arm(), "arming an empty queue reports a completion")?;
        ensure(!readable(&b.recvs, Duration::ZERO)?, "the descriptor is readable without a completion")?;
        ensure_eq("post", a.send(round, 8), Status::OK)?;
        wakes(t, &b.recvs, &a.device)?;
        b.recvs.disarm();
        ensure_eq("token", completion(t, &b.recvs, [&a.device, &b.device])?.token, round)?;
        completion(t, &a.sends, [&a.device, &b.device])?;
    }
    // Too late: either the call reports it, or the descriptor is readable.
    ensure_eq("post", b.recv(50, 64), Status::OK)?;
    ensure_eq("post", a.send(50, 8), Status::OK)?;
    completion(t, &a.sends, [&a.device, &b.device])?;
    if b.recvs.arm() {
        wakes(t, &b.recvs, &a.device)?;
    }
    ensure_eq("token", completion(t, &b.recvs, [&a.device, &b.device])?.token, 50)
}

fn disarm(t: &TestContext) -> Outcome {
    let (a, b) = connected(t)?;
    ensure_eq("post", b.recv(1, 64), Status::OK)?;
    b.recvs.arm();
    b.recvs.disarm();
    ensure_eq("post", a.send(1, 8), Status::OK)?;
    completion(t, &a.sends, [&a.device, &b.device])?;
    ensure_eq("token", completion(t, &b.recvs, [&a.device, &b.device])?.token, 1)?;
    ensure(!readable(&b.recvs, t.short())?, "the descriptor is readable after disarm")
}
