//! Where an issuer publishes its keys: RFC 8414, then OpenID Connect Discovery.

use serde::Deserialize;

/// The URLs of the metadata of an issuer, in the order in which they are tried. Empty if the issuer is not a URL.
pub fn metadata_urls(issuer: &str) -> Vec<String> {
    let Some((scheme, rest)) = issuer.split_once("://") else {
        return Vec::new();
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = path.trim_end_matches('/');
    vec![
        format!("{scheme}://{host}/.well-known/oauth-authorization-server{path}"),
        format!("{scheme}://{host}{path}/.well-known/openid-configuration"),
    ]
}

/// The URL of the key set in the metadata of `issuer`. `None` if it is not the metadata of this issuer, or if keys of an issuer with
/// TLS would be fetched without it.
pub fn key_set_url(issuer: &str, metadata: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Metadata {
        issuer: String,
        jwks_uri: String,
    }
    let metadata: Metadata = serde_json::from_slice(metadata).ok()?;
    let is_secure = metadata.jwks_uri.starts_with("https://");
    let may_be_plain = issuer.starts_with("http://") && metadata.jwks_uri.starts_with("http://");
    (metadata.issuer == issuer && (is_secure || may_be_plain)).then_some(metadata.jwks_uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_10_metadata_is_found_for_issuers_with_and_without_a_path() {
        for (issuer, urls) in [
            (
                "https://login.example",
                &[
                    "https://login.example/.well-known/oauth-authorization-server",
                    "https://login.example/.well-known/openid-configuration",
                ][..],
            ),
            (
                "https://login.example/",
                &[
                    "https://login.example/.well-known/oauth-authorization-server",
                    "https://login.example/.well-known/openid-configuration",
                ],
            ),
            (
                "https://login.example:8443/realms/corp",
                &[
                    "https://login.example:8443/.well-known/oauth-authorization-server/realms/corp",
                    "https://login.example:8443/realms/corp/.well-known/openid-configuration",
                ],
            ),
            ("corp", &[]),
        ] {
            assert_eq!(metadata_urls(issuer), urls, "{issuer}");
        }
    }

    #[test]
    fn auth_10_metadata_must_be_that_of_the_issuer() {
        let url = |issuer: &str, json: &str| key_set_url(issuer, json.as_bytes());
        let found = url(
            "https://a",
            r#"{"issuer":"https://a","jwks_uri":"https://a/keys","x":1}"#,
        );
        assert_eq!(found.as_deref(), Some("https://a/keys"));
        let plain = url("http://a", r#"{"issuer":"http://a","jwks_uri":"http://a/keys"}"#);
        assert_eq!(plain.as_deref(), Some("http://a/keys"));
        for json in [
            r#"{"issuer":"https://b","jwks_uri":"https://a/keys"}"#,
            r#"{"issuer":"https://a/","jwks_uri":"https://a/keys"}"#,
            r#"{"issuer":"https://a","jwks_uri":"http://a/keys"}"#,
            r#"{"issuer":"https://a","jwks_uri":"file:///etc/passwd"}"#,
            r#"{"issuer":"https://a"}"#,
            "<html>",
            "",
        ] {
            assert_eq!(url("https://a", json), None, "{json}");
        }
    }
}
