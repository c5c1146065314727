//! What two channels say to each other while they are connected, besides messages: credit for receives, what keys stand
//! for, room for a message, life signs, the end. With connected endpoints each saying is a write to the peer's control
//! page that rings with immediate data and uses no receive; with datagrams it is a small frame.
//!
//! Nothing is said under compulsion: what cannot be sent just now is owed, and said when libfabric takes it.

use dat_plugin::{Event, EventKind};

use crate::channel::{Chan, Phase, State};
use crate::endpoint::{Errno, Remote};
use crate::flow::Lull;
use crate::wire::{Bell, Books, Farewell, PAYLOAD, Resolved, doorbell, reached};
use crate::work::{RecvStage, Stage};

/// What is still to be said.
#[derive(Debug, Default)]
pub struct Owed {
    /// The connecting side is up. Said before anything else.
    pub up: bool,
    /// The smallest receive became smaller: to be told before the peer counts on it.
    pub room: bool,
    pub resolve: Option<u32>,
    pub resolved: Option<Resolved>,
    pub ask: Option<(u32, u64)>,
    /// Receives are wanted for all messages before this one.
    pub want: Option<u32>,
    /// Receives were posted because the peer wanted them: it waits to hear of it.
    pub credit: bool,
    pub answer: Option<(Bell, u32)>,
    pub ping: bool,
    pub pong: bool,
    pub revoke: Vec<u32>,
    /// Keys the peer took back; said when nothing of them is under way.
    pub revoked: Vec<u32>,
    /// The event to hand out when libfabric has let go of everything.
    pub ending: Option<Box<Event>>,
}

const NOTHING: [u8; PAYLOAD] = [0; PAYLOAD];

impl Chan {
    /// Says it now, or fails.
    pub fn say(&self, st: &State, bell: Bell, arg: u32, payload: &[u8; PAYLOAD]) -> Result<(), Errno> {
        let Some(link) = &st.link else { return Err(-libc::ENOTCONN) };
        if link.framed {
            return self.say_in_frame(*link, bell, arg, payload);
        }
        if link.datagrams {
            return self.dev.send_bell(link.dest, st.peer, st.peer_secret, bell, arg, payload);
        }
        let page = st.peer_page;
        let remote = Remote { addr: page.addr.wrapping_add(bell.slot() as u64), key: page.key };
        link.ring(&payload[..bell.payload()], doorbell(bell, st.peer, arg), remote)
    }

    /// Says what is owed, as far as libfabric takes it. `all`: also what could wait for the next message to carry it.
    pub fn say_what_is_owed(&self, st: &mut State, all: bool) {
        if !matches!(st.phase, Phase::Up | Phase::Leaving(_)) {
            return;
        }
        if self.try_to_say(st, all).is_err() {
            self.list();
        }
    }

    fn try_to_say(&self, st: &mut State, all: bool) -> Result<(), Errno> {
        if st.owed.up {
            self.say(st, Bell::Up, 0, &NOTHING)?;
            st.owed.up = false;
        }
        let news = st.books != st.told;
        if st.owed.room || st.owed.credit || (all && news) {
            let books = st.books;
            self.say(st, Bell::Books, 0, &books.encode())?;
            st.told = books;
            st.news_since = None;
            st.owed.room = false;
            st.owed.credit = false;
        }
        if let Some(rkey) = st.owed.resolve {
            self.say(st, Bell::Resolve, rkey, &NOTHING)?;
            st.owed.resolve = None;
        }
        if let Some(resolved) = st.owed.resolved {
            self.say(st, Bell::Resolved, 0, &resolved.encode())?;
            st.owed.resolved = None;
        }
        if let Some((seq, len)) = st.owed.ask {
            let mut payload = NOTHING;
            payload[..8].copy_from_slice(&len.to_le_bytes());
            self.say(st, Bell::Ask, seq, &payload)?;
            st.owed.ask = None;
        }
        if let Some(seq) = st.owed.want {
            self.say(st, Bell::Want, seq, &NOTHING)?;
            st.owed.want = None;
        }
        if let Some((bell, seq)) = st.owed.answer {
            self.say(st, bell, seq, &NOTHING)?;
            st.owed.answer = None;
        }
        if st.owed.ping {
            self.say(st, Bell::Ping, 0, &NOTHING)?;
            st.owed.ping = false;
        }
        if st.owed.pong {
            self.say(st, Bell::Pong, 0, &NOTHING)?;
            st.owed.pong = false;
        }
        while let Some(rkey) = st.owed.revoke.last().copied() {
            self.say(st, Bell::Revoke, rkey, &NOTHING)?;
            st.owed.revoke.pop();
        }
        while let Some(rkey) = st.owed.revoked.last().copied() {
            if self.is_using(st, rkey) {
                break;
            }
            self.say(st, Bell::Revoked, rkey, &NOTHING)?;
            st.owed.revoked.pop();
        }
        Ok(())
    }

    /// Whether anything is owed that only another look can bring forward.
    pub fn owes(&self, st: &State) -> bool {
        matches!(st.phase, Phase::Up | Phase::Leaving(_))
            && (st.books != st.told || self.owes_more_than_news(st))
    }

