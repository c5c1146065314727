//! Panics when a device is opened; otherwise sound.

const NAME: &str = "test-panics-on-open";

fn at_open() {
    panic!("on purpose, in open");
}

fn at_post() {}

include!("../../trivial.rs");
