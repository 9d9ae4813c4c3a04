//! The context of a trace as W3C writes it: `00-TRACE-SPAN-FLAGS`. Pure.

use std::fmt;

/// The flag of a trace that somebody records.
const SAMPLED: u8 = 1;

/// The identity of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanContext {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
    pub(crate) flags: u8,
}

impl SpanContext {
    /// Parses a `traceparent`. `None` if it is malformed: it is ignored then.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let [version] = hex::<1>(version)?;
        // Later versions may add parts at the end. Version 255 is invalid.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace_id, span_id, [flags]) = (hex(trace)?, hex(span)?, hex::<1>(flags)?);
        if trace_id == [0; 16] || span_id == [0; 8] {
            return None;
        }
        Some(SpanContext {
            trace_id,
            span_id,
            flags,
        })
    }

    pub(crate) fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The root of a new trace.
    pub(crate) fn root(trace_id: [u8; 16], span_id: [u8; 8]) -> Self {
        SpanContext {
            trace_id,
            span_id,
            flags: SAMPLED,
        }
    }

    /// A span of the same trace.
    pub(crate) fn child(self, span_id: [u8; 8]) -> Self {
        SpanContext { span_id, ..self }
    }
}

impl fmt::Display for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.span_id));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", self.flags)
    }
}

/// Lower-case hex digits of exactly `N` bytes.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn ops_20_context_is_read_and_written() {
        let context = SpanContext::parse(GOOD).unwrap();
        assert!(context.is_sampled());
        assert_eq!(context.to_string(), GOOD);
        let child = context.child([1; 8]);
        assert_eq!(
            child.to_string(),
            "00-0af7651916cd43dd8448eb211c80319c-0101010101010101-01"
        );
        assert!(
            SpanContext::parse(&GOOD.replace("00-0", "01-0")).is_some(),
            "a later version"
        );
        assert!(!SpanContext::parse(&GOOD.replace("-01", "-00")).unwrap().is_sampled());
    }

    #[test]
    fn ops_20_malformed_context_is_ignored() {
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(SpanContext::parse(bad), None, "{bad}");
        }
    }
}
