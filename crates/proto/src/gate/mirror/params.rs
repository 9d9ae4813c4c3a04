//! Tool arguments that are mirrored in headers: `x-mcp-header` in a schema, `Mcp-Param-*` on the wire.

mod integer;
mod schema;

use super::value::{decoded, mismatch, sent, shorten};
use crate::refusal::Reason;
use http::{HeaderMap, HeaderName};
use integer::integer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

pub use schema::{AnnotationFault, BadAnnotation};

/// The mirrored arguments of one tool, found in its `inputSchema` by [`HeaderParams::of_schema`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderParams {
    /// The node of `arguments` itself, which is never mirrored.
    root: Node,
}

/// A mirrored property, or one that contains mirrored properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    param: Option<Param>,
    children: Vec<(String, Node)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Param {
    header: HeaderName,
    /// The header's name as the schema writes it.
    label: String,
    /// The path of the argument, for messages.
    path: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Boolean,
}

impl HeaderParams {
    /// Whether calls of this tool mirror nothing.
    pub fn is_empty(&self) -> bool {
        self.root.children.is_empty()
    }

    /// Checks the headers of a call against its raw `arguments` (HDR-04). Other `Mcp-Param-*` headers are ignored (HDR-06).
    /// Without annotations nothing is read.
    pub fn check(&self, headers: &HeaderMap, arguments: Option<&[u8]>) -> Result<(), Reason> {
        if self.is_empty() {
            return Ok(());
        }
        let arguments = match arguments {
            Some(json) => Some(serde_json::from_slice(json).map_err(|_| mismatch("the arguments are not JSON"))?),
            None => None,
        };
        self.root.check(headers, arguments)
    }
}

impl Node {
    fn check(&self, headers: &HeaderMap, value: Option<&RawValue>) -> Result<(), Reason> {
        if let Some(param) = &self.param {
            param.check(headers, value.map(RawValue::get).filter(|json| *json != "null"))?;
        }
        if self.children.is_empty() {
            return Ok(());
        }
        let values = self.members(value)?;
        for ((_, child), value) in self.children.iter().zip(values) {
            child.check(headers, value)?;
        }
        Ok(())
    }

    /// The values of the children, in their order. A value that is not an object has none.
    fn members<'a>(&self, value: Option<&'a RawValue>) -> Result<Vec<Option<&'a RawValue>>, Reason> {
        match value {
            Some(object) if object.get().starts_with('{') => serde_json::Deserializer::from_str(object.get())
                .deserialize_map(Members(&self.children))
                // The text was parsed before, so the only possible error is a repeated key.
                .map_err(|error| mismatch(format!("the arguments cannot be compared: {error}"))),
            _ => Ok(vec![None; self.children.len()]),
        }
    }
}

/// Picks the values of some keys out of an object.
struct Members<'n>(&'n [(String, Node)]);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = vec![None; self.0.len()];
        while let Some(key) = map.next_key::<Key<'de>>()? {
            match self.0.iter().position(|(name, _)| *name == key.0) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                // The tool's parser may take the first or the last of two equal keys, and this code does not know which.
                Some(at) if values[at].is_some() => {
                    return Err(serde::de::Error::custom(format!("`{}` stands twice", shorten(&key.0))));
                }
                Some(at) => values[at] = Some(map.next_value()?),
            }
        }
        Ok(values)
    }
}

