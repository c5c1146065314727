//! Panics when something is posted; otherwise sound.

const NAME: &str = "test-panics-in-post";

fn at_open() {}

fn at_post() {
    panic!("on purpose, in post");
}

include!("../../trivial.rs");
