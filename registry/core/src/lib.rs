//! Finds, checks and loads provider plugins by name.