/// A key, borrowed unless it was escaped.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Param {
    /// `json` is the argument, if it is present and not null.
    fn check(&self, headers: &HeaderMap, json: Option<&str>) -> Result<(), Reason> {
        let Param { label, path, .. } = self;
        let (text, json) = match (sent(headers, &self.header, label)?, json) {
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err(mismatch(format!("{label} is missing: it must repeat {path}"))),
            (Some(text), None) => {
                let text = shorten(text);
                return Err(mismatch(format!(
                    "{label} '{text}' repeats nothing: there is no {path}"
                )));
            }
            (Some(text), Some(json)) => (decoded(text, label)?, json),
        };
        let same = match self.kind {
            Kind::Text => serde_json::from_str::<Key<'_>>(json).ok().map(|held| held.0 == text),
            Kind::Boolean => matches!(json, "true" | "false").then_some(json == text),
            Kind::Integer => integer(json).map(|held| integer(&text) == Some(held)),
        };
        match same {
            Some(true) => Ok(()),
            Some(false) => Err(mismatch(format!(
                "{label} '{}' differs from {path} {}",
                shorten(&text),
                shorten(json)
            ))),
            None => {
                let kind = match self.kind {
                    Kind::Text => "a string",
                    Kind::Integer => "an integer within 2^53 - 1 of zero",
                    Kind::Boolean => "a boolean",
                };
                let text = shorten(&text);
                Err(mismatch(format!(
                    "{label} '{text}' repeats nothing: {path} is not {kind}"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{headers, refused};
    use super::*;
    use serde_json::json;

    fn annotated() -> HeaderParams {
        HeaderParams::of_schema(&json!({
            "type": "object",
            "properties": {
                "region": { "type": "string", "x-mcp-header": "Region" },
                "n": { "type": "integer", "x-mcp-header": "N" },
                "dry": { "type": "boolean", "x-mcp-header": "dry-RUN" },
                "plain": { "type": "string" },
                "options": {
                    "type": "object",
                    "properties": {
                        "deep": {
                            "properties": { "zone": { "type": "string", "x-mcp-header": "Zone" } }
                        }
                    }
                }
            }
        }))
        .unwrap()
    }

    fn check(lines: &[(&'static str, &str)], arguments: Option<&str>) -> Option<String> {
        refused(annotated().check(&headers(lines), arguments.map(str::as_bytes)))
    }

    /// HDR-04. The columns: the headers, the arguments, whether they agree.
    #[test]
    fn hdr_04_arguments_and_headers_agree() {
        const REGION: &str = "Mcp-Param-Region";
        const N: &str = "mcp-param-n";
        const DRY: &str = "MCP-PARAM-DRY-RUN";
        const ZONE: &str = "mcp-param-zone";
        type Row<'a> = (&'a [(&'static str, &'a str)], &'a str, bool);
        let table: &[Row<'_>] = &[
            // Neither in the header nor in the body.
            (&[], "{}", true),
            (&[], r#"{"region":null,"n":null,"dry":null,"options":null}"#, true),
            (&[], r#"{"plain":"x","options":{"deep":{}}}"#, true),
            // In the body only.
            (&[], r#"{"region":"eu"}"#, false),
            (&[], r#"{"region":""}"#, false),
            (&[], r#"{"n":0}"#, false),
            (&[], r#"{"dry":false}"#, false),
            (&[], r#"{"options":{"deep":{"zone":"a"}}}"#, false),
            (&[(REGION, "eu")], r#"{"region":"eu","n":1}"#, false),
            // In the header only.
            (&[(REGION, "eu")], "{}", false),
            (&[(REGION, "eu")], r#"{"region":null}"#, false),
            (&[(REGION, "null")], r#"{"region":null}"#, false),
            (&[(REGION, "")], "{}", false),
            (&[(REGION, "")], r#"{"region":null}"#, false),
            (&[(ZONE, "a")], r#"{"zone":"a"}"#, false),
            (&[(ZONE, "a")], r#"{"options":{"zone":"a"}}"#, false),
            (&[(ZONE, "a")], r#"{"options":[{"deep":{"zone":"a"}}]}"#, false),
            (&[(ZONE, "a")], r#"{"options":"deep"}"#, false),
            // Strings.
            (&[(REGION, "eu")], r#"{"region":"eu"}"#, true),
            (&[("mcp-PARAM-region", " eu ")], r#"{"region":"eu"}"#, true),
            (&[(REGION, "EU")], r#"{"region":"eu"}"#, false),
            (&[(REGION, "")], r#"{"region":""}"#, true),
            (&[(REGION, "a b")], r#"{"region":"a b"}"#, true),
            (&[(REGION, "eu")], r#"{"\u0072egion":"\u0065u"}"#, true),
            (&[(REGION, "\"eu\"")], r#"{"region":"eu"}"#, false),
            (&[(REGION, "7")], r#"{"region":"7"}"#, true),
            (&[(REGION, "7")], r#"{"region":7}"#, false),
            (&[(REGION, "7.0")], r#"{"region":"7"}"#, false),
            (&[(REGION, "true")], r#"{"region":true}"#, false),
            (&[(REGION, "{}")], r#"{"region":{}}"#, false),
            (&[(REGION, "x")], r#"{"region":"\ud800"}"#, false),
            // Integers.
            (&[(N, "42")], r#"{"n":42}"#, true),
            (&[(N, "42.0")], r#"{"n":42}"#, true),
            (&[(N, "42")], r#"{"n":42.0}"#, true),
            (&[(N, "4.2e1")], r#"{"n":42}"#, true),
            (&[(N, "42")], r#"{"n":420E-1}"#, true),
            (&[(N, "-7")], r#"{"n":-7}"#, true),
            (&[(N, "-0")], r#"{"n":0}"#, true),
            (&[(N, "7")], r#"{"n":"7"}"#, false),
            (&[(N, "43")], r#"{"n":42}"#, false),
            (&[(N, "-42")], r#"{"n":42}"#, false),
            (&[(N, "42.5")], r#"{"n":42.5}"#, false),
            (&[(N, "042")], r#"{"n":42}"#, false),
            (&[(N, "+42")], r#"{"n":42}"#, false),
            (&[(N, "0x2a")], r#"{"n":42}"#, false),
            (&[(N, "4 2")], r#"{"n":42}"#, false),
            (&[(N, "")], r#"{"n":0}"#, false),
            (&[(N, "9007199254740991")], r#"{"n":9007199254740991}"#, true),
            (&[(N, "-9007199254740991")], r#"{"n":-9007199254740991}"#, true),
            // T-35: these two are equal as floating-point numbers.
            (&[(N, "9007199254740990")], r#"{"n":9007199254740991}"#, false),
            (&[(N, "9007199254740992")], r#"{"n":9007199254740992}"#, false),
            (&[(N, "1e400")], r#"{"n":1e400}"#, false),
            // Booleans.
            (&[(DRY, "true")], r#"{"dry":true}"#, true),
            (&[(DRY, "false")], r#"{"dry":false}"#, true),
            (&[(DRY, "false")], r#"{"dry":true}"#, false),
            (&[(DRY, "True")], r#"{"dry":true}"#, false),
            (&[(DRY, "1")], r#"{"dry":true}"#, false),
            (&[(DRY, "true")], r#"{"dry":"true"}"#, false),
            // Nested, and all together.
            (&[(ZONE, "a")], r#"{"options":{"x":1,"deep":{"zone":"a"}}}"#, true),
            (&[(ZONE, "b")], r#"{"options":{"deep":{"zone":"a"}}}"#, false),
            (
                &[(REGION, "eu"), (N, "1"), (DRY, "true"), (ZONE, "a")],
                r#"{"options":{"deep":{"zone":"a"}},"dry":true,"n":1,"region":"eu"}"#,
                true,
            ),
            // HDR-03
            (
                &[(REGION, "=?base64?SGVsbG8sIOS4lueVjA==?=")],
                "{\"region\":\"Hello, \u{4e16}\u{754c}\"}",
                true,
            ),
            (&[(REGION, "=?base64?IHBhZGRlZCA=?=")], r#"{"region":" padded "}"#, true),
            (
                &[(REGION, "=?base64?bGluZTEKbGluZTI=?=")],
                r#"{"region":"line1\nline2"}"#,
                true,
            ),
            (
                &[(REGION, "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=")],
                r#"{"region":"=?base64?literal?="}"#,
                true,
            ),
            (
                &[(REGION, "=?base64?literal?=")],
                r#"{"region":"=?base64?literal?="}"#,
                false,
            ),
            (&[(REGION, "=?base64?ZXU?=")], r#"{"region":"eu"}"#, false),
            (&[(REGION, "=?base64?ZXU!?=")], r#"{"region":"eu"}"#, false),
            (&[(REGION, "=?base64?ZXU=")], r#"{"region":"eu"}"#, false),
            (&[(REGION, "=?base64?ZXU=")], r#"{"region":"=?base64?ZXU="}"#, true),
            (&[(REGION, "=?BASE64?ZXU=?=")], r#"{"region":"=?BASE64?ZXU=?="}"#, true),
            (&[(N, "=?base64?NDI=?=")], r#"{"n":42}"#, true),
            (&[(DRY, "=?base64?dHJ1ZQ==?=")], r#"{"dry":true}"#, true),
            // HDR-08
            (&[(REGION, "eu"), (REGION, "us")], r#"{"region":"eu"}"#, false),
            (&[(REGION, "eu"), (REGION, "eu")], r#"{"region":"eu"}"#, true),
            (&[(N, "42"), (N, "42.0")], r#"{"n":42}"#, false),
            (&[(REGION, "\u{fc}")], "{\"region\":\"\u{fc}\"}", false),
            (&[(REGION, "\u{fc}")], "{}", false),
            // A repeated key is ambiguous.
            (&[(REGION, "eu")], r#"{"region":"us","region":"eu"}"#, false),
            (&[(REGION, "eu")], r#"{"region":"eu","region":null}"#, false),
            (&[(REGION, "eu")], r#"{"region":"eu","plain":"x","plain":"y"}"#, true),
            // A value that is not an object has no members.
            (&[], "[]", true),
            (&[], "7", true),
            (&[(REGION, "eu")], r#"["eu"]"#, false),
            (&[(REGION, "eu")], r#""eu""#, false),
        ];
        for (lines, arguments, fine) in table {
            let said = check(lines, Some(arguments));
            assert_eq!(said.is_none(), *fine, "{lines:?} {arguments}: {said:?}");
        }
        assert_eq!(check(&[], None), None);
        assert!(check(&[(REGION, "eu")], None).is_some());
    }

    #[test]
    fn hdr_06_headers_that_mirror_nothing_are_ignored() {
        for lines in [
            &[("mcp-param-unknown", "x"), ("mcp-param-plain", "y")][..],
            &[("mcp-param-unknown", "x"), ("mcp-param-unknown", "y")],
            &[("mcp-param-unknown", "\u{fc}")],
            &[("mcp-param-", "x")],
            &[("mcp-param-options", "x")],
            &[("region", "x")],
        ] {
            assert_eq!(check(lines, Some(r#"{"plain":"x"}"#)), None, "{lines:?}");
        }
    }

    #[test]
    fn hdr_04_refusal_names_the_difference() {
        for (line, arguments, said) in [
            (
                None,
                r#"{"region":"eu"}"#,
                "Mcp-Param-Region is missing: it must repeat arguments.region",
            ),
            (
                Some(("mcp-param-zone", "a")),
                "{}",
                "Mcp-Param-Zone 'a' repeats nothing: there is no arguments.options.deep.zone",
            ),
            (
                Some(("mcp-param-region", "eu")),
                r#"{"region":"us"}"#,
                "Mcp-Param-Region 'eu' differs from arguments.region \"us\"",
            ),
            (
                Some(("mcp-param-n", "7")),
                r#"{"n":"7"}"#,
                "Mcp-Param-N '7' repeats nothing: arguments.n is not an integer within 2^53 - 1 of zero",
            ),
            (
                Some(("mcp-param-dry-run", "=?base64?x?=")),
                r#"{"dry":true}"#,
                "Mcp-Param-dry-RUN cannot be decoded: it is not the Base64 of UTF-8 text",
            ),
            (
                Some(("mcp-param-n", "7")),
                r#"{"n":7,"n":7}"#,
                "the arguments cannot be compared: `n` stands twice",
            ),
        ] {
            let lines: Vec<_> = line.into_iter().collect();
            let found = check(&lines, Some(arguments)).unwrap();
            assert!(found.starts_with(said), "{found}");
        }
        let long = json!({ "region": "x".repeat(9000) }).to_string();
        assert!(
            check(&[("mcp-param-region", &"y".repeat(9000))], Some(&long))
                .unwrap()
                .len()
                < 300
        );
    }

    #[test]
    fn hdr_04_without_annotations_nothing_is_read() {
        let none = HeaderParams::of_schema(&json!({ "type": "object" })).unwrap();
        assert!(none.is_empty());
        assert_eq!(none, HeaderParams::default());
        assert!(!annotated().is_empty());
        assert!(
            none.check(&headers(&[("mcp-param-x", "y")]), Some(b"not even JSON"))
                .is_ok()
        );
        assert!(refused(annotated().check(&headers(&[]), Some(b"not even JSON"))).is_some());
    }

    /// An object may be mirrored itself, although that makes no sense, and also contain a mirrored property.
    #[test]
    fn hdr_04_mirrored_property_may_contain_another() {
        let params = HeaderParams::of_schema(&json!({ "properties": { "a": {
            "type": "string", "x-mcp-header": "A",
            "properties": { "b": { "type": "string", "x-mcp-header": "B" } }
        } } }))
        .unwrap();
        let check = |lines: &[(&'static str, &str)], json: &str| {
            refused(params.check(&headers(lines), Some(json.as_bytes()))).is_none()
        };
        assert!(check(&[("mcp-param-a", "x")], r#"{"a":"x"}"#));
        assert!(!check(&[("mcp-param-b", "x")], r#"{"a":{"b":"x"}}"#));
    }
}
