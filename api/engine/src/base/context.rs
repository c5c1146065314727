//! What every object has: one value of the consumer's, and a kind.

use std::sync::atomic::{AtomicU64, Ordering};

/// The consumer's value of an object; 0 at first, never interpreted.
#[derive(Default)]
pub(crate) struct Context(AtomicU64);

impl Context {
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// `dat_set_consumer_context`, `dat_get_consumer_context` and `dat_get_handle_type` for a handle that has a method
/// `checked(&self, call) -> Result<&Context>`, which fails when the object is gone.
macro_rules! object_calls {
    ($handle:ident, $kind:ident) => {
        impl $handle {
            /// `dat_set_consumer_context`: keeps a value of the consumer's with the object, in place of the one before.
            pub fn set_consumer_context(&self, context: u64) -> dat_types::Result<()> {
                self.checked("dat_set_consumer_context")?.set(context);
                Ok(())
            }

            /// `dat_get_consumer_context`: the value set last; 0 if none was.
            pub fn consumer_context(&self) -> dat_types::Result<u64> {
                Ok(self.checked("dat_get_consumer_context")?.get())
            }

            /// `dat_get_handle_type`.
            pub fn handle_type(&self) -> dat_types::Result<dat_types::HandleType> {
                self.checked("dat_get_handle_type")?;
                Ok(dat_types::HandleType::$kind)
            }
        }
    };
}
pub(crate) use object_calls;
