//! A stand-in for libfabric: one fabric, `double`, inside the process, so that what the libfabric provider costs can be
//! counted. Over the real `tcp` each poll makes system calls, and how many depends on when it comes.
//!
//! Found by the library's name: make a link `libfabric.so.1` to the built file in a folder of its own, and put that folder
//! into `LD_LIBRARY_PATH`. The adapter needs `fabric = "double"`.
//!
//! # What it is, and what not
//! Connected endpoints, messages with and without immediate data, writes with and without, reads, by the calls with a
//! structure and, for messages, the short ones; injected messages and writes; completion and event queues with
//! descriptors to sleep on, connection data, cancelling, what comes back at the end. It offers what libfabric's `tcp`
//! does: eight bytes of immediate data, keys chosen by who registers, offsets instead of addresses. Work is done where it
//! is posted, so everything happens in the caller's thread and the same calls always cost the same. No datagrams, tags,
//! atomic operations, shared contexts or counters; rights of registered memory are not looked at.
//!
//! One lock guards everything.

#[path = "../../libibverbs/src/common.rs"]
mod common;
mod connect;
mod data;
mod endpoint;
mod head;
mod info;
mod objects;
mod queues;
mod world;
