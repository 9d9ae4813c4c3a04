//! Expands `${VAR}` in the variables of a file, so that secrets stay out of it.

/// Why a value cannot be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExpandError {
    NotSet(String),
    /// `${` without a name and `}`.
    Malformed,
}

/// Expands a value. Returns also whether it had variables. `$${` stands for `${`; a single `$` stands for itself.
pub(crate) fn expand(text: &str, var: impl Fn(&str) -> Option<String>) -> Result<(String, bool), ExpandError> {
    let (mut out, mut rest, mut expanded) = (String::new(), text, false);
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        let (name, after) = rest[at + 2..].split_once('}').ok_or(ExpandError::Malformed)?;
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(valid) {
            return Err(ExpandError::Malformed);
        }
        out.push_str(&rest[..at]);
        out.push_str(&var(name).ok_or_else(|| ExpandError::NotSet(name.to_owned()))?);
        (rest, expanded) = (after, true);
    }
    out.push_str(rest);
    Ok((out, expanded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expand_replaces_variables() {
        let var = |name: &str| (name == "A").then(|| "1".to_owned());
        let table = [
            ("plain $5", Ok(("plain $5".to_owned(), false))),
            ("${A}", Ok(("1".to_owned(), true))),
            ("x${A}y${A}", Ok(("x1y1".to_owned(), true))),
            ("$${A}", Ok(("${A}".to_owned(), false))),
            ("$${A}${A}", Ok(("${A}1".to_owned(), true))),
            ("${B}", Err(ExpandError::NotSet("B".to_owned()))),
            ("${A", Err(ExpandError::Malformed)),
            ("${}", Err(ExpandError::Malformed)),
            ("${A:-x}", Err(ExpandError::Malformed)),
        ];
        for (text, expected) in table {
            assert_eq!(expand(text, var), expected, "{text}");
        }
    }
}
