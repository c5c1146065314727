//! What one peer can make this process hold.

use crate::memory::mapped::{MappingCache, Maps, Place};
use crate::memory::mapping::{Pages, Seals, SharedMapping};

fn block(len: usize) -> crate::foreign::ForeignFd {
    let made = SharedMapping::create("hostile", len, Pages::Normal, Seals::BothWrite).unwrap();
    made.fill(0, len).unwrap();
    made.file().unwrap().try_clone_to_owned().unwrap().into()
}

#[test]
fn no_more_of_a_peer_is_mapped_than_is_configured() {
    let maps = Maps::new(3 * 4096);
    for (map, len, mapped) in [(1, 8192, true), (2, 8192, false), (3, 4096, true), (4, 4096, false)] {
        assert!(matches!(MappingCache::default().address(&maps, map, 0, 1, true), Place::Ask));
        maps.answer(map, true, len as u64, false, Some(block(len)));
        assert_eq!(
            matches!(MappingCache::default().address(&maps, map, 0, 1, true), Place::At(_)),
            mapped,
            "{map}"
        );
    }
    // What the peer frees counts no more.
    maps.forget(1);
    maps.answer(5, true, 8192, false, Some(block(8192)));
    assert!(matches!(MappingCache::default().address(&maps, 5, 0, 1, true), Place::At(_)));
    // A sparse file claims much and costs its maker nothing.
    let sparse = SharedMapping::create("hostile", 1 << 40, Pages::Normal, Seals::BothWrite).unwrap();
    let maps = Maps::new(u64::MAX);
    maps.answer(1, true, 1 << 40, false, sparse.file().map(|fd| fd.try_clone_to_owned().unwrap().into()));
    assert!(matches!(MappingCache::default().address(&maps, 1, 0, 1, true), Place::Refused));
}

#[test]
fn a_peer_that_names_ever_new_memory_is_not_asked_for_ever() {
    let maps = Maps::new(u64::MAX);
    let asked = (0..100_000).take_while(|map| {
        let ask = matches!(MappingCache::default().address(&maps, *map, 0, 1, false), Place::Ask);
        maps.answer(*map, false, 0, false, None);
        ask
    });
    assert_eq!(asked.count(), 4096);
}
