//! The random part of a key.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Numbers of a few bits in an order that depends on the operating system's random numbers. Each comes once before any comes
/// again, so that a peer cannot use a key of the past by chance.
///
/// A counter goes through a permutation: a Feistel network with a secret key.
pub struct Secrets {
    key: RandomState,
    bits: u32,
    counter: u64,
}

/// Four make a pseudorandom permutation of a pseudorandom function; this is one more.
const ROUNDS: u32 = 5;

impl Secrets {
    /// Numbers of `bits` bits, 2 to 32.
    pub fn new(bits: u32) -> Secrets {
        Secrets { key: RandomState::new(), bits: bits.clamp(2, 32), counter: 0 }
    }

    /// The next number.
    pub fn draw(&mut self) -> u32 {
        let number = self.permuted(self.counter);
        self.counter = self.counter.wrapping_add(1);
        number
    }

    fn permuted(&self, counter: u64) -> u32 {
        let half = self.bits / 2;
        // Each round changes one part by the other, so that it can be undone. No two counters give one number.
        let widths = [half, self.bits - half];
        let mut parts = [counter & mask(widths[0]), counter >> half & mask(widths[1])];
        for round in 0..ROUNDS {
            let (to, from) = ((round % 2) as usize, (1 - round % 2) as usize);
            parts[to] ^= self.key.hash_one((round, parts[from])) & mask(widths[to]);
        }
        (parts[0] | parts[1] << half) as u32
    }
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets stay out of logs.
        write!(f, "Secrets({} bits)", self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_once_before_any_comes_again() {
        for bits in [2, 7, 8, 15, 16] {
            let mut secrets = Secrets::new(bits);
            for _ in 0..2 {
                let mut seen = vec![false; 1 << bits];
                for _ in 0..1 << bits {
                    assert!(!std::mem::replace(&mut seen[secrets.draw() as usize], true), "{bits} bits");
                }
            }
        }
    }

    #[test]
    fn the_order_is_of_each_its_own_and_not_that_of_counting() {
        let draw = || {
            let mut secrets = Secrets::new(16);
            (0..64).map(|_| secrets.draw()).collect::<Vec<_>>()
        };
        let (first, second) = (draw(), draw());
        assert_ne!(first, second);
        let steps: std::collections::HashSet<u32> =
            first.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > 50, "{first:x?}");
    }
}
