//! Comparing the audience of a token with the URLs of a server (AUTH-09).

/// Whether one of the token's audiences equals one of the accepted ones. `accepted` are [normalized](normalized_url).
pub fn accepts_audience<'a>(accepted: &[String], audiences: impl IntoIterator<Item = &'a str>) -> bool {
    let mut audiences = audiences.into_iter();
    // Usually both are equal as they are written: a text that equals a normalized one and ends without a slash is normalized.
    let is_same = |audience: &str| !audience.ends_with('/') && accepted.iter().any(|accepted| accepted == audience);
    audiences.any(|audience| is_same(audience) || accepted.contains(&normalized_url(audience)))
}

/// A URL with its scheme and host in lower case and without one trailing slash. Any other text only loses the slash.
pub fn normalized_url(text: &str) -> String {
    let text = text.strip_suffix('/').unwrap_or(text);
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    format!("{}://{}{path}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_09_audiences_are_equal_except_for_case_of_the_host_and_one_slash() {
        let accepted = ["https://MCP.example/a/mcp", "https://mcp.example/a/sse", "api://Mcp"].map(normalized_url);
        for (audience, fits) in [
            ("https://mcp.example/a/mcp", true),
            ("HTTPS://mcp.EXAMPLE/a/mcp/", true),
            ("https://mcp.example/a/sse", true),
            ("api://mcp", true),
            ("https://mcp.example/a/mcp//", false),
            ("https://mcp.example/A/mcp", false),
            ("https://mcp.example/a/mcp/x", false),
            ("https://mcp.example/a", false),
            ("https://mcp.example/b/mcp", false),
            ("http://mcp.example/a/mcp", false),
            ("https://mcp.example", false),
            ("", false),
        ] {
            assert_eq!(accepts_audience(&accepted, [audience]), fits, "{audience}");
        }
        assert!(accepts_audience(&accepted, ["other", "api://mcp/"]));
        assert!(!accepts_audience(&accepted, []));
    }
}
