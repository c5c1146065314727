//! A number for the calling thread that no other living thread has.

/// Not 0, and a multiple of 8.
#[inline]
pub(crate) fn current() -> usize {
    #[cfg(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_pointer_width = "64",
        not(any(miri, loom))
    ))]
    {
        let own: usize;
        // SAFETY: the first word of a thread's control block is its own address (the ABI's rule for x86-64), and every
        // thread has one as long as it lives.
        unsafe {
            std::arch::asm!("mov {}, fs:[0]", out(reg) own, options(nostack, preserves_flags, readonly, pure));
        }
        own
    }
    #[cfg(all(target_os = "linux", target_arch = "aarch64", not(any(miri, loom))))]
    {
        let own: usize;
        // SAFETY: reads a register that holds the address of the thread's control block.
        unsafe {
            std::arch::asm!("mrs {}, tpidr_el0", out(reg) own, options(nostack, preserves_flags, nomem, pure));
        }
        own
    }
    #[cfg(not(all(
        target_os = "linux",
        any(all(target_arch = "x86_64", target_pointer_width = "64"), target_arch = "aarch64"),
        not(any(miri, loom))
    )))]
    {
        thread_local!(static HERE: u64 = const { 0 });
        HERE.with(|here| &raw const *here as usize)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::current;

    #[test]
    fn threads_that_live_at_once_have_numbers_of_their_own() {
        let here = current();
        assert_eq!((here, here % 8), (current(), 0));
        let barrier = std::sync::Barrier::new(4);
        let numbers: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let number = current();
                        barrier.wait();
                        number
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let all: std::collections::HashSet<usize> = numbers.iter().copied().chain([here, 0]).collect();
        assert_eq!(all.len(), 6, "{numbers:x?} {here:x}");
    }
}
