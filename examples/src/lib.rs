//! Examples for newcomers.
