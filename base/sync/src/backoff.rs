//! Waiting for a lock.

/// Waits a little longer each time: spins, then yields the processor, then sleeps.
#[derive(Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

/// Rounds before a waiter sleeps. Holders need well below a microsecond, so only a holder that does not run takes as long.
/// Yielding does not help there when the waiter has real-time priority and the holder, on the same processor, has not.
#[cfg(not(loom))]
const AWAKE: u32 = 1024;

/// Long enough for a preempted holder to run, short beside a scheduler's time slice.
#[cfg(not(loom))]
const SLEEP: std::time::Duration = std::time::Duration::from_micros(50);

impl Backoff {
    pub(crate) fn wait(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        match self.rounds {
            AWAKE.. => std::thread::sleep(SLEEP),
            rounds if rounds.is_multiple_of(16) => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}
