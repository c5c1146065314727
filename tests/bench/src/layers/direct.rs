//! The provider's own methods, statically linked: no tables, no engine.

use std::sync::Arc;

use dat_plugin::{
    Access, Channel, Completion, ConnectParam, Device, Event, EventKind, Listener, Opcode, Provider, Queue,
    RecvRequest, Request, Segment,
};
use dat_shm::Shm;

use super::layer::{BATCH, Layer, channel_attr, config, until};

type Dev = <Shm as Provider>::Device;
type Chan = <Dev as Device>::Channel;
type Que = <Dev as Device>::Queue;

pub(crate) struct Direct {
    channels: [Arc<Chan>; 2],
    queues: [Arc<Que>; 2],
    segments: [Segment; 2],
    token: [u64; 2],
    _devices: [Arc<Dev>; 2],
}

impl Direct {
    pub(crate) fn new() -> Direct {
        let devices = [0; 2].map(|_| Shm::open(&config("direct")).expect("the provider opens"));
        let queues = [0, 1].map(|i: usize| devices[i].open_queue(4 * BATCH as u32).expect("a queue"));
        let channels = [0, 1].map(|i: usize| {
            devices[i]
                .open_channel(&channel_attr(i as u64 + 1), Some(&queues[i]), Some(&queues[i]))
                .expect("a channel")
        });
        let segments = [0, 1].map(|i: usize| {
            let memory = Box::leak(Box::new([0u8; 4096]));
            let addr = memory.as_ptr() as u64;
            let access = Access::LOCAL_READ | Access::LOCAL_WRITE;
            let keys = devices[i].register(addr, 4096, access, 1).expect("a registration");
            // SAFETY: eight bytes of the registered memory, which is never freed.
            unsafe { Segment::from_parts(addr, 8, keys.lkey) }
        });
        let listener = devices[1].listen(0, 9).expect("a listener");
        let param =
            ConnectParam { addr: devices[1].attr().address, port: listener.port(), qos: 0, data: &[] };
        channels[0].connect(&param).expect("a connect");
        let mut events = [Event::new(EventKind(0), 0); 8];
        let mut established = 0;
        until("a direct connection", || {
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
        Direct { channels, queues, segments, token: [0; 2], _devices: devices }
    }

    fn take(&self, side: usize) {
        let mut left = BATCH;
        let mut out = [Completion::default(); 1];
        while left > 0 {
            left -= self.queues[side].poll(&mut out);
        }
    }
}

impl Layer for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn post_recvs(&mut self) {
        for _ in 0..BATCH {
            // SAFETY: the segment outlives the call.
            let request =
                unsafe { RecvRequest::from_parts(self.token[1], std::slice::from_ref(&self.segments[1])) };
            assert!(self.channels[1].post_recv(&request).0 >= 0);
            self.token[1] += 1;
        }
    }

    fn post_sends(&mut self) {
        for _ in 0..BATCH {
            let segments = std::slice::from_ref(&self.segments[0]);
            // SAFETY: the segment outlives the call.
            let request = unsafe { Request::from_parts(Opcode::SEND, self.token[0], segments) };
            assert!(self.channels[0].post(&request).0 >= 0);
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
}
