//! What the fuzzer calls: the decoders, the lookup protocol, and frames that arrive at channels and ports.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "not part of the interface")]

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use dat_plugin::feed::Feed;
use dat_plugin::{ChannelAttr, Config, ConnectParam, SockAddr};

use crate::FabricDevice;
use crate::address::Raw;
use crate::channel::ring::{Recv, RecvStage};
use crate::channel::{ChannelInner, Phase};
use crate::datagram::Datagrams;
use crate::discovery::protocol::{Partial, QUESTION, is_question, read_name};
use crate::endpoint::context::Seg;
use crate::endpoint::port::Port;
use crate::wire::control::{Control, CreditState, PAYLOAD, Resolved, decode_doorbell, doorbell};
use crate::wire::datagram::{Body, FRAME, Frame, MAX_NAME};
use crate::wire::head::Head;
use crate::wire::hello::{Hello, Kind};
use crate::wire::message::MessageInfo;

/// Each decoder: what is read encodes to what was read, as far as nothing is reserved.
pub fn wire(bytes: &[u8]) {
    if let Some((hello, data)) = Hello::decode(bytes) {
        let mut out = Vec::new();
        hello.encode(data, &mut out);
        assert_eq!(out, bytes[..out.len()]);
    }
    if let Some((hello, data)) = Hello::decode_short(bytes) {
        let mut out = Vec::new();
        hello.encode_short(data, &mut out);
        assert_eq!(out, bytes[..out.len()]);
    }
    if let Some(frame) = Frame::decode(bytes) {
        let mut out = [0; FRAME];
        let len = frame.encode(&mut out).expect("what was a frame fits one");
        assert_eq!(Frame::decode(&out[..len]), Some(frame));
    }
    if let Some(head) = Head::decode(bytes) {
        assert_eq!(head.encode(), bytes);
    }
    let mut feed = Feed(bytes);
    let data = feed.u64();
    if let Some((control, chan, arg)) = decode_doorbell(data) {
        assert_eq!(doorbell(control, chan, arg), data);
    }
    let _ = MessageInfo::decode(data).encode();
    let mut page = [0; PAYLOAD];
    let some = feed.bytes(PAYLOAD);
    page[..some.len()].copy_from_slice(some);
    let _ = CreditState::decode(&page);
    let resolved = Resolved::decode(&page);
    assert_eq!(resolved.encode(), page);
    let (addr, len) = (feed.edge(), feed.edge());
    if resolved.locate(addr, len, 2).is_some() {
        assert!(u128::from(addr) + u128::from(len) <= u128::from(resolved.addr) + u128::from(resolved.len));
    }
}

/// An answer in pieces, a question, a name.
pub fn finder(bytes: &[u8]) {
    let mut whole = false;
    for len in 0..=bytes.len().min(256) {
        match Partial::of(&bytes[..len]) {
            Partial::More => assert!(!whole),
            Partial::Whole(answer) => {
                whole = true;
                let encoded = answer.encode();
                assert!(matches!(Partial::of(&encoded), Partial::Whole(_)));
                assert_eq!(encoded.len() > len, false);
            }
            Partial::Invalid(_) => break,
        }
    }
    if let Some(question) = bytes.first_chunk::<{ QUESTION.len() }>() {
        assert_eq!(is_question(question), question[..4] == QUESTION[..4]);
    }
    if let Some((_, address)) = read_name(bytes) {
        assert!(address.bytes().len() < bytes.len());
    }
}

fn device(pairs: &[(&str, &str)]) -> FabricDevice {
    let params = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    FabricDevice::open(&Config { ia_name: "ofi".into(), params }).expect("libfabric and a device")
}

fn channel(device: &FabricDevice) -> Arc<ChannelInner> {
    let attr = ChannelAttr { max_requests: 4, max_recvs: 4, ..ChannelAttr::default() };
    device.inner().channels.create(&attr, [None, None], None).expect("a channel")
}

/// Frames at a connected endpoint, or datagrams at a port.
pub fn frames(bytes: &[u8]) {
    let mut feed = Feed(bytes);
    let device = if feed.flag() { framed(&mut feed) } else { datagrams(&mut feed) };
    // Nobody else takes them.
    device.inner().core.events.lock().clear();
}

const ROOM: usize = 64;

