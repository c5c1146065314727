//! What is said to a device over datagrams: requests at its ports, answers to its own, bells for its channels. Anybody may
//! say anything: nothing is believed unless it fits.

use std::sync::atomic::Ordering;
use std::time::Instant;

use dat_plugin::{Event, EventKind, SockAddr};

use crate::channel::{Chan, Phase, State};
use crate::datagrams::{ASK_AGAIN, Asked, Datagrams, Unanswered, port_of_chan, refusal};
use crate::device::Dev;
use crate::endpoint::Errno;
use crate::flow::Lull;
use crate::frames::{Body, FRAME, Frame};
use crate::port::{PORT_SHIFT, Port};
use crate::wire::{Bell, Hello, Kind, PAYLOAD};

/// Requests that may wait for an answer.
const MAX_REQUESTS: usize = 4096;

impl Datagrams {
    /// Takes the frames that came to a port; how many.
    pub fn take_frames(&self, dev: &Dev, port: &Port) -> usize {
        let mut taken = 0;
        while let Some((index, result)) = port.take_one() {
            self.on_frame_in(dev, index, result);
            taken += 1;
        }
        taken
    }

    pub fn on_frame_in(&self, dev: &Dev, index: u32, result: Result<usize, Errno>) {
        let id = index >> PORT_SHIFT;
        let port = if id == 0 { Some(self.main.clone()) } else { self.ports.lock().get(&id).cloned() };
        let Some(port) = port else { return };
        let index = index & ((1 << PORT_SHIFT) - 1);
        let Some(slot) = port.frames.get(index as usize) else { return };
        match result {
            Ok(len) => {
                // SAFETY: libfabric has handed the slot back, and only this thread takes completions.
                let bytes = unsafe { *slot.bytes.get() };
                self.on_frame(dev, &port, &bytes[..len.min(FRAME)]);
            }
            // Its endpoint is being closed.
            Err(errno) if errno == libc::ECANCELED => return,
            Err(_) => {}
        }
        let open = port.own.lock();
        if open.is_some()
            && let Err(errno) = port.post(index)
        {
            tracing::error!(errno, "a receive for frames is lost");
        }
    }

    /// Somebody said something; nothing of it is believed unless it fits.
    pub fn on_frame(&self, dev: &Dev, port: &Port, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else {
            tracing::warn!("a datagram that is no frame is dropped");
            return;
        };
        if let Body::Hello { name, hello, data } = frame.body
            && hello.kind == Kind::Request
        {
            return self.on_request(dev, port, &frame, (name, hello, data));
        }
        let Some(chan) = dev.chan(frame.to).filter(|chan| chan.secret == frame.secret) else {
            return self.answer_for_the_dead(dev, &frame);
        };
        chan.heard.store(true, Ordering::Relaxed);
        let mut st = chan.lock();
        match frame.body {
            Body::Bell { bell, payload } => chan.on_bell(&mut st, bell, frame.arg, &payload),
            Body::Hello { name, hello, data } => self.on_answer(dev, &chan, &mut st, (name, hello, data)),
        }
    }

