//! Private data with its length, in messages of a fixed size.
//!
//! The wire carries 56 bytes with a request, 196 with an accept and 148 with a reject, padded with zeros, and not the length.
//! The last two bytes carry it: the length, and the same bits changed, so that data of other software is hardly mistaken for
//! it. The data begins at the first byte, where other software expects it. Data of other software is handed on as it came.
//!
//! A request for a qualifier above 65535 also carries its quotient ([`Qualifier`]), in the seven bytes before these two.

use dat_kit::Qualifier;

/// How much private data a message carries: at a request, an accept, a reject.
pub(crate) const REQUEST: usize = 56;
pub(crate) const ACCEPT: usize = 196;
pub(crate) const REJECT: usize = 148;

const TRAILER: usize = 2;
const TURN: u8 = 0xA6;
/// Instead of [`TURN`], when the quotient of a qualifier is there.
const TURN_QUOTIENT: u8 = 0x59;

/// Whether lengths are carried along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// With the length in the last two bytes.
    Exact,
    /// As it is; the receiver sees padding.
    Plain,
}

impl Style {
    /// The most private data that every kind of message carries.
    pub(crate) fn limit(self) -> usize {
        match self {
            Style::Exact => REQUEST - TRAILER,
            Style::Plain => REQUEST,
        }
    }

    /// The most private data of a request whose qualifier has this quotient.
    pub(crate) fn request_limit(self, quotient: u64) -> usize {
        match (self, quotient) {
            (Style::Plain, _) | (_, 0) => self.limit(),
            _ => self.limit() - Qualifier::QUOTIENT,
        }
    }

    /// `data` as a request carries it; `None` if it is too long. A plain request carries no quotient.
    pub(crate) fn wrap_request(self, data: &[u8], quotient: u64) -> Option<Vec<u8>> {
        if data.len() > self.request_limit(quotient) {
            return None;
        }
        let mut out = self.wrap(data, REQUEST);
        if self == Style::Exact && quotient != 0 {
            let at = REQUEST - TRAILER - Qualifier::QUOTIENT;
            out[at..REQUEST - TRAILER].copy_from_slice(&Qualifier::bytes(quotient));
            out[REQUEST - 1] = data.len() as u8 ^ TURN_QUOTIENT;
        }
        Some(out)
    }

    /// The quotient of the qualifier that a request is for, and its data. Requests of other software have no quotient.
    pub(crate) fn request(self, message: &[u8]) -> (Option<u64>, &[u8]) {
        if self == Style::Exact
            && let Some((data, rest)) = message
                .get(..REQUEST)
                .and_then(|whole| whole.split_last_chunk::<{ Qualifier::QUOTIENT + TRAILER }>())
            && let [quotient @ .., length, turned] = *rest
            && turned == length ^ TURN_QUOTIENT
            && let Some(data) = data.get(..usize::from(length))
        {
            return (Some(Qualifier::quotient_of(quotient)), data);
        }
        let (marked, data) = self.parts(message, REQUEST);
        (marked.then_some(0), data)
    }

    /// `data` as a message of `size` bytes carries it.
    pub(crate) fn wrap(self, data: &[u8], size: usize) -> Vec<u8> {
        let mut out = data.to_vec();
        if self == Style::Exact {
            out.resize(size - TRAILER, 0);
            out.extend([data.len() as u8, data.len() as u8 ^ TURN]);
        }
        out
    }

    /// What an accept carries.
    pub(crate) fn unwrap(self, message: &[u8], size: usize) -> &[u8] {
        self.parts(message, size).1
    }

    /// The data of a reject, and whether a program wrote it. The kernel rejects in the consumer's name when a program ends,
    /// without data. A consumer of other software that rejects without data looks the same, unless
    /// lengths are not expected.
    pub(crate) fn reject(self, message: &[u8]) -> (bool, &[u8]) {
        let (marked, data) = self.parts(message, REJECT);
        (marked || !data.is_empty() || self == Style::Plain, data)
    }

