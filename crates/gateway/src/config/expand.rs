//! `${VAR}` in the variables of a file: so that secrets need not be in it.

/// Why a value could not be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unexpanded {
    /// The variable is not set.
    Missing(String),
    /// `${` without a name and `}`.
    Malformed,
}

/// A value with its variables filled in, and whether there were any. `$${` stands for `${`; a `$` alone is just a `$`.
pub(crate) fn expand(text: &str, var: impl Fn(&str) -> Option<String>) -> Result<(String, bool), Unexpanded> {
    let (mut out, mut rest, mut expanded) = (String::new(), text, false);
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        let (name, after) = rest[at + 2..].split_once('}').ok_or(Unexpanded::Malformed)?;
        let proper = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(proper) {
            return Err(Unexpanded::Malformed);
        }
        out.push_str(&rest[..at]);
        out.push_str(&var(name).ok_or_else(|| Unexpanded::Missing(name.to_owned()))?);
        (rest, expanded) = (after, true);
    }
    out.push_str(rest);
    Ok((out, expanded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let var = |name: &str| (name == "A").then(|| "1".to_owned());
        let table = [
            ("plain $5", Ok(("plain $5".to_owned(), false))),
            ("${A}", Ok(("1".to_owned(), true))),
            ("x${A}y${A}", Ok(("x1y1".to_owned(), true))),
            ("$${A}", Ok(("${A}".to_owned(), false))),
            ("$${A}${A}", Ok(("${A}1".to_owned(), true))),
            ("${B}", Err(Unexpanded::Missing("B".to_owned()))),
            ("${A", Err(Unexpanded::Malformed)),
            ("${}", Err(Unexpanded::Malformed)),
            ("${A:-x}", Err(Unexpanded::Malformed)),
        ];
        for (text, expected) in table {
            assert_eq!(expand(text, var), expected, "{text}");
        }
    }
}
