//! The listening side of ping.

use crate::failure::{Failure, Outcome};
use crate::link::Link;
use crate::protocol::{Control, bytes, difference};

/// Takes a message with a pattern, verifies it, and answers with the next pattern.
pub fn echo(link: &mut Link, seed: u32, length: u32) -> Outcome {
    link.check_length(length)?;
    let (expected, answer, mut found) =
        (bytes(seed, length), bytes(seed.wrapping_add(1), length), bytes(0, length));
    link.drain_to(0)?;
    link.put(&answer);
    // All is prepared before the other side starts its clock.
    link.send_control(Control::Done)?;
    let message = link.receive()?;
    link.copy(message, &mut found);
    link.release(message)?;
    if message.length != u64::from(length) {
        return Err(Failure::new(format!("a message of {} bytes came instead of {length}", message.length)));
    }
    match difference(&expected, &found) {
        None => link.send(0, length, false),
        Some((offset, found)) => link.send_control(Control::Mismatch { offset, found }),
    }
}

/// Verifies the window, which was written to.
pub fn verify(link: &mut Link, seed: u32, length: u32) -> Outcome {
    link.check_length(length)?;
    let (expected, mut found) = (bytes(seed, length), bytes(0, length));
    link.window().read(0, &mut found);
    match difference(&expected, &found) {
        None => link.send_control(Control::Done),
        Some((offset, found)) => link.send_control(Control::Mismatch { offset, found }),
    }
}

/// Fills the window, which will be read.
pub fn fill(link: &mut Link, seed: u32, length: u32) -> Outcome {
    link.check_length(length)?;
    link.window().write(0, &bytes(seed, length));
    link.send_control(Control::Done)
}
