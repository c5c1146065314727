//! Strings and lists of names and values, in and out.

use std::ffi::{CStr, CString, c_char};

use crate::abi::{Count, NAME_MAX, NamedAttr};

/// A string in a field of fixed size, cut if need be, always terminated.
pub fn fixed(text: &str) -> [c_char; NAME_MAX] {
    let mut out = [0; NAME_MAX];
    for (to, from) in out.iter_mut().take(NAME_MAX - 1).zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}

/// A C string as text; `None` for null. What is no UTF-8 is replaced.
///
/// # Safety
/// `text` is null or points at a terminated string.
pub unsafe fn read(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and terminated as the caller promises.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Names and values as C programs see them, at a fixed place.
pub struct NamedList {
    entries: Box<[NamedAttr]>,
    text: Vec<CString>,
}

// SAFETY: the pointers lead to the strings beside them, which nobody changes.
unsafe impl Send for NamedList {}
// SAFETY: as above.
unsafe impl Sync for NamedList {}

impl NamedList {
    /// Of these pairs. A zero byte in a text ends it.
    pub fn new(pairs: &[(String, String)]) -> NamedList {
        let c = |text: &str| CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
        let text: Vec<CString> = pairs.iter().flat_map(|(name, value)| [c(name), c(value)]).collect();
        let entries = text
            .chunks_exact(2)
            .map(|pair| NamedAttr { name: pair[0].as_ptr(), value: pair[1].as_ptr() })
            .collect();
        NamedList { entries, text }
    }

    /// Whether it is the list of these pairs.
    pub fn says(&self, pairs: &[(String, String)]) -> bool {
        let same = |text: &CString, wanted: &str| {
            text.as_bytes() == wanted.split('\0').next().unwrap_or_default().as_bytes()
        };
        self.text.len() == 2 * pairs.len()
            && self
                .text
                .chunks_exact(2)
                .zip(pairs)
                .all(|(own, (name, value))| same(&own[0], name) && same(&own[1], value))
    }

    /// How many.
    pub fn count(&self) -> Count {
        self.entries.len() as Count
    }

    /// The first; null when there is none.
    pub fn pointer(&self) -> *const NamedAttr {
        match self.entries.is_empty() {
            true => std::ptr::null(),
            false => self.entries.as_ptr(),
        }
    }
}

/// Reads `count` names and values; `None` when that is no list.
///
/// # Safety
/// `list` is null or points at `count` pairs of strings.
pub unsafe fn read_list(list: *const NamedAttr, count: Count) -> Option<Vec<(String, String)>> {
    let count = usize::try_from(count).ok()?;
    if count > 0 && list.is_null() {
        return None;
    }
    (0..count)
        .map(|i| {
            // SAFETY: inside the list by the caller's promise.
            let pair = unsafe { list.add(i).read() };
            // SAFETY: as above.
            unsafe { Some((read(pair.name)?, read(pair.value).unwrap_or_default())) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_and_terminated() {
        let long = fixed(&"x".repeat(300));
        assert_eq!((long[254], long[255]), (b'x' as c_char, 0));
        assert_eq!(fixed("ab")[..3], [b'a' as c_char, b'b' as c_char, 0]);
    }

    #[test]
    fn lists_come_back_as_they_went() {
        let pairs = vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())];
        let list = NamedList::new(&pairs);
        // SAFETY: a list made just now.
        assert_eq!(unsafe { read_list(list.pointer(), list.count()) }, Some(pairs.clone()));
        assert!(list.says(&pairs) && !list.says(&pairs[..1]) && !list.says(&[]));
        assert!(!list.says(&[pairs[0].clone(), ("b".to_owned(), "2".to_owned())]));
        // SAFETY: null is refused or not looked at.
        unsafe {
            assert_eq!(read_list(std::ptr::null(), 0), Some(vec![]));
            assert_eq!(read_list(std::ptr::null(), 1), None);
            assert_eq!(read_list(list.pointer(), -1), None);
        }
    }
}
