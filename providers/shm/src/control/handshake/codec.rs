//! Numbers and private data of packets, as bytes.

/// The most private data.
pub(crate) const MAX_DATA: usize = 256;

pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u16(&mut self, value: u16) -> &mut Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u128(&mut self, value: u128) -> &mut Writer {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn data(&mut self, data: &[u8]) {
        let data = &data[..data.len().min(MAX_DATA)];
        self.u16(data.len() as u16).0.extend_from_slice(data);
    }
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn u128(&mut self) -> Option<u128> {
        Some(u128::from_le_bytes(self.take(16)?.try_into().ok()?))
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u16()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(super) fn data(&mut self) -> Option<Vec<u8>> {
        let len = self.u16()? as usize;
        if len > MAX_DATA {
            return None;
        }
        self.take(len).map(<[u8]>::to_vec)
    }
}
