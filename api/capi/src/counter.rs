//! Counters as `dat_ib_query_counters` shows them: the engine's, each set back by itself.

use parking_lot::Mutex;

/// What each counter of an object was when it was set back last.
#[derive(Default)]
pub struct Base(Mutex<Vec<u64>>);

impl Base {
    /// Numbers and values: one counter, or all when `which` is how many there are. `None` for a number beyond.
    pub fn read(&self, now: &[u64], which: usize, reset: bool) -> Option<Vec<(usize, u64)>> {
        let range = match which {
            all if all == now.len() => 0..all,
            one if one < now.len() => one..one + 1,
            _ => return None,
        };
        let mut base = self.0.lock();
        base.resize(now.len(), 0);
        let values = range.map(|i| {
            let value = now[i].wrapping_sub(base[i]);
            if reset {
                base[i] = now[i];
            }
            (i, value)
        });
        Some(values.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_set_back_leaves_the_others_alone() {
        let base = Base::default();
        assert_eq!(base.read(&[5, 7], 1, true), Some(vec![(1, 7)]));
        assert_eq!(base.read(&[6, 9], 2, false), Some(vec![(0, 6), (1, 2)]));
        assert_eq!(base.read(&[6, 9], 3, false), None);
    }
}
