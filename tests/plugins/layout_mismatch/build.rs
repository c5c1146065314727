//! Layouts carry the package they are of. The real one's name is written here, so that what differs is the layout.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=CARGO_PKG_NAME=dat-plugin");
}
