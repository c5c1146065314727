//! Sound but for a symbol that no library defines.

const NAME: &str = "test-missing-dep";

unsafe extern "C" {
    fn dat_test_symbol_that_nobody_defines();
}

fn at_open() {
    // SAFETY: the symbol does not exist, so that the dynamic loader refuses this library before anything of it runs;
    // that refusal is what the library is for.
    unsafe { dat_test_symbol_that_nobody_defines() }
}

fn at_post() {}

include!("../../trivial.rs");
