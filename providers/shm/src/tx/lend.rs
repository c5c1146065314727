//! Parts of long messages, by way of the staging area where there is one, through the ring where not.

use std::sync::atomic::Ordering;

use super::push::Payload;
use super::{LENT, Start, Tx};
use crate::bytes;
use crate::channel::Chan;
use crate::link::Link;
use crate::one_sided;
use crate::ring::Nonsense;
use crate::stage::{HELD, PIECE, Stage};

impl Tx {
    /// The next part of the message or write at `sent`, which is `total` bytes long.
    pub(super) fn part(
        &mut self,
        chan: &Chan,
        link: &Link,
        kind: u8,
        flags: u8,
        extra: u32,
        total: u64,
    ) -> Start {
        let left = total - self.part;
        let chunk = self.chunk();
        let by_ring = total > chan.dev.params.stage_most || left <= chunk as u64;
        match if by_ring { Ok(Piece::None) } else { self.piece(chan, link) } {
            Err(Nonsense) => Start::Fault,
            Ok(Piece::None) => {
                self.frame(chan, link, kind, flags, extra, left.min(chunk as u64) as usize, Payload::Data)
            }
            Ok(Piece::Later) => Start::Later,
            Ok(Piece::Of(stage, piece)) => {
                let start = self.lend(chan, link, (stage, piece), (kind, flags, extra), left);
                if !matches!(start, Start::Gone) {
                    stage.give(piece);
                }
                start
            }
        }
    }

    /// Copies the next part into a piece, and tells the receiver of it.
    fn lend(
        &mut self,
        chan: &Chan,
        link: &Link,
        (stage, piece): (&Stage, u32),
        (kind, flags, extra): (u8, u8, u32),
        left: u64,
    ) -> Start {
        // Room first: a copy for nothing would be dear.
        let bytes = one_sided::Part::BYTES;
        match self.ring.as_mut().map(|rings| rings.reserve(link, bytes)) {
            Some(Ok(Some(_))) => {}
            Some(Err(Nonsense)) => return Start::Fault,
            _ => return Start::Later,
        }
        let len = left.min(PIECE as u64);
        let place = self.place(self.sent);
        let count = self.entries[place].nsegs as usize;
        let segs = &self.segs[place * self.max_segs..][..count];
        // SAFETY: a piece has room for `PIECE` bytes, and is this connection's.
        unsafe { bytes::gather(segs, self.part as usize, stage.at(piece), len as usize) };
        let part = one_sided::Part { addr: 0, len, map: stage.map, offset: Stage::offset(piece) as u64 };
        let start = self.frame(chan, link, kind, flags | LENT, extra, bytes, Payload::Lent(part));
        if let (Start::Gone, Some(rings)) = (&start, &self.ring) {
            self.lent.push_back((rings.out.marks().0, piece));
        }
        start
    }

    /// A piece to copy into.
    fn piece<'a>(&mut self, chan: &Chan, link: &'a Link) -> Result<Piece<'a>, Nonsense> {
        let Some(stage) = stage(chan, link) else { return Ok(Piece::None) };
        if self.lent.len() == HELD {
            self.take_back(link)?;
        }
        if self.lent.len() == HELD {
            return Ok(Piece::Later);
        }
        Ok(match stage.take() {
            Some(piece) => Piece::Of(stage, piece),
            // The others' pieces may be held up for long; this connection's own come back.
            None if self.lent.is_empty() => Piece::None,
            None => Piece::Later,
        })
    }

    /// Takes back the pieces that the receiver is done with.
    #[cold]
    pub(super) fn take_back(&mut self, link: &Link) -> Result<(), Nonsense> {
        let (Some(rings), Some(stage)) = (self.ring.as_mut(), link.peer.staging.ready()) else {
            return Ok(());
        };
        rings.out.credit(link.segment.peer().consumed.load(Ordering::Acquire))?;
        let (_, consumed) = rings.out.marks();
        while let Some((_, piece)) = self.lent.pop_front_if(|(end, _)| *end <= consumed) {
            stage.give(piece);
        }
        Ok(())
    }

    /// The connection is over, and the peer can know it: whatever it still reads it will not believe.
    pub(crate) fn give_up(&mut self, link: &Link) {
        if let Some(stage) = link.peer.staging.ready() {
            self.lent.drain(..).for_each(|(_, piece)| stage.give(piece));
        }
    }
}

/// The staging area, if the peer has it. If there is none yet, the event thread is told that one could be used.
pub(super) fn stage<'a>(chan: &Chan, link: &'a Link) -> Option<&'a Stage> {
    let ready = link.peer.staging.ready();
    if ready.is_none() && link.peer.staging.want() {
        chan.watch();
    }
    ready
}

enum Piece<'a> {
    Of(&'a Stage, u32),
    /// There is no area, or others have all of it: the ring must do.
    None,
    /// The receiver must take something first.
    Later,
}
