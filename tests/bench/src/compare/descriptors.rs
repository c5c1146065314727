//! The limit of descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to the maximum: each connection needs at least one descriptor.
pub(crate) fn many_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum;
    // Where that is refused, the connections will say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}
