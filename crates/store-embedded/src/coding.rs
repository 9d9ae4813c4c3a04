//! The encoding of values: LEB128 integers, length-prefixed lists, structs field by field.

use rethread_proto::StreamKind;
use rethread_proto::clock::Wall;
use rethread_proto::jsonrpc::RequestId;
use rethread_store::{Ordinal, Principal, QueuePosition, Retain, Seq, SessionId, SessionKey, StreamInfo};
use std::collections::VecDeque;
use std::sync::Arc;

/// A value that the files of the store contain.
pub(crate) trait Wire: Sized {
    fn encode(&self, buffer: &mut Vec<u8>);
    /// `None` if the bytes are invalid.
    fn decode(decoder: &mut Decoder<'_>) -> Option<Self>;
}

/// Bytes that are being decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A fixed number of bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::decode(self)?;
        self.take(count)
    }

    fn str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

/// Implements [`Wire`] for a struct: its fields in this order. Fields after `;` are not encoded.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(; $($skipped:ident: $value:expr),*)? }) => {
        impl $crate::coding::Wire for $name {
            fn encode(&self, buffer: &mut Vec<u8>) {
                $( $crate::coding::Wire::encode(&self.$field, buffer); )*
            }

            fn decode(decoder: &mut $crate::coding::Decoder<'_>) -> Option<Self> {
                Some($name {
                    $( $field: $crate::coding::Wire::decode(decoder)?, )*
                    $( $( $skipped: $value, )* )?
                })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Implements [`Wire`] by a conversion into another type and back, which may fail.
macro_rules! wire_as {
    ($($name:ty as $other:ty: $into:expr, $from:expr;)*) => {
        $(impl Wire for $name {
            fn encode(&self, buffer: &mut Vec<u8>) {
                let into: fn(&$name) -> $other = $into;
                into(self).encode(buffer);
            }

            fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
                let from: fn($other) -> Option<$name> = $from;
                from(<$other>::decode(decoder)?)
            }
        })*
    };
}
pub(crate) use wire_as;

impl Wire for u64 {
    fn encode(&self, buffer: &mut Vec<u8>) {
        let mut value = *self;
        while value >= 0x80 {
            buffer.push(value as u8 | 0x80);
            value >>= 7;
        }
        buffer.push(value as u8);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = decoder.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

wire_as! {
    u32 as u64: |value| (*value).into(), |value| value.try_into().ok();
    usize as u64: |value| *value as u64, |value| value.try_into().ok();
    bool as u64: |value| (*value).into(), |value| (value < 2).then_some(value == 1);
    Seq as u64: |seq| seq.0, |seq| Some(Seq(seq));
    Ordinal as u64: |ordinal| ordinal.0, |ordinal| Some(Ordinal(ordinal));
    QueuePosition as u64: |position| position.0, |position| Some(QueuePosition(position));
    Wall as u64: |at| at.as_millis(), |at| Some(Wall::from_millis(at));
    Retain as u64: |retain| match retain {
        Retain::None => 0,
        Retain::Question => 1,
        Retain::Answer => 2,
    }, |retain| [Retain::None, Retain::Question, Retain::Answer].get(retain as usize).copied();
    StreamKind as bool: |kind| *kind == StreamKind::Push, |push| Some(match push {
        true => StreamKind::Push,
        false => StreamKind::Call,
    });
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, buffer: &mut Vec<u8>) {
        self.is_some().encode(buffer);
        if let Some(value) = self {
            value.encode(buffer);
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        match bool::decode(decoder)? {
            true => T::decode(decoder).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn encode(&self, buffer: &mut Vec<u8>) {
        T::encode(self, buffer);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        T::decode(decoder).map(Box::new)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, buffer: &mut Vec<u8>) {
        self.0.encode(buffer);
        self.1.encode(buffer);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        Some((A::decode(decoder)?, B::decode(decoder)?))
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, buffer: &mut Vec<u8>) {
        encode_list(self.iter(), buffer);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let count = usize::decode(decoder)?;
        // Each item has at least one byte, so a damaged count cannot exhaust the memory.
        let possible = count <= decoder.0.len();
        possible.then(|| (0..count).map(|_| T::decode(decoder)).collect())?
    }
}

impl<T: Wire> Wire for VecDeque<T> {
    fn encode(&self, buffer: &mut Vec<u8>) {
        encode_list(self.iter(), buffer);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        Vec::decode(decoder).map(VecDeque::from)
    }
}

/// Encodes a list, which decodes as a vector.
pub(crate) fn encode_list<'a, T: Wire + 'a>(items: impl ExactSizeIterator<Item = &'a T>, buffer: &mut Vec<u8>) {
    items.len().encode(buffer);
    items.for_each(|item| item.encode(buffer));
}

fn encode_bytes(bytes: &[u8], buffer: &mut Vec<u8>) {
    bytes.len().encode(buffer);
    buffer.extend_from_slice(bytes);
}

impl Wire for Arc<str> {
    fn encode(&self, buffer: &mut Vec<u8>) {
        encode_bytes(self.as_bytes(), buffer);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        decoder.str().map(Arc::from)
    }
}

impl Wire for RequestId {
    fn encode(&self, buffer: &mut Vec<u8>) {
        encode_bytes(self.as_json(), buffer);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        serde_json::from_slice(decoder.bytes()?).ok()
    }
}

impl Wire for SessionKey {
    fn encode(&self, buffer: &mut Vec<u8>) {
        let (principal, session) = (&self.principal, &self.session);
        for text in [principal.issuer(), principal.subject(), session.as_str()] {
            encode_bytes(text.as_bytes(), buffer);
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let principal = match (decoder.str()?, decoder.str()?) {
            ("", "") => Principal::anonymous(), // shares its strings
            (issuer, subject) => Principal::new(issuer, subject),
        };
        let session = SessionId::parse(decoder.str()?)?;
        Some(SessionKey { principal, session })
    }
}

impl Wire for Arc<StreamInfo> {
    fn encode(&self, buffer: &mut Vec<u8>) {
        self.kind.encode(buffer);
        self.calls.encode(buffer);
        self.node.encode(buffer);
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<Self> {
        let (kind, calls) = (Wire::decode(decoder)?, Vec::decode(decoder)?);
        Some(StreamInfo::new(kind, calls, Arc::<str>::decode(decoder)?).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_and_lists_round_trip(numbers: Vec<u64>, text: String, option: Option<u32>) {
            let value = ((numbers, Arc::<str>::from(text)), option);
            let mut buffer = Vec::new();
            value.encode(&mut buffer);
            let mut decoder = Decoder(&buffer);
            prop_assert_eq!(Wire::decode(&mut decoder), Some(value));
            prop_assert!(decoder.0.is_empty());
        }
    }

    #[test]
    fn invalid_input_is_refused() {
        for invalid in [&[][..], &[0x80], &[0xff; 10], &[0x80; 11]] {
            assert_eq!(u64::decode(&mut Decoder(invalid)), None, "{invalid:?}");
        }
        assert_eq!(Arc::<str>::decode(&mut Decoder(&[5, 1, 2])), None);
        assert_eq!(Vec::<u64>::decode(&mut Decoder(&[9, 1, 2])), None);
        assert_eq!(Option::<u64>::decode(&mut Decoder(&[2, 1])), None);
        assert_eq!(Retain::decode(&mut Decoder(&[3])), None);
    }
}
