//! A note of interface version 99, and a constructor that leaves a file behind when any of this is run.

/// The layout of a plugin's note, written out because dat-plugin writes its own version only.
#[repr(C, align(4))]
struct Note {
    head: [u32; 3],
    owner: [u8; 4],
    abi: [u32; 2],
    name: [u8; 32],
    version: [u8; 32],
}

#[used]
#[unsafe(link_section = ".note.dat.plugin")]
static NOTE: Note = Note {
    head: [4, 72, 1],
    owner: *b"DAT\0",
    abi: [99, 0],
    name: *b"test-wrong-abi\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    version: *b"9.9.9\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    if let Some(path) = std::env::var_os("DAT_TEST_CONSTRUCTOR_FILE") {
        let _ = std::fs::write(path, "the constructor ran");
    }
}
