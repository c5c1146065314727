//! Endpoints declared for use by one thread. The declaration is advice: calls of every thread are correct.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_types::EventData;

use crate::clause::PLUGIN;
use crate::clauses::prelude::*;

clauses! {
    PLUGIN + 30 "The declaration is shown, changes while UNCONNECTED, and takes only true and false" => declaration;
    PLUGIN + 31 "Declared single-threaded, used by one thread while another reads its status: all messages arrive in order" => with_a_visitor;
    PLUGIN + 32 "Declared single-threaded, posted to and polled by several threads: each post completes once" => by_several;
}

type List = Vec<(String, String)>;

fn saying(value: &str) -> List {
    vec![(EpAttr::SINGLE_THREADED.into(), value.into())]
}

fn declare(ep: &Ep, list: List) -> Result<(), dat_types::Error> {
    let attr = EpAttr { transport_specific: list, ..ep.query()?.attr };
    ep.modify(EpMask::TRANSPORT_SPECIFIC, &EpModify { attr, ..EpModify::default() })
}

fn declaration(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let attr = AttrSpec::default().over(&a.ia)?.single_threaded();
    let create = |attr: &EpAttr| {
        a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&a.conn), Some(attr))
    };
    let ep = create(&attr)?;
    ensure_eq("what a query shows", ep.query()?.attr.transport_specific, saying("true"))?;
    declare(&ep, saying("false"))?;
    ensure_eq("after a change", ep.query()?.attr.transport_specific, saying("false"))?;
    let bad = [
        saying(""),
        saying("TRUE"),
        saying("2"),
        [saying("true"), saying("true")].concat(),
        [saying("true"), vec![("single_thread".into(), "true".into())]].concat(),
    ];
    for list in bad {
        let what = format!("{list:?}");
        t.refused(&what, declare(&ep, list.clone()), ReturnType::InvalidParameter)?;
        let attr = EpAttr { transport_specific: list, ..attr.clone() };
        t.refused(&what, create(&attr), ReturnType::InvalidParameter)?;
    }
    let attr = EpAttr { provider_specific: saying("true"), ..attr.clone() };
    t.refused("among the provider's attributes", create(&attr), ReturnType::InvalidParameter)?;
    ensure_eq("after all that", ep.query()?.attr.transport_specific, saying("false"))?;
    declare(&ep, List::new())?;
    ensure_eq("after it was left out", ep.query()?.attr.transport_specific, List::new())
}

/// Connected; A's endpoint is declared to be used by one thread.
fn declared(t: &TestContext) -> Result<(LocalEnd, RemoteEnd), Stop> {
    let (a, b) = t.ends()?;
    declare(&a.ep, saying("true"))?;
    join(&a, &b)?;
    Ok((a, b))
}

fn with_a_visitor(t: &TestContext) -> Outcome {
    let (a, b) = declared(t)?;
    let (over, there) = (AtomicBool::new(false), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| {
            there.wait();
            while !over.load(Ordering::Acquire) {
                let status = a.ep.status()?;
                ensure_eq("state", status.state, EpState::Connected)?;
                std::thread::sleep(Duration::from_micros(50));
            }
            Ok(())
        });
        there.wait();
        let used = (0..100).try_for_each(|n| {
            b.post_recv(0, 8, n)?;
            a.lmr.memory().write(0, &n.to_le_bytes());
            a.send(0, 8, n)?;
            b.receives(n, DtoStatus::Success)?;
            a.completes(&a.request, n, DtoStatus::Success)?;
            ensure_eq("what arrived", b.load(0, 8)?, n.to_le_bytes().to_vec())?;
            a.post_recv(64, 8, n)?;
            b.send(0, 8, n)?;
            a.completes(&a.recv, n, DtoStatus::Success)?;
            b.completes(n, DtoStatus::Success).map(|_| ())
        });
        over.store(true, Ordering::Release);
        let visited = visitor.join().map_err(|_| Stop::Failed("the other thread panicked".into()))?;
        used.and(visited)
    })
}

fn by_several(t: &TestContext) -> Outcome {
    const POSTERS: u64 = 3;
    const POSTS: u64 = 200;
    let (a, b) = declared(t)?;
    for word in 0..POSTERS * POSTS {
        a.lmr.memory().write(word * 8, &(word + 1).to_le_bytes());
    }
    let deadline = Instant::now() + t.long();
    let late = |what: &str| match Instant::now() < deadline {
        true => {
            std::thread::yield_now();
            Ok(())
        }
        false => fail(format!("time is up: {what}")),
    };
    let left = std::sync::Mutex::new((0..POSTERS * POSTS).collect::<BTreeSet<u64>>());
    let post = |word: u64| loop {
        let from = [a.lmr.triplet(word * 8, 8)];
        match a.ep.post_rdma_write(&from, word, b.target(word * 8, 8), PLAIN) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ReturnType::InsufficientResources => late("the queue stays full")?,
            Err(error) => return Err(error.into()),
        }
    };
    let left = &left;
    let poll = || loop {
        match a.request.dequeue() {
            Ok(event) => {
                let EventData::Dto(dto) = event.data else { return fail(format!("{:?}", event.data)) };
                ensure_eq("status", dto.status, DtoStatus::Success)?;
                let mut left = left.lock().map_err(|_| Stop::Failed("a thread panicked".into()))?;
                ensure(left.remove(&dto.cookie), format!("{} completes, not outstanding", dto.cookie))?;
            }
            Err(_) if left.lock().is_ok_and(|left| left.is_empty()) => return Ok(()),
            Err(_) => late("completions are missing")?,
        }
    };
    std::thread::scope(|scope| {
        let posters =
            (0..POSTERS).map(|n| scope.spawn(move || (0..POSTS).try_for_each(|i| post(n * POSTS + i))));
        let mut all: Vec<_> = posters.collect();
        all.extend((0..2).map(|_| scope.spawn(poll)));
        all.into_iter().try_for_each(|one| match one.join() {
            Ok(outcome) => outcome,
            Err(_) => fail("a thread panicked"),
        })
    })?;
    let expected: Vec<u8> = (1..=POSTERS * POSTS).flat_map(u64::to_le_bytes).collect();
    ensure_eq("B's memory", b.load(0, expected.len() as u32)? == expected, true)
}
