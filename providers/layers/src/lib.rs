//! Layers between the engine and a provider that trace calls, count them, or make them fail on purpose.
//!
//! A layer stands on the provider's side of the plugin interface. To the engine it looks like a provider, to the provider
//! like an engine. Layers are named in `plugins.toml`
//! (`layers = ["trace", "count", { name = "faults", seed = 7, delay_us = 200 }]`, the first one next to the
//! application) and work over any provider. Without layers nothing of this crate runs.
//!
//! | name | what it does |
//! |---|---|
//! | `trace` | a `tracing` event for every call, completion and event, target `dat.trace` |
//! | `count` | counters and latency histograms of each channel and device, which [`stats::read`] gets from outside |
//! | `faults` | delays, reordering, dropped connections and failed registrations, from a seed ([`faults`]) |
//!
//! # How it is made
//! [`layer::Over`] passes calls on, for all layers. A layer is a [`layer::Layer`] and overrides the calls that it needs.
//! Lists of posts are split, so that a layer sees every post.
#![deny(unsafe_code)]

mod by_user;
mod calls;
mod count;
pub mod faults;
pub mod layer;
pub mod stats;
mod trace;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dat_plugin::host::{Device, Plugin};
use dat_plugin::{Config, Failure, Status};

/// A layer as it is asked for: its name and its parameters, values as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Spec {
    /// One of [`NAMES`].
    pub name: String,
    /// As in `plugins.toml`.
    pub params: BTreeMap<String, String>,
}

/// The layers there are.
pub const NAMES: [&str; 3] = ["trace", "count", "faults"];

impl Spec {
    /// A layer without parameters.
    pub fn new(name: impl Into<String>) -> Spec {
        Spec { name: name.into(), params: BTreeMap::new() }
    }

    /// Reads `NAME` or `NAME:KEY=VALUE,KEY=VALUE`, as command lines have it.
    pub fn parse(text: &str) -> Result<Spec, Failure> {
        let (name, params) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = Spec::new(name);
        for param in params.split(',').filter(|param| !param.is_empty()) {
            let (key, value) = param.split_once('=').ok_or_else(|| {
                Failure::new(Status::BAD_CONFIG, format!("layer {text:?}: {param:?} is no KEY=VALUE"))
            })?;
            spec.params.insert(key.trim().to_owned(), value.trim().to_owned());
        }
        spec.check()?;
        Ok(spec)
    }

    /// Reads several of them, separated by commas too: `trace,faults:seed=7,delay_us=300`. A piece that is `KEY=VALUE`
    /// belongs to the layer before it.
    pub fn parse_list(text: &str) -> Result<Vec<Spec>, Failure> {
        let mut layers: Vec<String> = Vec::new();
        for piece in text.split(',') {
            let of_the_last = piece.find('=').is_some_and(|equals| !piece[..equals].contains(':'));
            match layers.last_mut().filter(|_| of_the_last) {
                Some(layer) => {
                    layer.push(if layer.contains(':') { ',' } else { ':' });
                    layer.push_str(piece);
                }
                None => layers.push(piece.trim().to_owned()),
            }
        }
        layers.iter().map(|layer| Spec::parse(layer)).collect()
    }

    /// Fails on a name or parameter that does not exist, and on a value that makes no sense.
    pub fn check(&self) -> Result<(), Failure> {
        let config = self.config("a layer");
        match self.name.as_str() {
            "trace" | "count" => config.check_known(&[]),
            "faults" => faults::Plan::parse(&config).map(|_| ()),
            other => {
                let known = NAMES.join(", ");
                let message = format!("there is no layer {other:?}; the layers are: {known}");
                Err(Failure::new(Status::BAD_CONFIG, message))
            }
        }
    }

    fn config(&self, ia_name: &str) -> Config {
        Config { ia_name: format!("{ia_name}, layer {}", self.name), params: self.params.clone() }
    }
}

impl fmt::Display for Spec {
    /// As [`Spec::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (nth, (key, value)) in self.params.iter().enumerate() {
            write!(f, "{}{key}={value}", if nth == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

/// The plugin with these layers over every device it opens, the first one next to the application. Without layers it
/// is the plugin itself.
pub fn over(plugin: Plugin, layers: &[Spec]) -> Result<Plugin, Failure> {
    layers.iter().rev().try_fold(plugin, |plugin, spec| {
        spec.check()?;
        let (spec, provider) = (spec.clone(), plugin.name().to_owned());
        Ok(plugin.wrapped(Arc::new(move |device, config| wrap(&spec, &provider, device, config))))
    })
}

fn wrap(spec: &Spec, provider: &str, device: Device, config: &Config) -> Result<Device, Failure> {
    let ia = &config.ia_name;
    match spec.name.as_str() {
        "trace" => layer::over(device, trace::Trace::new(ia)),
        "count" => layer::over(device, count::Count::new(ia, provider)),
        _ => layer::over(device, faults::Faults::new(ia, faults::Plan::parse(&spec.config(ia))?)?),
    }
}
