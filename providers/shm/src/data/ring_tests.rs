//! The ring against its models: loom for the interleavings, proptest for the arithmetic.

use super::*;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A ring of atomics: the payload of a frame is the rest of its header.
struct Cells {
    words: Vec<AtomicU32>,
    lens: Vec<AtomicU32>,
    args: Vec<AtomicU64>,
}

impl Cells {
    fn new(size: usize) -> Cells {
        let count = size / UNIT;
        Cells {
            words: (0..count).map(|_| AtomicU32::new(0)).collect(),
            lens: (0..count).map(|_| AtomicU32::new(0)).collect(),
            args: (0..count).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Memory for Cells {
    fn word(&self, at: usize, order: Ordering) -> u32 {
        self.words[at / UNIT].load(order)
    }
    fn set_word(&self, at: usize, word: u32, order: Ordering) {
        self.words[at / UNIT].store(word, order);
    }
    fn rest(&self, at: usize) -> (u32, u64) {
        (self.lens[at / UNIT].load(Ordering::Relaxed), self.args[at / UNIT].load(Ordering::Relaxed))
    }
    fn set_rest(&self, at: usize, len: u32, arg: u64) {
        self.lens[at / UNIT].store(len, Ordering::Relaxed);
        self.args[at / UNIT].store(arg, Ordering::Relaxed);
    }
}

/// Producer and consumer at the same time, round the ring and through wrap markers: each frame arrives once, in
/// order, with what was written to it.
#[cfg(loom)]
#[test]
fn every_interleaving_delivers_frames_in_order_and_whole() {
    use loom::sync::Arc;
    // 4 units; a payload of one unit makes frames of 2, so that the ring goes round and positions come back.
    for lens in [[0, 0, 0, 0], [16, 0, 16, 0]] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let shared = Arc::new((Cells::new(4 * UNIT), AtomicU64::new(0)));
            let theirs = shared.clone();
            let producer = loom::thread::spawn(move || {
                let (cells, tail) = &*theirs;
                let mut producer = Producer::new(4 * UNIT);
                for (index, len) in lens.into_iter().enumerate() {
                    loop {
                        if let Some(slot) =
                            producer.reserve_here(cells, len).or_else(|| producer.reserve(cells, len))
                        {
                            producer.publish(cells, slot, 2, 0, index as u64 + 100);
                            break;
                        }
                        producer.credit(tail.load(Ordering::Acquire)).unwrap();
                        loom::thread::yield_now();
                    }
                }
            });
            let (cells, tail) = &*shared;
            let mut consumer = Consumer::new(4 * UNIT);
            for (index, len) in lens.into_iter().enumerate() {
                let frame = loop {
                    match consumer.next(cells).unwrap() {
                        Some(frame) => break frame,
                        None => loom::thread::yield_now(),
                    }
                };
                assert_eq!((frame.arg, frame.len, frame.kind), (index as u64 + 100, len, 2));
                consumer.advance(&frame);
                tail.store(consumer.publish(), Ordering::Release);
            }
            assert_eq!(consumer.next(cells), Ok(None));
            producer.join().unwrap();
        });
    }
}

#[cfg(not(loom))]
mod plain {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 1024;

    #[test]
    fn a_full_ring_takes_nothing_until_something_was_consumed() {
        let (cells, mut producer, mut consumer) =
            (Cells::new(SIZE), Producer::new(SIZE), Consumer::new(SIZE));
        let mut count = 0;
        while let Some(slot) = producer.reserve(&cells, 8) {
            producer.publish(&cells, slot, 2, 3, count);
            count += 1;
        }
        assert_eq!(count, (SIZE / UNIT - 1) as u64 / 2, "one unit stays free for the next header");
        let frame = consumer.next(&cells).unwrap().unwrap();
        assert_eq!((frame.kind, frame.flags, frame.len, frame.arg), (2, 3, 8, 0));
        consumer.advance(&frame);
        assert!(producer.reserve(&cells, 8).is_none(), "not known yet");
        producer.credit(consumer.publish()).unwrap();
        assert!(producer.reserve(&cells, 8).is_some());
    }

    #[test]
    fn the_longest_payload_fits_at_every_position_of_an_empty_ring() {
        for start in 0..SIZE / UNIT {
            let (cells, mut producer, mut consumer) =
                (Cells::new(SIZE), Producer::new(SIZE), Consumer::new(SIZE));
            for _ in 0..start {
                let slot = producer.reserve(&cells, 0).unwrap();
                producer.publish(&cells, slot, 2, 0, 0);
                let frame = consumer.next(&cells).unwrap().unwrap();
                consumer.advance(&frame);
                producer.credit(consumer.publish()).unwrap();
            }
            let longest = SIZE / 2 - 2 * LINE;
            let slot = producer.reserve(&cells, longest).unwrap_or_else(|| panic!("at unit {start}"));
            producer.publish(&cells, slot, 2, 0, 9);
            assert_eq!(consumer.next(&cells).unwrap().unwrap().len, longest);
        }
    }

