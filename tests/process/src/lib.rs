//! Two processes, kill -9, fork and broken plugins.
