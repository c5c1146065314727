//! From the request to its plan, and from the plan to frames: see the tables of [`crate::data::protocol`].

use std::sync::atomic::Ordering;

use dat_plugin::{CompletionStatus, Opcode};

use super::frame::{Payload, Start, solicited};
use super::queue::Work;
use super::state::{Stage, Tx};
use crate::data::conn::Conn;
use crate::data::link::Link;
use crate::data::one_sided::{self, Operation, RdmaResult};
use crate::data::protocol::{Plan, UNFINISHED, kind};
use crate::data::select;
use crate::memory::target::{Atomic, Part, Target};

impl Tx {
    /// The plan for a request: every test once.
    fn classify(&self, conn: &Conn, link: &Link, work: &Work<'_>) -> Plan {
        match work.opcode {
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVALIDATE => {}
            Opcode::BIND => return Plan::Local,
            _ => return Plan::Rdma,
        }
        let (limits, total, chunk) = (&conn.thresholds, work.total, self.chunk() as u64);
        let fits = total <= chunk;
        if link.pull(total) {
            if total >= limits.mapped
                && let Some((map, offset)) = mappable(conn, work)
            {
                return Plan::Mapped { map, offset };
            }
            let chosen = || select::by_kernel(link.segment.peer().by_kernel.load(Ordering::Relaxed), total);
            if limits.kernel.map_or_else(chosen, |least| total >= least) {
                return Plan::Kernel;
            }
        }
        if fits { Plan::Eager } else { Plan::Parts }
    }

    /// Starts or continues the oldest request that is not wholly started.
    pub(super) fn execute(&mut self, conn: &Conn, link: &Link, work: &Work<'_>) -> Start {
        let plan = match self.step.plan {
            Some(plan) => plan,
            None => *self.step.plan.insert(self.classify(conn, link, work)),
        };
        match plan {
            Plan::Eager => {
                let (note, total) = (work.note(), work.total as u32);
                let extra = if note.flags != 0 { note.value } else { total };
                let flags = solicited(work.flags) | note.flags;
                self.frame(conn, link, work, (kind::SEND, flags, extra), total as usize, Payload::Data)
            }
            Plan::Mapped { .. } | Plan::Kernel => self.noted(conn, link, work, |tx| {
                let (flags, total) = (solicited(work.flags), work.total as u32);
                let len = work.segs.len() * Part::BYTES;
                tx.frame(conn, link, work, (kind::PULL, flags, total), len, Payload::List(plan))
            }),
            Plan::Parts => self.noted(conn, link, work, |tx| {
                if tx.step.stage != Stage::Headed {
                    let header = (kind::HEAD, solicited(work.flags), work.total as u32);
                    match tx.part(conn, link, work, header) {
                        Start::Gone => tx.step.stage = Stage::Headed,
                        other => return other,
                    }
                }
                tx.rest(conn, link, work)
            }),
            Plan::Rdma => self.rdma(conn, link, work),
            Plan::Remote => self.remote(conn, link, work),
            Plan::Local => self.finish(work.status),
        }
    }

    /// Sends ahead what goes with a message of several frames, once, then the rest.
    fn noted(
        &mut self,
        conn: &Conn,
        link: &Link,
        work: &Work<'_>,
        rest: impl FnOnce(&mut Tx) -> Start,
    ) -> Start {
        let note = work.note();
        if note.flags != 0 && self.step.stage == Stage::Fresh {
            let header = (kind::NOTE, note.flags, note.value);
            match self.frame(conn, link, work, header, 0, Payload::Nothing) {
                Start::Gone => self.step.stage = Stage::Noted,
                other => return other,
            }
        }
        rest(self)
    }

    /// The next part of a message or write.
    fn part(&mut self, conn: &Conn, link: &Link, work: &Work<'_>, header: (u8, u8, u32)) -> Start {
        let len = (work.total - self.step.part).min(self.chunk() as u64) as usize;
        self.frame(conn, link, work, header, len, Payload::Data)
    }