    #[test]
    fn positions_no_consumer_can_have_are_refused() {
        let (cells, mut producer) = (Cells::new(SIZE), Producer::new(SIZE));
        for _ in 0..3 {
            let slot = producer.reserve(&cells, 0).unwrap();
            producer.publish(&cells, slot, 2, 0, 0);
        }
        assert_eq!(producer.credit(32), Ok(()));
        for wrong in [16, 33, 64, u64::MAX, 1 << 63] {
            assert_eq!(producer.credit(wrong), Err(ProtocolError), "{wrong}");
        }
        assert_eq!(producer.credit(48), Ok(()));
    }

    #[test]
    fn a_wrap_marker_at_the_start_is_refused_and_no_endless_loop() {
        let cells = Cells::new(SIZE);
        cells.set_word(0, MARK | WRAP as u32, Ordering::Relaxed);
        assert_eq!(Consumer::new(SIZE).next(&cells), Err(ProtocolError));
    }

    #[test]
    fn a_ring_that_is_full_of_frames_is_read_once() {
        let cells = Cells::new(SIZE);
        for at in (0..SIZE).step_by(UNIT) {
            cells.set_rest(at, 0, 0);
            cells.set_word(at, MARK | 2, Ordering::Relaxed);
        }
        let mut consumer = Consumer::new(SIZE);
        for _ in 0..=SIZE / UNIT {
            let frame = consumer.next(&cells).unwrap().unwrap();
            consumer.advance(&frame);
        }
        assert_eq!(consumer.next(&cells), Err(ProtocolError), "nobody published a position");
        consumer.publish();
        assert!(consumer.next(&cells).unwrap().is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a queue as the model: any mixture of frames and consumption delivers all, in order, and no
        /// frame lies over one that is not consumed.
        #[test]
        fn a_ring_is_a_queue(steps in prop::collection::vec((any::<bool>(), 0usize..=SIZE / 2 - 2 * LINE), 1..200)) {
            let (cells, mut producer, mut consumer) = (Cells::new(SIZE), Producer::new(SIZE), Consumer::new(SIZE));
            let mut model = std::collections::VecDeque::new();
            for (number, (produce, len)) in steps.into_iter().enumerate() {
                if produce {
                    let here = number % 2 == 0 && len < *ALIGNED.start();
                    let slot = if here { producer.reserve_here(&cells, len) } else { None };
                    if let Some(slot) = slot.or_else(|| producer.reserve(&cells, len)) {
                        let range = slot.at..slot.at + span(slot.at, len);
                        prop_assert!(slot.payload >= slot.at + UNIT && slot.payload + len <= range.end);
                        prop_assert!(!ALIGNED.contains(&len) || slot.payload % LINE == 0);
                        prop_assert!(range.end <= SIZE);
                        for (at, len, _) in &model {
                            prop_assert!(at + span(*at, *len) <= range.start || range.end <= *at);
                        }
                        producer.publish(&cells, slot, 2, number as u8, number as u64);
                        model.push_back((slot.at, len, number));
                    } else {
                        prop_assert!(!model.is_empty(), "an empty ring has room");
                    }
                } else if let Some((at, len, number)) = model.pop_front() {
                    let frame = consumer.next(&cells).unwrap().unwrap();
                    prop_assert_eq!((frame.at, frame.len, frame.arg), (at, len, number as u64));
                    prop_assert_eq!(consumer.next_short(&cells, 2, u8::MAX, 64), (len <= 64).then_some(frame));
                    prop_assert_eq!(consumer.next_short(&cells, 3, u8::MAX, 64), None);
                    prop_assert_eq!(consumer.next_short(&cells, 2, 0, 64).is_some(), number as u8 == 0 && len <= 64);
                    prop_assert_eq!(frame.payload, at + lead(at, len));
                    consumer.advance(&frame);
                    prop_assert_eq!(producer.credit(consumer.publish()), Ok(()));
                } else {
                    prop_assert_eq!(consumer.next(&cells), Ok(None));
                }
            }
        }

        /// A hostile producer writes anything: a frame that is taken lies inside the ring.
        #[test]
        fn garbage_is_refused_or_inside(words in prop::collection::vec((0u32..4, any::<u32>(), any::<u64>()), SIZE / UNIT)) {
            let cells = Cells::new(SIZE);
            for (index, (kind, len, arg)) in words.iter().enumerate() {
                let word = if *kind == 3 { *len } else { MARK | kind };
                cells.set_word(index * UNIT, word, Ordering::Relaxed);
                cells.set_rest(index * UNIT, len % (4 * SIZE as u32), *arg);
            }
            let mut consumer = Consumer::new(SIZE);
            for _ in 0..100 {
                consumer.publish();
                if let Some(frame) = consumer.next_short(&cells, 2, u8::MAX, 64) {
                    prop_assert_eq!(consumer.next(&cells), Ok(Some(frame)));
                }
                match consumer.next(&cells) {
                    Ok(Some(frame)) => {
                        prop_assert!(frame.at + span(frame.at, frame.len) <= SIZE);
                        consumer.advance(&frame);
                    }
                    Ok(None) | Err(ProtocolError) => break,
                }
            }
        }
    }
}
