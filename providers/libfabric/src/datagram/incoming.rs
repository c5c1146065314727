//! Frames that arrive at a datagram endpoint: requests at its ports, answers to its own requests, control messages for its
//! channels.

use std::sync::atomic::Ordering;
use std::time::Instant;

use dat_plugin::{Event, EventKind, SockAddr};

use crate::channel::{ChannelInner, Phase, State};
use crate::core::CreditDelay;
use crate::datagram::{Datagrams, PROBE_INTERVAL, PendingRequest, Unanswered, port_of_chan, refusal};
use crate::endpoint::port::{PORT_SHIFT, Port};
use crate::status::{self, Errno};
use crate::wire::control::{Control, PAYLOAD};
use crate::wire::datagram::{Body, FRAME, Frame};
use crate::wire::hello::{Hello, Kind};

/// Most requests that wait for the engine's answer.
const MAX_REQUESTS: usize = 4096;

impl Datagrams {
    /// Takes the frames that arrived at a port; returns how many.
    pub fn take_frames(&self, port: &Port) -> usize {
        let mut taken = 0;
        while let Some((index, result)) = port.take_one() {
            self.on_frame_in(index, result);
            taken += 1;
        }
        taken
    }

    pub fn on_frame_in(&self, index: u32, result: Result<usize, Errno>) {
        let id = index >> PORT_SHIFT;
        let port = if id == 0 { Some(self.main.clone()) } else { self.ports.lock().get(&id).cloned() };
        let Some(port) = port else { return };
        let index = index & ((1 << PORT_SHIFT) - 1);
        let Some(slot) = port.frames.get(index as usize) else { return };
        match result {
            Ok(len) => {
                // SAFETY: libfabric has handed the slot back. This thread holds the lock for reading completions, so no
                // other thread uses the slot.
                let bytes = unsafe { *slot.bytes.get() };
                self.on_frame(&port, &bytes[..len.min(FRAME)]);
            }
            // The endpoint is being closed.
            Err(errno) if errno == libc::ECANCELED => return,
            Err(_) => {}
        }
        if !port.repost(index) {
            self.core.wake.soon();
        }
    }

    /// A frame arrived. Anybody can send one, so only its contents decide what is believed.
    pub fn on_frame(&self, port: &Port, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else {
            tracing::warn!("a malformed frame is dropped");
            return;
        };
        if let Body::Hello { name, hello, data } = frame.body
            && hello.kind == Kind::Request
        {
            return self.on_request(port, &frame, (name, hello, data));
        }
        let Some(chan) = self.channels.get(frame.to).filter(|chan| chan.secret == frame.secret) else {
            return self.on_frame_for_no_channel(&frame);
        };
        chan.heard.store(true, Ordering::Relaxed);
        let mut st = chan.lock();
        match frame.body {
            Body::Control { control, payload } => chan.on_control(&mut st, control, frame.arg, &payload),
            Body::Hello { name, hello, data } => self.on_answer(&chan, &mut st, (name, hello, data)),
        }
    }

    fn on_request(&self, port: &Port, frame: &Frame<'_>, (name, hello, data): (&[u8], Hello, &[u8])) {
        if self.discovery.as_ref().is_some_and(|discovery| frame.secret != discovery.token) {
            tracing::warn!("a request for another device is dropped");
            return;
        }
        // Anybody can send a request with any address in it. So an address enters the table only with a request that
        // can be handed to the application, and the number of refusals sent to such addresses is limited.
        let listens = self.listener_for(port, frame, hello.quotient);
        let accepted = listens.filter(|_| self.requests.lock().len() < MAX_REQUESTS);
        if accepted.is_none() && !self.refusals.lock().allow(Instant::now()) {
            tracing::warn!("a request that cannot be accepted is dropped: too many refusals are being sent");
            return;
        }
        // An answer makes libfabric connect to the address in the request, which nothing has confirmed.
        if !self.is_known(name) && !self.newcomers.lock().allow(Instant::now()) {
            tracing::warn!("a request of an unknown address is dropped: too many of them arrive");
            return;
        }
        let (number, place) = match self.named(name) {
            Ok(named) => named,
            Err(failure) => {
                tracing::warn!(%failure, "a request with a bad address is dropped");
                return;
            }
        };
        let asked = PendingRequest { hello, from: number, port: listens.map_or(0, |(_, port)| port) };
        let Some((user, _)) = accepted else {
            return self.answer(&asked, refusal(Kind::Refuse), &[], 0);
        };
        let request = self.next_request.fetch_add(1, Ordering::Relaxed) + 1;
        let mut event = Event::new(EventKind::REQUEST, user).with_data(data);
        event.request = request;
        event.port = asked.port;
        event.qos = hello.qos;
        event.peer = place.map_or(SockAddr::UNSPECIFIED, |place| SockAddr::from(place.ip()));
        event.peer_port = port_of_chan(hello.chan);
        self.answer(&asked, refusal(Kind::Heard), &[], 0);
        self.requests.lock().insert(request, asked);
        self.core.event(None, event);
    }

