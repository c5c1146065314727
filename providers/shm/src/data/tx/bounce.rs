//! Parts of long messages: through bounce buffers where there are some, through the ring where not.

use std::sync::atomic::Ordering;

use super::frame::{Payload, Start};
use super::queue::Work;
use super::state::Tx;
use crate::data::conn::Conn;
use crate::data::link::Link;
use crate::data::protocol::{BOUNCED, Plan};
use crate::data::ring::ProtocolError;
use crate::memory::bounce::{BouncePool, HELD, PIECE};
use crate::memory::bytes;
use crate::memory::target::Part;

/// Where the next part goes.
enum Piece<'a> {
    Of(&'a BouncePool, u32),
    /// There are no bounce buffers, or others have all of them: the ring must do.
    None,
    /// The receiver must take something first.
    Later,
}

impl Tx {
    /// The next part of a message or write.
    pub(super) fn part(
        &mut self,
        conn: &Conn,
        link: &Link,
        work: &Work<'_>,
        plan: Plan,
        header: (u8, u8, u32),
    ) -> Start {
        let (left, chunk) = (work.total - self.step.part, self.chunk() as u64);
        let by_ring = plan != Plan::Bounce || work.total > conn.thresholds.bounce_max || left <= chunk;
        match if by_ring { Ok(Piece::None) } else { self.piece(conn, link) } {
            Err(ProtocolError) => Start::Fault,
            Ok(Piece::None) => self.frame(conn, link, work, header, left.min(chunk) as usize, Payload::Data),
            Ok(Piece::Later) => Start::Later,
            Ok(Piece::Of(stage, piece)) => {
                let start = self.bounce_part(conn, link, work, (stage, piece), header);
                if start != Start::Gone {
                    stage.give(piece);
                }
                start
            }
        }
    }

    /// Copies the next part into a bounce buffer, and names it to the receiver.
    fn bounce_part(
        &mut self,
        conn: &Conn,
        link: &Link,
        work: &Work<'_>,
        (stage, piece): (&BouncePool, u32),
        (kind, flags, extra): (u8, u8, u32),
    ) -> Start {
        // Room first: the copy would be lost without it.
        match self.rings.as_mut().map(|rings| rings.reserve(link, Part::BYTES)) {
            Some(Ok(Some(_))) => {}
            Some(Err(ProtocolError)) => return Start::Fault,
            _ => return Start::Later,
        }
        let len = (work.total - self.step.part).min(PIECE as u64);
        // SAFETY: a bounce buffer has room for `PIECE` bytes, and this connection holds it.
        unsafe { bytes::gather(work.segs, self.step.part as usize, stage.at(piece), len as usize) };
        let part = Part { addr: 0, len, map: stage.map, offset: BouncePool::offset(piece) as u64 };
        let header = (kind, flags | BOUNCED, extra);
        let start = self.frame(conn, link, work, header, Part::BYTES, Payload::Bounced(part));
        if let (Start::Gone, Some(rings)) = (start, &self.rings) {
            self.bounced.push_back((rings.out.marks().0, piece));
        }
        start
    }

    /// A bounce buffer to copy into.
    fn piece<'a>(&mut self, conn: &Conn, link: &'a Link) -> Result<Piece<'a>, ProtocolError> {
        let Some(stage) = bounce(conn, link) else { return Ok(Piece::None) };
        if self.bounced.len() == HELD {
            self.take_back(link)?;
        }
        if self.bounced.len() == HELD {
            return Ok(Piece::Later);
        }
        Ok(match stage.take() {
            Some(piece) => Piece::Of(stage, piece),
            // Other connections may hold theirs for long; this connection's own come back.
            None if self.bounced.is_empty() => Piece::None,
            None => Piece::Later,
        })
    }

    /// Takes back the buffers that the receiver is done with.
    #[cold]
    pub(super) fn take_back(&mut self, link: &Link) -> Result<(), ProtocolError> {
        let (Some(rings), Some(stage)) = (self.rings.as_mut(), link.remote.bounce.ready()) else {
            return Ok(());
        };
        rings.out.credit(link.segment.peer().consumed.load(Ordering::Acquire))?;
        let (_, consumed) = rings.out.marks();
        while let Some((_, piece)) = self.bounced.pop_front_if(|(end, _)| *end <= consumed) {
            stage.give(piece);
        }
        Ok(())
    }

    /// The connection is over, and the peer can know it: it drops what it still reads.
    pub(crate) fn give_up(&mut self, link: &Link) {
        if let Some(stage) = link.remote.bounce.ready() {
            self.bounced.drain(..).for_each(|(_, piece)| stage.give(piece));
        }
    }
}

/// The bounce buffers, if the peer has mapped them. If there are none yet, the event thread learns that they are wanted.
pub(super) fn bounce<'a>(conn: &Conn, link: &'a Link) -> Option<&'a BouncePool> {
    let ready = link.remote.bounce.ready();
    if ready.is_none() && link.remote.bounce.want() {
        conn.schedule_progress();
    }
    ready
}
