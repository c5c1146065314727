//! What this provider could use here, each device and port asked.

use dat_plugin::{Config, Probe};
use rdma_sys::verbs::IBV_PORT_ACTIVE;

use crate::find::{self, cannot_open};

use crate::params::Params;
use crate::sys::common::locked_memory;
use crate::sys::context::Context;

pub(crate) fn candidates(config: &Config) -> Vec<Probe> {
    let no = |candidate: &str, reason: String| Probe { candidate: candidate.into(), usable: false, reason };
    let params = match Params::parse(config) {
        Ok(params) => params,
        Err(failure) => return vec![no("configuration", failure.message)],
    };
    let lib = match find::libraries() {
        Ok(lib) => lib,
        Err(failure) => return vec![no("libibverbs, librdmacm", failure.message)],
    };
    let names = match find::devices(lib) {
        Ok(names) => names,
        Err(failure) => return vec![no("RDMA device", failure.message)],
    };
    let mut out = Vec::new();
    for name in names.iter().filter(|name| params.device.as_ref().is_none_or(|wanted| wanted == *name)) {
        let context = match Context::open(lib, name) {
            Ok(context) => context,
            Err(error) => {
                out.push(no(name, cannot_open(name, &error).message));
                continue;
            }
        };
        let ports = context.attr().map_or(0, |attr| attr.phys_port_cnt);
        for port in (1..=ports).filter(|port| params.port.is_none_or(|wanted| wanted == *port)) {
            let candidate = format!("{name} port {port}");
            let state = context.port(port).map(|attr| attr.state);
            if !matches!(state, Ok(IBV_PORT_ACTIVE)) {
                out.push(no(&candidate, "its link is down".into()));
                continue;
            }
            let exact = Params { device: Some(name.clone()), port: Some(port), ..params.clone() };
            out.push(match find::find(lib, &exact) {
                Ok(found) => Probe {
                    candidate,
                    usable: true,
                    reason: format!("link active, address {}; {}", found.address.ip(), locked_memory()),
                },
                Err(failure) => no(&candidate, failure.message),
            });
        }
    }
    if out.is_empty() {
        let wanted = params.device.unwrap_or_default();
        out.push(no("RDMA device", format!("there is no device {wanted}; there are {}", names.join(", "))));
    }
    out
}
