//! Consumer notification objects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use dat_engine::{Agent, Cno, CnoProxy};
use dat_types::{ObjectId, ReturnCode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::clauses::prelude::*;

clauses! {
    258 "A disabled dispatcher: no trigger, the event can be read" => disabled;
    259 "Enabling an enabled dispatcher: success" => enabled_twice;
    260 "A replaced notification object: the new one is triggered, the old one is not" => modified;
    261 "An event on an enabled dispatcher: the wait returns that dispatcher" => triggered;
    262 "No event for 50 ms: QUEUE_EMPTY" => empty;
    263 "A trigger before the wait: it returns at once" => triggered_before;
    264 "A thread waits on the dispatcher itself: no trigger" => direct_waiter;
    265 "The adapter closes, or the last dispatcher is freed: success without a dispatcher" => sent_away;
    266 "An agent is called once with the dispatcher, and not by the next event" => agent;
    267 "An agent set again is called again; without an agent there is no call" => agent_again;
    268 "A notification object with a dispatcher or a waiting thread cannot be freed" => in_use;
    269 "With a descriptor: an event makes it readable, a trigger returns the dispatcher and ends that" => fd;
    270 "A trigger without a pending notification: QUEUE_EMPTY" => fd_empty;
}

/// A notification object with one dispatcher of software events.
fn notified(a: &LocalEnd, agent: Option<Agent>) -> Result<(Cno, Evd), Stop> {
    let cno = a.ia.cno_create(agent)?;
    let evd = a.ia.evd_create_with_cno(64, Some(&cno), EvdFlags::SOFTWARE)?;
    Ok((cno, evd))
}

/// The wait ends with this dispatcher.
fn gives(t: &TestContext, cno: &Cno, want: &Evd) -> Outcome {
    t.doing("a notification object to be triggered");
    ensure_eq("dispatcher of the trigger", cno.wait(Timeout::from(t.long()))?, Some(want.id()))
}

fn gives_nothing(t: &TestContext, what: &str, cno: &Cno) -> Outcome {
    t.refused(what, cno.wait(Timeout::from(t.short())), ReturnType::QueueEmpty)
}

fn disabled(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (cno, evd) = notified(&a, None)?;
    evd.set_enabled(false)?;
    evd.post_se(5)?;
    gives_nothing(t, "a disabled dispatcher", &cno)?;
    ensure_eq("events", evd.dequeue().map(|event| event.number())?, 0x10001)?;
    // What was queued while it was disabled triggers nothing afterwards either.
    evd.post_se(6)?;
    evd.set_enabled(true)?;
    gives_nothing(t, "enabled after the event", &cno)?;
    evd.post_se(7)?;
    gives(t, &cno, &evd)
}

fn enabled_twice(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (cno, evd) = notified(&a, None)?;
    evd.set_enabled(true)?;
    evd.post_se(1)?;
    gives(t, &cno, &evd)
}

fn modified(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (old, evd) = notified(&a, None)?;
    let new = a.ia.cno_create(None)?;
    evd.modify_cno(Some(&new))?;
    ensure_eq("notification object", evd.query()?.cno.map(|cno| cno.id()), Some(new.id()))?;
    evd.post_se(1)?;
    gives(t, &new, &evd)?;
    gives_nothing(t, "the old one", &old)?;
    old.free()?;
    evd.modify_cno(None)?;
    evd.post_se(2)?;
    gives_nothing(t, "after it was taken away", &new)?;
    Ok(new.free()?)
}

fn triggered(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let cno = a.ia.cno_create(None)?;
    // Events of every kind: of a connection, and completions, which only the provider knows of at first.
    let [recv, conn] = [EvdFlags::DTO, EvdFlags::CONNECTION];
    let recv = a.ia.evd_create_with_cno(64, Some(&cno), recv)?;
    let conn = a.ia.evd_create_with_cno(64, Some(&cno), conn)?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&recv), Some(&a.request), Some(&conn), Some(&attr))?;
    ep.connect(&a.towards(&b))?;
    b.accept(&b.request()?, b"")?;
    gives(t, &cno, &conn)?;
    a.expect_event_on(&conn, ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)?;
    ep.post_recv(&[a.lmr.triplet(0, 64)], 1, PLAIN)?;
    let (waits, ()) = t.while_waiting(|| cno.wait(Timeout::from(t.long())), || b.send(0, 8, 2))?;
    ensure_eq("dispatcher of the trigger", waits?, Some(recv.id()))?;
    a.completes(&recv, 1, DtoStatus::Success).map(|_| ())
}

fn empty(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (cno, _evd) = notified(&a, None)?;
    let (timeout, start) = (t.millis(50), Instant::now());
    t.refused("a wait", cno.wait(timeout), ReturnType::QueueEmpty)?;
    let took = start.elapsed();
    ensure(Some(took) >= timeout.duration(), format!("it took {took:?}, less than {timeout:?}"))?;
    t.refused("a look", cno.wait(Timeout::from(Duration::ZERO)), ReturnType::QueueEmpty)
}

fn triggered_before(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (cno, evd) = notified(&a, None)?;
    evd.post_se(1)?;
    evd.post_se(2)?;
    ensure_eq("dispatcher", cno.wait(Timeout::from(Duration::ZERO))?, Some(evd.id()))?;
    // Triggering what is triggered changes nothing.
    gives_nothing(t, "both events were one trigger", &cno)
}

fn direct_waiter(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (cno, evd) = notified(&a, None)?;
    let (waited, ()) = t.while_waiting(|| evd.wait(Timeout::from(t.long()), 1), || Ok(evd.post_se(1)?))?;
    waited?;
    gives_nothing(t, "the event went to the waiter", &cno)
}

