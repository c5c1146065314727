//! How the shared object is linked: its SONAME and the version node of its functions.
//!
//! rustc hands the linker a version script of its own, which has no named node. LLD, rustc's default linker on this
//! target, merges it with ours; the functions get their node by a `.symver` directive beside each (`src/exports.rs`).

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed=exports.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdat2.so.2");
    // Plugins stay loaded and know functions of this library, threads of open IAs run in it: dlclose must leave it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={folder}/exports.map");
}
