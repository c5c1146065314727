//! A shared object that is no plugin, for the loader's tests.
