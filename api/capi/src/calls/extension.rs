//! `dat_extension_op`: operations beyond the base API, by number (spec: extensions).

use std::ffi::{c_char, c_int, c_void};

use dat_types::{CloseFlags, Subtype};

use super::ia;
use super::post::{posted, remote_of};
use crate::abi::*;
use crate::code::{NOT_IMPLEMENTED, Outcome, handle as bad_handle, parameter};
use crate::handle;
use crate::object::{Ep, Evd, find, find_ia};

const FETCH_AND_ADD: c_int = 0;
const CMP_AND_SWAP: c_int = 1;
const RDMA_WRITE_IMMED: c_int = 2;
const QUERY_COUNTERS: c_int = 4;
const PRINT_COUNTERS: c_int = 5;
const OPEN_QUERY: c_int = 0x1000;
const CLOSE_QUERY: c_int = 0x2000;

/// The words an operation takes besides handle and number.
pub type Words = [u64; 6];

/// The operation with its arguments as words.
pub unsafe fn operation(object: Handle, op: c_int, words: Words, table: ia::TableOf) -> Outcome {
    if op == OPEN_QUERY {
        // SAFETY: the arguments of this operation, null or valid.
        return unsafe { open_query(words, table) };
    }
    let kind = handle::kind(handle::ia_address(object)).ok_or(bad_handle(Subtype::Handle1))?;
    match op {
        // SAFETY: the arguments of these operations, null or valid.
        FETCH_AND_ADD | CMP_AND_SWAP => unsafe { atomic(object, op, words) },
        // SAFETY: the arguments of this operation, null or valid.
        RDMA_WRITE_IMMED => unsafe { write_immediate(object, words) },
        // SAFETY: the arguments of this operation, null or valid.
        QUERY_COUNTERS => unsafe { query_counters(object, kind, words) },
        PRINT_COUNTERS => print_counters(object, kind, words),
        // SAFETY: no pointers.
        CLOSE_QUERY => unsafe { ia::close(object, CloseFlags::Abrupt as u32) },
        _ => Err(NOT_IMPLEMENTED),
    }
}

/// The same with the arguments in a `va_list`: what registries hand to the table's slot.
pub unsafe fn from_list(object: Handle, op: c_int, list: *mut c_void, table: ia::TableOf) -> Outcome {
    let mut words = Words::default();
    if !list.is_null() {
        // SAFETY: a `va_list` of this machine, as the slot's type says.
        let list = unsafe { &mut *list.cast::<List>() };
        for word in words.iter_mut().take(arguments(op)) {
            // SAFETY: the operation's caller passed as many.
            *word = unsafe { list.next() };
        }
    }
    // SAFETY: as the caller promises.
    unsafe { operation(object, op, words, table) }
}

/// How many arguments an operation takes.
fn arguments(op: c_int) -> usize {
    match op {
        FETCH_AND_ADD => 5,
        CMP_AND_SWAP | RDMA_WRITE_IMMED | OPEN_QUERY => 6,
        QUERY_COUNTERS => 3,
        PRINT_COUNTERS => 2,
        _ => 0,
    }
}

/// `va_list` of the System V ABI for x86-64.
#[repr(C)]
struct List {
    general: u32,
    floating: u32,
    overflow: *mut u64,
    saved: *mut u8,
}

impl List {
    /// The next word: integers and pointers take one each.
    ///
    /// # Safety
    /// There is one more.
    unsafe fn next(&mut self) -> u64 {
        const REGISTERS: u32 = 48;
        if self.general < REGISTERS {
            // SAFETY: the save area holds six words, and this is one of them.
            let word = unsafe { self.saved.add(self.general as usize).cast::<u64>().read() };
            self.general += 8;
            return word;
        }
        // SAFETY: further arguments lie behind each other on the stack.
        let word = unsafe { self.overflow.read() };
        // SAFETY: inside of, or one behind, the caller's arguments.
        self.overflow = unsafe { self.overflow.add(1) };
        word
    }
}

