//! The note of a plugin, and no root module behind it.

use dat_plugin::{Note, ProviderInfo};

#[used]
#[unsafe(link_section = ".note.dat.plugin")]
static NOTE: Note = Note::new(ProviderInfo {
    name: "test-note-only",
    version: env!("CARGO_PKG_VERSION"),
    description: "for tests of the loader",
});
