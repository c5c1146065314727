//! A stand-in for libibverbs and librdmacm: one device, `double0`, inside the process, so that the ibverbs provider runs
//! on a machine without RDMA and its instructions can be counted.
//!
//! Found by the names of the two libraries: make links `libibverbs.so.1` and `librdmacm.so.1` to the built file in a folder
//! of their own, and put that folder into `LD_LIBRARY_PATH`. The adapter needs `address = "127.0.0.1"`.
//!
//! # Scope
//! Reliable connected queue pairs, messages, writes with and without a value, reads, completion channels, RDMA CM's
//! handshake with private data, flushing, dma-bufs. Work is done where it is posted, so everything happens in the caller's
//! thread and the same calls always cost the same. Keys and rights are not checked: a real device does that, and the tests
//! in the emulated machine cover it. There are no shared receive queues, atomics, windows or events of the device.
//!
//! `DAT_FAKE_VERBS_FLUSH_MS` makes the device slow: it gives flushed work back only after that many milliseconds.
//!
//! One lock guards everything.

mod cm;
mod common;
mod data;
mod objects;
mod world;
