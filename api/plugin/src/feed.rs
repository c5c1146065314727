//! The choices of a fuzzer: values taken from its input one after the other, zeros at the end. Only fuzz targets have it.
#![allow(missing_docs, reason = "not part of the interface")]

/// What is left of an input.
#[derive(Debug)]
pub struct Feed<'a>(pub &'a [u8]);

impl<'a> Feed<'a> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `len` bytes, or as many as there are.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let bytes = self.bytes(N);
        out[..bytes.len()].copy_from_slice(bytes);
        out
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.u8() as usize % of.len()]
    }

    /// Small numbers, limits of types and the neighbours of powers of two, or any number.
    pub fn edge(&mut self) -> u64 {
        match self.u8() {
            small @ 0..=127 => small.into(),
            power @ 128..=191 => 1u64 << (power - 128),
            below @ 192..=251 => (1u64 << (below - 188)).wrapping_sub(1),
            252 => u64::MAX,
            253 => self.u16().into(),
            254 => self.u32().into(),
            255 => self.u64(),
        }
    }
}
