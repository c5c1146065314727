//! The provider on a device: everything that needs a kernel's RDMA stack. `cargo xtask rdma` runs it, in an emulated
//! machine or on the device that `DAT_TEST_IBVERBS` names.

mod extended;
mod life;
mod messages;
mod setup;
mod surroundings;
