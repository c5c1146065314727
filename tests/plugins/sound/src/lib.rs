//! Sound: what is frozen for each released version of the interface.

const NAME: &str = "test-sound";

fn at_open() {}

fn at_post() {}

include!("../../trivial.rs");
