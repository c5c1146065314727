//! What a call through the C library adds: the look-up of a handle. `cargo bench -p dat-bench --bench c_library`.

use std::ffi::{c_char, c_int, c_void};
use std::hint::black_box;

use criterion::Criterion;
use libloading::Library;

type Handle = *mut c_void;
type Open = unsafe extern "C" fn(*const c_char, c_int, *mut Handle, *mut Handle, u32, u32, c_int) -> u32;
type Close = unsafe extern "C" fn(Handle, c_int) -> u32;
type Kind = unsafe extern "C" fn(Handle, *mut c_int) -> u32;
type Create = unsafe extern "C" fn(Handle, *mut Handle) -> u32;

const SUCCESS: u32 = 0;
const KIND_PZ: c_int = 6;
const ABRUPT: c_int = 0;

#[allow(
    clippy::disallowed_methods,
    reason = "this program is the application, and the C library has no other way"
)]
fn main() {
    let program = std::env::current_exe().expect("this program has a path");
    let folder = program.parent().expect("it is in a folder");
    let plugin = folder.join("libdat_loopback.so");
    let names = tempfile::Builder::new().suffix(".toml").tempfile().expect("a temporary file");
    std::fs::write(names.path(), format!("[provider.lo]\nlibrary = {plugin:?}\n")).expect("it is written");
    // SAFETY: nothing else runs yet that could look at the environment.
    unsafe { std::env::set_var("DAT_PLUGINS", names.path()) };
    // SAFETY: the library beside this program, built with it; its functions are as its headers say, and so are the types.
    let (library, open, close, kind, create) = unsafe {
        let library = Library::new(folder.join("libdat2.so")).expect("the C library loads");
        let open = *library.get::<Open>(b"dat_ia_openv").expect("a function of the headers");
        let close = *library.get::<Close>(b"dat_ia_close").expect("a function of the headers");
        let kind = *library.get::<Kind>(b"dat_get_handle_type").expect("a function of the headers");
        let create = *library.get::<Create>(b"dat_pz_create").expect("a function of the headers");
        (library, open, close, kind, create)
    };
    let (mut ia, mut evd, mut pz) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the arguments are as the headers demand, here and below.
    let status = unsafe { open(c"lo".as_ptr(), 8, &raw mut evd, &raw mut ia, 2, 0, 1) };
    assert_eq!(status, SUCCESS, "{} opens", plugin.display());
    // SAFETY: as above.
    assert_eq!(unsafe { create(ia, &raw mut pz) }, SUCCESS);
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("C library");
    group.bench_function("look-up of a handle", |bencher| {
        bencher.iter(|| {
            let mut found = -1;
            // SAFETY: as above.
            let status = unsafe { kind(black_box(pz), &raw mut found) };
            assert!(status == SUCCESS && found == KIND_PZ, "{status:#x}, kind {found}");
        });
    });
    group.finish();
    criterion.final_summary();
    // SAFETY: as above.
    assert_eq!(unsafe { close(ia, ABRUPT) }, SUCCESS);
    // Never unloaded: its threads may still be on their way out.
    std::mem::forget(library);
}
