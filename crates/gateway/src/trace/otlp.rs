//! Encodes spans as the protobuf message of OTLP, `ExportTraceServiceRequest`. Pure.
//!
//! The messages are few and stable, so they are written by hand. The crates of OpenTelemetry would add 60 more and a megabyte to
//! the program.

use super::context::SpanContext;

/// The side of a call that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Server = 2,
    Client = 3,
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) context: SpanContext,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) links: Vec<SpanContext>,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    /// Nanoseconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: Vec<(&'static str, AttributeValue)>,
    /// The text of an error, if the call failed.
    pub(crate) error: Option<&'static str>,
}

impl Span {
    /// Its size in memory, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = self.attributes.iter().map(|(_, value)| match value {
            AttributeValue::Text(text) => text.len(),
        });
        size_of::<Span>()
            + self.name.len()
            + size_of_val(self.links.as_slice())
            + size_of_val(self.attributes.as_slice())
            + texts.sum::<usize>()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttributeValue {
    Text(String),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        AttributeValue::Text(text.to_owned())
    }
}

/// The request for a batch of spans.
pub(crate) fn encode(service: &str, version: &str, spans: &[Span]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |resource| {
            for (key, value) in [("service.name", service), ("service.version", version)] {
                resource.message(1, |attribute| key_value(attribute, key, &value.into()));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.text(1, "rethread");
                scope.text(2, version);
            });
            for span in spans {
                scope_spans.message(2, |message| encode_span(message, span));
            }
        });
    });
    request.0
}

fn encode_span(message: &mut Message, span: &Span) {
    message.bytes(1, &span.context.trace_id);
    message.bytes(2, &span.context.span_id);
    if let Some(parent) = &span.parent {
        message.bytes(4, parent);
    }
    message.text(5, &span.name);
    message.number(6, span.kind as u64);
    message.fixed64(7, span.start);
    message.fixed64(8, span.end);
    for (key, value) in &span.attributes {
        message.message(9, |attribute| key_value(attribute, key, value));
    }
    for link in &span.links {
        message.message(13, |message| {
            message.bytes(1, &link.trace_id);
            message.bytes(2, &link.span_id);
        });
    }
    if let Some(text) = span.error {
        message.message(15, |status| {
            status.text(2, text);
            status.number(3, 2); // error
        });
    }
}

fn key_value(message: &mut Message, key: &str, value: &AttributeValue) {
    message.text(1, key);
    message.message(2, |any| match value {
        AttributeValue::Text(text) => any.text(1, text),
    });
}

/// A protobuf message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn number(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }
}
