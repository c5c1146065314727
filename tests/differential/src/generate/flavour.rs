//! Kinds of programs.

use super::random::Random;

/// Which kinds of calls a program has beyond the usual ones: few at a time, so that it gets somewhere with them.
pub(super) struct Flavour {
    pub(super) immediate: bool,
    pub(super) atomics: bool,
    pub(super) handoff: bool,
    pub(super) maker: bool,
    pub(super) queues: bool,
    pub(super) windows: bool,
}

impl Flavour {
    pub(super) fn of(r: &mut Random) -> Flavour {
        Flavour {
            immediate: r.one_in(4),
            atomics: r.one_in(4),
            handoff: r.one_in(5),
            maker: r.one_in(4),
            queues: r.one_in(4),
            windows: r.one_in(3),
        }
    }
}
