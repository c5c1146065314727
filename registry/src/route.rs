//! Opening a route: all its children, and one device over those that opened.

use std::sync::Arc;

use dat_plugin::host::{Device, Plugin};
use dat_plugin::{Failure, ProviderInfo, Status};
use dat_route::Via;

use crate::entry::Route;
use crate::error::{OpenError, Step};
use crate::open::{Opened, open_entry, unknown};
use crate::registry::Registry;

const INFO: ProviderInfo = ProviderInfo {
    name: "route",
    version: env!("CARGO_PKG_VERSION"),
    description: "one name over several providers",
};

/// Opens a route. A child that this machine lacks is left out. A wrong configuration or an untrusted file of a child is an
/// error, as in a chain.
pub(crate) fn open(registry: &Registry, route: &Route) -> Result<Opened, OpenError> {
    let (device, steps) = device(registry, route)?;
    let (registry, again) = (registry.clone(), route.clone());
    let plugin = Plugin::made(
        INFO,
        Arc::new(move |config| {
            config.check_known(&[])?;
            self::device(&registry, &again).map(|(device, _)| device).map_err(|error| match error {
                OpenError::Route { failure, .. } => *failure,
                OpenError::NoDevice { failure, .. } => failure,
                error => Failure::new(Status::NO_DEVICE, error.to_string()),
            })
        }),
    );
    Ok(Opened { device, plugin, ia_name: route.name.clone(), steps })
}

fn device(registry: &Registry, route: &Route) -> Result<(Device, Vec<Step>), OpenError> {
    let (mut children, mut steps) = (Vec::new(), Vec::new());
    for (name, near) in route.children() {
        let opened = match registry.entry(name) {
            Some(entry) => open_entry(registry, entry),
            None => Err(unknown(registry, name)),
        };
        match opened {
            Ok(mut opened) => {
                steps.append(&mut opened.steps);
                children.push(Via { name: name.to_owned(), near, device: opened.device });
            }
            Err(error) if error.is_absence() => {
                let reason = error.to_string();
                tracing::info!(target: "dat.registry", route = %route.name, ia = %name, %reason, "left out of a route");
                steps.push(Step { name: name.to_owned(), opened: false, reason });
            }
            Err(error) => return Err(error),
        }
    }
    let (name, defined) = (&route.name, &route.defined);
    match dat_route::over(name, children) {
        Ok(device) => Ok((device, steps)),
        Err(failure) => Err(OpenError::Route {
            name: name.clone(),
            defined: defined.clone(),
            steps,
            failure: failure.into(),
        }),
    }
}
