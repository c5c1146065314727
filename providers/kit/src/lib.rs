//! What software providers share.
