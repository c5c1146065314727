//! The library itself, opened at run time.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::data::{fi_fabric_attr, fi_info};
use crate::objects::fid_fabric;

/// The name looked for, as the dynamic loader looks for it (`LD_LIBRARY_PATH` included).
pub const FILE: &str = "libfabric.so.1";

type GetInfo =
    unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const fi_info, *mut *mut fi_info) -> c_int;

/// libfabric's exported functions. Never unloaded: its providers start threads and leave handlers behind.
#[derive(Debug)]
pub struct Library {
    version: unsafe extern "C" fn() -> u32,
    getinfo: GetInfo,
    freeinfo: unsafe extern "C" fn(*mut fi_info),
    dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    fabric: unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    open: crate::monitor::Open,
    kept_none: OnceLock<c_int>,
    path: PathBuf,
}

impl Library {
    /// The library, opened at the first call. The result never changes.
    pub fn get() -> Result<&'static Library, &'static str> {
        static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
        LIBRARY.get_or_init(Library::open).as_ref().map_err(String::as_str)
    }

    fn open() -> Result<Library, String> {
        // libfabric reads FI_PROVIDER_PATH with plain `getenv` and loads the libraries it finds there.
        if is_secure_execution() {
            return Err(format!(
                "{FILE} is not loaded: this program has more rights than the user who started it (set-uid, set-gid \
                 or file capabilities), and libfabric loads code from folders named in the environment"
            ));
        }
        // SAFETY: libfabric's constructors may run in any process, as they would if it were linked.
        let library = keeping_signals(|| unsafe { libloading::Library::new(FILE) }).map_err(|error| {
            format!("{FILE} cannot be loaded ({error}); install libfabric (Debian: libfabric1)")
        })?;
        // Never closed, so the functions live as long as the process.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        macro_rules! symbol {
            ($name:literal) => {{
                // SAFETY: each symbol has the type of its declaration in libfabric's headers.
                *unsafe { library.get($name) }
                    .map_err(|error| format!("{FILE} has no function it should have: {error}"))?
            }};
        }
        let version = symbol!(b"fi_version\0");
        Ok(Library {
            version,
            getinfo: symbol!(b"fi_getinfo\0"),
            freeinfo: symbol!(b"fi_freeinfo\0"),
            dupinfo: symbol!(b"fi_dupinfo\0"),
            fabric: symbol!(b"fi_fabric\0"),
            strerror: symbol!(b"fi_strerror\0"),
            open: symbol!(b"fi_open\0"),
            kept_none: OnceLock::new(),
            path: path_of(version as *const c_void),
        })
    }

    /// Version of the interface the library offers, major and minor.
    pub fn version(&self) -> (u32, u32) {
        // SAFETY: the function takes nothing and is never unloaded.
        let version = unsafe { (self.version)() };
        (version >> 16, version & 0xFFFF)
    }

    /// Turns libfabric's cache of registrations off in the whole process. To be called before a domain that registers
    /// memory is opened. Fails with a negative error number if other code opened such a domain before.
    pub fn keep_no_registrations(&self) -> Result<(), c_int> {
        // SAFETY: `open` is `fi_open` of this library.
        let result = *self
            .kept_none
            .get_or_init(|| unsafe { crate::monitor::import(self.open, crate::consts::fi_version(1, 17)) });
        if result == 0 { Ok(()) } else { Err(result) }
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// `fi_getinfo`: 0, or a negative error.
    ///
    /// # Safety
    /// `node` and `service` are null or end with 0; `hints` is null or was allocated by this library. On success `out`
    /// is the caller's to free.
    pub unsafe fn getinfo(
        &self,
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        out: &mut *mut fi_info,
    ) -> c_int {
        // SAFETY: the caller passes strings and hints as `# Safety` demands; `out` is a reference.
        unsafe { (self.getinfo)(version, node, service, flags, hints, out) }
    }

    /// `fi_freeinfo`.
    ///
    /// # Safety
    /// `info` was allocated by this library and is not used again.
    pub unsafe fn freeinfo(&self, info: *mut fi_info) {
        // SAFETY: the caller passes an entry of this library and does not use it again.
        unsafe { (self.freeinfo)(info) }
    }

    /// `fi_dupinfo`; of null it is an empty one with all attributes allocated.
    ///
    /// # Safety
    /// `info` is null or was allocated by this library.
    pub unsafe fn dupinfo(&self, info: *const fi_info) -> *mut fi_info {
        // SAFETY: the caller passes null or an entry of this library.
        unsafe { (self.dupinfo)(info) }
    }

    /// `fi_fabric`.
    ///
    /// # Safety
    /// `attr` is that of an info of this library.
    pub unsafe fn fabric(&self, attr: *mut fi_fabric_attr, out: &mut *mut fid_fabric) -> c_int {
        // SAFETY: the caller passes the attribute of an entry of this library; `out` is a reference.
        unsafe { (self.fabric)(attr, out, std::ptr::null_mut()) }
    }

    /// The text of a positive error number.
    pub fn strerror(&self, errno: c_int) -> String {
        // SAFETY: libfabric gives every number a text, which ends with 0 and lives until this thread's next call.
        let text = unsafe { (self.strerror)(errno) };
        if text.is_null() {
            return format!("error {errno}");
        }
        // SAFETY: the text is not null, ends with 0 and is copied before the next call of this thread.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// Whether the kernel marked this process as running with more rights than its starter (`AT_SECURE`).
pub fn is_secure_execution() -> bool {
    // SAFETY: reads the auxiliary vector that the kernel gave this process; an unknown entry reads as 0.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Runs `load` and restores the handlers of signals that end a process. Libraries that libfabric depends on (PSM) replace
/// them when they are loaded: they write a file `*.btr` into the current folder and call `exit`. The shm fabric replaces
/// them when its first endpoint is made, to remove its files.
#[allow(clippy::disallowed_methods, reason = "restores the application's handlers")]
pub fn keeping_signals<T>(load: impl FnOnce() -> T) -> T {
    const SIGNALS: [c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGABRT, libc::SIGINT, libc::SIGTERM];
    let before = SIGNALS.map(disposition);
    let out = load();
    for (signal, before) in SIGNALS.into_iter().zip(&before) {
        let (Some(before), Some(now)) = (before, disposition(signal)) else { continue };
        if now.sa_sigaction != before.sa_sigaction {
            // SAFETY: this is the handler that the process had for this signal before `load`.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
    }
    out
}

#[allow(clippy::disallowed_methods, reason = "reads only")]
fn disposition(signal: c_int) -> Option<libc::sigaction> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: null changes nothing; the structure is filled when the call succeeds.
    unsafe {
        (libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0).then(|| action.assume_init())
    }
}

fn path_of(symbol: *const c_void) -> PathBuf {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `dladdr` accepts any address and fills the structure.
    let found = unsafe { libc::dladdr(symbol, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return PathBuf::from(FILE);
    }
    // SAFETY: the loader's name of a file that is never unloaded; it ends with 0.
    let name = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned();
    std::fs::canonicalize(&name).unwrap_or_else(|_| PathBuf::from(name))
}
