//! The listening side of ping.

use crate::failure::{Failure, Outcome};
use crate::link::Link;
use crate::protocol::{Control, pattern};

/// Takes a message with a pattern, verifies it, and answers with the next pattern.
pub fn echo(link: &mut Link, seed: u32, length: u32) -> Outcome {
    check_length(link, length)?;
    let (expected, answer, mut found) =
        (bytes(seed, length), bytes(seed.wrapping_add(1), length), bytes(0, length));
    link.settle(0)?;
    link.put(&answer);
    // Everything is prepared before the clock of the other side runs.
    link.tell(Control::Done)?;
    let message = link.receive()?;
    link.copy(message, &mut found);
    link.release(message)?;
    if message.length != u64::from(length) {
        return Err(Failure::new(format!("a message of {} bytes came instead of {length}", message.length)));
    }
    match difference(&expected, &found) {
        None => link.send(0, length, false),
        Some((offset, found)) => link.tell(Control::Mismatch { offset, found }),
    }
}

/// Verifies the window, which was written to.
pub fn verify(link: &mut Link, seed: u32, length: u32) -> Outcome {
    check_length(link, length)?;
    let (expected, mut found) = (bytes(seed, length), bytes(0, length));
    link.window().read(0, &mut found);
    match difference(&expected, &found) {
        None => link.tell(Control::Done),
        Some((offset, found)) => link.tell(Control::Mismatch { offset, found }),
    }
}

/// Fills the window, which will be read.
pub fn fill(link: &mut Link, seed: u32, length: u32) -> Outcome {
    check_length(link, length)?;
    link.window().write(0, &bytes(seed, length));
    link.tell(Control::Done)
}

/// A peer that asks for more than was agreed on at the connect is refused, before any memory is touched.
pub fn check_length(link: &Link, length: u32) -> Outcome {
    match length {
        1.. if length as usize <= link.window().len() => Ok(()),
        _ => Err(Failure::new(format!("the peer asks for {length} bytes, more than it said it would"))),
    }
}

/// The pattern of a round.
pub fn bytes(seed: u32, length: u32) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    pattern(seed, &mut bytes);
    bytes
}

/// Where two stretches first differ, and what was found there.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<(u32, u32)> {
    if expected == found {
        return None;
    }
    let at = expected.iter().zip(found).position(|(e, f)| e != f).unwrap_or(expected.len().min(found.len()));
    Some((at as u32, found.get(at).copied().unwrap_or_default().into()))
}