    /// Whether anything is owed that no message carries.
    pub fn owes_more_than_news(&self, st: &State) -> bool {
        let owed = &st.owed;
        owed.up
            || owed.room
            || owed.credit
            || owed.resolve.is_some()
            || owed.resolved.is_some()
            || owed.ask.is_some()
            || owed.want.is_some()
            || owed.answer.is_some()
            || owed.ping
            || owed.pong
            || !owed.revoke.is_empty()
    }

    fn is_using(&self, st: &State, rkey: u32) -> bool {
        let outstanding = st.requests.tail.wrapping_sub(st.requests.head);
        (0..outstanding).map(|ahead| st.requests.slot(st.requests.head.wrapping_add(ahead))).any(|request| {
            request.is_one_sided()
                && request.rkey == rkey
                && (matches!(request.stage, Stage::Started | Stage::Writing) || request.pieces > 0)
        })
    }

    /// The peer said something.
    pub fn on_bell(&self, st: &mut State, bell: Bell, arg: u32, payload: &[u8; PAYLOAD]) {
        match (bell, st.phase) {
            (Bell::Up, Phase::Accepting) => {
                self.came_up(st, &[]);
                self.say_first_books(st);
                // Messages may have overtaken the news.
                self.take_filled(st);
                self.pump(st, Lull::None);
            }
            (_, Phase::Up | Phase::Leaving(_)) => self.on_bell_while_up(st, bell, arg, payload),
            (Bell::Bye, Phase::Accepting | Phase::Connecting) => {
                self.end(st, EventKind::REFUSED, &[], None);
            }
            // Late news of a connection that is over.
            _ => {}
        }
    }

    fn on_bell_while_up(&self, st: &mut State, bell: Bell, arg: u32, payload: &[u8; PAYLOAD]) {
        match bell {
            Bell::Books => self.on_books(st, &Books::decode(payload)),
            Bell::Resolve => {
                let resolved = self.dev.regions.resolve(arg, self.id, self.attr.domain);
                if resolved.access != 0 && !st.explained.contains(&arg) {
                    st.explained.push(arg);
                }
                st.owed.resolved = Some(resolved);
            }
            Bell::Resolved => {
                let resolved = Resolved::decode(payload);
                if st.resolving == Some(resolved.rkey) {
                    st.resolving = None;
                    st.keys.insert(resolved.rkey, resolved);
                }
            }
            Bell::Revoke => {
                // No such key from now on: the next use fails as it should.
                st.keys.insert(arg, Resolved { rkey: arg, ..Resolved::default() });
                st.owed.revoked.push(arg);
            }
            Bell::Revoked => {
                st.explained.retain(|key| *key != arg);
            }
            Bell::Ask => st.asked = Some((arg, crate::wire::long(payload, 0))),
            Bell::Go if st.asking && arg == st.sent => st.go = Some(arg),
            Bell::NoGo if st.asking && arg == st.sent => {
                // The message is not sent; its request fails in its turn.
                let next = st.requests.next;
                if next != st.requests.tail {
                    let request = st.requests.slot_mut(next);
                    request.stage = Stage::Done;
                    request.status = dat_plugin::CompletionStatus::REMOTE_ERROR;
                    st.requests.next = next.wrapping_add(1);
                }
            }
            Bell::Want => self.on_want(st, arg),
            Bell::Ping => st.owed.pong = true,
            Bell::Bye => {
                // What completed before counts, a failure included.
                if self.complete_requests(st) {
                    let kind = match Farewell::of(arg) {
                        Farewell::Disconnect => EventKind::DISCONNECTED,
                        Farewell::Broken => EventKind::BROKEN,
                    };
                    self.end(st, kind, &[], None);
                }
                return;
            }
            Bell::Up | Bell::Pong | Bell::Go | Bell::NoGo => {}
        }
        self.pump(st, Lull::None);
    }

    /// The peer's books; older ones than those known are not believed.
    pub fn on_books(&self, st: &mut State, books: &Books) {
        if reached(books.posted, st.credit) {
            st.credit = books.posted;
            st.room = books.room;
        }
        // It cannot have consumed what was not sent.
        if reached(books.consumed, st.taken) && reached(st.sent, books.consumed) {
            st.taken = books.consumed;
        }
    }

    /// Answers a question about room for a message, as soon as it can be answered.
    pub fn answer(&self, st: &mut State) {
        let Some((seq, len)) = st.asked else { return };
        let ahead = seq.wrapping_sub(st.recvs.head);
        if ahead >= st.recvs.next.wrapping_sub(st.recvs.head) {
            // A receive that is not there: a peer that keeps the rules does not ask.
            return;
        }
        let recv = *st.recvs.slot(seq);
        if recv.stage != RecvStage::Posted {
            st.asked = None;
            return;
        }
        if !recv.poisoned && len <= u64::from(recv.len) {
            st.asked = None;
            st.owed.answer = Some((Bell::Go, seq));
        } else if ahead == 0 {
            // Everything before it is consumed: now it fails, and the connection with it.
            st.asked = None;
            st.owed.answer = Some((Bell::NoGo, seq));
            self.say_what_is_owed(st, true);
            self.fail_recv(st, seq, recv.poisoned);
        }
    }
}
