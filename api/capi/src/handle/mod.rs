//! Handles: addresses that C programs hold, pass around, free twice and use after they are gone.
//!
//! A handle points at a word that holds the `DAT_PROVIDER *` every uDAPL program may dispatch through. The words lie in
//! one array that is never unmapped ([`cells`]), so that any value can be judged without reading foreign memory. Three
//! things make a stale handle known as such: its cell says which address is valid now, the address differs from one
//! use of the cell to the next, and a cell rests for [`cells::RESTING`] frees before its next use.
//!
//! What a handle stands for may be freed by one thread while another uses it. Readers announce themselves
//! ([`epoch`]), which costs two plain stores; the thread that frees keeps the memory until they have gone.

mod cells;
pub mod epoch;
mod ia_numbers;
mod ids;

use std::ffi::c_void;

pub use cells::is_ours;
pub use ia_numbers::number_of;

use crate::abi::{Handle, Kind, Provider};
use dat_types::ObjectId;
use epoch::Guard;

/// An object that can be behind a handle.
pub trait Object: Send + Sync + Sized + 'static {
    /// What `dat_get_handle_type` says of it.
    const KIND: Kind;
}

/// Makes a handle for `object`, which the engine knows as `id`. Gives the object back when there are too many handles.
pub fn insert<T: Object>(id: ObjectId, provider: *const Provider, object: T) -> Result<Handle, T> {
    let address = Box::into_raw(Box::new(object)).cast::<c_void>();
    match cells::allocate(T::KIND, id, provider, address) {
        Some(handle) => {
            ids::insert(id, handle);
            Ok(handle)
        }
        // SAFETY: made by `Box::into_raw` just above and published nowhere.
        None => Err(*unsafe { Box::from_raw(address.cast::<T>()) }),
    }
}

/// What a handle stands for, as long as `guard` lives; `None` for a null, freed, foreign or wrong-kind handle.
#[inline]
pub fn get<T: Object>(_guard: &Guard, handle: Handle) -> Option<&T> {
    let object = cells::object(handle, T::KIND)?;
    // SAFETY: the cell is of this kind, so `insert::<T>` made the object; `remove` waits for readers that came before
    // it to leave their guard before it drops it.
    Some(unsafe { &*object.cast::<T>() })
}

/// Ends a handle: it is invalid from now on, and what it stood for is dropped once no reader is left. `false`: it was
/// not valid, or of another kind.
pub fn remove<T: Object>(handle: Handle) -> bool {
    let Some((object, id)) = cells::free(handle, T::KIND) else { return false };
    ids::remove(id);
    // SAFETY: `cells::free` hands an object out once, and it is a `T` as its kind says.
    let object = unsafe { Box::from_raw(object.cast::<T>()) };
    epoch::retire(object);
    true
}

/// The handle of the engine's object; null when it has none. For a recently freed object it is the former handle.
#[inline]
pub fn of(id: ObjectId) -> Handle {
    ids::lookup(id)
}

/// The kind of a valid handle, which is an address and not the number of an IA.
pub fn kind(handle: Handle) -> Option<Kind> {
    cells::kind(handle)
}

/// The word the consumer attached to a valid handle.
pub fn context(handle: Handle) -> Option<u64> {
    cells::context(handle)
}

/// Attaches a word; `false`: not a valid handle.
pub fn set_context(handle: Handle, context: u64) -> bool {
    cells::set_context(handle, context)
}

/// Gives an IA's handle the small number that programs know it by.
pub fn assign_number(handle: Handle) -> Option<Handle> {
    ia_numbers::assign(handle)
}

/// Takes the number back.
pub fn release_number(number: Handle) {
    ia_numbers::release(number);
}

/// The address behind an IA's number; an address is returned as it is.
pub fn ia_address(handle: Handle) -> Handle {
    ia_numbers::address(handle)
}

/// Whether this is a number and not an address.
pub fn is_number(handle: Handle) -> bool {
    ia_numbers::is_number(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Pz(#[allow(dead_code)] std::sync::Arc<u32>);
    impl Object for Pz {
        const KIND: Kind = Kind::Pz;
    }
    #[derive(Debug)]
    struct Lmr;
    impl Object for Lmr {
        const KIND: Kind = Kind::Lmr;
    }

    fn provider() -> *const Provider {
        std::ptr::NonNull::<Provider>::dangling().as_ptr()
    }

    #[test]
    fn a_handle_is_good_until_it_is_removed_and_only_for_its_kind() {
        let id = ObjectId(1 << 40);
        let value = std::sync::Arc::new(7);
        let handle = insert(id, provider(), Pz(value.clone())).expect("room");
        assert_eq!(of(id), handle);
        let guard = epoch::enter();
        assert!(get::<Pz>(&guard, handle).is_some());
        assert!(get::<Lmr>(&guard, handle).is_none());
        assert!(get::<Pz>(&guard, handle.wrapping_byte_add(8)).is_none());
        assert!(!remove::<Lmr>(handle));
        assert!(remove::<Pz>(handle));
        assert!(get::<Pz>(&guard, handle).is_none());
        assert!(!remove::<Pz>(handle));
        // This thread is still inside: what it may have a reference to is there.
        assert_eq!(std::sync::Arc::strong_count(&value), 2);
        drop(guard);
        assert!(epoch::tests::is_dropped(&value));
    }

    #[test]
    fn words_that_are_no_handle_are_refused_without_being_read() {
        let guard = epoch::enter();
        for word in [0usize, 1, 2, 8, 4095, 1 << 20, usize::MAX, usize::MAX - 7] {
            assert!(get::<Pz>(&guard, word as Handle).is_none(), "{word:#x}");
        }
        let local = [0u64; 4];
        assert!(get::<Pz>(&guard, local.as_ptr() as Handle).is_none());
    }

    #[test]
    fn the_first_word_of_a_handle_is_the_provider() {
        let handle = insert(ObjectId(1 << 41), provider(), Lmr).expect("room");
        // SAFETY: a valid handle points at a pointer.
        assert_eq!(unsafe { *handle.cast::<*const Provider>() }, provider());
        assert!(set_context(handle, 9));
        assert_eq!(context(handle), Some(9));
        remove::<Lmr>(handle);
        assert_eq!(context(handle), None);
    }
}
