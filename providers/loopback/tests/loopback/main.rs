//! The provider as the engine sees it: through the tables of the plugin interface and the host's handles.

mod connect;
mod extended;
mod limits;
mod messages;
mod one_sided;
mod queue;
mod setup;
mod threads;