    fn on_answer(&self, chan: &ChannelInner, st: &mut State, (name, hello, data): (&[u8], Hello, &[u8])) {
        if st.phase != Phase::Connecting {
            if hello.kind == Kind::Accept {
                self.close_accepted(name, &hello);
            }
            return;
        }
        match hello.kind {
            Kind::Accept => {
                let number = self.named(name).ok();
                let (Some((number, _)), Some(link)) = (number, &mut st.link) else {
                    return chan.end(st, EventKind::REFUSED, &[], None);
                };
                link.dest = number.number;
                st.peer_address = Some(number);
                self.set_peer(chan, st, &hello);
                st.pending.connected = true;
                chan.establish(st, data);
                chan.progress(st, CreditDelay::None);
            }
            Kind::Heard => {
                // The peer may close the port before it answers. From now on its own endpoint is probed.
                if let Ok((dest, _)) = self.named(name) {
                    let next = Instant::now() + PROBE_INTERVAL;
                    let mut unanswered = self.unanswered.lock();
                    unanswered.retain(|asked| asked.chan != chan.id);
                    unanswered.push(Unanswered { chan: chan.id, dest, next });
                    self.core.wake.soon();
                }
            }
            Kind::Reject => chan.end(st, EventKind::REJECTED, data, None),
            Kind::Refuse | Kind::Request => chan.end(st, EventKind::REFUSED, &[], None),
        }
    }

    /// A frame for a channel that is gone. A peer that accepts must learn that the connection is over.
    fn on_frame_for_no_channel(&self, frame: &Frame<'_>) {
        if let Body::Hello { name, hello, .. } = frame.body
            && hello.kind == Kind::Accept
        {
            self.close_accepted(name, &hello);
        }
    }

    fn close_accepted(&self, name: &[u8], hello: &Hello) {
        if !self.refusals.lock().allow(Instant::now()) {
            return;
        }
        if let Ok((dest, _)) = self.named(name) {
            let body = Body::Control { control: Control::Close, payload: [0; PAYLOAD] };
            self.outbox.queue(&dest, &Frame { to: hello.chan, secret: hello.page, arg: 1, body }, 0, None);
            self.core.wake.soon();
        }
    }

    /// Sends what waits; returns how many frames libfabric took.
    pub fn send_waiting(&self) -> usize {
        let (taken, failed) = self.outbox.flush(|chan| self.channels.get(chan).is_some());
        for (chan, errno) in failed {
            let error = self.core.fabric.library.strerror(errno.abs());
            tracing::debug!(%error, chan, "a frame cannot be delivered");
            self.on_undeliverable(chan, errno);
        }
        if !self.outbox.is_idle() {
            self.core.wake.soon();
        }
        taken
    }

    /// libfabric has finished an outgoing frame.
    pub fn on_frame_out(&self, index: u32, error: Option<Errno>) {
        let chan = self.outbox.on_sent(index);
        if let Some(errno) = error {
            self.on_undeliverable(chan, errno);
        }
    }

    /// A frame of this channel, if it is not 0, could not be delivered.
    pub fn on_undeliverable(&self, chan: u32, errno: Errno) {
        let Some(chan) = self.channels.get(chan) else { return };
        let mut st = chan.lock();
        let kind = match st.phase {
            Phase::Connecting => status::of_connect(errno),
            _ => EventKind::BROKEN,
        };
        chan.end(&mut st, kind, &[], None);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::sync::Arc;

    use dat_kit::Qualifier;

    use super::*;
    use crate::datagram::MAX_NEWCOMERS;
    use crate::endpoint::outbox::MAX_ANSWERS;
    use crate::testing::device;
    use crate::wire::datagram::HEAD;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A hundred thousand nearly valid frames of a stranger: the device survives them, and keeps a bounded amount.
    #[test]
    fn frames_of_strangers() {
        let Some(device) = device(&[("fabric", "tcp;ofi_rxm"), ("address", "127.0.0.1")]) else { return };
        let datagrams = device.inner().datagrams.as_ref().expect("datagrams");
        let (port, _) = datagrams.listen(LOCAL, Qualifier::new(0), 1).expect("a port");
        let port = port.expect("an endpoint");
        let hello = Hello {
            kind: Kind::Request,
            chan: 1,
            qos: 0,
            posted: 1,
            room: 9,
            page: 5,
            key: 0,
            shared: false,
            quotient: 0,
        };
        let body = Body::Hello { name: datagrams.address.bytes(), hello, data: b"data" };
        let mut good = [0; FRAME];
        let len = Frame { to: 0, secret: 0, arg: 0, body }.encode(&mut good).expect("fits");
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let mut frame = good;
            for _ in 0..3 {
                // Not the address: a test of its own covers that.
                let at = rng.usize(..len);
                if at < HEAD || at >= HEAD + datagrams.address.bytes().len() {
                    frame[at] = rng.u8(..);
                }
            }
            datagrams.on_frame(&port, &frame[..len]);
            datagrams.outbox.take_waiting();
        }
        let asked = datagrams.requests.lock().len();
        assert!(asked > 0 && asked <= MAX_REQUESTS, "{asked} requests are kept");
        assert!(device.inner().channels.is_empty());
        datagrams.close_port(Some(&port), 0);
    }