    /// Whether the length is there, and the data.
    fn parts(self, message: &[u8], size: usize) -> (bool, &[u8]) {
        // A device may deliver more bytes than the kind of message has.
        let message = &message[..message.len().min(size)];
        if self == Style::Exact && message.len() == size {
            let (data, trailer) = message.split_at(size - TRAILER);
            if let [length, turned] = *trailer
                && turned == length ^ TURN
                && usize::from(length) <= data.len()
            {
                return (true, &data[..length.into()]);
            }
        }
        match message.iter().any(|byte| *byte != 0) {
            true => (false, message),
            false => (false, &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_survive_padding() {
        for size in [REQUEST, ACCEPT, REJECT] {
            for len in [0, 1, Style::Exact.limit()] {
                let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let wire = Style::Exact.wrap(&data, size);
                assert_eq!(wire.len(), size);
                assert_eq!(wire[..len], data, "data comes first, for peers that know nothing of the length");
                assert_eq!(Style::Exact.unwrap(&wire, size), data);
            }
        }
    }

    #[test]
    fn requests_carry_the_quotient_of_long_qualifiers() {
        for quotient in [0, 2, 1 << 48, (1 << 56) - 1] {
            let most = Style::Exact.request_limit(quotient);
            for len in [0, 1, most] {
                let data: Vec<u8> = (0..len).map(|i| !(i as u8)).collect();
                let wire = Style::Exact.wrap_request(&data, quotient).unwrap();
                assert_eq!(wire.len(), REQUEST);
                assert_eq!(Style::Exact.request(&wire), (Some(quotient), &data[..]));
                let mut padded = wire.clone();
                padded.resize(92, 0);
                assert_eq!(Style::Exact.request(&padded), (Some(quotient), &data[..]));
            }
            assert_eq!(Style::Exact.wrap_request(&vec![0; most + 1], quotient), None);
        }
        assert_eq!(Style::Exact.request_limit(2), 47);
        assert_eq!(Style::Plain.wrap_request(&[1; REQUEST], 2).unwrap(), [1; REQUEST]);
    }

    #[test]
    fn requests_of_other_software_have_no_quotient() {
        assert_eq!(Style::Exact.request(&[0; REQUEST]), (None, &[][..]));
        assert_eq!(Style::Exact.request(b"short"), (None, &b"short"[..]));
        let mut foreign = [9; REQUEST];
        foreign[54] = 48;
        foreign[55] = 48 ^ TURN_QUOTIENT;
        assert_eq!(Style::Exact.request(&foreign), (None, &foreign[..]), "a length that cannot be");
        assert_eq!(Style::Plain.request(&foreign), (None, &foreign[..]));
    }

    #[test]
    fn a_reject_of_the_kernel_differs_from_a_consumers() {
        let silent = Style::Exact.wrap(&[], REJECT);
        assert_eq!(Style::Exact.reject(&silent), (true, &[][..]));
        assert_eq!(Style::Exact.reject(&[0; REJECT]), (false, &[][..]));
        assert_eq!(Style::Plain.reject(&[0; REJECT]), (true, &[][..]));
        assert!(Style::Exact.reject(b"no").0, "other software's words");
    }

    #[test]
    fn data_of_other_software_is_handed_on_as_it_came() {
        let mut foreign = [0u8; REQUEST];
        assert_eq!(Style::Exact.unwrap(&foreign, REQUEST), b"", "all padding");
        foreign[..3].copy_from_slice(b"abc");
        assert_eq!(Style::Exact.unwrap(&foreign, REQUEST), foreign);
        assert_eq!(Style::Exact.unwrap(b"short", REQUEST), b"short");
        foreign[54] = 200;
        foreign[55] = 200 ^ TURN;
        assert_eq!(Style::Exact.unwrap(&foreign, REQUEST), foreign, "a length that cannot be");
    }
}