    fn on_request(
        &self,
        dev: &Dev,
        port: &Port,
        frame: &Frame<'_>,
        (name, hello, data): (&[u8], Hello, &[u8]),
    ) {
        if self.finder.as_ref().is_some_and(|finder| frame.secret != finder.token) {
            tracing::warn!("a request that was meant for another device is dropped");
            return;
        }
        let (number, place) = match self.named(&dev.fabric, name) {
            Ok(named) => named,
            Err(failure) => {
                tracing::warn!(%failure, "a request from nowhere is dropped");
                return;
            }
        };
        let listens = self.port_for(port, frame);
        let asked = Asked { hello, from: number, port: listens.map_or(0, |(_, port)| port) };
        let Some((user, _)) = listens.filter(|_| self.requests.lock().len() < MAX_REQUESTS) else {
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
        dev.event(None, event);
    }

    fn on_answer(&self, dev: &Dev, chan: &Chan, st: &mut State, (name, hello, data): (&[u8], Hello, &[u8])) {
        if st.phase != Phase::Connecting {
            if hello.kind == Kind::Accept {
                self.turn_down(dev, name, &hello);
            }
            return;
        }
        match hello.kind {
            Kind::Accept => {
                let number = self.named(&dev.fabric, name).ok();
                let (Some((number, _)), Some(link)) = (number, &mut st.link) else {
                    return chan.end(st, EventKind::REFUSED, &[], None);
                };
                link.dest = number;
                self.meet(chan, st, &hello);
                st.owed.up = true;
                chan.came_up(st, data);
                chan.pump(st, Lull::Long);
            }
            Kind::Heard => {
                // The port may be closed before the answer comes; the device itself is there as long as the peer.
                if let Ok((dest, _)) = self.named(&dev.fabric, name) {
                    let next = Instant::now() + ASK_AGAIN;
                    let mut unanswered = self.unanswered.lock();
                    unanswered.retain(|asked| asked.chan != chan.id);
                    unanswered.push(Unanswered { chan: chan.id, dest, next });
                    dev.tick();
                }
            }
            Kind::Reject => chan.end(st, EventKind::REJECTED, data, None),
            Kind::Refuse | Kind::Request => chan.end(st, EventKind::REFUSED, &[], None),
        }
    }

    /// A frame for a channel that is no more: who accepts learns that nobody waits any more.
    fn answer_for_the_dead(&self, dev: &Dev, frame: &Frame<'_>) {
        if let Body::Hello { name, hello, .. } = frame.body
            && hello.kind == Kind::Accept
        {
            self.turn_down(dev, name, &hello);
        }
    }

    fn turn_down(&self, dev: &Dev, name: &[u8], hello: &Hello) {
        if let Ok((dest, _)) = self.named(&dev.fabric, name) {
            let body = Body::Bell { bell: Bell::Bye, payload: [0; PAYLOAD] };
            self.send_soon(dest, &Frame { to: hello.chan, secret: hello.page, arg: 1, body }, 0, None);
            dev.tick();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::params::Params;

    /// A hundred thousand frames that are nearly good reach a device that is open, as if a stranger had sent them: it
    /// stays as it is, and what it keeps of them is bounded.
    #[test]
    fn frames_of_strangers() {
        if libfabric_sys::Library::get().is_err() {
            println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
            assert!(std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_none(), "there is no libfabric");
            return;
        }
        let pairs = [("fabric", "tcp;ofi_rxm"), ("address", "127.0.0.1")];
        let params = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let config = dat_plugin::Config { ia_name: "ofi".into(), params };
        assert_eq!(Params::parse(&config).expect("good").endpoint, crate::params::Endpoint::Rdm);
        let device = crate::FabricDevice::open(&config).expect("a device");
        let dev = device.dev();
        let datagrams = dev.datagrams.as_ref().expect("datagrams");
        let at: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let (port, _) = datagrams.listen(dev, at, 1).expect("a port");
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
        };
        let body = Body::Hello { name: datagrams.name.bytes(), hello, data: b"data" };
        let mut good = [0; FRAME];
        let len = Frame { to: 0, secret: 0, arg: 0, body }.encode(&mut good).expect("fits");
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..100_000 {
            let mut frame = good;
            for _ in 0..3 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Not the address: each other one would be a peer to remember, which has a bound of its own.
                let at = state as usize % len;
                if at < crate::frames::HEAD || at >= crate::frames::HEAD + datagrams.name.bytes().len() {
                    frame[at] = (state >> 32) as u8;
                }
            }
            datagrams.on_frame(dev, &port, &frame[..len]);
            datagrams.waiting.lock().clear();
        }
        let asked = datagrams.requests.lock().len();
        assert!(asked > 0 && asked <= MAX_REQUESTS, "{asked} requests are kept");
        assert!(dev.chans.lock().is_empty());
        datagrams.close_port(dev, Some(&port), 0);
    }
}
