//! Sound. With the feature `newer` it has a table that this version of the interface does not know.

const NAME: &str = "test-newer-minor";

fn at_open() {}

fn at_post() {}

include!("../../trivial.rs");
