//! `cargo xtask capi`: the C library as it is installed: `target/capi/{lib,include}`, and its pkg-config file.
//!
//! The headers are those of `api/capi/include`.

use fs_err as fs;
use std::path::{Path, PathBuf};

use crate::cargo::{build, target_dir};
use crate::report::{Report, Result};
use crate::root::root;

/// The headers in the repository.
const HEADERS: &str = "api/capi/include/dat2";

const LIBRARY: &str = "libdat2.so.2.0.0";
const PLUGINS: [(&str, &str); 4] = [
    ("dat-shm", "libdat_shm.so"),
    ("dat-loopback", "libdat_loopback.so"),
    ("dat-libfabric", "libdat_libfabric.so"),
    ("dat-ibverbs", "libdat_ibverbs.so"),
];

/// Builds and lays out; prints the folder.
pub fn run() -> Report {
    let folder = lay_out()?;
    Ok(format!("{}", folder.display()))
}

/// The same; gives the folder.
pub fn lay_out() -> Result<PathBuf> {
    let packages: Vec<&str> = ["dat-capi"].into_iter().chain(PLUGINS.map(|(package, _)| package)).collect();
    let built = build("release", &packages)?;
    let folder = target_dir()?.join("capi");
    fill(&built, &folder)?;
    Ok(folder)
}

fn fill(built: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let (lib, plugins) = (folder.join("lib"), folder.join("lib/dat"));
    let (include, pkgconfig) = (folder.join("include/dat2"), folder.join("lib/pkgconfig"));
    for each in [&plugins, &include, &pkgconfig] {
        fs::create_dir_all(each)?;
    }
    fs::copy(built.join("libdat2.so"), lib.join(LIBRARY))?;
    std::os::unix::fs::symlink(LIBRARY, lib.join("libdat2.so.2"))?;
    std::os::unix::fs::symlink("libdat2.so.2", lib.join("libdat2.so"))?;
    for (_, file) in PLUGINS {
        fs::copy(built.join(file), plugins.join(file))?;
    }
    for entry in fs::read_dir(root().join(HEADERS))? {
        let entry = entry?;
        fs::copy(entry.path(), include.join(entry.file_name()))?;
    }
    Ok(fs::write(pkgconfig.join("dat2.pc"), pkg_config(folder))?)
}

/// What a program is built with. A space in the path is no end of a word.
fn pkg_config(folder: &Path) -> String {
    format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: dat2\nDescription: uDAPL 2.0 over dat's providers\nVersion: 2.0.0\n\
         Libs: -L${{libdir}} -ldat2\nCflags: -I${{includedir}}\n",
        folder.display().to_string().replace(' ', r"\ ")
    )
}
