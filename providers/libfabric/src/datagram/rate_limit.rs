//! A limit on events per second.

use std::time::{Duration, Instant};

/// At most `most` events in each second.
pub struct RateLimit {
    most: u32,
    left: u32,
    since: Instant,
}

impl RateLimit {
    pub fn new(most: u32) -> RateLimit {
        RateLimit { most, left: most, since: Instant::now() }
    }

    /// Counts an event; `false` if it exceeds the limit.
    pub fn allow(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.left, self.since) = (self.most, now);
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_allows_so_many_events_and_no_more() {
        let start = Instant::now();
        let mut limit = RateLimit::new(3);
        let allowed = |limit: &mut RateLimit, at| (0..10).filter(|_| limit.allow(at)).count();
        assert_eq!(allowed(&mut limit, start), 3);
        assert_eq!(allowed(&mut limit, start + Duration::from_millis(900)), 0);
        assert_eq!(allowed(&mut limit, start + Duration::from_millis(1100)), 3);
    }
}
