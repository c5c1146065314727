//! What libfabric offers on this machine, fabric by fabric.

use std::collections::BTreeMap;
use std::ptr;

use dat_plugin::{Config, Probe};
use libfabric_sys::Library;
use libfabric_sys::consts::{FI_EP_MSG, FI_EP_RDM};

use crate::fabric::Fabric;
use crate::fabric::info::{API, Info, ip_of, text, version};
use crate::params::{Endpoint, Params};

pub(crate) fn candidates(config: &Config) -> Vec<Probe> {
    let params = match Params::parse(config) {
        Ok(params) => params,
        Err(failure) => return vec![verdict("configuration", Err(failure.message))],
    };
    let library = match Library::get() {
        Ok(library) => library,
        Err(why) => return vec![verdict("libfabric", Err(why.into()))],
    };
    let mut all = vec![verdict("libfabric", check_version(library))];
    all.push(verdict(
        &format!("{} ({})", params.fabric, kind(params.endpoint)),
        Fabric::open(library, &params)
            .map(|fabric| format!("configured; opened at {}", place(fabric.ip())))
            .map_err(|failure| failure.message),
    ));
    for ((fabric, endpoint), places) in offered(library) {
        if fabric == params.fabric && endpoint == params.endpoint {
            continue;
        }
        let tried = Params {
            fabric: fabric.clone(),
            endpoint,
            interface: String::new(),
            address: None,
            ..params.clone()
        };
        let outcome = Fabric::open(library, &tried)
            .map(|_| format!("opened; offered at {}", places.join(", ")))
            .map_err(|failure| failure.message);
        all.push(verdict(&format!("{fabric} ({})", kind(endpoint)), outcome));
    }
    all
}

fn verdict(candidate: &str, outcome: Result<String, String>) -> Probe {
    let usable = outcome.is_ok();
    Probe { candidate: candidate.into(), usable, reason: outcome.unwrap_or_else(|why| why) }
}

fn check_version(library: &Library) -> Result<String, String> {
    let (major, minor) = library.version();
    match (major, minor) >= (1, 17) {
        true => Ok(format!("version {}", version(library))),
        false => Err(format!("version {}; 1.17 or newer is needed", version(library))),
    }
}

fn kind(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Msg => "msg",
        Endpoint::Rdm => "rdm",
    }
}

fn place(ip: Option<std::net::IpAddr>) -> String {
    ip.map_or("no internet address".into(), |ip| ip.to_string())
}

/// Fabrics and endpoints the library lists, and where.
fn offered(library: &'static Library) -> BTreeMap<(String, Endpoint), Vec<String>> {
    let mut all: BTreeMap<(String, Endpoint), Vec<String>> = BTreeMap::new();
    let mut head = ptr::null_mut();
    // SAFETY: null hints ask for everything.
    let result = unsafe { library.getinfo(API, ptr::null(), ptr::null(), 0, ptr::null(), &mut head) };
    if result != 0 || head.is_null() {
        return all;
    }
    let list = Info { library, head };
    for info in list.iter() {
        // SAFETY: an entry of the library's has all attributes.
        let (endpoint, fabric) = unsafe { ((*info.ep_attr).type_, text((*info.fabric_attr).prov_name)) };
        let endpoint = match endpoint {
            FI_EP_MSG => Endpoint::Msg,
            FI_EP_RDM => Endpoint::Rdm,
            _ => continue,
        };
        let places = all.entry((fabric, endpoint)).or_default();
        let place = place(ip_of(info));
        if places.len() < 4 && !places.contains(&place) {
            places.push(place);
        }
    }
    all
}
