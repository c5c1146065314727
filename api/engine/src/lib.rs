//! DAT semantics, once, over any provider.
