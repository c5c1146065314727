//! Private data of any length and contents in connects, accepts and rejects: it arrives whole, or the call is refused.

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use dat::engine::Plugin;
use dat::registry::Registry;
use dat::{ConnectionKind, Ep, Evd, Event, Ia, IaBuilder, Psp, Pz, Request, ReturnType};
use dat_plugin::feed::Feed;

const LONG: Duration = Duration::from_secs(15);

struct Node {
    ia: Ia,
    pz: Pz,
    active: Evd,
    passive: Evd,
    listener: Psp,
    most: usize,
}

static NODES: LazyLock<[Mutex<Node>; 2]> = LazyLock::new(|| ["lo", "shm"].map(|name| Mutex::new(Node::open(name))));

impl Node {
    fn open(name: &str) -> Node {
        let domain = std::process::id();
        let text = format!(
            "[provider.lo]\nlibrary = \"builtin:loopback\"\n\
             [provider.shm]\nlibrary = \"builtin:shm\"\nparams = {{ domain = \"fuzz-{domain}\" }}\n"
        );
        let registry = Registry::from_str("fuzz", &text)
            .expect("a sound text")
            .with_static(Plugin::of::<dat_loopback::Loopback>())
            .with_static(Plugin::of::<dat_shm::Shm>());
        let ia = IaBuilder::new(name).open_in(&registry).expect("an adapter");
        let (active, passive) = (ia.evd(64).expect("a dispatcher"), ia.evd(64).expect("a dispatcher"));
        let listener = ia.listen_any(&passive).expect("a port");
        let most = ia.provider_attr().expect("attributes").max_private_data_size as usize;
        Node { pz: ia.pz().expect("a zone"), ia, active, passive, listener, most }
    }

    fn ep(&self, evd: &Evd) -> Ep {
        self.ia.ep(&self.pz).evd(evd).create().expect("an endpoint")
    }

    /// Bytes of any length: short, or around the limit. Whether they fit is the second.
    fn data(&self, feed: &mut Feed<'_>) -> (Vec<u8>, bool) {
        let len = match feed.u8() {
            short @ 0..=99 => short.into(),
            near @ 100..=199 => (self.most + 50).saturating_sub((near - 100).into()),
            _ => feed.u16().into(),
        };
        let mut data = feed.bytes(len).to_vec();
        data.resize(len, feed.u8());
        (data, len <= self.most)
    }

    fn request(&self) -> Request {
        match self.passive.wait(LONG) {
            Ok(Some(Event::Request(request))) => request,
            other => panic!("{other:?} in place of a request"),
        }
    }

    /// The next event of a connection at `ep`, with its private data.
    fn connection(evd: &Evd, ep: &Ep) -> (ConnectionKind, Box<[u8]>) {
        match evd.wait(LONG) {
            Ok(Some(Event::Connection { kind, ep: id, private_data, .. })) if id == ep.id() => (kind, private_data),
            other => panic!("{other:?} in place of a connection's event"),
        }
    }

    fn attempt(&self, feed: &mut Feed<'_>) {
        let (data, fits) = self.data(feed);
        let (active, address) = (self.ep(&self.active), self.ia.address().expect("an address"));
        let connect = active.connect(address, self.listener.conn_qual()).timeout(LONG).private_data(&data);
        if !same(connect.start(), fits) {
            return;
        }
        let mut request = self.request();
        assert_eq!(request.private_data(), data, "a request's private data");
        let (data, fits) = self.data(feed);
        if feed.flag() {
            if same(request.reject(&data), fits) {
                let (kind, arrived) = Self::connection(&self.active, &active);
                assert_eq!((kind, &*arrived), (ConnectionKind::PeerRejected, &*data));
            } else {
                // A refused call consumes the request: its drop rejects with no data.
                assert_eq!(Self::connection(&self.active, &active).1.len(), 0);
            }
            return;
        }
        let passive = self.ep(&self.passive);
        if !same(request.accept(&passive, &data), fits) {
            request.accept(&passive, &[]).expect("the request is there still");
            assert_eq!(Self::connection(&self.active, &active).1.len(), 0);
        } else {
            let (kind, arrived) = Self::connection(&self.active, &active);
            assert_eq!((kind, &*arrived), (ConnectionKind::Established, &*data));
        }
        let (kind, arrived) = Self::connection(&self.passive, &passive);
        assert_eq!((kind, arrived.len()), (ConnectionKind::Established, 0));
    }

    /// Forgets what the ends of the last attempt left.
    fn drain(&self) {
        while self.active.poll().expect("a poll").is_some() {}
        while self.passive.poll().expect("a poll").is_some() {}
    }
}

/// Whether the call passed, which it does when the data fits.
fn same(result: dat::Result<()>, fits: bool) -> bool {
    match &result {
        Ok(()) => assert!(fits, "data above the limit was taken"),
        Err(error) => assert!(!fits && error.kind() == ReturnType::InvalidParameter, "{error}"),
    }
    fits
}

pub fn run(bytes: &[u8]) {
    let mut feed = Feed(bytes);
    let node = NODES[usize::from(feed.flag())].lock().expect("one thread");
    while !feed.is_empty() {
        node.attempt(&mut feed);
        node.drain();
    }
}
