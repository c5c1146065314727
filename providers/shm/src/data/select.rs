//! How a long message out of ordinary memory is carried: copied through the ring, or read through the kernel.
//!
//! Which one is faster depends on both processors, on their distance, and on the length. So the receiver, which does most
//! of the work, measures. It tells the sender its choice in one word of the control page: a bit for each size class, set
//! where the kernel is to be used. The word is a hint. A wrong one costs time and nothing else.
//!
//! # Rules
//! - A window is [`WINDOW`] measured messages of a class. The fastest of them counts, as the others met disturbances.
//! - After the first window the other way gets one: a trial. It is chosen if it is a fifth faster.
//! - Then one window in [`PAUSE`] messages is measured. The next trial comes after [`SOON`] windows, and after each trial
//!   that changes nothing twice as late, up to [`LATE`].
//! - A cost that doubles or halves means that a process moved. The next trial comes at once.

/// The shortest message with a choice, as a power of two, and the number of classes. The last one has no upper end.
const FIRST: u32 = 12;
const CLASSES: usize = 7;

/// The choice before the first measurement: the kernel from 32 KiB on.
const GUESS: usize = 3;

const WINDOW: u8 = 8;
const PAUSE: u32 = 64 - WINDOW as u32;
const SOON: u32 = 16;
const LATE: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Ring,
    Kernel,
}

/// The choice of one receiving half.
pub(crate) struct Selector([Class; CLASSES]);

#[derive(Clone, Copy)]
struct Class {
    /// What the peer is asked for; other than `best` during a trial.
    wanted: Way,
    best: Way,
    /// The cost of each way in its last window.
    costs: [u64; 2],
    /// Of this window: the least cost, and the number of messages.
    least: u64,
    measured: u8,
    /// Messages until the next window, windows until the next trial, and the windows between two trials.
    pause: u32,
    left: u32,
    interval: u32,
    /// The cost of `best` when it was chosen; 0 before.
    settled: u64,
}

/// The class of a message of this length. `None`: it is too short for a choice.
fn class(len: u64) -> Option<usize> {
    (len >> FIRST != 0).then(|| ((len.ilog2() - FIRST) as usize).min(CLASSES - 1))
}

/// Whether the peer's word asks for the kernel for a message of this length.
pub(crate) fn by_kernel(word: u32, len: u64) -> bool {
    class(len).is_some_and(|class| word >> class & 1 != 0)
}

/// The lengths that a word asks the kernel for, for people.
pub(crate) fn describe(word: u32) -> String {
    let classes = (0..CLASSES).filter(|class| word >> class & 1 != 0);
    let sizes: Vec<_> = classes.map(|class| format!("{}", 1 << (FIRST as usize + class - 10))).collect();
    if sizes.is_empty() { "none now".into() } else { format!("now those of {} KiB", sizes.join(", ")) }
}

impl Default for Selector {
    fn default() -> Selector {
        Selector(std::array::from_fn(|class| Class::new(if class < GUESS { Way::Ring } else { Way::Kernel })))
    }
}

impl Selector {
    /// The word for the peer.
    pub(crate) fn word(&self) -> u32 {
        let set = |(index, class): (usize, &Class)| u32::from(class.wanted == Way::Kernel) << index;
        self.0.iter().enumerate().map(set).sum()
    }

    /// Whether the message that came this way is to be measured.
    pub(crate) fn measures(&mut self, way: Way, len: u64) -> bool {
        // One that was sent before the peer read the word counts for nothing.
        let Some(class) = class(len).map(|class| &mut self.0[class]).filter(|class| class.wanted == way)
        else {
            return false;
        };
        let now = class.pause == 0;
        class.pause = class.pause.saturating_sub(1);
        now
    }

    /// A measured message took `nanos`. `true`: the word changed.
    pub(crate) fn measured(&mut self, way: Way, len: u64, nanos: u64) -> bool {
        match class(len).map(|class| &mut self.0[class]) {
            // By 64 KiB, as lengths differ within a class.
            Some(class) if class.wanted == way => class.add((nanos.max(1) << 16).div_ceil(len)),
            _ => false,
        }
    }
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Ring => Way::Kernel,
            Way::Kernel => Way::Ring,
        }
    }
}

impl Class {
    fn new(way: Way) -> Class {
        let (least, left, interval) = (u64::MAX, SOON, SOON);
        Class {
            wanted: way,
            best: way,
            costs: [0; 2],
            least,
            measured: 0,
            pause: 0,
            left,
            interval,
            settled: 0,
        }
    }

    fn add(&mut self, cost: u64) -> bool {
        self.least = self.least.min(cost);
        self.measured += 1;
        if self.measured < WINDOW {
            return false;
        }
        let cost = self.least;
        self.costs[self.wanted as usize] = cost;
        (self.least, self.measured) = (u64::MAX, 0);
        if self.wanted != self.best {
            return self.end_trial();
        }
        self.left -= 1;
        let moved = cost > 2 * self.settled || 2 * cost < self.settled;
        if moved {
            self.interval = SOON;
        }
        if moved || self.left == 0 {
            self.wanted = self.best.other();
            return true;
        }
        self.pause = PAUSE;
        false
    }

