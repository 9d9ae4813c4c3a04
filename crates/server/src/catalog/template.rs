//! URI templates of level 1 (RFC 6570): `test://items/{id}/data`.

use std::collections::BTreeMap;
use std::iter::zip;

/// A compiled template.
///
/// A variable never spans a `/`, so template and URI are compared segment by segment. A match takes time linear in the URI,
/// for every template.
#[derive(Debug)]
pub(super) struct UriTemplate {
    segments: Vec<Segment>,
}

/// The text before the first variable, then each variable with the text after it.
#[derive(Debug)]
struct Segment {
    prefix: String,
    variables: Vec<(String, String)>,
}

impl UriTemplate {
    /// Parses a template.
    pub(super) fn parse(template: &str) -> Result<Self, &'static str> {
        let segments = template.split('/').map(Segment::parse).collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<_> = segments
            .iter()
            .flat_map(|s| &s.variables)
            .map(|(name, _)| name)
            .collect();
        let all = names.len();
        names.sort();
        names.dedup();
        if names.len() < all {
            return Err("a variable appears twice");
        }
        Ok(UriTemplate { segments })
    }

    /// The variables of `uri`, percent-decoded, if it matches.
    pub(super) fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        if uri.split('/').count() != self.segments.len() {
            return None;
        }
        for (segment, text) in zip(&self.segments, uri.split('/')) {
            segment.matches(text, &mut found)?;
        }
        Some(found)
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split('{');
        let prefix = parts.next().unwrap_or_default();
        let variables = parts
            .map(|part| part.split_once('}').ok_or("a `{` is never closed"))
            .collect::<Result<Vec<_>, _>>()?;
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !variables.iter().all(|(name, _)| is_name(name)) {
            return Err("only plain `{name}` variables are supported");
        }
        if prefix.contains('}') || variables.iter().any(|(_, after)| after.contains('}')) {
            return Err("a `}` was never opened");
        }
        if variables.iter().rev().skip(1).any(|(_, after)| after.is_empty()) {
            return Err("two variables touch");
        }
        Ok(Segment {
            prefix: prefix.to_owned(),
            variables: variables
                .into_iter()
                .map(|(n, a)| (n.to_owned(), a.to_owned()))
                .collect(),
        })
    }

    /// Each variable gets the shortest text, at least one character, after which the rest matches. The last one gets the
    /// remaining text. As with wildcards, if this does not match, nothing does.
    fn matches(&self, text: &str, found: &mut BTreeMap<String, String>) -> Option<()> {
        let mut rest = text.strip_prefix(self.prefix.as_str())?;
        let Some(((last, suffix), others)) = self.variables.split_last() else {
            return rest.is_empty().then_some(());
        };
        for (name, after) in others {
            let skip = rest.chars().next()?.len_utf8();
            let end = skip + rest[skip..].find(after.as_str())?;
            found.insert(name.clone(), decode(&rest[..end])?);
            rest = &rest[end + after.len()..];
        }
        found.insert(last.clone(), decode(rest.strip_suffix(suffix.as_str())?)?);
        Some(())
    }
}

/// The value that a template engine wrote as `text`. Such an engine never writes an empty value or a bare `?` or `#`.
fn decode(text: &str) -> Option<String> {
    if text.is_empty() || text.contains(['?', '#']) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |b: Option<u8>| char::from(b?).to_digit(16);
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Some("a=1 b=2")`, or nothing.
    fn found(template: &str, uri: &str) -> Option<String> {
        let variables = UriTemplate::parse(template).unwrap().matches(uri)?;
        let shown: Vec<_> = variables.iter().map(|(k, v)| format!("{k}={v}")).collect();
        Some(shown.join(" "))
    }

    #[test]
    fn a_variable_is_one_path_segment_or_part_of_one() {
        for (template, uri, expected) in [
            ("test://template/{id}/data", "test://template/123/data", Some("id=123")),
            (
                "test://template/{id}/data",
                "test://template/a%2Fb%20%C3%A9/data",
                Some("id=a/b é"),
            ),
            ("test://template/{id}/data", "test://template/ü/data", Some("id=ü")),
            ("test://template/{id}/data", "test://template/1/2/data", None),
            ("test://template/{id}/data", "test://template//data", None),
            ("test://template/{id}/data", "test://template/1/data/", None),
            ("test://template/{id}/data", "test://template/1/dat", None),
            ("test://template/{id}/data", "test://template/1?x=2/data", None),
            ("test://template/{id}/data", "xtest://template/1/data", None),
            ("test://{a}/{b}", "test://x/y", Some("a=x b=y")),
            ("f:///{name}.json", "f:///a.json.json", Some("name=a.json")),
            ("f:///{name}.json", "f:///.json", None),
            ("f:///{a}-{b}", "f:///1-2-3", Some("a=1 b=2-3")),
            ("f:///{a}-{b}", "f:///-2-3", Some("a=-2 b=3")),
            ("f:///{a}-{b}", "f:///12", None),
            ("f:///{a}", "f:///%", None),
            ("f:///{a}", "f:///%4", None),
            ("f:///{a}", "f:///%zz", None),
            ("f:///{a}", "f:///%ff", None),
            ("f:///plain", "f:///plain", Some("")),
            ("f:///plain", "f:///plainer", None),
        ] {
            assert_eq!(found(template, uri).as_deref(), expected, "{template} {uri}");
        }
    }

    #[test]
    fn templates_beyond_level_one_are_refused() {
        for bad in [
            "a/{",
            "a/{}",
            "a/{+b}",
            "a/{?b}",
            "a/{b*}",
            "a/{b,c}",
            "a/{b}{c}",
            "a/b}",
            "a/{b}}",
            "a/{b}/{b}",
        ] {
            assert!(UriTemplate::parse(bad).is_err(), "{bad}");
        }
    }
}
