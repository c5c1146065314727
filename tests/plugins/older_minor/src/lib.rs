//! Sound. With the feature `older` it is as version 1.0 of the interface had it, without probing.

const NAME: &str = "test-older-minor";

fn at_open() {}

fn at_post() {}

include!("../../trivial.rs");
