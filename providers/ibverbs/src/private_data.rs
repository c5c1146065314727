//! Private data with its length, in messages of a fixed size.
//!
//! The wire carries 56 bytes with a request, 196 with an accept and 148 with a reject, padded with zeros, and not the length.
//! The last two bytes carry it: the length, and the same bits changed, so that data of other software is hardly mistaken for
//! it. The data begins at the first byte, where other software expects it. Data of other software is handed on as it came.

/// How much private data a message carries: at a request, an accept, a reject.
pub(crate) const REQUEST: usize = 56;
pub(crate) const ACCEPT: usize = 196;
pub(crate) const REJECT: usize = 148;

const TRAILER: usize = 2;
const TURN: u8 = 0xA6;

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

    /// `data` as a message of `size` bytes carries it.
    pub(crate) fn wrap(self, data: &[u8], size: usize) -> Vec<u8> {
        let mut out = data.to_vec();
        if self == Style::Exact {
            out.resize(size - TRAILER, 0);
            out.extend([data.len() as u8, data.len() as u8 ^ TURN]);
        }
        out
    }

    /// What a message carries.
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
