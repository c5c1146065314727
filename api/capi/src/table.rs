//! The `DAT_PROVIDER` table of this library, and the functions that are exported, both made from one list.
//!
//! A slot never points at an exported symbol. When another `libdat2` loads this library as a provider, both define the
//! same names, and the dynamic linker takes the other's.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::abi::*;
use crate::calls;
use crate::code::guarded;
use crate::foreign;

/// The table for IAs of this name. It is never freed: the first word of a stale handle still leads to it.
pub fn table(name: &str) -> &'static Provider {
    static TABLES: LazyLock<Mutex<HashMap<String, &'static Provider>>> = LazyLock::new(Mutex::default);
    TABLES.lock().entry(name.to_owned()).or_insert_with(|| {
        let name: &'static _ = Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str());
        Box::leak(Box::new(of_name(name.as_ptr())))
    })
}

macro_rules! functions {
    ($($mode:ident $slot:ident $symbol:ident $module:ident::$call:ident ($first:ident $(, $name:ident: $type:ty)*);)*) => {
        /// A table with this name.
        const fn of_name(device_name: *const c_char) -> Provider {
            Provider {
                device_name,
                extension: std::ptr::null_mut(),
                ia_open_func: slots::ia_open_func,
                $($slot: slots::$slot,)*
                ia_ha_related_func: slots::ia_ha_related_func,
                handle_extendedop_func: slots::handle_extendedop_func,
            }
        }

        /// The functions in the table's slots.
        mod slots {
            use super::*;

            pub unsafe extern "C" fn ia_open_func(
                name: *const c_char,
                qlen: Count,
                evd: *mut Handle,
                ia: *mut Handle,
            ) -> Return {
                // SAFETY: the caller passes arguments as the headers demand.
                guarded(|| unsafe { calls::ia::open_for_registry(name, qlen, evd, ia, table) })
            }

            pub unsafe extern "C" fn ia_ha_related_func(ia: Handle, name: *const c_char, answer: *mut Boolean) -> Return {
                // SAFETY: the caller passes arguments as the headers demand.
                guarded(|| unsafe { calls::ia::related(ia, name, answer) })
            }

            pub unsafe extern "C" fn handle_extendedop_func(handle: Handle, op: c_int, list: *mut c_void) -> Return {
                // SAFETY: the caller passes valid arguments; `list` is a `va_list`.
                guarded(|| unsafe { calls::extension::from_list(handle, op, list, table) })
            }

            $(
                pub unsafe extern "C" fn $slot($first: Handle $(, $name: $type)*) -> Return {
                    // SAFETY: the caller passes arguments as the headers demand.
                    guarded(|| unsafe { calls::$module::$call($first $(, $name)*) })
                }
            )*
        }

        /// The functions that the library exports.
        pub mod exports {
            use super::*;

            $(functions!(@$mode $slot $symbol $module::$call ($first $(, $name: $type)*));)*
        }
    };
    (@export $slot:ident $symbol:ident $module:ident::$call:ident ($first:ident $(, $name:ident: $type:ty)*)) => {
        #[doc = concat!("`", stringify!($symbol), "` of uDAPL 2.0.")]
        ///
        /// # Safety
        /// Pointers are null or valid, as the headers say.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($first: Handle $(, $name: $type)*) -> Return {
            // SAFETY: an object of a provider registered by the application begins with that provider's table.
            if let Some((provider, $first)) = unsafe { foreign::route($first) } {
                // SAFETY: the arguments are the caller's, for the provider the object is of.
                return unsafe { (provider.$slot)($first $(, $name)*) };
            }
            // SAFETY: the caller passes arguments as the headers demand.
            guarded(|| unsafe { calls::$module::$call($first $(, $name)*) })
        }
        crate::symbol_version!($symbol);
    };
    (@slot $slot:ident $symbol:ident $module:ident::$call:ident ($first:ident $(, $name:ident: $type:ty)*)) => {};
}

for_each_function!(functions);
