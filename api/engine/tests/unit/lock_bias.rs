//! Endpoints declared to be used by one thread: who takes their post lock how.

use dat_plugin::Config;
use dat_plugin::host::Plugin;
use dat_types::{CloseFlags, CompletionFlags, EpAttr, EvdFlags, PspFlags, Timeout};

use super::inner::Ep;
use super::{EpMask, EpModify};
use crate::adapter::inner::{Ia, IaOptions};
use crate::evd::inner::Evd;

const LONG: Timeout = Timeout::from_millis(20_000);

struct Node {
    ep: Ep,
    conn: Evd,
    ia: Ia,
}

impl Node {
    fn new(attr: EpAttr) -> Node {
        let device = Plugin::of::<dat_loopback::Loopback>().open(&Config::default()).unwrap();
        let ia = Ia::open(device, "loopback0", "0", IaOptions::default()).unwrap();
        let pz = ia.pz_create().unwrap();
        let dto = ia.evd_create(256, EvdFlags::DTO).unwrap();
        let conn = ia.evd_create(8, EvdFlags::CONNECTION | EvdFlags::CR).unwrap();
        let ep = ia.ep_create(Some(&pz), Some(&dto), Some(&dto), Some(&conn), Some(&attr)).unwrap();
        Node { ep, conn, ia }
    }

    fn connect(&self, b: &Node) {
        let psp = b.ia.psp_create_any(&b.conn, PspFlags::Consumer).unwrap();
        let address = b.ia.query().unwrap().address;
        for cookie in 0..16 {
            b.ep.post_recv(&[], cookie, CompletionFlags::empty()).unwrap();
        }
        self.ep.connect(&super::ConnectOptions::new((address, 0).into(), psp.conn_qual())).unwrap();
        let event = b.conn.wait(LONG, 1).unwrap().0;
        let dat_types::EventData::ConnectionRequest { cr, .. } = event.data else { panic!("{event:?}") };
        b.ia.cr(cr).unwrap().accept(Some(&b.ep), &[]).unwrap();
        for side in [self, b] {
            side.conn.wait(LONG, 1).unwrap();
        }
        psp.free().unwrap();
    }

    /// Posts once; whether the calling thread has no exchange to make for the next.
    fn posts(&self) -> bool {
        self.ep.post_send(&[], 1, CompletionFlags::SUPPRESS).unwrap();
        self.ep.0.post.is_bias_owner()
    }

    /// Another thread looks at it.
    fn visited(&self) {
        std::thread::scope(|scope| {
            scope.spawn(|| self.ep.status().unwrap());
        });
        assert!(!self.ep.0.post.is_bias_owner());
    }
}

/// Connected to an endpoint with 16 receives.
fn connected(attr: EpAttr) -> (Node, Node) {
    let (a, b) = (Node::new(attr), Node::new(small()));
    a.connect(&b);
    (a, b)
}

fn small() -> EpAttr {
    EpAttr { max_message_size: 64, max_rdma_size: 64, ..EpAttr::default() }
}

#[test]
#[cfg_attr(miri, ignore = "a place costs next to nothing there, so that the visitor gets it")]
fn the_thread_that_posts_makes_one_exchange_after_each_visit() {
    let (a, _b) = connected(small().single_threaded());
    assert_eq!(a.posts(), dat_sync::available(), "at its first post");
    for _ in 0..10 {
        a.visited();
        assert_eq!(a.posts(), dat_sync::available(), "at its first post after a visit");
    }
}

#[test]
#[cfg_attr(miri, ignore = "a place costs next to nothing there, so that it is earned")]
fn without_the_declaration_the_place_must_be_earned_each_time() {
    let (a, _b) = connected(small());
    a.visited();
    assert!(!a.posts(), "at its first post");
}

#[test]
#[cfg_attr(miri, ignore = "a place costs next to nothing there, so that it is earned")]
fn a_declaration_by_modify_is_one() {
    let (a, b) = (Node::new(small()), Node::new(small()));
    for (attr, single) in [(small().single_threaded(), true), (small(), false)] {
        let new = EpModify { attr, ..EpModify::default() };
        a.ep.modify(EpMask::TRANSPORT_SPECIFIC, &new).unwrap();
        a.connect(&b);
        a.posts();
        a.visited();
        assert_eq!(a.posts(), single && dat_sync::available(), "{single}");
        a.ep.disconnect(CloseFlags::Abrupt).unwrap();
        for side in [&a, &b] {
            side.conn.wait(LONG, 1).unwrap();
            side.ep.reset().unwrap();
        }
    }
}
