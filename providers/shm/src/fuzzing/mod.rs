//! What the fuzzer calls, over the code that is used: packets, rings, keys and mapped memory, whole connections.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "not part of the interface")]

mod connection;
mod memory;
mod rings;

pub use connection::connection;
pub use memory::memory;
pub use rings::{image, program};

use crate::control::handshake::{Packet, Parts, With};

/// Bytes of a packet: nothing, or what encodes to the same bytes.
pub fn packet(bytes: &[u8]) {
    if let Some(packet) = Packet::decode(bytes) {
        assert_eq!(packet.encode(), bytes);
        if let Packet::Request { with, .. } | Packet::Accept { with, .. } = packet {
            let _ = Parts::new(with, Vec::new());
            assert!(Parts::new(With(0), Vec::new()).is_some());
        }
    }
}