    /// The parts after the first frame.
    fn rest(&mut self, conn: &Conn, link: &Link, work: &Work<'_>) -> Start {
        while self.step.part < work.total {
            match self.part(conn, link, work, (kind::MORE, 0, 0)) {
                Start::Gone => {}
                other => return other,
            }
        }
        Start::Gone
    }

    /// A write, read or atomic operation from here. The one attempt: if the peer must do it, the plan says so from then on.
    fn rdma(&mut self, conn: &Conn, link: &Link, work: &Work<'_>) -> Start {
        if self.step.stage == Stage::Fresh {
            let (target, operation) = (work.target(), work.operation());
            match one_sided::execute(conn, link, &mut self.near, &target, operation, work.segs) {
                RdmaResult::Done(CompletionStatus::SUCCESS) if work.opcode == Opcode::WRITE_IMM => {
                    self.step.stage = Stage::Written;
                }
                RdmaResult::Done(status) => return self.finish(status),
                RdmaResult::Pending => return Start::Later,
                RdmaResult::Remote => {
                    self.step.plan = Some(Plan::Remote);
                    return self.remote(conn, link, work);
                }
            }
        }
        self.written(conn, link, work)
    }

    /// The same by the peer.
    fn remote(&mut self, conn: &Conn, link: &Link, work: &Work<'_>) -> Start {
        let target = work.target();
        match work.operation() {
            Operation::Write => {
                if self.step.stage == Stage::Fresh {
                    let flags = if work.opcode == Opcode::WRITE_IMM { UNFINISHED } else { 0 };
                    let header = (kind::WRITE, flags, work.total as u32);
                    match self.frame(conn, link, work, header, Target::BYTES, Payload::Target(target)) {
                        Start::Gone => self.step.stage = Stage::Headed,
                        other => return other,
                    }
                }
                if self.step.stage == Stage::Headed {
                    match self.rest(conn, link, work) {
                        Start::Gone if work.opcode == Opcode::WRITE_IMM => self.step.stage = Stage::Written,
                        other => return other,
                    }
                }
                self.written(conn, link, work)
            }
            Operation::Read => {
                let header = (kind::READ, 0, work.total as u32);
                self.ask(conn, link, work, header, Target::BYTES, Payload::Target(target))
            }
            Operation::Atomic(operands, swap) => {
                let payload = Payload::Atomic(Atomic { target, operands, swap });
                self.ask(conn, link, work, (kind::ATOMIC, 0, 8), Atomic::BYTES, payload)
            }
        }
    }

    /// A request that the peer answers.
    fn ask(
        &mut self,
        conn: &Conn,
        link: &Link,
        work: &Work<'_>,
        header: (u8, u8, u32),
        len: usize,
        payload: Payload,
    ) -> Start {
        if self.window.reads_open >= self.reads_max {
            return Start::Later;
        }
        match self.frame(conn, link, work, header, len, payload) {
            Start::Gone => {
                self.window.await_answer(work.total as u32);
                Start::Answer
            }
            other => other,
        }
    }

    /// The bytes of a write with an immediate value are there: it is done when the peer has the value.
    fn written(&mut self, conn: &Conn, link: &Link, work: &Work<'_>) -> Start {
        let header = (kind::WRITTEN, solicited(work.flags), work.immediate());
        self.frame(conn, link, work, header, 8, Payload::Length(work.total))
    }

    /// The request was executed here.
    fn finish(&mut self, status: CompletionStatus) -> Start {
        self.window.finish(status);
        if status != CompletionStatus::SUCCESS {
            self.halt();
        }
        Start::Gone
    }
}

/// Where the first segment of a request lies, if all lie in memory that the peer can map.
fn mappable(conn: &Conn, work: &Work<'_>) -> Option<(u64, u64)> {
    let mut first = None;
    for segment in work.segs {
        let home = conn.keys.home(segment.lkey(), segment.addr(), segment.len().into())?;
        first = first.or(Some(home));
    }
    first
}
