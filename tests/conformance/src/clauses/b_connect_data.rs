//! B. `dat_ep_connect`: what it carries and what it refuses.

use super::prelude::*;

clauses! {
    40 "the request names the active endpoint's adapter and port" => peer_named;
    41 "the active endpoint's port is known while it connects, and is the request's" => local_port;
    42 "private data of 0, 1 and the most bytes arrives whole" => private_data;
    46 "one byte of private data too many: INVALID_PARAMETER" => too_much_data;
    47 "a time-out of 0: INVALID_PARAMETER" => zero_timeout;
    64 "flags 0: a single path, success" => no_flags;
    65 "several paths requested of a single-path provider: success" => multipath_requested;
    66 "several paths required of a single-path provider: MODEL_NOT_SUPPORTED" => multipath_required;
    67 "an undefined flag: INVALID_PARAMETER" => undefined_flag;
    70 "no read credits on either side: connects, reads are refused" => no_credits;
    71 "read credits within the peer's: reads complete" => credits;
    72 "read credits set explicitly do not change" => explicit_credits;
    73 "read credits left alone are the provider's choice" => default_credits;
}

fn peer_named(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.connect(&b)?;
    let request = b.request()?;
    same("address of the active adapter", request.remote.map(|addr| addr.ip()), Some(a.ia.query()?.address))?;
    same("port of the active endpoint", request.remote_port, a.ep.query()?.local_port_qual)?;
    same("qualifier asked for", request.conn_qual, b.port)
}

fn local_port(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.connect(&b)?;
    let port = a.ep.query()?.local_port_qual;
    holds(port != 0, "the local port is 0 while connecting")?;
    same("port the peer sees", b.request()?.remote_port, port)
}

fn private_data(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let most = a.ia.provider_query()?.max_private_data_size as usize;
    for len in [0, 1, most] {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
        a.ep.connect(&ConnectOptions { private_data: &data, ..a.towards(&b) })?;
        let request = b.request()?;
        same(&format!("{len} bytes of private data"), &request.data, &data)?;
        b.reject(&request, b"")?;
        a.told(ConnectionKind::PeerRejected)?;
        a.ep.reset()?;
    }
    Ok(())
}

fn refused_with(
    t: &Bench,
    what: &str,
    change: impl Fn(&mut ConnectOptions<'_>),
    want: ReturnType,
) -> Outcome {
    let (a, b) = t.sides()?;
    let mut options = a.towards(&b);
    change(&mut options);
    t.refused(what, a.ep.connect(&options), want)?;
    a.is_in(EpState::Unconnected)?;
    a.quiet(&a.conn, "A's connect dispatcher")
}

fn too_much_data(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let data = vec![1; a.ia.provider_query()?.max_private_data_size as usize + 1];
    let result = a.ep.connect(&ConnectOptions { private_data: &data, ..a.towards(&b) });
    t.refused("connect", result, ReturnType::InvalidParameter)?;
    a.is_in(EpState::Unconnected)
}

fn zero_timeout(t: &Bench) -> Outcome {
    refused_with(t, "a time-out of 0", |o| o.timeout = Timeout::ZERO, ReturnType::InvalidParameter)
}

fn connects_with(t: &Bench, flags: ConnectFlags) -> Outcome {
    let (a, b) = t.sides()?;
    a.ep.connect(&ConnectOptions { flags, ..a.towards(&b) })?;
    b.accept(&b.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    a.is_in(EpState::Connected)
}

fn no_flags(t: &Bench) -> Outcome {
    connects_with(t, ConnectFlags::empty())
}

fn multipath_requested(t: &Bench) -> Outcome {
    connects_with(t, ConnectFlags::MULTIPATH_REQUESTED)
}

fn multipath_required(t: &Bench) -> Outcome {
    if t.ia()?.provider_query()?.supports_multipath {
        return not_supported("the provider has several paths");
    }
    refused_with(
        t,
        "several paths required",
        |o| o.flags = ConnectFlags::MULTIPATH_REQUIRED,
        ReturnType::ModelNotSupported,
    )
}

fn undefined_flag(t: &Bench) -> Outcome {
    refused_with(
        t,
        "an undefined flag",
        |o| o.flags = ConnectFlags::from_bits_retain(0x80),
        ReturnType::InvalidParameter,
    )
}

fn with_credits(reads_out: u32, reads_in: u32) -> AttrSpec {
    AttrSpec { reads_out: Some(reads_out), reads_in: Some(reads_in), ..AttrSpec::default() }
}

fn no_credits(t: &Bench) -> Outcome {
    let (a, b) = t.pair_with(&with_credits(0, 0), &with_credits(0, 0))?;
    let result = a.ep.post_rdma_read(&[a.lmr.triplet(0, 8)], 1, b.target(0, 8), PLAIN);
    t.refused("a read", result, ReturnType::InvalidParameter)?;
    a.is_in(EpState::Connected)
}

fn credits(t: &Bench) -> Outcome {
    let (a, b) = t.pair_with(&with_credits(2, 2), &with_credits(2, 2))?;
    b.store(0, b"12345678")?;
    // More than the credits: the provider queues them (decision D-16).
    for cookie in 0..6 {
        a.read(64 * cookie, 8, cookie, b.target(0, 8))?;
    }
    for cookie in 0..6 {
        a.completes(&a.request, cookie, DtoStatus::Success)?;
        same("bytes read", a.bytes(64 * cookie, 8), b"12345678".to_vec())?;
    }
    Ok(())
}

fn explicit_credits(t: &Bench) -> Outcome {
    let (a, _b) = t.pair_with(&with_credits(2, 3), &with_credits(3, 2))?;
    let attr = a.ep.query()?.attr;
    same("read credits (out, in)", (attr.max_rdma_read_out, attr.max_rdma_read_in), (2, 3))
}

fn default_credits(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&a.conn), None)?;
    ep.connect(&a.towards(&b))?;
    b.accept(&b.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    let (attr, most) = (ep.query()?.attr, a.ia.query()?);
    holds(
        attr.max_rdma_read_out <= most.max_rdma_read_per_ep_out
            && attr.max_rdma_read_in <= most.max_rdma_read_per_ep_in,
        format!(
            "read credits {} out, {} in are above the adapter's",
            attr.max_rdma_read_out, attr.max_rdma_read_in
        ),
    )
}
