//! Masks secrets in `check`, in the start message and in the log.

/// Replaces a secret.
pub(crate) const MASK: &str = "******";

const SECRET_WORDS: [&str; 8] = [
    "TOKEN",
    "KEY",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTHORIZATION",
];

/// Whether a variable or a flag of this name usually holds a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// The value of a variable for people. An `expanded` value comes from the environment and is masked.
pub(crate) fn mask_variable(name: &str, value: &str, expanded: bool) -> String {
    if expanded || is_secret_name(name) {
        MASK.to_owned()
    } else {
        mask_password(value)
    }
}

/// Arguments for people. Masks `--token x`, `--token=x`, `Authorization: x` and passwords in URLs.
pub(crate) fn mask_args<'a>(args: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut is_secret = false;
    let shown = args.into_iter().map(|arg| {
        let masked = std::mem::take(&mut is_secret) && !arg.starts_with('-');
        if masked {
            return MASK.to_owned();
        }
        let flag = arg.starts_with('-');
        match arg.split_once('=') {
            // Also without dashes: `docker run -e TOKEN=x` and `env TOKEN=x` are common.
            Some((name, _)) if is_secret_name(name) && !name.contains("://") => format!("{name}={MASK}"),
            // A header, as `mcp-remote --header` takes it.
            None if is_secret_header(arg) => {
                let name = arg.split(':').next().unwrap_or_default();
                format!("{name}: {MASK}")
            }
            None if flag && is_secret_name(arg) => {
                is_secret = true;
                arg.to_owned()
            }
            _ => mask_password(arg),
        }
    });
    shown.collect()
}

/// Whether a text is a header with a secret, such as `Authorization: Bearer x`.
fn is_secret_header(text: &str) -> bool {
    let is_header_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let header = text.split_once(':').filter(|(_, value)| !value.is_empty());
    header.is_some_and(|(name, _)| is_header_name(name) && is_secret_name(name))
}

/// A command line for people, quoted for a shell, with secrets masked.
pub(crate) fn display_command(command: &str, args: &[String]) -> String {
    let mut words = vec![shell_quote(command)];
    let args = mask_args(args.iter().map(String::as_str));
    words.extend(args.iter().map(|arg| shell_quote(arg)));
    words.join(" ")
}

/// Masks the password of `scheme://user:password@host`.
fn mask_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password may contain `@`, so the last one counts.
    match rest[..end].rsplit_once('@').map(|(user, _)| user.split_once(':')) {
        Some(Some((user, password))) => {
            let after = &rest[user.len() + 1 + password.len()..];
            format!("{scheme}://{user}:{MASK}{after}")
        }
        _ => text.to_owned(),
    }
}

/// Quotes a word for a shell. Escapes control characters, which could manipulate the terminal.
pub(crate) fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c) || (c == '*' && word.contains(MASK));
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if word.chars().any(char::is_control) {
        let escaped: String = word.chars().flat_map(char::escape_default).collect();
        format!("$'{escaped}'")
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognized() {
        for name in ["GITHUB_TOKEN", "api_key", "Db_Password", "CLIENT_SECRET", "--api-key"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["HOME", "PORT", "LOG_LEVEL"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn variables_are_masked_by_name_source_and_content() {
        assert_eq!(mask_variable("A_TOKEN", "x", false), MASK);
        assert_eq!(mask_variable("REGION", "x", true), MASK);
        assert_eq!(mask_variable("REGION", "eu", false), "eu");
        assert_eq!(mask_variable("DB", "pg://me:pw@h/d", false), "pg://me:******@h/d");
    }

    #[test]
    fn command_lines_are_masked_and_quoted() {
        let shown = |line: &[&str]| {
            let args: Vec<_> = line[1..].iter().map(|&arg| arg.to_owned()).collect();
            display_command(line[0], &args)
        };
        let table: [(&[&str], &str); 9] = [
            (&["npx", "-y", "@scope/server@1"], "npx -y @scope/server@1"),
            (&["s", "--token", "abc", "x"], "s --token ****** x"),
            (&["s", "--api-key=abc"], "s --api-key=******"),
            (&["s", "--token", "--verbose"], "s --token --verbose"),
            (&["docker", "-e", "MY_SECRET=1"], "docker -e MY_SECRET=******"),
            (
                &["s", "postgres://u:p@ss@host/db?key=1"],
                "s 'postgres://u:******@host/db?key=1'",
            ),
            (&["s", "--header", "X-API-Key: a b"], "s --header 'X-API-Key: ******'"),
            (&["s", "it's", ""], r"s 'it'\''s' ''"),
            (&["s", "a\x1b[31mb"], r"s $'a\u{1b}[31mb'"),
        ];
        for (line, expected) in table {
            assert_eq!(shown(line), expected);
        }
    }
}
