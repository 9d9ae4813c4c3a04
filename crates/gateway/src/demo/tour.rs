//! The guided tour of the demo. Every command works as printed, in bash and in zsh.

use crate::output::Styles;

/// The start message of `rethread demo`. `base` is its URL, such as `http://127.0.0.1:8080`.
pub(crate) fn tour(base: &str, color: bool) -> String {
    let Styles { bold, dim, plain, .. } = Styles::new(color);
    let [headers, session, call, resume] = commands(&format!("{base}/mcp"));
    format!(
        "\
{bold}rethread demo is ready at {base}/mcp{plain}

In another terminal:

{bold}1. Open a session.{plain}
{headers}
{session}

{bold}2. Start a call of ten seconds, and press Ctrl-C before it ends.{plain} Every event has an id.
{call}

{bold}3. Resume the stream.{plain} The call has continued. Replace 1-3 by the last id you saw, or keep it.
{resume}

{dim}Or add it to a client: claude mcp add --transport http rethread-demo {base}/mcp
Ctrl-C here stops the demo. For your own server: rethread serve -- COMMAND{plain}
"
    )
}

/// Headers, session, call, resume. The headers are an array, since zsh does not split words as bash does. No line ends with
/// a comment, since zsh would pass it as arguments.
fn commands(url: &str) -> [String; 4] {
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}"#;
    let countdown = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"countdown","arguments":{"seconds":10},"_meta":{"progressToken":1}}}"#;
    [
        "H=(-H 'accept: application/json, text/event-stream' -H 'content-type: application/json')".to_owned(),
        format!(
            r#"SESSION=$(curl -si {url} "${{H[@]}}" -d '{initialize}' | awk -F'[ \r]' '/^mcp-session-id/{{print $2}}')"#
        ),
        format!(r#"curl -N {url} "${{H[@]}}" -H "mcp-session-id: $SESSION" -d '{countdown}'"#),
        format!(r#"curl -N {url} "${{H[@]}}" -H "mcp-session-id: $SESSION" -H 'last-event-id: 1-3'"#),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tour_shows_every_command_on_its_own_line() {
        let text = tour("http://127.0.0.1:1", false);
        for command in commands("http://127.0.0.1:1/mcp") {
            assert!(text.lines().any(|line| line == command), "{command}");
        }
        assert!(!text.contains('\x1b'));
        assert!(tour("x", true).contains('\x1b'));
    }

    #[test]
    fn bodies_are_json_in_single_quotes() {
        for command in commands("http://x/mcp") {
            let Some((_, body)) = command.split_once("-d '") else {
                continue;
            };
            let body = body.split('\'').next().unwrap();
            assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
        }
    }
}
