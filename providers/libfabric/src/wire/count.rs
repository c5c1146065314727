//! Counts of receives and messages. They wrap; messages carry their low 14 bits.

/// Most receives a channel may have open, so that 14 bits tell how many there are.
pub const MAX_WINDOW: u32 = (1 << 13) - 1;

/// The bits of a count that a message carries.
pub const COUNT: u64 = (1 << 14) - 1;

/// The count whose low 14 bits are `low`, at or after `known` by less than 2^13. `None` if it would be before `known`: an
/// older message overtook a newer one.
pub fn widen(known: u32, low: u32) -> Option<u32> {
    let ahead = low.wrapping_sub(known) & COUNT as u32;
    (ahead <= MAX_WINDOW).then(|| known.wrapping_add(ahead))
}

/// Whether `a` comes at or after `b` in counts that wrap.
pub fn reached(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_wrap() {
        assert_eq!(widen(10, 12), Some(12));
        assert_eq!(widen(10, 10), Some(10));
        assert_eq!(widen(10, 9), None, "older than what is known");
        assert_eq!(widen(u32::MAX, 1), Some(1), "the whole count wraps");
        assert_eq!(widen(0x7FFF, 0), Some(0x8000), "the low bits wrap");
        assert!(reached(2, u32::MAX) && !reached(u32::MAX, 2));
    }
}
