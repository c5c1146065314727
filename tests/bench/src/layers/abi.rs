//! The provider behind the plugin tables, as the engine calls it.

use std::sync::Arc;

use dat_plugin::host::{Channel, Device, Memory, Plugin, Queue, Remote, SpanTable};
use dat_plugin::{Access, Completion, Config, ConnectParam, Event, EventKind, Opcode, PostFlag, Segment};

use super::layer::{BATCH, Layer, channel_attr, until};

pub(crate) struct Abi {
    channels: [Channel; 2],
    queues: [Arc<Queue>; 2],
    segments: [Segment; 2],
    token: [u64; 2],
    _spans: SpanTable,
}

impl Abi {
    pub(crate) fn new(plugin: &Plugin, config: &Config) -> Abi {
        let devices: [Device; 2] = [0; 2].map(|_| plugin.open(config).expect("the provider opens"));
        let queues =
            [0, 1].map(|i: usize| Arc::new(devices[i].open_queue(4 * BATCH as u32).expect("a queue")));
        let channels = [0, 1].map(|i: usize| {
            devices[i]
                .open_channel(&channel_attr(i as u64 + 1), Some(&queues[i]), Some(&queues[i]), None)
                .expect("a channel")
        });
        let spans = SpanTable::new();
        let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let segments = [0, 1].map(|i: usize| {
            let memory = Memory::heap(4096);
            let addr = memory.addr();
            let registration = devices[i].register(memory, access, 1).expect("a registration");
            let context = spans.insert(registration).unwrap_or_else(|_| panic!("no room"));
            spans.segment(context, addr, 8, 1, access).expect("a segment")
        });
        let listener = devices[1].listen(0, 9).expect("a listener");
        let param =
            ConnectParam { addr: devices[1].attr().address, port: listener.port(), qos: 0, data: &[] };
        channels[0].connect(&param).expect("a connect");
        let mut events = [Event::new(EventKind(0), 0); 8];
        let mut established = 0;
        until("a connection behind the tables", || {
            for device in &devices {
                let n = device.poll_events(&mut events);
                for event in &events[..n] {
                    match event.kind {
                        EventKind::REQUEST => channels[1].accept(event.request, &[]).expect("an accept"),
                        EventKind::ESTABLISHED => established += 1,
                        other => panic!("{other:?} while connecting"),
                    }
                }
            }
            established == 2
        });
        Abi { channels, queues, segments, token: [0; 2], _spans: spans }
    }

    fn take(&self, side: usize) {
        let mut left = BATCH;
        let mut out = [Completion::default(); 1];
        while left > 0 {
            left -= self.queues[side].poll(&mut out);
        }
    }
}

impl Layer for Abi {
    fn name(&self) -> &'static str {
        "abi"
    }

    fn post_recvs(&mut self) {
        for _ in 0..BATCH {
            let segments = std::slice::from_ref(&self.segments[1]);
            let status = self.channels[1].post_recv(PostFlag::NONE, self.token[1], segments, 8);
            assert!(status.0 >= 0);
            self.token[1] += 1;
        }
    }

    fn post_sends(&mut self) {
        for _ in 0..BATCH {
            let segments = std::slice::from_ref(&self.segments[0]);
            let status = self.channels[0].post(
                Opcode::SEND,
                PostFlag::NONE,
                self.token[0],
                segments,
                8,
                Remote::default(),
            );
            assert!(status.0 >= 0);
            self.token[0] += 1;
        }
    }

    fn take_recvs(&mut self) {
        self.take(1);
    }

    fn take_sends(&mut self) {
        self.take(0);
    }

    fn poll_nothing(&mut self) {
        let mut out = [Completion::default(); 1];
        for _ in 0..BATCH {
            assert_eq!(self.queues[1].poll(&mut out), 0);
        }
    }

    fn idle(&mut self, side: usize) {
        assert_eq!(self.queues[side].poll(&mut [Completion::default(); 1]), 0);
    }
}