    fn end_trial(&mut self) -> bool {
        let [tried, known] = [self.wanted, self.best].map(|way| self.costs[way as usize]);
        let better = tried < known - known / 5;
        if better {
            (self.best, self.interval) = (self.wanted, SOON);
        } else if self.settled != 0 {
            self.interval = (2 * self.interval).min(LATE);
        }
        self.wanted = self.best;
        self.settled = self.costs[self.best as usize];
        (self.left, self.pause) = (self.interval, PAUSE);
        !better
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds of a message, by way and length.
    type Costs<'a> = &'a dyn Fn(Way, u64) -> u64;

    /// Sends messages as an honest peer does; gives how often the chosen way changed.
    fn send(selector: &mut Selector, len: u64, count: usize, costs: Costs<'_>) -> usize {
        let (mut changes, mut best) = (0, chosen(selector, len));
        for _ in 0..count {
            let way = if by_kernel(selector.word(), len) { Way::Kernel } else { Way::Ring };
            if selector.measures(way, len) {
                let before = selector.word();
                let said = selector.measured(way, len, costs(way, len));
                assert_eq!(said, before != selector.word(), "a change is told, and nothing else");
            }
            changes += usize::from(chosen(selector, len) != best);
            best = chosen(selector, len);
        }
        changes
    }

    fn chosen(selector: &Selector, len: u64) -> Way {
        selector.0[class(len).unwrap()].best
    }

    /// Each line crosses for the ring; the kernel costs a call and then less for each byte.
    fn far(way: Way, len: u64) -> u64 {
        match way {
            Way::Ring => len / 2,
            Way::Kernel => 1000 + len / 10,
        }
    }

    /// A shared cache.
    fn near(way: Way, len: u64) -> u64 {
        match way {
            Way::Ring => len / 20,
            Way::Kernel => 1000 + len / 10,
        }
    }

    const LENS: [u64; 5] = [4096, 9000, 65_536, 262_144, 4 << 20];

    #[test]
    fn the_first_messages_of_a_class_decide() {
        for (costs, expected) in [(&far as Costs<'_>, Way::Kernel), (&near, Way::Ring)] {
            let mut selector = Selector::default();
            for len in LENS {
                send(&mut selector, len, 2 * WINDOW as usize, costs);
                assert_eq!(chosen(&selector, len), expected, "{len} bytes");
                assert_eq!(by_kernel(selector.word(), len), expected == Way::Kernel, "{len} bytes");
            }
        }
        assert!(!by_kernel(u32::MAX, 4095), "too short for a choice");
    }

    #[test]
    fn a_change_of_the_placement_is_followed_once() {
        let mut selector = Selector::default();
        for len in LENS {
            send(&mut selector, len, 100_000, &near);
            for (costs, expected) in [(&far as Costs<'_>, Way::Kernel), (&near, Way::Ring)] {
                // The kernel's cost is the same at both places, so the way back is found by a later trial.
                assert_eq!(send(&mut selector, len, 100_000, costs), 1, "{len} bytes");
                assert_eq!(chosen(&selector, len), expected, "{len} bytes");
            }
            assert_eq!(send(&mut selector, len, 2 * (64 + WINDOW as usize), &far), 1, "at once: {len} bytes");
        }
    }

    #[test]
    fn equal_ways_and_disturbances_change_nothing() {
        let turn = std::cell::Cell::new(0x9E37_79B9_7F4A_7C15_u64);
        let random = || {
            let mut word = turn.get();
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            turn.set(word);
            word
        };
        // A tenth more or less, and now and then a process that was away.
        let noisy =
            |_: Way, len: u64| len * (90 + random() % 21) / 100 + u64::from(random() % 50 == 0) * 9_000_000;
        let mut selector = Selector::default();
        for len in LENS {
            assert_eq!(send(&mut selector, len, 1_000_000, &noisy), 0, "{len} bytes");
        }
    }

    #[test]
    fn trials_become_rare() {
        let mut selector = Selector::default();
        let tried = std::cell::Cell::new(0);
        let counted = |way: Way, len: u64| {
            tried.set(tried.get() + u64::from(way == Way::Kernel));
            near(way, len)
        };
        send(&mut selector, 4096, 1_000_000, &counted);
        assert!((8..200).contains(&tried.get()), "{} of a million messages took the slow way", tried.get());
    }

    #[test]
    fn a_peer_that_does_not_follow_changes_nothing() {
        let mut selector = Selector::default();
        for _ in 0..1000 {
            if selector.measures(Way::Ring, 4096) {
                selector.measured(Way::Ring, 4096, 500);
            }
        }
        assert_eq!(chosen(&selector, 4096), Way::Ring);
        assert!(!selector.measures(Way::Ring, 4096), "it waits for the other way");
    }
}
