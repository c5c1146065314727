//! Common service points and `dat_ep_common_connect`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dat_engine::Csp;
use dat_types::Comm;

use crate::clauses::prelude::*;

clauses! {
    364 "A common service point on an address in use: PORT_IN_USE" => in_use;
    366 "Common connect to a common service point: a request there, ESTABLISHED after the accept" => connect;
}

/// A common service point of A's on a free port.
pub(crate) fn listen(a: &LocalEnd) -> Result<Csp, Stop> {
    let address: IpAddr = a.ia.query()?.address;
    Ok(a.ia.csp_create(Comm::of(address), SocketAddr::new(address, 0), &a.crs)?)
}

fn in_use(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let csp = listen(&a)?;
    let param = csp.query()?;
    ensure_eq("dispatcher", param.evd.id(), a.crs.id())?;
    ensure(param.address.port() >= 1024, format!("port {}", param.address.port()))?;
    let result = a.ia.csp_create(param.comm, param.address, &a.crs);
    t.refused("the same address", result, ReturnType::PortInUse)?;
    let strange = Comm { kind: 2, ..param.comm };
    t.refused("datagrams", a.ia.csp_create(strange, param.address, &a.crs), ReturnType::CommNotSupported)?;
    let group = SocketAddr::from((Ipv4Addr::new(224, 0, 0, 1), 0));
    let comm = Comm::of(group.ip());
    t.refused("a multicast address", a.ia.csp_create(comm, group, &a.crs), ReturnType::InvalidAddress)?;
    csp.free()?;
    t.refused("a second time", csp.free(), ReturnType::InvalidHandle)?;
    t.until("a service point where one was freed", || {
        Ok(a.ia.csp_create(param.comm, param.address, &a.crs).is_ok())
    })
}

fn connect(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let csp = listen(&a)?;
    b.common_connect(csp.query()?.address)?;
    let cr = a.cr()?;
    ensure_eq("endpoint of the request", cr.query()?.local_ep.map(|ep| ep.id()), None)?;
    cr.accept(Some(&a.ep), b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)?;
    b.post_recv(0, 64, 1)?;
    a.send(0, 8, 2)?;
    b.receives(1, DtoStatus::Success).map(|_| ())
}
