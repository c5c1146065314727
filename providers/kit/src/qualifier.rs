//! Connection qualifiers of 64 bits on fabrics whose ports have 16.
//!
//! Qualifiers up to 65535 are the ports themselves. Others share the ports from 33534 to 65534, as in the original uDAPL
//! library, so that peers of both find each other. A request carries the quotient, which tells apart the qualifiers of one
//! port.

use std::fmt;

const MODULUS: u64 = 32_001;
const BASE: u64 = 65_535 - MODULUS;

/// A qualifier as port and quotient. No two qualifiers have the same pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qualifier {
    /// The port.
    pub port: u16,
    /// 0 if the port is the qualifier itself, otherwise at least 2 and less than 2^56.
    pub quotient: u64,
}

impl Qualifier {
    /// The number of bytes of a quotient.
    pub const QUOTIENT: usize = 7;

    /// Port and quotient of this number.
    pub fn new(number: u64) -> Qualifier {
        match u16::try_from(number) {
            Ok(port) => Qualifier { port, quotient: 0 },
            // The remainder is below 32001, so the sum fits.
            Err(_) => Qualifier { port: (number % MODULUS + BASE) as u16, quotient: number / MODULUS },
        }
    }

    /// The listener's qualifier, once the fabric has chosen or confirmed the port.
    pub fn at(self, port: u16) -> u64 {
        match self.quotient {
            0 => port.into(),
            quotient => quotient * MODULUS + (u64::from(self.port) - BASE),
        }
    }

    /// The quotient on the wire.
    pub fn bytes(quotient: u64) -> [u8; Qualifier::QUOTIENT] {
        let mut bytes = [0; Qualifier::QUOTIENT];
        bytes.copy_from_slice(&quotient.to_le_bytes()[..Qualifier::QUOTIENT]);
        bytes
    }

    /// The quotient in these bytes.
    pub fn quotient_of(bytes: [u8; Qualifier::QUOTIENT]) -> u64 {
        let mut all = [0; 8];
        all[..Qualifier::QUOTIENT].copy_from_slice(&bytes);
        u64::from_le_bytes(all)
    }
}

impl fmt::Display for Qualifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quotient {
            0 => write!(f, "port {}", self.port),
            _ => {
                let number = self.at(self.port);
                write!(f, "qualifier {number}, which is port {} ({number} % {MODULUS} + {BASE})", self.port)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_their_own_qualifiers() {
        for number in [0, 1, 33_534, 65_535] {
            let qualifier = Qualifier::new(number);
            assert_eq!((u64::from(qualifier.port), qualifier.quotient), (number, 0));
        }
        assert_eq!(Qualifier::new(0).at(4711), 4711, "a port the fabric chose");
    }

    #[test]
    fn others_have_the_original_librarys_port() {
        assert_eq!(Qualifier::new(65_536).port, 35_068);
        assert_eq!(Qualifier::new(32_001 * 7).port, 33_534);
        assert_eq!(Qualifier::new(32_001 * 7 + 32_000).port, 65_534);
    }

    #[test]
    fn port_and_quotient_make_the_qualifier() {
        for number in (65_536..70_000).chain(u64::MAX - 70_000..=u64::MAX).chain([1 << 32, 1 << 48]) {
            let qualifier = Qualifier::new(number);
            assert_eq!(qualifier.at(qualifier.port), number);
            assert!(qualifier.quotient >= 2);
            assert_eq!(Qualifier::quotient_of(Qualifier::bytes(qualifier.quotient)), qualifier.quotient);
        }
    }

    #[test]
    fn its_text_shows_where_the_port_comes_from() {
        assert_eq!(Qualifier::new(80).to_string(), "port 80");
        let text = "qualifier 65536, which is port 35068 (65536 % 32001 + 33534)";
        assert_eq!(Qualifier::new(65_536).to_string(), text);
    }
}
