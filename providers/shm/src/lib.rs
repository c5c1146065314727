//! Shared-memory provider: processes of one host.
