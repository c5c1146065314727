//! `dat_ep_connect`: what it carries and what it refuses.

use crate::clauses::prelude::*;

clauses! {
    40 "The request names the active endpoint's adapter and port" => peer_named;
    41 "The active endpoint's port is known while it connects, and is the request's" => local_port;
    42 "Private data of 0, 1 and the largest number of bytes arrives whole" => private_data;
    46 "One byte of private data too many: INVALID_PARAMETER" => too_much_data;
    47 "A time limit of 0 at connect: INVALID_PARAMETER" => zero_timeout;
    64 "Connect flags 0: a single path, success" => no_flags;
    65 "Several paths requested from a single-path provider: success" => multipath_requested;
    66 "Several paths required from a single-path provider: MODEL_NOT_SUPPORTED" => multipath_required;
    67 "An undefined connect flag: INVALID_PARAMETER" => undefined_flag;
    70 "No read credits on either side: connects, reads are refused" => no_credits;
    71 "Read credits within the peer's: reads complete" => credits;
    72 "Explicit read credits do not change" => explicit_credits;
    73 "Read credits without a choice are the provider's" => default_credits;
}

fn peer_named(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    let request = b.request()?;
    ensure_eq(
        "address of the active adapter",
        request.remote.map(|addr| addr.ip()),
        Some(a.ia.query()?.address),
    )?;
    ensure_eq("port of the active endpoint", request.remote_port, a.ep.query()?.local_port_qual)?;
    ensure_eq("requested qualifier", request.conn_qual, b.port)
}

fn local_port(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    let port = a.ep.query()?.local_port_qual;
    ensure(port != 0, "the local port is 0 while connecting")?;
    ensure_eq("port the peer sees", b.request()?.remote_port, port)
}

fn private_data(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let most = a.ia.provider_query()?.max_private_data_size as usize;
    for len in [0, 1, most] {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
        a.ep.connect(&ConnectOptions { private_data: &data, ..a.towards(&b) })?;
        let request = b.request()?;
        ensure_eq(&format!("{len} bytes of private data"), &request.data, &data)?;
        b.reject(&request, b"")?;
        a.expect_event(ConnectionKind::PeerRejected)?;
        a.ep.reset()?;
    }
    Ok(())
}

fn refused_with(
    t: &TestContext,
    what: &str,
    change: impl Fn(&mut ConnectOptions<'_>),
    want: ReturnType,
) -> Outcome {
    let (a, b) = t.ends()?;
    let mut options = a.towards(&b);
    change(&mut options);
    t.refused(what, a.ep.connect(&options), want)?;
    a.is_in(EpState::Unconnected)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

fn too_much_data(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let data = vec![1; a.ia.provider_query()?.max_private_data_size as usize + 1];
    let result = a.ep.connect(&ConnectOptions { private_data: &data, ..a.towards(&b) });
    t.refused("connect", result, ReturnType::InvalidParameter)?;
    a.is_in(EpState::Unconnected)
}

fn zero_timeout(t: &TestContext) -> Outcome {
    refused_with(t, "a time-out of 0", |o| o.timeout = Timeout::ZERO, ReturnType::InvalidParameter)
}

fn connects_with(t: &TestContext, flags: ConnectFlags) -> Outcome {
    let (a, b) = t.ends()?;
    a.ep.connect(&ConnectOptions { flags, ..a.towards(&b) })?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    a.is_in(EpState::Connected)
}

fn no_flags(t: &TestContext) -> Outcome {
    connects_with(t, ConnectFlags::empty())
}

fn multipath_requested(t: &TestContext) -> Outcome {
    connects_with(t, ConnectFlags::MULTIPATH_REQUESTED)
}

fn multipath_required(t: &TestContext) -> Outcome {
    if t.ia()?.provider_query()?.supports_multipath {
        return not_applicable("the provider has several paths");
    }
    refused_with(
        t,
        "several paths required",
        |o| o.flags = ConnectFlags::MULTIPATH_REQUIRED,
        ReturnType::ModelNotSupported,
    )
}

fn undefined_flag(t: &TestContext) -> Outcome {
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

fn no_credits(t: &TestContext) -> Outcome {
    let (a, b) = t.pair_with(&with_credits(0, 0), &with_credits(0, 0))?;
    let result = a.ep.post_rdma_read(&[a.lmr.triplet(0, 8)], 1, b.target(0, 8), PLAIN);
    t.refused("a read", result, ReturnType::InvalidParameter)?;
    a.is_in(EpState::Connected)
}

fn credits(t: &TestContext) -> Outcome {
    let (a, b) = t.pair_with(&with_credits(2, 2), &with_credits(2, 2))?;
    b.store(0, b"12345678")?;
    // More than the credits: the provider queues them (decision D-16).
    for cookie in 0..6 {
        a.read(64 * cookie, 8, cookie, b.target(0, 8))?;
    }
    for cookie in 0..6 {
        a.completes(&a.request, cookie, DtoStatus::Success)?;
        ensure_eq("bytes read", a.bytes(64 * cookie, 8), b"12345678".to_vec())?;
    }
    Ok(())
}

fn explicit_credits(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair_with(&with_credits(2, 3), &with_credits(3, 2))?;
    let attr = a.ep.query()?.attr;
    ensure_eq("read credits (out, in)", (attr.max_rdma_read_out, attr.max_rdma_read_in), (2, 3))
}

fn default_credits(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&a.conn), None)?;
    ep.connect(&a.towards(&b))?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    let (attr, most) = (ep.query()?.attr, a.ia.query()?);
    ensure(
        attr.max_rdma_read_out <= most.max_rdma_read_per_ep_out
            && attr.max_rdma_read_in <= most.max_rdma_read_per_ep_in,
        format!(
            "read credits {} out, {} in are above the adapter's",
            attr.max_rdma_read_out, attr.max_rdma_read_in
        ),
    )
}
