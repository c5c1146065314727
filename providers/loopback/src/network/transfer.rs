//! Moving bytes. Requests are executed in post order, in the call that posts the missing request or receive.

use std::time::Instant;

use dat_kit::copy::{compare_swap, copy, copy_ordered, fetch_add, scatter};
use dat_kit::{KeyTable, MemSpan};
use dat_plugin::{Access, Completion, CompletionFlag, CompletionStatus, Opcode, PostFlag};

use super::endpoint::{Phase, Recv, Work};
use super::state::State;

/// How a failed request ends: here, and for the receive that it would have used at the peer.
struct Fault {
    here: CompletionStatus,
    peer: Option<CompletionStatus>,
}

impl State {
    /// Executes what waits on `channel`, up to the first message that finds no receive.
    pub fn progress(&mut self, channel: usize) {
        let Some(Phase::Connected { peer }) = self.channels.get(channel).map(|end| end.phase) else { return };
        let Some((source, target)) = self.channels.pair(channel, peer) else { return };
        let Some(keys) = self.devices.get_mut(target.device).map(|device| &mut device.keys) else { return };
        let srq = target.srq;
        let mut shared = srq.and_then(|srq| self.srqs.get_mut(srq));
        while let Some((work, segments)) = source.requests.front() {
            let work = *work;
            let result = match takes_receive(work.opcode) {
                false => one_sided(&work, segments, keys, target.attr.domain),
                true => {
                    let recv = match &shared {
                        Some(shared) => shared.front(),
                        None => target.recvs.front(),
                    };
                    match recv {
                        None => return self.wait_for_receive(channel),
                        Some((recv, sinks)) => {
                            let (token, domain) = (recv.token, target.attr.domain);
                            let result = match work.opcode {
                                Opcode::WRITE_IMM => one_sided(&work, segments, keys, domain),
                                _ => message(&work, segments, recv, sinks, keys, domain),
                            };
                            if result.is_ok() {
                                target.complete_recv(received(&work, token));
                                match &mut shared {
                                    Some(shared) => shared.pop(),
                                    None => target.recvs.pop(),
                                }
                            }
                            result
                        }
                    }
                }
            };
            match result {
                Ok(length) => {
                    let token = work.token;
                    match work.flags.contains(PostFlag::UNSIGNALLED) {
                        true => source.unsignalled = Some((token, length)),
                        false => {
                            source.complete_request(Completion { token, length, ..Completion::default() })
                        }
                    }
                    source.requests.pop();
                    source.waiting_since = None;
                }
                Err(Fault { here, peer }) => return self.break_connection(channel, here, peer),
            }
        }
        if let Some(srq) = srq {
            self.check_limit(srq);
        }
    }

    /// Without a time limit there is nothing to do: the next receive makes progress.
    fn wait_for_receive(&mut self, channel: usize) {
        if let Some(Phase::Connected { peer }) = self.channels.get(channel).map(|end| end.phase)
            && let Some(srq) = self.channels.get(peer).and_then(|end| end.srq)
        {
            self.check_limit(srq);
        }
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

fn takes_receive(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVALIDATE | Opcode::WRITE_IMM)
}

/// Copies a message to the receive it meets.
fn message(
    work: &Work,
    from: &[MemSpan],
    recv: &Recv,
    to: &[MemSpan],
    keys: &mut KeyTable,
    domain: u32,
) -> Result<u32, Fault> {
    let fault = |peer| Fault { here: CompletionStatus::REMOTE_ERROR, peer: Some(peer) };
    if recv.poisoned {
        return Err(fault(CompletionStatus::LOCAL_ACCESS));
    }
    if work.length > recv.room {
        return Err(fault(CompletionStatus::LOCAL_LENGTH));
    }
    if work.opcode == Opcode::SEND_INVALIDATE && !keys.invalidate(work.rkey, domain) {
        return Err(Fault { here: CompletionStatus::REMOTE_ACCESS, peer: Some(CompletionStatus::WINDOW) });
    }
    Ok(copy(from, to) as u32)
}

/// How the receive that `work` used completes.
fn received(work: &Work, token: u64) -> Completion {
    let mut flags = match work.flags.contains(PostFlag::SOLICITED) {
        true => CompletionFlag::SOLICITED,
        false => CompletionFlag::NONE,
    };
    let (more, imm) = match work.opcode {
        Opcode::SEND_IMM => (CompletionFlag::IMMEDIATE, work.imm),
        Opcode::WRITE_IMM => (CompletionFlag::IMMEDIATE | CompletionFlag::WRITTEN, work.imm),
        Opcode::SEND_INVALIDATE => (CompletionFlag::INVALIDATED, work.rkey),
        _ => (CompletionFlag::NONE, 0),
    };
    flags = flags | more;
    Completion { token, length: work.length as u32, flags, imm, ..Completion::default() }
}

/// Executes what needs nothing of the peer but its memory. Without bytes nothing is checked.
fn one_sided(work: &Work, local: &[MemSpan], keys: &KeyTable, domain: u32) -> Result<u32, Fault> {
    if work.opcode == Opcode::BIND {
        return match work.failed {
            true => Err(Fault { here: CompletionStatus::WINDOW, peer: None }),
            false => Ok(0),
        };
    }
    if work.length == 0 {
        return Ok(0);
    }
    let refused = Fault { here: CompletionStatus::REMOTE_ACCESS, peer: None };
    let right = match work.opcode {
        Opcode::WRITE | Opcode::WRITE_IMM => Access::REMOTE_WRITE,
        Opcode::READ => Access::REMOTE_READ,
        _ => Access::REMOTE_ATOMIC,
    };
    let Ok(remote) = keys.check(work.rkey, work.remote_addr, work.length, right, domain) else {
        return Err(refused);
    };
    let [operand, swap] = work.operands;
    let old = match work.opcode {
        Opcode::WRITE | Opcode::WRITE_IMM => return Ok(copy_ordered(local, &[remote]) as u32),
        Opcode::READ => return Ok(copy(&[remote], local) as u32),
        Opcode::FETCH_ADD => fetch_add(remote, operand),
        _ => compare_swap(remote, operand, swap),
    };
    match old {
        Some(old) => Ok(scatter(&old.to_ne_bytes(), local) as u32),
        None => Err(refused),
    }
}
