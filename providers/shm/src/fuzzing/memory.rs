//! A peer's key table with any contents, its mapped memory, and this device's own keys against a model.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use dat_plugin::feed::Feed;
use dat_plugin::{Access, Keys, Segment};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::foreign::ForeignFd;
use crate::memory::keys::{KeyTable, KeyView};
use crate::memory::mapped::{MappingCache, Maps, Place};
use crate::memory::target::{List, Part, Target};

const DOMAINS: u32 = 3;

/// Files that a peer may send: sound ones, and ones that lack something.
fn file(feed: &mut Feed<'_>) -> Option<ForeignFd> {
    static FILES: OnceLock<Vec<OwnedFd>> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        let make = |len: u64, filled: bool, seals: SealFlags| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let fd = rustix::fs::memfd_create("fuzz", flags).expect("memory");
            rustix::fs::ftruncate(&fd, len).expect("a length");
            if filled {
                rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, len).expect("pages");
            }
            rustix::fs::fcntl_add_seals(&fd, seals).expect("seals");
            fd
        };
        vec![
            make(8192, true, sealed),
            make(8192, true, sealed | SealFlags::FUTURE_WRITE),
            make(4096, true, sealed | SealFlags::FUTURE_WRITE),
            make(8192, false, sealed | SealFlags::FUTURE_WRITE),
            make(8192, true, SealFlags::empty()),
            std::fs::File::open("/dev/null").expect("a device").into(),
        ]
    });
    let which = feed.u8() as usize % (files.len() + 1);
    files.get(which).map(|fd| fd.try_clone().expect("a descriptor").into())
}

/// Reads the first and the last byte, which must be there.
fn touch(at: *mut u8, len: u64) {
    if len > 0 {
        // SAFETY: the mapping was said to have `len` bytes there, and it lives.
        unsafe { (at.read_volatile(), at.add(len as usize - 1).read_volatile()) };
    }
}

/// A registration as the model has it: place, length, rights, domain.
type Known = (u64, u64, Access, u32);

/// Own registrations, and windows over them.
#[derive(Default)]
struct Model {
    regions: Vec<(Keys, Known)>,
    windows: HashMap<u64, (u32, Option<(u32, Known)>)>,
}

impl Model {
    /// Whether a peer may do this.
    fn allows(&self, target: &Target, right: Access, domain: u32) -> bool {
        let good = |rkey: u32, (addr, len, access, of): Known| {
            let end = u128::from(target.addr) + u128::from(target.len);
            rkey != 0
                && rkey == target.rkey
                && of == domain
                && access.contains(right)
                && target.addr >= addr
                && end <= u128::from(addr) + u128::from(len)
        };
        target.len == 0
            || self.regions.iter().any(|(keys, known)| good(keys.rkey, *known))
            || self.windows.values().any(|(_, bound)| bound.is_some_and(|(rkey, known)| good(rkey, known)))
    }
}

fn any_target(feed: &mut Feed<'_>, keys: &[u32]) -> Target {
    let rkey = if keys.is_empty() || feed.u8().is_multiple_of(4) { feed.u32() } else { feed.pick(keys) };
    Target { addr: feed.edge(), len: feed.edge(), rkey }
}

