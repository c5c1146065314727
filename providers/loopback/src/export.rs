//! The root that the loader finds in the shared object. The macro's attributes need unsafe code allowed.
#![allow(unsafe_code)]

dat_plugin::export_provider!(crate::Loopback);
