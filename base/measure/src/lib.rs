//! Pinning to processors, a probe of the distance of two processors, and charts, for `dat perf` and the benchmarks.
#![forbid(unsafe_code)]

pub mod chart;
pub mod cpu;

/// A size of bytes as people write it: `64`, `4K`, `1M`.
pub fn show_size(bytes: u32) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

/// A time as people read it.
pub fn show_nanos(nanos: f64) -> String {
    match nanos {
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e5 => format!("{:.2} us", n / 1e3),
        n if n < 1e6 => format!("{:.0} us", n / 1e3),
        n => format!("{:.2} ms", n / 1e6),
    }
}
