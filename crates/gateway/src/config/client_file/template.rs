//! Texts with variables, in the syntax of clients: `${env:NAME}`, `${NAME}` and `${NAME:-default}`.

use crate::config::secret::MASK;
use std::fmt;

/// A text of a client's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<TemplatePart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Variable { name: String, default: Option<String> },
}

/// A variable that only a client can replace, such as `${input:key}`. Displayed as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnknownVariable(String);

impl UnknownVariable {
    /// A remedy for the user to try.
    pub(super) fn hint(&self) -> &'static str {
        if self.0.starts_with("workspaceFolder") {
            "the path of the folder in its place"
        } else {
            "${env:NAME} in its place, and `export NAME=…` before you start rethread"
        }
    }
}

impl fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`${{{}}}`", self.0.escape_debug())
    }
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, UnknownVariable> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            // Without an end it is plain text.
            let Some((inside, after)) = after.split_once('}') else {
                break;
            };
            parts.push(TemplatePart::Text(before.to_owned()));
            parts.push(parse_variable(inside)?);
            rest = after;
        }
        parts.push(TemplatePart::Text(rest.to_owned()));
        parts.retain(|part| *part != TemplatePart::Text(String::new()));
        Ok(Template(parts))
    }

    pub(crate) fn has_variables(&self) -> bool {
        self.0.iter().any(|part| matches!(part, TemplatePart::Variable { .. }))
    }

    /// Replaces all variables. The error is the name of one that is not set.
    pub(crate) fn expand(&self, var: impl Fn(&str) -> Option<String>) -> Result<String, String> {
        let parts = self.0.iter().map(|part| match part {
            TemplatePart::Text(text) => Ok(text.clone()),
            TemplatePart::Variable { name, default } => {
                var(name).or_else(|| default.clone()).ok_or_else(|| name.clone())
            }
        });
        parts.collect()
    }

    /// For people: values of the environment may be secret.
    pub(super) fn masked(&self) -> String {
        let parts = self.0.iter().map(|part| match part {
            TemplatePart::Text(text) => text,
            TemplatePart::Variable { .. } => MASK,
        });
        parts.collect()
    }

    /// As the value of a variable in a TOML file, which expands `${NAME}` and reads `$${` as `${`. `None` if that syntax cannot
    /// express it.
    pub(crate) fn to_toml_variable(&self) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(literal) => text.push_str(&literal.replace("${", "$${")),
                TemplatePart::Variable { default: Some(_), .. } => return None,
                TemplatePart::Variable { .. } if text.ends_with('$') => return None,
                TemplatePart::Variable { name, .. } => text.push_str(&format!("${{{name}}}")),
            }
        }
        Some(text)
    }
}

fn parse_variable(inside: &str) -> Result<TemplatePart, UnknownVariable> {
    let variable = |name: &str, default: Option<&str>| TemplatePart::Variable {
        name: name.to_owned(),
        default: default.map(str::to_owned),
    };
    match inside {
        "userHome" => return Ok(variable("HOME", None)),
        "pathSeparator" | "/" => return Ok(TemplatePart::Text("/".to_owned())),
        _ => {}
    }
    let name = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (name, None),
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    // Predefined variables of editors are in camel case, those of an environment are not.
    let is_predefined = [
        "workspaceFolder",
        "file",
        "cwd",
        "relativeFile",
        "selectedText",
        "lineNumber",
        "execPath",
    ];
    let is_predefined = inside == name && is_predefined.iter().any(|start| name.starts_with(start));
    if is_name && !is_predefined {
        Ok(variable(name, default))
    } else {
        Err(UnknownVariable(inside.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    #[test]
    fn templates_expand_the_syntax_of_every_client() {
        let var = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "HOME" => Some("/home/me".to_owned()),
            _ => None,
        };
        let table = [
            ("plain $5 {x}", Ok("plain $5 {x}")),
            ("${A}", Ok("1")),
            ("x${env:A}y${A}z", Ok("x1y1z")),
            ("${B:-two}${A:-two}", Ok("two1")),
            ("${B:-}", Ok("")),
            ("${userHome}${/}bin", Ok("/home/me/bin")),
            ("${A", Ok("${A")),
            ("${B}", Err("B")),
            ("${env:B}", Err("B")),
        ];
        for (text, expected) in table {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(parse(text).expand(var), expected, "{text}");
        }
    }

    #[test]
    fn variables_of_editors_are_refused() {
        for text in [
            "${input:key}",
            "${workspaceFolder}/x",
            "${workspaceFolderBasename}",
            "${command:x}",
            "${a b}",
            "${}",
        ] {
            let unknown = Template::parse(text).unwrap_err();
            assert!(
                text.contains(unknown.to_string().trim_matches('`')),
                "{text}: {unknown}"
            );
        }
        assert!(Template::parse("${env:workspaceFolder}").is_ok());
    }

    #[test]
    fn masked_texts_have_no_values() {
        assert_eq!(parse("Bearer ${env:A}").masked(), "Bearer ******");
    }

    #[test]
    fn toml_variables_expand_to_the_same_text() {
        let var = |name: &str| (name == "A").then(|| "1".to_owned());
        for text in ["plain", "x${A}y", "${env:A}", "${", "a$b", "$${", "$", "a${A}$"] {
            let template = parse(text);
            let toml = template.to_toml_variable().unwrap();
            let (expanded, _) = crate::config::expand::expand(&toml, var).unwrap();
            assert_eq!(Ok(expanded), template.expand(var), "{text}: {toml}");
        }
        assert_eq!(parse("${A:-x}").to_toml_variable(), None);
        assert_eq!(parse("$${A}").to_toml_variable(), None);
    }
}
