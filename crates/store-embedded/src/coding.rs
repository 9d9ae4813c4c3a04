//! Small pieces of the values: numbers, little-endian, one after the other.

/// Takes numbers and bytes from the front of a value.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    /// A number that takes as many bytes as it needs, seven bits each.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// A value that is one number.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let mut reader = Reader(value);
    let number = reader.u64()?;
    reader.0.is_empty().then_some(number)
}

/// Several numbers as one value.
pub(crate) fn numbers<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
