//! Shared receive queues (spec: shared_receive).

use dat_types::EpState;
use dat_types::ReturnType::{
    InsufficientResources as IR, InvalidHandle as IH, InvalidParameter as IP, InvalidState as IS,
    ModelNotSupported as MNS,
};

use super::memory::{LOCAL_WRITE, segment_faults, total};
use super::state::{Model, Queue, Recv};
use crate::expect::{Answer, Faults, Shared};
use crate::program::{FOREIGN, Segment, Step};

impl Queue {
    pub(crate) fn available(&self) -> usize {
        self.recvs.len() - self.taken
    }

    /// The length of its receives, if it has any.
    pub(crate) fn length(&self) -> Option<u64> {
        self.recvs.first().map(|recv| total(&recv.iov))
    }
}

impl Model {
    pub(super) fn on_queue(&mut self, step: &Step) -> Answer {
        let side = match step {
            Step::QueueCreate { side, zone, recvs, segments, mark } => {
                return self.queue_create(usize::from(*side), *zone, *recvs, *segments, *mark);
            }
            Step::QueueFree { side }
            | Step::QueueRecv { side, .. }
            | Step::QueueMark { side, .. }
            | Step::QueueResize { side, .. }
            | Step::QueueQuery { side } => *side,
            _ => return Answer::LeftOut,
        };
        let Some(number) = self.sides[usize::from(side)].queue else { return Answer::LeftOut };
        if !self.queues[number].alive {
            return Answer::Refused(vec![IH]);
        }
        match step {
            Step::QueueFree { .. } => self.queue_free(number),
            Step::QueueRecv { iov, .. } => self.queue_recv(number, iov),
            Step::QueueMark { mark, .. } => self.queue_mark(number, *mark),
            Step::QueueResize { recvs, .. } => self.queue_resize(number, *recvs),
            _ => Answer::Success,
        }
    }

    fn queue_create(&mut self, side: usize, zone: u8, recvs: u32, segments: u32, mark: u32) -> Answer {
        let mut faults = Faults::default();
        faults.when(zone == FOREIGN, 0, IH);
        faults.when([recvs, segments].iter().any(|count| [0, u32::MAX].contains(count)), 1, IP);
        // Decision D-18.
        faults.when(mark != 0, 1, IP);
        if !self.limits.queues {
            let answer = faults.answer();
            return if answer == Answer::Success {
                Answer::Lacks("shared receive queues", MNS)
            } else {
                Answer::LeftOut
            };
        }
        let answer = faults.answer();
        if answer == Answer::Success {
            let (limit, alive, armed, taken) = (recvs, true, false, 0);
            let recvs = Vec::new();
            self.queues.push(Queue { side, alive, zone, limit, segments, mark, armed, recvs, taken });
            self.sides[side].queue = Some(self.queues.len() - 1);
        }
        answer
    }

    /// The remaining receives are dropped without completions.
    fn queue_free(&mut self, queue: usize) -> Answer {
        if self.eps.iter().any(|ep| ep.alive && ep.queue == Some(queue)) {
            return Answer::Refused(vec![IS]);
        }
        self.queues[queue].alive = false;
        self.queues[queue].recvs.clear();
        Answer::Success
    }

    fn queue_recv(&mut self, queue: usize, iov: &[Segment]) -> Answer {
        let it = &self.queues[queue];
        let mut faults = Faults::default();
        faults.when(iov.len() > it.segments as usize, 0, IP);
        let segments = segment_faults(iov, Some(it.zone), LOCAL_WRITE);
        segments.into_iter().for_each(|code| faults.when(true, 1, code));
        faults.when(it.recvs.len() >= it.limit as usize, 2, IR);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        // Which of several is taken is open, and so it would be whether a message fits; and which of several waiting
        // endpoints takes it.
        let another_length = it.length().is_some_and(|length| length != total(iov));
        if another_length || self.waiting(queue) > 1 {
            return Answer::LeftOut;
        }
        let recv = Recv { cookie: self.step as u64, iov: iov.to_vec() };
        self.queues[queue].recvs.push(recv);
        answer
    }

    /// How many endpoints of a queue have a message waiting.
    fn waiting(&self, queue: usize) -> usize {
        let waits = |peer: usize| {
            let it = &self.eps[peer];
            matches!(it.state, EpState::Connected | EpState::DisconnectPending) && !it.requests.is_empty()
        };
        self.eps.iter().filter(|ep| ep.queue == Some(queue) && ep.peer.is_some_and(waits)).count()
    }

    fn queue_mark(&mut self, queue: usize, mark: u32) -> Answer {
        let it = &mut self.queues[queue];
        if mark > it.limit {
            return Answer::Refused(vec![IP]);
        }
        (it.mark, it.armed) = (mark, true);
        self.look_at_mark(queue);
        Answer::Success
    }

    /// One event when fewer are available than the mark, now or later.
    fn look_at_mark(&mut self, queue: usize) {
        let it = &mut self.queues[queue];
        if it.armed && it.available() < it.mark as usize {
            it.armed = false;
            self.sides[it.side].notices.push_back(queue);
        }
    }

    fn queue_resize(&mut self, queue: usize, recvs: u32) -> Answer {
        let it = &mut self.queues[queue];
        let mut faults = Faults::default();
        faults.when([0, u32::MAX].contains(&recvs), 0, IP);
        faults.when((recvs as usize) < it.recvs.len() || recvs < it.mark, 1, IS);
        let answer = faults.answer();
        if answer == Answer::Success {
            it.limit = recvs;
        }
        answer
    }

    /// A message takes a receive. Only its length is known.
    pub(super) fn take_shared(&mut self, queue: usize) -> Option<u64> {
        let it = &mut self.queues[queue];
        if it.available() == 0 {
            return None;
        }
        it.taken += 1;
        let length = it.length();
        self.look_at_mark(queue);
        length
    }

    /// The completion of a taken receive was seen: now it is known which one it was. `false`: there is none with this
    /// cookie.
    pub(crate) fn seen(&mut self, shared: &Shared, cookie: u64) -> bool {
        let queue = &mut self.queues[shared.queue];
        let Some(index) = queue.recvs.iter().position(|recv| recv.cookie == cookie) else { return false };
        let recv = queue.recvs.remove(index);
        queue.taken -= 1;
        let memory = &mut self.sides[queue.side].memory;
        match &shared.bytes {
            Some(bytes) => memory.scatter(&recv.iov, bytes),
            None => memory.doubt(&recv.iov),
        }
        true
    }
}
