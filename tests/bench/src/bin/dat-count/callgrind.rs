//! Talking to callgrind: what its header `callgrind.h` has as macros. A request is a sequence of instructions that does
//! nothing on a processor and is recognised by valgrind, which then looks at what `rax` points to.

use std::ffi::CStr;

/// Numbers of requests: valgrind's own, and those of the tool "CT".
const RUNNING: u64 = 0x1001;
const TOOL: u64 = (b'C' as u64) << 24 | (b'T' as u64) << 16;
const ZERO: u64 = TOOL + 1;
const TOGGLE: u64 = TOOL + 2;
const DUMP: u64 = TOOL + 3;

/// Whether this runs under valgrind.
pub(crate) fn runs() -> bool {
    request(RUNNING, 0) != 0
}

/// Forgets what was counted.
pub(crate) fn zero() {
    request(ZERO, 0);
}

/// Begins to count in this thread, or ends it. To be started with `--collect-atstart=no`.
#[inline]
pub(crate) fn toggle() {
    request(TOGGLE, 0);
}

/// Writes what was counted to the next file, under this name.
pub(crate) fn dump(name: &CStr) {
    request(DUMP, name.as_ptr() as u64);
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn request(code: u64, argument: u64) -> u64 {
    let words = [code, argument, 0, 0, 0, 0];
    let mut result = 0u64;
    // SAFETY: four rotations by 128 bits in all leave `rdi` as it was, and an exchange with itself `rbx`; valgrind reads
    // the six words and writes `rdx`.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") result,
            options(nostack),
        );
    }
    result
}

/// Elsewhere the sequence is another one, and the counts would be too.
#[cfg(not(target_arch = "x86_64"))]
fn request(_code: u64, _argument: u64) -> u64 {
    0
}
