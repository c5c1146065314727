//! Devices: what they report, what they refuse, ports and keys.

use std::collections::BTreeSet;

use dat_plugin::host::{Memory, Remote};
use dat_plugin::{Caps, Failure, Opcode, PostFlag, SrqAttr, Status};

use super::pair::*;
use crate::clause::PLUGIN;
use crate::clauses::prelude::*;

clauses! {
    PLUGIN + 1 "The attributes of a device are consistent" => attributes;
    PLUGIN + 2 "Operations without a capability bit are refused" => capabilities;
    PLUGIN + 3 "An unknown parameter is refused and named" => unknown_parameter;
    PLUGIN + 4 "A port has one listener; port 0 selects a free port" => listen_twice;
    PLUGIN + 5 "Keys of regions are distinct, not 0, and cannot be guessed from each other" => keys;
}

fn attributes(t: &TestContext) -> Outcome {
    let device = t.subject.device()?;
    let attr = *device.attr();
    let sizes = [
        ("max_channels", u64::from(attr.max_channels)),
        ("max_queues", attr.max_queues.into()),
        ("max_queue_depth", attr.max_queue_depth.into()),
        ("max_regions", attr.max_regions.into()),
        ("max_region", attr.max_region),
        ("max_message", attr.max_message),
        ("max_rdma", attr.max_rdma),
        ("max_requests_per_channel", attr.max_requests_per_channel.into()),
        ("max_recvs_per_channel", attr.max_recvs_per_channel.into()),
        ("max_segments", attr.max_segments.into()),
    ];
    for (what, value) in sizes {
        ensure(value > 0, format!("{what} is 0"))?;
    }
    let data = attr.max_private_data;
    let most = dat_plugin::MAX_PRIVATE_DATA as u32;
    ensure((64..=most).contains(&data), format!("{data} bytes of private data; 64 to {most} are allowed"))?;
    ensure(!device.describe().is_empty(), "the device does not describe itself")?;
    for (cap, what, count) in
        [(Caps::SRQ, "max_srqs", attr.max_srqs), (Caps::WINDOWS, "max_windows", attr.max_windows)]
    {
        ensure_eq(&format!("whether {what} is above 0"), count > 0, attr.caps.contains(cap))?;
    }
    Ok(())
}

fn capabilities(t: &TestContext) -> Outcome {
    let device = t.subject.device()?;
    let caps = device.attr().caps;
    let mut tried = 0;
    if !caps.contains(Caps::SRQ) {
        let attr = SrqAttr { user: 1, depth: 4, max_segments: 1, domain: DOMAIN, reserved: 0 };
        refused("a shared receive queue", device.open_srq(&attr), &[Status::NOT_SUPPORTED])?;
        tried += 1;
    }
    if !caps.contains(Caps::WINDOWS) {
        refused("a window", device.open_window(DOMAIN), &[Status::NOT_SUPPORTED])?;
        tried += 1;
    }
    if !caps.contains(Caps::IMMEDIATE) {
        let (a, _b) = connected(t)?;
        let status = a.channel.post_imm(Opcode::SEND_IMM, PostFlag::NONE, 1, &[], 0, Remote::default(), 7);
        ensure(status.0 < 0, "a send with a value was accepted")?;
        tried += 1;
    }
    if !caps.contains(Caps::DMABUF) {
        // Any descriptor: what is not offered is refused before anything looks at it.
        let file =
            std::fs::File::open("/dev/null").map_err(|error| unexpected(Failure::os("/dev/null", &error)))?;
        let memory = Memory::device(file.into(), 0, ROOM, 1 << 20);
        refused("memory of another device", device.register(memory, ALL, DOMAIN), &[Status::NOT_SUPPORTED])?;
        tried += 1;
    }
    match tried {
        0 => not_applicable("the provider has every capability there is"),
        _ => Ok(()),
    }
}

fn unknown_parameter(t: &TestContext) -> Outcome {
    let mut config = t.subject.config.clone();
    config.params.insert("no_such_parameter".into(), "1".into());
    match t.subject.plugin.open(&config) {
        Ok(_) => fail("an unknown parameter was accepted"),
        Err(failure) => {
            ensure_eq("status", failure.status, Status::BAD_CONFIG)?;
            let named = failure.message.contains("no_such_parameter");
            ensure(named, format!("the sentence does not name it: {}", failure.message))
        }
    }
}

fn listen_twice(t: &TestContext) -> Outcome {
    let device = t.subject.device()?;
    let listener = device.listen(0, 1).map_err(unexpected)?;
    let port = listener.port();
    ensure(port >= 1024, format!("a free port is {port}; those below 1024 are not for that"))?;
    refused("the same port", device.listen(port, 2), &[Status::IN_USE])?;
    let other = device.listen(0, 3).map_err(unexpected)?;
    ensure(other.port() != port, "the same port was given out twice")?;
    drop(listener);
    // Not at once: a process that is being started meanwhile holds a copy of the listener's descriptor for a moment.
    t.until("a listener where one was closed", || Ok(device.listen(port, 4).is_ok()))
}

fn keys(t: &TestContext) -> Outcome {
    const COUNT: usize = 64;
    let device = t.subject.device()?;
    let mut regions = Vec::new();
    for _ in 0..COUNT {
        regions.push(device.register(Memory::heap(64), ALL, DOMAIN).map_err(unexpected)?);
    }
    let keys: Vec<u32> = regions.iter().map(|region| region.keys().rkey).collect();
    let distinct: BTreeSet<u32> = keys.iter().copied().collect();
    ensure_eq("distinct keys", distinct.len(), COUNT)?;
    ensure(!distinct.contains(&0), "a key is 0, which stands for none")?;
    let steps: BTreeSet<u32> = keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    ensure(steps.len() > COUNT / 4, format!("keys follow each other in {} steps only", steps.len()))?;
    drop(regions);
    let again = device.register(Memory::heap(64), ALL, DOMAIN).map_err(unexpected)?;
    ensure(
        !distinct.contains(&again.keys().rkey),
        "the key of a region that is gone was given out again at once",
    )
}