/// An atomic operation: one or two operands, local triplet, cookie, remote triplet, flags.
unsafe fn atomic(ep: Handle, op: c_int, words: Words) -> Outcome {
    let (operands, local, cookie, remote, flags) = match (op, words) {
        (FETCH_AND_ADD, [add, local, cookie, remote, flags, _]) => ([add, 0], local, cookie, remote, flags),
        (_, [compare, swap, local, cookie, remote, flags]) => ([compare, swap], local, cookie, remote, flags),
    };
    let [first, second] = operands;
    let remote = remote as *const RmrTriplet;
    let local = local as *const LmrTriplet;
    // SAFETY: null or one triplet.
    unsafe {
        posted(ep, 1, local, flags as u32, Subtype::Arg7, |ep, iov, flags| match op {
            FETCH_AND_ADD => {
                ep.engine.post_fetch_add(first, iov[0], cookie, remote_of(remote, Subtype::Arg6)?, flags)
            }
            _ => {
                let remote = remote_of(remote, Subtype::Arg7)?;
                ep.engine.post_compare_swap(first, second, iov[0], cookie, remote, flags)
            }
        })
    }
}

/// An RDMA write with an immediate value.
unsafe fn write_immediate(ep: Handle, [count, iov, cookie, remote, immediate, flags]: Words) -> Outcome {
    let remote = remote as *const RmrTriplet;
    // SAFETY: null or valid for `count` triplets.
    unsafe {
        posted(ep, count as Count, iov as *const LmrTriplet, flags as u32, Subtype::Arg8, |ep, iov, flags| {
            let remote = remote_of(remote, Subtype::Arg6)?;
            ep.engine.post_rdma_write_immed(iov, cookie, remote, immediate as u32, flags)
        })
    }
}

/// Opens an IA to ask for its attributes.
unsafe fn open_query(
    [name, ia, ia_mask, ia_attr, provider_mask, provider_attr]: Words,
    table: ia::TableOf,
) -> Outcome {
    let ia = ia as *mut Handle;
    let mut evd = NULL;
    // SAFETY: null or valid, says the caller; `evd` is ours.
    unsafe {
        ia::open(name as *const c_char, 8, &mut evd, ia, (2, 0, false), table)?;
        let (ia_attr, provider_attr) = (ia_attr as *mut IaAttr, provider_attr as *mut ProviderAttr);
        let result =
            ia::query(ia.read(), std::ptr::null_mut(), ia_mask, ia_attr, provider_mask, provider_attr);
        if result.is_err() {
            let _ = ia::close(ia.read(), CloseFlags::Abrupt as u32);
        }
        result
    }
}

/// One counter, or all of them when the number is how many there are.
unsafe fn query_counters(object: Handle, kind: Kind, words: Words) -> Outcome {
    let [which, out, reset, ..] = words;
    let out = out as *mut u64;
    if out.is_null() {
        return Err(parameter(Subtype::Arg4));
    }
    for (i, value) in counters(object, kind, which as u32, reset as u32 != 0)?.into_iter().enumerate() {
        // SAFETY: valid for as many as there are counters of this kind, or for the one that was asked for.
        unsafe { out.add(i).write(value.1) };
    }
    Ok(())
}

fn print_counters(object: Handle, kind: Kind, words: Words) -> Outcome {
    let [which, reset, ..] = words;
    for (number, value) in counters(object, kind, which as u32, reset as u32 != 0)? {
        if value > 0 {
            println!("{kind:?} {object:p}: counter {number} = {value}");
        }
    }
    Ok(())
}

/// Numbers and values.
fn counters(object: Handle, kind: Kind, which: u32, reset: bool) -> Outcome<Vec<(usize, u64)>> {
    let which = which as usize;
    let found = match kind {
        Kind::Ia => {
            let ia = find_ia(object)?;
            ia.counters.read(&ia.engine.counters(false)?, which, reset)
        }
        Kind::Ep => {
            let ep = find::<Ep>(object, Subtype::HandleEp)?;
            ep.kept.counters.read(&ep.engine.counters(false)?, which, reset)
        }
        Kind::Evd => {
            let evd = find::<Evd>(object, Subtype::HandleEvdRequest)?;
            evd.counters.read(&evd.engine.counters(false)?, which, reset)
        }
        _ => return Err(bad_handle(Subtype::Handle1)),
    };
    found.ok_or(parameter(Subtype::Arg3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_va_list_is_read_from_registers_then_from_the_stack() {
        // Handle and operation took the first two registers.
        let mut registers: [u64; 6] = [0, 0, 10, 11, 12, 13];
        let mut stack: [u64; 2] = [14, 15];
        let mut list = List {
            general: 16,
            floating: 48,
            overflow: stack.as_mut_ptr(),
            saved: registers.as_mut_ptr().cast(),
        };
        // SAFETY: six words are there.
        let words: Vec<u64> = (0..6).map(|_| unsafe { list.next() }).collect();
        assert_eq!(words, [10, 11, 12, 13, 14, 15]);
    }
}
