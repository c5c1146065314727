//! Two devices and the connections between them, without the engine.

use std::sync::Arc;

use dat_plugin::host::{Channel, Device, Memory, Queue, Remote, SpanTable};
use dat_plugin::{Access, ChannelAttr, Completion, ConnectParam, Event, EventKind, Opcode, PostFlag, Status};

use crate::clauses::prelude::*;

pub(super) const ALL: Access = Access(0x33);

/// One end: a device, its queues, a channel, registered memory.
pub(super) struct End {
    pub(super) channel: Channel,
    pub(super) sends: Arc<Queue>,
    pub(super) recvs: Arc<Queue>,
    pub(super) spans: SpanTable,
    pub(super) context: u32,
    pub(super) memory: Memory,
    pub(super) device: Device,
    pub(super) user: u64,
}

pub(super) const DOMAIN: u32 = 5;

pub(super) const ROOM: u64 = 4096;

impl End {
    pub(super) fn new(device: &Device, user: u64) -> Result<End, Stop> {
        let queue = || device.open_queue(64).map(Arc::new).map_err(unexpected);
        let (sends, recvs) = (queue()?, queue()?);
        let channel =
            device.open_channel(&attr(user), Some(&sends), Some(&recvs), None).map_err(unexpected)?;
        let memory = Memory::heap(ROOM as usize);
        let registration = device.register(memory.clone(), ALL, DOMAIN).map_err(unexpected)?;
        let spans = SpanTable::new();
        let Ok(context) = spans.insert(registration) else { return fail("the table of regions is full") };
        Ok(End { channel, sends, recvs, spans, context, memory, device: device.clone(), user })
    }

    pub(super) fn send(&self, token: u64, len: u32) -> Status {
        let Ok(segment) = self.segment(len, Access::LOCAL_READ) else { return Status::INVALID };
        let remote = Remote::default();
        self.channel.post(Opcode::SEND, PostFlag::NONE, token, &[segment], len.into(), remote)
    }

    pub(super) fn recv(&self, token: u64, len: u32) -> Status {
        let Ok(segment) = self.segment(len, Access::LOCAL_WRITE) else { return Status::INVALID };
        self.channel.post_recv(PostFlag::NONE, token, &[segment], len.into())
    }

    pub(super) fn segment(&self, len: u32, access: Access) -> Result<dat_plugin::Segment, Stop> {
        let segment = self.spans.segment(self.context, self.memory.addr(), len, DOMAIN, access);
        segment.map_err(|error| Stop::Failed(format!("a segment of registered memory: {error:?}")))
    }

    /// The next event of the device.
    pub(super) fn event(&self, t: &TestContext, what: &str) -> Result<Event, Stop> {
        next_event(t, &self.device, what)
    }

    pub(super) fn expect_event(&self, t: &TestContext, kind: EventKind) -> Result<Event, Stop> {
        let event = self.event(t, &format!("{kind:?}"))?;
        ensure_eq("event (kind, user)", (event.kind, event.user), (kind, self.user))?;
        Ok(event)
    }
}

pub(super) fn attr(user: u64) -> ChannelAttr {
    ChannelAttr {
        user,
        send_user: user + 1,
        recv_user: user + 2,
        domain: DOMAIN,
        max_requests: 8,
        max_recvs: 8,
        max_request_segments: 2,
        max_recv_segments: 2,
        max_reads_out: 1,
        max_reads_in: 1,
        reserved: 0,
        max_message: ROOM,
    }
}

pub(super) fn unexpected(failure: dat_plugin::Failure) -> Stop {
    Stop::Failed(format!("a call that should succeed gave {failure}"))
}

/// A call that must fail with one of these, saying why.
pub(super) fn refused<T>(what: &str, result: Result<T, dat_plugin::Failure>, want: &[Status]) -> Outcome {
    match result {
        Ok(_) => fail(format!("{what}: succeeded instead of {want:?}")),
        Err(failure) if !want.contains(&failure.status) => {
            fail(format!("{what}: {failure} instead of {want:?}"))
        }
        Err(failure) => ensure(!failure.message.is_empty(), format!("{what}: refused without a sentence")),
    }
}

pub(super) fn next_event(t: &TestContext, device: &Device, what: &str) -> Result<Event, Stop> {
    let mut out = [Event::new(EventKind(0), 0)];
    t.until(&format!("an event of the provider: {what}"), || Ok(device.poll_events(&mut out) == 1))?;
    Ok(out[0])
}

/// The next completion of `queue`. Devices are polled meanwhile, as the engine's thread does: they make progress for their
/// peers, also when the peers' own queues are not polled.
pub(super) fn completion(t: &TestContext, queue: &Queue, devices: [&Device; 2]) -> Result<Completion, Stop> {
    let mut out = [Completion::default()];
    t.until("a completion of the provider", || {
        for device in devices {
            progress(device)?;
        }
        Ok(queue.poll(&mut out) == 1)
    })?;
    Ok(out[0])
}

/// Polls a device that has nothing to tell.
pub(super) fn progress(device: &Device) -> Outcome {
    let mut out = [Event::new(EventKind(0), 0)];
    match device.poll_events(&mut out) {
        0 => Ok(()),
        _ => fail(format!("an event that should not be there: {:?}", out[0])),
    }
}

/// Two devices and a connection between them.
pub(super) fn connected(t: &TestContext) -> Result<(End, End), Stop> {
    let (a, b) = (End::new(&t.subject.device()?, 100)?, End::new(&t.subject.device()?, 200)?);
    let listener = b.device.listen(0, 9).map_err(unexpected)?;
    let address = b.device.attr().address;
    let param = ConnectParam { addr: address, port: listener.port(), qos: 0, data: b"from a" };
    a.channel.connect(&param).map_err(unexpected)?;
    // Its request may leave the active end when that is polled, as the engine's thread does.
    let mut request = Event::new(EventKind(0), 0);
    t.until("an event of the provider: a connection request", || {
        progress(&a.device)?;
        Ok(b.device.poll_events(std::slice::from_mut(&mut request)) == 1)
    })?;
    ensure_eq("request (kind, user)", (request.kind, request.user), (EventKind::REQUEST, 9))?;
    ensure_eq("private data of the request", request.data(), b"from a")?;
    b.channel.accept(request.request, b"from b").map_err(unexpected)?;
    // A provider may have the passive end go on only when the active one is polled.
    let mut arrived = [None, None];
    t.until("both ends to be connected", || {
        for (end, arrived) in [&a, &b].into_iter().zip(&mut arrived) {
            let mut out = [Event::new(EventKind(0), 0)];
            if end.device.poll_events(&mut out) == 1 {
                *arrived = Some(out[0]);
            }
        }
        Ok(arrived.iter().all(Option::is_some))
    })?;
    for (end, arrived) in [&a, &b].into_iter().zip(arrived) {
        let seen = arrived.map(|event| (event.kind, event.user));
        ensure_eq("event (kind, user)", seen, Some((EventKind::ESTABLISHED, end.user)))?;
    }
    ensure_eq(
        "private data of the accept",
        arrived[0].as_ref().map(|event| event.data().to_vec()),
        Some(b"from b".into()),
    )?;
    Ok((a, b))
}

/// Disconnects and waits until the channel has stopped.
pub(super) fn stop(t: &TestContext, end: &End) -> Outcome {
    match end.channel.disconnect() {
        Status::PENDING => end.expect_event(t, EventKind::DISCONNECTED).map(|_| ()),
        status => ensure_eq("disconnect", status, Status::OK),
    }
}
