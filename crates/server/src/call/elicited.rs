//! The answer of a user to a form.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The answer of a user to a form.
///
/// ```
/// use rethread::Elicited;
///
/// fn seat(answer: Elicited<String>) -> String {
///     match answer {
///         Elicited::Accept(seat) => seat,
///         Elicited::Decline => "no seat".to_owned(),
///         Elicited::Cancel => "any seat".to_owned(),
///     }
/// }
/// # assert_eq!(seat(Elicited::Accept("12A".to_owned())), "12A");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "the protocol has these three actions, and a match should cover them"
)]
pub enum Elicited<T> {
    /// The user filled in the form.
    Accept(T),
    /// The user refused to answer.
    Decline,
    /// The user closed the form without a choice.
    Cancel,
}

impl<T> Elicited<T> {
    /// The content of the form, if the user accepted it.
    pub fn accepted(self) -> Option<T> {
        match self {
            Elicited::Accept(content) => Some(content),
            Elicited::Decline | Elicited::Cancel => None,
        }
    }
}

#[derive(Deserialize)]
struct ElicitResult<'a> {
    action: Action,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Accept,
    Decline,
    Cancel,
}

/// Reads an `ElicitResult` of the MCP schema. `check` gets the text of an accepted content. An accepted form without content is
/// an empty one.
pub(crate) fn read<T: DeserializeOwned>(
    json: &[u8],
    check: impl FnOnce(&str) -> Result<(), String>,
) -> Result<Elicited<T>, String> {
    let result: ElicitResult<'_> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    Ok(match result.action {
        Action::Accept => {
            let content = result.content.map_or("{}", RawValue::get);
            check(content)?;
            Elicited::Accept(serde_json::from_str(content).map_err(|error| error.to_string())?)
        }
        Action::Decline => Elicited::Decline,
        Action::Cancel => Elicited::Cancel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Name {
        name: Option<String>,
    }

    fn read_name(json: &str) -> Result<Elicited<Name>, String> {
        read(json.as_bytes(), |_| Ok(()))
    }

    #[test]
    fn every_action_is_read() {
        let named = |name: Option<&str>| {
            Elicited::Accept(Name {
                name: name.map(str::to_owned),
            })
        };
        for (json, expected) in [
            (r#"{"action":"accept","content":{"name":"Ada"}}"#, named(Some("Ada"))),
            (r#"{"action":"accept"}"#, named(None)),
            (r#"{"action":"decline","content":{}}"#, Elicited::Decline),
            (r#"{"action":"cancel","content":null,"_meta":{}}"#, Elicited::Cancel),
        ] {
            assert_eq!(read_name(json), Ok(expected), "{json}");
        }
        for bad in [
            "{}",
            r#"{"action":"maybe"}"#,
            r#"{"action":"accept","content":{"name":1}}"#,
        ] {
            assert!(read_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn accepted_content_is_checked() {
        let refuse = |_: &str| Err("too short".to_owned());
        let accepted = read::<Name>(br#"{"action":"accept","content":{}}"#, refuse);
        assert_eq!(accepted, Err("too short".to_owned()));
        assert_eq!(read::<Name>(br#"{"action":"decline"}"#, refuse), Ok(Elicited::Decline));
    }
}
