//! Channels: one connection each, and what holds after its end.

use dat_plugin::{Completion, ConnectParam, Event, EventKind, Status};

use super::pair::*;
use crate::clause::PLUGIN;
use crate::clauses::prelude::*;

clauses! {
    PLUGIN + 10 "A channel serves one connection" => one_connection;
    PLUGIN + 11 "Posts on a stopped channel are not accepted" => stopped;
    PLUGIN + 12 "After a finished disconnect no completion and no event follows" => silent;
    PLUGIN + 13 "Objects can be closed in any order" => close_order;
    PLUGIN + 14 "Requests are checked before they are accepted: unknown request, private data" => bad_requests;
}

fn one_connection(t: &TestContext) -> Outcome {
    let (a, b) = connected(t)?;
    let listener = b.device.listen(0, 9).map_err(unexpected)?;
    let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"" };
    refused("a second connect", a.channel.connect(&param), &[Status::INVALID, Status::NOT_CONNECTED])?;
    a.channel.disconnect();
    refused("a connect after the end", a.channel.connect(&param), &[Status::INVALID, Status::NOT_CONNECTED])
}

fn stopped(t: &TestContext) -> Outcome {
    let (a, _b) = connected(t)?;
    stop(t, &a)?;
    ensure_eq("post of a send", a.send(1, 8), Status::NOT_CONNECTED)?;
    let status = a.recv(2, 8);
    ensure(status == Status::NOT_CONNECTED || status == Status::OK, format!("a receive gave {status:?}"))?;
    ensure_eq("a second disconnect", a.channel.disconnect(), Status::OK)
}

fn silent(t: &TestContext) -> Outcome {
    let (a, b) = connected(t)?;
    for token in 0..4 {
        ensure_eq("post of a send", a.send(token, 64), Status::OK)?;
        ensure_eq("post of a receive", a.recv(token, 64), Status::OK)?;
    }
    stop(t, &a)?;
    let mut out = [Completion::default(); 16];
    while a.sends.poll(&mut out) + a.recvs.poll(&mut out) > 0 {}
    for token in 0..4 {
        b.recv(token, 64);
    }
    t.pause();
    let late = a.sends.poll(&mut out) + a.recvs.poll(&mut out);
    ensure_eq("completions after the end", late, 0)?;
    let mut events = [Event::new(EventKind(0), 0); 4];
    ensure_eq("events after the end", a.device.poll_events(&mut events), 0)
}

fn close_order(t: &TestContext) -> Outcome {
    for order in 0..3 {
        let (a, b) = connected(t)?;
        let End { channel, sends, recvs, spans, device, memory, .. } = a;
        match order {
            0 => {
                drop(device);
                drop((sends, recvs));
                ensure_eq("a disconnect with only the channel left", channel.disconnect().0 >= 0, true)?;
                drop(channel);
                drop(spans);
            }
            1 => {
                drop(spans);
                drop(memory);
                drop(channel);
                let mut out = [Completion::default(); 4];
                sends.poll(&mut out);
                recvs.arm();
                recvs.disarm();
                drop(device);
            }
            _ => {
                drop(channel);
                drop(sends);
                device.poll_events(&mut []);
                drop(device);
                drop(recvs);
            }
        }
        // The other end sees it in each order.
        let event = b.event(t, "the end of the connection")?;
        let ends = [EventKind::DISCONNECTED, EventKind::BROKEN];
        ensure(ends.contains(&event.kind), format!("the other end saw {:?}", event.kind))?;
    }
    Ok(())
}

fn bad_requests(t: &TestContext) -> Outcome {
    let device = t.subject.device()?;
    let end = End::new(&device, 1)?;
    let any = [Status::INVALID, Status::NOT_CONNECTED];
    // The outcome of an accept may be an event as well; then it must not be success.
    if end.channel.accept(0xDEAD_BEEF, b"").is_ok() {
        end.expect_event(t, EventKind::ACCEPT_FAILED)?;
    }
    let status = device.reject(0xDEAD_BEEF, dat_plugin::RejectReason::CONSUMER, b"");
    ensure(status.0 <= 0, format!("rejecting an unknown request gave {status:?}"))?;
    let other = End::new(&device, 4)?;
    let data = vec![0; device.attr().max_private_data as usize + 1];
    let param = ConnectParam { addr: device.attr().address, port: 7, qos: 0, data: &data };
    refused("too much private data", other.channel.connect(&param), &any)?;
    let status = other.send(1, 8);
    ensure_eq("a send before connecting", status, Status::NOT_CONNECTED)
}