    fn listening() -> Option<(crate::FabricDevice, Arc<Port>)> {
        let device = device(&[("fabric", "tcp;ofi_rxm"), ("address", "127.0.0.1")])?;
        let datagrams = device.inner().datagrams.as_ref().expect("datagrams");
        let (port, _) = datagrams.listen(LOCAL, Qualifier::new(0), 1).expect("a port");
        Some((device, port.expect("an endpoint")))
    }

    /// Requests that cannot be accepted, each from another made-up address, leave the address table nearly empty and few
    /// refusals behind: no sender can fill the table, or make this device connect to any host without limit.
    #[test]
    fn made_up_addresses_do_not_enter_the_table() {
        let Some((device, _port)) = listening() else { return };
        let datagrams = device.inner().datagrams.as_ref().expect("datagrams");
        // The device's own endpoint accepts no connections.
        let main = datagrams.main.clone();
        let hello = Hello { chan: 1, page: 5, kind: Kind::Request, ..refusal(Kind::Request) };
        for number in 0..20_000u32 {
            let at = SocketAddr::from(([127, 1, (number >> 8) as u8, number as u8], 1 + number as u16));
            let name = crate::address::Raw::from(at);
            let body = Body::Hello { name: name.bytes(), hello, data: b"" };
            let mut bytes = [0; FRAME];
            let len = Frame { to: 0, secret: 0, arg: 0, body }.encode(&mut bytes).expect("fits");
            datagrams.on_frame(&main, &bytes[..len]);
        }
        let (peers, waiting) = (datagrams.peers.len(), datagrams.outbox.take_waiting().len());
        // The limit is for each second; twenty are more than this takes.
        let most = 20 * crate::datagram::MAX_REFUSALS as usize;
        assert!(peers <= most && waiting <= most, "{peers} peers and {waiting} frames are kept");
    }

    /// The same at a port where an application answers each request at once, so that no request waits.
    #[test]
    fn requests_of_made_up_addresses_that_are_answered_are_limited() {
        let Some((device, port)) = listening() else { return };
        let datagrams = device.inner().datagrams.as_ref().expect("datagrams");
        let hello = Hello { chan: 1, page: 5, kind: Kind::Request, ..refusal(Kind::Request) };
        let (mut answered, mut seconds) = (0, 1);
        let start = Instant::now();
        for number in 0..40 * MAX_NEWCOMERS {
            let at = SocketAddr::from(([127, 2, (number >> 8) as u8, number as u8], 1 + number as u16));
            let name = crate::address::Raw::from(at);
            let body = Body::Hello { name: name.bytes(), hello, data: b"" };
            let mut bytes = [0; FRAME];
            let len = Frame { to: 0, secret: 0, arg: 0, body }.encode(&mut bytes).expect("fits");
            datagrams.on_frame(&port, &bytes[..len]);
            let asked: Vec<u64> = datagrams.requests.lock().keys().copied().collect();
            for request in asked {
                answered += 1;
                datagrams.reject(request, Kind::Reject, b"");
            }
            datagrams.outbox.take_waiting();
            seconds = start.elapsed().as_secs() + 2;
        }
        let most = seconds * u64::from(MAX_NEWCOMERS);
        assert!(answered > 0 && answered <= most, "{answered} were answered in {seconds} s");
    }

    #[test]
    fn answers_to_strangers_that_libfabric_does_not_take_are_bounded() {
        let Some((device, _port)) = listening() else { return };
        let datagrams = device.inner().datagrams.as_ref().expect("datagrams");
        let at: SocketAddr = "127.0.0.1:1".parse().expect("an address");
        let dest = datagrams.peers.get(&crate::address::Raw::from(at), None).expect("room");
        let body = Body::Control { control: Control::Close, payload: [0; PAYLOAD] };
        datagrams.outbox.queue(&dest, &Frame { to: 9, secret: 9, arg: 1, body }, 0, None);
        for _ in 0..2 * MAX_ANSWERS {
            let body = Body::Hello { name: b"x", hello: refusal(Kind::Refuse), data: b"" };
            datagrams.outbox.queue(&dest, &Frame { to: 1, secret: 2, arg: 0, body }, 0, None);
        }
        let waiting = datagrams.outbox.take_waiting();
        assert_eq!(waiting.len(), MAX_ANSWERS);
        assert!(!waiting[0], "refusals are dropped first");
    }

    #[test]
    fn a_receive_that_libfabric_does_not_take_back_is_posted_later() {
        let Some((device, port)) = listening() else { return };
        let datagrams = device.inner().datagrams.as_ref().expect("datagrams");
        port.failing_posts.store(2, Ordering::Relaxed);
        // Two frames that could not be read: their receives go back.
        for index in 0..2 {
            datagrams.on_frame_in(port.id << PORT_SHIFT | index, Err(libc::EIO));
        }
        assert_eq!(port.unposted(), 2);
        datagrams.service();
        assert_eq!(port.unposted(), 0, "they are posted again");
    }
}
