//! What the loader finds in the shared object. Its attributes need unsafe code allowed; the macro vouches for them.
#![allow(unsafe_code)]

dat_plugin::export_provider!(crate::Loopback);