/// A connected channel with receives, and frames in any order. Nothing lands beside a receive.
fn framed(feed: &mut Feed<'_>) -> &'static FabricDevice {
    static DEVICE: OnceLock<FabricDevice> = OnceLock::new();
    let device =
        DEVICE.get_or_init(|| device(&[("fabric", "tcp"), ("address", "127.0.0.1"), ("frames", "on")]));
    let chan = channel(device);
    let mut memory = [0xAAu8; 3 * ROOM];
    {
        let mut st = chan.lock();
        st.phase = feed.pick(&[Phase::Connected, Phase::Accepting, Phase::Idle]);
        for _ in 0..feed.u8() % 4 {
            let at = feed.u8() as usize % ROOM;
            let len = 1 + feed.u8() as u32 % (ROOM - at) as u32;
            let seg = Seg { addr: memory.as_mut_ptr() as u64 + (ROOM + at) as u64, len, lkey: 0 };
            assert!(st.recvs.push(Recv { len, stage: RecvStage::Posted, ..Default::default() }, &[seg]));
        }
        st.recvs.next = st.recvs.tail;
        while !feed.is_empty() {
            let info = feed.u64();
            let head = match feed.u8() % 4 {
                0 | 1 => Head::Message { len: feed.edge() as u32, info }.encode(),
                2 => {
                    let control = Control::of(1 + feed.u8() % 13).expect("a number");
                    Head::Control { control, arg: feed.edge() as u32 }.encode()
                }
                _ => {
                    let mut any = [0; Head::SIZE];
                    let some = feed.bytes(Head::SIZE);
                    any[..some.len()].copy_from_slice(some);
                    any
                }
            };
            let len = feed.u8() as usize % (2 * ROOM);
            let body = feed.bytes(len);
            let slot = &chan.frames.as_ref().expect("frames").inward[0];
            // SAFETY: nothing is posted, so only this thread uses the slot.
            let place = unsafe { &mut *slot.bytes.get() };
            place[..Head::SIZE].copy_from_slice(&head);
            place[Head::SIZE..][..body.len()].copy_from_slice(body);
            chan.on_frame_in(
                &mut st,
                0,
                Ok(if feed.u8() == 1 { body.len() } else { Head::SIZE + body.len() }),
            );
        }
        st.phase = Phase::Stopped;
    }
    assert!(memory[..ROOM].iter().chain(&memory[2 * ROOM..]).all(|byte| *byte == 0xAA));
    device.inner().channels.remove(chan.id);
    device
}

struct Rdm {
    device: FabricDevice,
    port: Arc<Port>,
}

fn rdm() -> &'static Rdm {
    static RDM: OnceLock<Rdm> = OnceLock::new();
    RDM.get_or_init(|| {
        let device = device(&[("fabric", "tcp;ofi_rxm"), ("address", "127.0.0.1")]);
        let at: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let (port, _) = device
            .inner()
            .datagrams
            .as_ref()
            .expect("datagrams")
            .listen(at.ip(), dat_kit::Qualifier::new(0), 1)
            .expect("a port");
        Rdm { device, port: port.expect("an endpoint") }
    })
}

/// Frames of a stranger, some with the secret of a channel that connects or accepts.
fn datagrams(feed: &mut Feed<'_>) -> &'static FabricDevice {
    let Rdm { device, port } = rdm();
    let datagrams: &Datagrams = device.inner().datagrams.as_ref().expect("datagrams");
    let chan = channel(device);
    let nobody: SocketAddr = "127.0.0.1:9".parse().expect("an address");
    if feed.flag() {
        let param = ConnectParam { addr: SockAddr::from(nobody), port: 9, qos: 0, data: b"" };
        datagrams.connect(&chan, &mut chan.lock(), nobody, &param).expect("begins");
    }
    while !feed.is_empty() {
        let mut bytes = [0; FRAME];
        let len = match feed.u8() % 8 {
            0 => {
                let len = feed.u8() as usize * 2;
                let some = feed.bytes(len);
                bytes[..some.len()].copy_from_slice(some);
                some.len()
            }
            1 => {
                let asked: Option<u64> = datagrams.requests.lock().keys().next().copied();
                if let Some(asked) = asked
                    && chan.lock().phase == Phase::Idle
                {
                    let _ = datagrams.accept(&chan, &mut chan.lock(), asked, b"yes");
                }
                0
            }
            choice => {
                let (to, secret) = match feed.u8() % 4 {
                    0 => (0, 0),
                    1 => (chan.id, feed.u64()),
                    _ => (chan.id, chan.secret),
                };
                let mut name = [0; MAX_NAME];
                let at = Raw::from(nobody);
                let name = if feed.u8().is_multiple_of(8) {
                    let some = feed.bytes(28);
                    name[..some.len()].copy_from_slice(some);
                    &name[..some.len()]
                } else {
                    at.bytes()
                };
                let mut payload = [0; PAYLOAD];
                let body = if choice < 5 && to != 0 {
                    let control = Control::of(1 + feed.u8() % 13).expect("a number");
                    let some = feed.bytes(PAYLOAD);
                    payload[..some.len()].copy_from_slice(some);
                    Body::Control { control, payload }
                } else {
                    let kinds = [Kind::Accept, Kind::Reject, Kind::Refuse, Kind::Heard];
                    let kind = if to == 0 { Kind::Request } else { feed.pick(&kinds) };
                    let hello = Hello {
                        kind,
                        chan: feed.edge() as u32,
                        qos: 0,
                        posted: feed.edge() as u32,
                        room: feed.edge() as u32,
                        page: feed.edge(),
                        key: feed.edge(),
                        shared: feed.flag(),
                        quotient: if kind == Kind::Request && feed.flag() { feed.edge() >> 8 } else { 0 },
                    };
                    let len = feed.u8() as usize;
                    Body::Hello { name, hello, data: feed.bytes(len) }
                };
                Frame { to, secret, arg: feed.edge() as u32, body }.encode(&mut bytes).unwrap_or(0)
            }
        };
        datagrams.on_frame(port, &bytes[..len]);
        datagrams.outbox.take_waiting();
    }
    assert!(datagrams.requests.lock().len() <= 4096);
    datagrams.requests.lock().clear();
    datagrams.unanswered.lock().clear();
    chan.lock().phase = Phase::Stopped;
    device.inner().channels.remove(chan.id);
    device
}
