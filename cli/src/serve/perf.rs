//! The listening side of perf: the other half of each hot loop.

use crate::failure::Outcome;
use crate::link::Link;
use crate::protocol::{Control, mark};

/// Answers each message with one as long.
pub fn ping_pong(link: &mut Link, messages: u32, length: u32) -> Outcome {
    link.check_length(length)?;
    link.send_control(Control::Done)?;
    for _ in 0..messages {
        let message = link.receive()?;
        link.send(0, length, false)?;
        // Posted again while the answer travels; others are posted still, one at least.
        link.release(message)?;
    }
    link.drain_to(0)
}

/// Takes messages, and acknowledges each batch.
pub fn sink(link: &mut Link, messages: u32, batches: u32) -> Outcome {
    link.send_control(Control::Done)?;
    for _ in 0..batches {
        let mut left = messages;
        while left > 0 {
            left -= link.absorb(left)?;
        }
        link.send_control(Control::Done)?;
    }
    Ok(())
}

/// Answers each write into the window with a write into the peer's.
pub fn write_pong(link: &mut Link, writes: u32, length: u32) -> Outcome {
    link.check_length(length)?;
    let last = length as usize - 1;
    link.window().write(last, &[0]);
    link.send_control(Control::Done)?;
    for round in 0..writes {
        let mark = mark(round);
        link.wait_for_byte(last, mark)?;
        link.put_byte(last, mark);
        link.write(0, length, false)?;
        // While the write travels; the source is free for the next one then.
        link.drain_to(0)?;
    }
    Ok(())
}
