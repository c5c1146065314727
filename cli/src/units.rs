//! Values as people write them: sizes, durations, processors, addresses.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use dat::registry::layer::Spec;
pub use dat_measure::{show_nanos, show_size};

/// Default qualifier of `--listen` and `--connect`.
pub const DEFAULT_QUAL: &str = "3495";

/// Maximum length of one operation. It keeps the buffers of both sides within a small machine's memory.
const MAX_SIZE: u64 = 1 << 30;

/// A listening peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its adapter's address.
    pub address: IpAddr,
    /// Its connection qualifier.
    pub qual: u64,
}

/// The processors of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Of this process.
    pub own: usize,
    /// Of the peer.
    pub peer: usize,
}

/// `64`, `4K`, `1M`.
pub fn size(text: &str) -> Result<u32, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1u64),
    };
    let count: u64 = digits.parse().map_err(|_| "write bytes as 64, 4K or 1M".to_owned())?;
    match count.checked_mul(factor) {
        Some(bytes @ 1..=MAX_SIZE) => Ok(bytes as u32),
        _ => Err("at least 1 byte and at most 1G".to_owned()),
    }
}

/// `key=value`.
pub fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write a parameter as KEY=VALUE".to_owned()),
    }
}

/// Layers, the first next to the application.
#[derive(Clone, Debug)]
pub struct Layers(pub Vec<Spec>);

/// `trace,faults:seed=7,delay_us=300`.
pub fn layers(text: &str) -> Result<Layers, String> {
    Spec::parse_list(text).map(Layers).map_err(|failure| failure.message)
}

/// A file name that ends in `.svg`.
pub fn svg_file(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    match file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg")) {
        true => Ok(file),
        false => Err("the drawing is SVG; write a name that ends in .svg".to_owned()),
    }
}

/// A factor for times.
pub fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.1..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("write a number from 0.1 to 1000".to_owned()),
    }
}

/// `2`, `2s`, `500ms`, `100us`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text {
        t if t.ends_with("ms") => (&t[..t.len() - 2], 1e-3),
        t if t.ends_with("us") => (&t[..t.len() - 2], 1e-6),
        t if t.ends_with('s') => (&t[..t.len() - 1], 1.0),
        t => (t, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|n| n * unit).filter(|s| (0.0..=86_400.0).contains(s));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "write a time as 2s, 500ms or 100us; at most a day".to_owned())
}

/// `0,1`.
pub fn cpus(text: &str) -> Result<Cpus, String> {
    let wrong = || "write two processors as 0,1".to_owned();
    let (own, peer) = text.split_once(',').ok_or_else(wrong)?;
    let number = |part: &str| part.trim().parse().map_err(|_| wrong());
    Ok(Cpus { own: number(own)?, peer: number(peer)? })
}

/// `10.0.0.1`, `10.0.0.1:3495`, `[fe80::1]:3495`.
pub fn target(text: &str) -> Result<Target, String> {
    let qual = DEFAULT_QUAL.parse().map_err(|_| "the default qualifier is no number".to_owned())?;
    if let Ok(address) = text.trim_matches(['[', ']']).parse() {
        return Ok(Target { address, qual });
    }
    // Qualifiers have 64 bits, so this is not always a socket address.
    let wrong = || "write ADDRESS, ADDRESS:QUAL or [IPV6]:QUAL with a numeric address".to_owned();
    let (address, qual) = text.rsplit_once(':').ok_or_else(wrong)?;
    let qual = qual.parse().map_err(|_| wrong())?;
    let address = address.trim_matches(['[', ']']).parse().map_err(|_| wrong())?;
    Ok(Target { address, qual })
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match u16::try_from(self.qual) {
            Ok(port) => write!(f, "{}", SocketAddr::new(self.address, port)),
            Err(_) => write!(f, "[{}]:{}", self.address, self.qual),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!((size("8"), size("4K"), size("1m")), (Ok(8), Ok(4096), Ok(1 << 20)));
        for wrong in ["", "0", "K", "-1", "2G", "99999999999999999999", "18446744073709551615G", "4Kb", "1é"]
        {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        for bytes in [1, 8, 1000, 4096, 5 << 20] {
            assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("100us"), Ok(Duration::from_micros(100)));
        for wrong in ["", "s", "-1", "NaN", "inf", "1h", "1e99"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn targets() {
        let v4 = target("127.0.0.1:77").expect("an address");
        assert_eq!((v4.address.to_string(), v4.qual), ("127.0.0.1".into(), 77));
        assert_eq!(target("::1").expect("an address").qual.to_string(), DEFAULT_QUAL);
        assert_eq!(target("[::1]:99999999").expect("an address").qual, 99_999_999);
        for text in ["127.0.0.1:77", "[::1]:77", "[127.0.0.1]:9999999"] {
            assert_eq!(target(text).expect(text).to_string(), text);
        }
        for wrong in ["", "host", "host:1", "1.2.3.4:", "1.2.3.4:x"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