/// A thread waits while `meanwhile` happens; the wait must give nothing, successfully.
fn leaves_empty_handed(t: &TestContext, cno: &Cno, meanwhile: impl FnOnce() -> Outcome) -> Outcome {
    t.doing("a waiter to be sent away");
    let (waited, ()) = t.while_waiting(|| cno.wait(Timeout::from(t.long())), meanwhile)?;
    ensure_eq("dispatcher", waited?, None)
}

fn sent_away(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (cno, evd) = notified(&a, None)?;
    leaves_empty_handed(t, &cno, || Ok(evd.free()?))?;
    let (other, _evd) = notified(&a, None)?;
    leaves_empty_handed(t, &other, || Ok(a.ia.close(CloseFlags::Abrupt)?))
}

/// The calls of an agent.
type Calls = mpsc::Receiver<Option<ObjectId>>;

fn listening_agent(tag: u64) -> (Agent, Calls) {
    let (sender, calls) = mpsc::channel();
    let agent = Agent::new(tag, move |evd| {
        // The receiver is gone once the clause has ended.
        let _ = sender.send(evd);
    });
    (agent, calls)
}

fn is_called(t: &TestContext, calls: &Calls, want: Option<ObjectId>) -> Outcome {
    t.doing("an agent to be called");
    match calls.recv_timeout(t.long()) {
        Ok(evd) => ensure_eq("dispatcher the agent was called with", evd, want),
        Err(_) => fail("the agent was not called"),
    }
}

fn agent(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (agent, calls) = listening_agent(77);
    let (cno, evd) = notified(&a, Some(agent))?;
    ensure_eq("proxy", cno.query()?.proxy, CnoProxy::Agent(77))?;
    evd.post_se(1)?;
    is_called(t, &calls, Some(evd.id()))?;
    // In addition to waking a waiter.
    gives(t, &cno, &evd)?;
    evd.post_se(2)?;
    gives(t, &cno, &evd)?;
    t.pause();
    ensure(calls.try_recv().is_err(), "the agent was called for the second event too")?;
    ensure_eq("proxy afterwards", cno.query()?.proxy, CnoProxy::None)
}

fn agent_again(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (first, calls) = listening_agent(1);
    let (cno, evd) = notified(&a, Some(first))?;
    evd.post_se(1)?;
    is_called(t, &calls, Some(evd.id()))?;
    gives(t, &cno, &evd)?;
    let (second, again) = listening_agent(2);
    cno.modify_agent(Some(second))?;
    evd.post_se(2)?;
    is_called(t, &again, Some(evd.id()))?;
    gives(t, &cno, &evd)?;
    let called = Arc::new(AtomicU64::new(0));
    let counter = called.clone();
    cno.modify_agent(Some(Agent::new(3, move |_| {
        counter.fetch_add(1, Ordering::Release);
    })))?;
    cno.modify_agent(None)?;
    evd.post_se(3)?;
    gives(t, &cno, &evd)?;
    t.pause();
    ensure_eq("calls of an agent that was taken away", called.load(Ordering::Acquire), 0)
}

fn in_use(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (cno, evd) = notified(&a, None)?;
    t.refused("with a dispatcher", cno.free(), ReturnType::InvalidState)?;
    evd.modify_cno(None)?;
    let (waited, during) = t.while_waiting(
        || cno.wait(Timeout::from(t.long())),
        || {
            let during = cno.free();
            evd.modify_cno(Some(&cno))?;
            evd.post_se(1)?;
            evd.modify_cno(None)?;
            Ok(during)
        },
    )?;
    ensure_eq("dispatcher that ended the wait", waited?, Some(evd.id()))?;
    t.refused("with a waiter", during, ReturnType::InvalidState)?;
    cno.free()?;
    t.refused("a second time", cno.free(), ReturnType::InvalidHandle)
}

fn readable(cno: &Cno, patience: Duration) -> Result<bool, Stop> {
    let fd = cno.fd()?;
    let limit = Timespec { tv_sec: patience.as_secs() as _, tv_nsec: patience.subsec_nanos() as _ };
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) {
        Ok(ready) => Ok(ready > 0),
        Err(errno) => fail(format!("polling the descriptor: {errno}")),
    }
}

fn fd(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let cno = a.ia.cno_fd_create()?;
    let evd = a.ia.evd_create_with_cno(64, Some(&cno), EvdFlags::SOFTWARE)?;
    ensure_eq("proxy", cno.query()?.proxy, CnoProxy::Fd)?;
    ensure(!readable(&cno, t.short())?, "readable before anything happened")?;
    evd.post_se(1)?;
    ensure(readable(&cno, t.long())?, "not readable after an event")?;
    ensure(readable(&cno, Duration::ZERO)?, "no longer readable, though the trigger is still pending")?;
    ensure_eq("dispatcher of the trigger", cno.trigger()?, evd.id())?;
    ensure(!readable(&cno, t.short())?, "readable after the trigger was taken")?;
    t.refused("waiting on it", cno.wait(Timeout::INFINITE), ReturnType::InvalidState)?;
    let (agent, _calls) = listening_agent(1);
    t.refused("an agent for it", cno.modify_agent(Some(agent)), ReturnType::InvalidState)?;
    let (plain, _evd) = notified(&a, None)?;
    t.refused("a trigger of one without", plain.trigger(), ReturnType::InvalidState)
}

fn fd_empty(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let cno = a.ia.cno_fd_create()?;
    let code: Result<ObjectId, _> = cno.trigger();
    ensure(
        code.as_ref().err().map(|error| error.code()) != Some(ReturnCode::SUCCESS),
        "success as an error",
    )?;
    t.refused("a trigger", code, ReturnType::QueueEmpty)
}
