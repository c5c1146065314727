//! In-process provider: the executable model of the provider interface.
