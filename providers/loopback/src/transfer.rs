//! Moving bytes: requests are executed in post order, by whoever posts what was missing.

use std::time::Instant;

use dat_kit::copy::{copy, copy_ordered};
use dat_kit::{KeyTable, Stretch};
use dat_plugin::{Access, Completion, CompletionFlag, CompletionStatus, Opcode, PostFlag};

use crate::channel::{End, Phase, Recv, Work};
use crate::network::State;

/// How a request that could not be done ends: here, and for the receive it would have used at the peer.
struct Fault {
    here: CompletionStatus,
    peer: Option<CompletionStatus>,
}

impl State {
    /// Executes what waits on `channel`, up to the first message that finds no receive.
    pub fn progress(&mut self, channel: usize) {
        let Some(Phase::Connected { peer }) = self.channels.get(channel).map(|end| end.phase) else { return };
        let Some((source, target)) = self.channels.pair(channel, peer) else { return };
        let Some(keys) = self.devices.get(target.device).map(|device| &device.keys) else { return };
        while let Some((work, segments)) = source.requests.front() {
            let work = *work;
            let result = match work.opcode {
                Opcode::SEND => match target.recvs.front() {
                    None => return self.wait_for_receive(channel),
                    Some((recv, sinks)) => {
                        message(&work, segments, recv, sinks).inspect(|_| finish_recv(target, &work))
                    }
                },
                _ => one_sided(&work, segments, keys, target.attr.domain),
            };
            match result {
                Ok(length) => {
                    let token = work.token;
                    source.complete_request(Completion { token, length, ..Completion::default() });
                    source.requests.pop();
                    source.waiting_since = None;
                }
                Err(Fault { here, peer }) => return self.break_connection(channel, here, peer),
            }
        }
    }

    /// Without a time limit there is nothing to do: the next receive makes progress.
    fn wait_for_receive(&mut self, channel: usize) {
        let Some(end) = self.channels.get_mut(channel) else { return };
        let Some(device) = self.devices.get_mut(end.device) else { return };
        let Some(limit) = device.wake.limit() else { return };
        end.waiting_since.get_or_insert_with(Instant::now);
        if !device.timer_runs {
            device.timer_runs = true;
            device.wake.wake_in(limit);
        }
    }

    /// Breaks the connections of `device` on which a message has waited for too long.
    pub fn check_waiting(&mut self, device: usize) {
        let Some(limit) = self.devices.get(device).and_then(|device| device.wake.limit()) else { return };
        let now = Instant::now();
        let waiting = self.channels.iter().filter(|(_, end)| end.device == device);
        let waiting = waiting.filter_map(|(index, end)| Some((index, end.waiting_since? + limit)));
        let (over, early): (Vec<_>, Vec<_>) = waiting.partition(|(_, until)| *until <= now);
        for (channel, _) in over {
            self.break_connection(channel, CompletionStatus::NOT_READY, None);
        }
        let next = early.into_iter().map(|(_, until)| until - now).min();
        if let Some(device) = self.devices.get_mut(device) {
            device.timer_runs = next.is_some();
            if let Some(time) = next {
                device.wake.wake_in(time);
            }
        }
    }
}

/// Copies a message to the receive it meets.
fn message(work: &Work, from: &[Stretch], recv: &Recv, to: &[Stretch]) -> Result<u32, Fault> {
    let fault = |peer| Fault { here: CompletionStatus::REMOTE_ERROR, peer: Some(peer) };
    if recv.poisoned {
        return Err(fault(CompletionStatus::LOCAL_ACCESS));
    }
    if work.length > recv.room {
        return Err(fault(CompletionStatus::LOCAL_LENGTH));
    }
    Ok(copy(from, to) as u32)
}

fn finish_recv(target: &mut End, work: &Work) {
    let Some(token) = target.recvs.front().map(|(recv, _)| recv.token) else { return };
    let solicited = work.flags.contains(PostFlag::SOLICITED);
    let flags = if solicited { CompletionFlag::SOLICITED } else { CompletionFlag::NONE };
    target.complete_recv(Completion { token, length: work.length as u32, flags, ..Completion::default() });
    target.recvs.pop();
}

/// Executes a write or read. Without bytes nothing is checked.
fn one_sided(work: &Work, local: &[Stretch], keys: &KeyTable, domain: u32) -> Result<u32, Fault> {
    if work.length == 0 {
        return Ok(0);
    }
    let write = work.opcode == Opcode::WRITE;
    let right = if write { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
    let remote = keys
        .check(work.rkey, work.remote_addr, work.length, right, domain)
        .map_err(|_| Fault { here: CompletionStatus::REMOTE_ACCESS, peer: None })?;
    let moved = if write { copy_ordered(local, &[remote]) } else { copy(&[remote], local) };
    Ok(moved as u32)
}
