//! Identities of objects.

/// The next object id of this process.
pub(crate) fn next_id() -> dat_types::ObjectId {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    dat_types::ObjectId(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
}
