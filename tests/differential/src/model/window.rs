//! Memory windows: binds, and what peers reach through them (spec: memory).

use dat_types::ReturnType::{
    InsufficientResources as IR, InvalidHandle as IH, InvalidParameter as IP, InvalidState as IS,
    ModelNotSupported as MNS, PrivilegesViolation as PRIV, ProtectionViolation as PROT,
};
use dat_types::{DtoOperation, EpState};

use super::memory::{LOCAL_READ, LOCAL_WRITE, REGIONS, REMOTE_READ, REMOTE_WRITE};
use super::state::{Bind, Model, Request, Window, request_flags};
use crate::expect::{Answer, Faults};
use crate::program::{EVDS, Evd, FOREIGN, Far, REGION, Range, STALE, Step, WINDOW, WINDOWS};

/// The window a remote segment names.
fn named(region: u8) -> Option<usize> {
    (region >= WINDOW).then(|| usize::from(region - WINDOW) % WINDOWS)
}

impl Model {
    pub(super) fn on_window(&mut self, step: &Step) -> Answer {
        match *step {
            Step::WindowCreate { side, window, zone } => {
                let (side, window) = (usize::from(side), usize::from(window));
                if self.sides[side].windows[window].alive || self.limits.soft_roce {
                    // One at a time, so that a place has one meaning.
                    return Answer::LeftOut;
                }
                if zone == FOREIGN {
                    return Answer::Refused(vec![IH]);
                }
                if !self.limits.windows {
                    return Answer::Lacks("memory windows", MNS);
                }
                self.sides[side].windows[window] =
                    Window { made: true, alive: true, zone, ..Window::default() };
                Answer::Success
            }
            Step::WindowFree { side, window } => {
                let (side, window) = (usize::from(side), usize::from(window));
                let it = &self.sides[side].windows[window];
                if !it.made || it.posted || self.is_meant(side, window) {
                    return Answer::LeftOut;
                }
                if !it.alive {
                    return Answer::Refused(vec![IH]);
                }
                let it = &mut self.sides[side].windows[window];
                (it.alive, it.bound, it.doubt) = (false, None, false);
                Answer::Success
            }
            // Refused while a window is bound to it; without one it is needed for what follows.
            Step::FreeRegion { side, region } => {
                let windows = || self.sides[usize::from(side)].windows.iter().filter(|window| window.alive);
                let bound = |window: &Window| window.bound.is_some_and(|range| range.region == region);
                match windows().all(Window::is_certain) && windows().any(bound) {
                    true => Answer::Refused(vec![IS]),
                    false => Answer::LeftOut,
                }
            }
            _ => Answer::LeftOut,
        }
    }

    /// Whether there is, or was, a window.
    pub(super) fn is_made(&self, side: usize, window: u8) -> bool {
        self.sides[side].windows[usize::from(window)].made
    }

    /// Whether a request that waits is on memory behind the window.
    fn is_meant(&self, side: usize, window: usize) -> bool {
        self.eps.iter().any(|ep| {
            let there = ep.peer.is_some_and(|peer| self.eps[peer].side == side);
            there && ep.requests.iter().any(|request| named(request.far.region) == Some(window))
        })
    }

    pub(super) fn bind(&mut self, ep: usize, window: u8, range: Range, flags: u32) -> Answer {
        let it = &self.eps[ep];
        let (side, number) = (it.side, usize::from(window));
        let known = &self.sides[side].windows[number];
        if known.posted || self.is_meant(side, number) {
            return Answer::LeftOut;
        }
        let attrs = &it.shape.attrs;
        let mut faults = Faults::default();
        faults.when(!known.alive, 0, IH);
        // Which of several faults is named is open.
        let remote = range.rights & (REMOTE_READ | REMOTE_WRITE);
        faults.when(range.rights & !0x73 != 0 || (remote == 0 && range.rights != 0), 1, IP);
        if range.len > 0 {
            let (owner, rights) = REGIONS[usize::from(range.region)];
            let lacks = |far: u32, near: u32| remote & far != 0 && rights & near == 0;
            faults.when(range.offset + range.len > REGION, 1, IP);
            faults.when(owner != known.zone, 1, PROT);
            faults.when(lacks(REMOTE_READ, LOCAL_READ) || lacks(REMOTE_WRITE, LOCAL_WRITE), 1, PRIV);
        }
        faults.when(flags & !request_flags(attrs.request_flags) != 0, 1, IP);
        faults.when(!matches!(it.state, EpState::Connected | EpState::Disconnected), 1, IS);
        faults.when(it.shape.zone != Some(known.zone), 1, PROT);
        let takes = |evd: u8| matches!(EVDS[usize::from(evd)], Evd::Binds | Evd::Both);
        faults.when(!it.shape.request.is_some_and(takes), 1, IS);
        let full = it.requests.len() >= attrs.requests as usize;
        // Without a dispatcher there is room for nothing.
        faults.when(full, if it.shape.request.is_none() { 1 } else { 2 }, IR);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        let nowhere = Far { region: 0, offset: 0, len: 0 };
        let request = Request::new(self.step, DtoOperation::BindMw, Vec::new(), nowhere, flags);
        let bound = (range.len > 0).then_some(Range { rights: remote, ..range });
        let disconnected = it.state == EpState::Disconnected;
        let answer = self.admit(ep, Request { bind: Some((side, number, bound)), ..request });
        self.sides[side].windows[number].posted = answer == Answer::Success && !disconnected;
        answer
    }

    pub(super) fn bound(&mut self, (side, window, range): Bind) {
        let it = &mut self.sides[side].windows[window];
        (it.bound, it.posted, it.doubt) = (range, false, false);
    }

    /// A bind was flushed: the provider may have carried it out before.
    pub(super) fn unbound(&mut self, (side, window, _): Bind) {
        let it = &mut self.sides[side].windows[window];
        (it.posted, it.doubt) = (false, true);
    }

    /// Whether it is open what a remote segment means at a side.
    pub(super) fn is_open(&self, side: usize, far: Far) -> bool {
        named(far.region).is_some_and(|window| {
            let it = &self.sides[side].windows[window];
            it.posted || it.doubt
        })
    }

    /// The region behind a remote segment, which may be reached with this right through `length` bytes; none: not at all.
    pub(super) fn reach(
        &self,
        side: usize,
        zone: Option<u8>,
        far: Far,
        length: u32,
        right: u32,
    ) -> Option<Far> {
        let Some(window) = named(far.region) else {
            let (owner, rights) = REGIONS.get(usize::from(far.region)).copied()?;
            let inside = far.offset + length <= REGION;
            return (inside && rights & right != 0 && zone == Some(owner)).then_some(far);
        };
        let it = &self.sides[side].windows[window];
        let range = it.bound.filter(|_| it.alive && far.region < STALE)?;
        let inside = far.offset >= range.offset && far.offset + length <= range.offset + range.len;
        let may = range.rights & right != 0 && zone == Some(it.zone);
        (inside && may).then_some(Far { region: range.region, ..far })
    }
}
