//! Plain messages, taken several at once.

use std::sync::atomic::Ordering;

use dat_plugin::{Completion, CompletionFlag, CompletionStatus};

use super::{LINE, Rx};
use crate::bytes;
use crate::channel::Chan;
use crate::tx::{IMMEDIATE, INVALIDATE, SOLICITED, kind};

impl Rx {
    /// Messages in one frame each that carry nothing but bytes and have a receive with room, as long as there are some:
    /// what [`Rx::step`] would do, without asking each time for what is rare. How many, and whether to go on.
    #[inline]
    pub(super) fn messages(&mut self, chan: &Chan, out: &mut [Completion], burst: bool) -> (usize, bool) {
        if !self.reads.is_empty() || self.current.is_some() || self.note.flags != 0 {
            return (0, true);
        }
        let Some(rings) = self.rings.as_mut() else { return (0, false) };
        let (mask, user) = (self.recvs.len() - 1, chan.attr.recv_user);
        let (mut n, mut told, mut go_on) = (0, None, true);
        for place in out {
            let Ok(next) = rings.from.peek(&rings.memory) else { break };
            let Some(frame) = next else {
                go_on = false;
                break;
            };
            let recv = &self.recvs[self.head as usize & mask];
            let plain = frame.kind == kind::SEND && frame.flags & (IMMEDIATE | INVALIDATE) == 0;
            if !plain || self.head == self.tail || recv.poison || frame.len as u64 > recv.total {
                break;
            }
            let first = (self.head as usize & mask) * self.max_segs;
            let segs = &self.segs[first..first + recv.nsegs as usize];
            // SAFETY: the frame's payload lies inside the ring (`Consumer::peek` checked it).
            unsafe { bytes::scatter(rings.memory.at(frame.payload), frame.len, segs, 0) };
            rings.from.advance(&frame);
            let mut flags = CompletionFlag::NONE;
            if frame.flags & SOLICITED != 0 {
                flags = CompletionFlag::SOLICITED;
            }
            let (token, length) = (recv.token, frame.len as u32);
            *place = Completion { token, user, status: CompletionStatus::SUCCESS, length, flags, imm: 0 };
            self.head += 1;
            n += 1;
            told = Some(frame.arg as u32);
            if !burst && rings.from.at() % LINE == 0 {
                go_on = false;
                break;
            }
        }
        if let Some(acked) = told {
            self.blocked = false;
            self.dirty = true;
            self.completed = self.completed.wrapping_add(n as u32);
            chan.rx_completed.store(self.completed, Ordering::Relaxed);
            chan.acked.store(acked, Ordering::Relaxed);
        }
        (n, go_on)
    }
}