fn own_keys(feed: &mut Feed<'_>) {
    static TABLE: OnceLock<KeyTable> = OnceLock::new();
    let table = TABLE.get_or_init(|| KeyTable::new().expect("a table"));
    let (mut model, mut rkeys) = (Model::default(), Vec::new());
    let rights = [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    while !feed.is_empty() {
        match feed.u8() % 8 {
            0 if model.regions.len() < 64 => {
                let known = (feed.edge(), feed.edge(), Access(feed.u8().into()), feed.u32() % DOMAINS);
                if let Ok(keys) = table.register(known.0, known.1, known.2, known.3) {
                    rkeys.push(keys.rkey);
                    model.regions.push((keys, known));
                }
            }
            1 if !model.regions.is_empty() => {
                let (keys, _) = model.regions.swap_remove(feed.u8() as usize % model.regions.len());
                assert!(table.invalidate(keys) && !table.invalidate(keys));
            }
            2 if model.windows.len() < 64 => {
                let domain = feed.u32() % DOMAINS;
                model.windows.insert(table.open_window(domain).expect("room"), (domain, None));
            }
            3 if !model.windows.is_empty() => {
                let name = *model.windows.keys().min().expect("one");
                model.windows.remove(&name);
                assert!(table.close_window(name) && !table.close_window(name));
            }
            4 if !model.windows.is_empty() && !model.regions.is_empty() => {
                let name = *model.windows.keys().min().expect("one");
                let (keys, whole) = model.regions[feed.u8() as usize % model.regions.len()];
                let (addr, len, access) = (feed.edge(), feed.u32().max(1), Access(feed.u8().into()));
                // SAFETY: nothing is copied; the table only compares numbers.
                let segment = unsafe { Segment::from_parts(addr, len, keys.lkey) };
                let bound = table.bind(name, Some((segment, access)));
                let window = model.windows.get_mut(&name).expect("known");
                let inside = addr >= whole.0
                    && u128::from(addr) + u128::from(len) <= u128::from(whole.0) + u128::from(whole.1);
                match bound {
                    Some(rkey) => {
                        assert!(inside && window.0 == whole.3, "a window beyond its region");
                        rkeys.push(rkey);
                        window.1 = Some((rkey, (addr, len.into(), access, window.0)));
                    }
                    None => assert!(
                        !inside
                            || window.0 != whole.3
                            || !whole.2.contains(Access::WINDOW | Access::LOCAL_WRITE)
                    ),
                }
            }
            5 => {
                let (rkey, domain) = (any_target(feed, &rkeys).rkey, feed.u32() % DOMAINS);
                let window = model.windows.values_mut().find(|(of, bound)| {
                    *of == domain && bound.is_some_and(|(known, _)| known == rkey && rkey != 0)
                });
                assert_eq!(table.end_window(rkey, domain), window.is_some());
                if let Some((_, bound)) = window {
                    *bound = None;
                }
            }
            _ => {
                let (target, right) = (any_target(feed, &rkeys), feed.pick(&rights));
                let domain = feed.u32() % DOMAINS;
                assert_eq!(table.allows(&target, right, domain), model.allows(&target, right, domain));
            }
        }
    }
    model.regions.iter().for_each(|(keys, _)| assert!(table.invalidate(*keys)));
    model.windows.keys().for_each(|name| assert!(table.close_window(*name)));
}

/// A peer's table, as it likes.
fn peer_keys(feed: &mut Feed<'_>) {
    let view = KeyView::scratch();
    let rows = 1 + feed.u32() % 4;
    for index in 0..rows {
        view.write(index, feed.bytes(64));
    }
    while !feed.is_empty() {
        let (rkey, addr, len) = (view.key(feed.u32() % rows), feed.edge(), feed.edge());
        let rkey = if feed.flag() { feed.u32() } else { rkey };
        if let Some(found) = view.find(rkey, addr, len, Access(feed.u8().into()), feed.u32() % DOMAINS) {
            assert!(addr >= found.addr && rkey != 0);
        }
        let _ = view.place(rkey, addr, len);
    }
}

/// Areas that a peer gives, frees, and names.
fn areas(feed: &mut Feed<'_>) {
    let maps = Maps::new(feed.edge());
    let mut cache = MappingCache::default();
    while !feed.is_empty() {
        let (map, write, len) =
            (u64::from(feed.u8() % 4), feed.flag(), feed.pick(&[8192, 4096, 0, 1, 1 << 46]));
        match feed.u8() % 4 {
            0 => maps.answer(map, write, len, feed.flag(), file(feed)),
            1 => {
                maps.forget(map);
                cache.forget(map);
            }
            2 => {
                let mut payload = [0u64; 2 * Part::BYTES];
                let bytes = feed.bytes(feed.0.len().min(payload.len() * 8));
                // SAFETY: as many bytes as both have; then `len` bytes are readable, and aligned.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), payload.as_mut_ptr().cast(), bytes.len());
                    let _ = List::load(payload.as_ptr().cast(), bytes.len());
                }
            }
            _ => {
                let (offset, len) = (feed.edge(), feed.edge());
                if let Place::At(at) = cache.address(&maps, map, offset, len, write) {
                    touch(at, len);
                }
            }
        }
    }
}

/// Keys and memory.
pub fn memory(bytes: &[u8]) {
    let mut feed = Feed(bytes);
    match feed.u8() % 3 {
        0 => own_keys(&mut feed),
        1 => peer_keys(&mut feed),
        _ => areas(&mut feed),
    }
}
