//! The calls of the plugin ABI: thin implementations over the modules below.

mod channel;
mod device;
mod queue;
mod srq;
