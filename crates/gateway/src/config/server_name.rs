//! Names of servers, given or derived from their commands.

use super::problem::Problem;
use super::value::ParseResult;
use std::path::Path;

/// The name if a command yields no valid one.
pub(super) const FALLBACK: &str = "server";

/// Programs that run another program. The server is named after the latter.
const RUNNERS: [&str; 14] = [
    "npx", "bunx", "pnpx", "uvx", "pipx", "node", "bun", "deno", "python", "python3", "uv", "npm", "pnpm", "docker",
];

/// Subcommands of runners.
const RUNNER_SUBCOMMANDS: [&str; 5] = ["run", "exec", "dlx", "x", "tool"];

/// The name of a command: its program, or the program that a runner such as `npx` runs.
pub(super) fn derive_name(command: &str, args: &[String]) -> String {
    let program = base_name(command);
    let run = RUNNERS.contains(&program.as_str()).then(|| {
        let mut words = args.iter().map(String::as_str);
        // Skips flags of the runner. A flag with a separate value yields the wrong word; `--name` helps then.
        words.find(|word| !word.starts_with('-') && !RUNNER_SUBCOMMANDS.contains(word))
    });
    let name = run.flatten().map_or(program, package_name);
    let name = sanitize(&name);
    if name.is_empty() { FALLBACK.to_owned() } else { name }
}

/// The folder of a command without a name. Depends on all words and the directory, since different servers must not share
/// sessions.
pub(super) fn derive_folder(name: &str, command: &str, args: &[String], cwd: &Path) -> String {
    let cwd = cwd.to_string_lossy();
    let words = std::iter::once(command).chain(args.iter().map(String::as_str));
    let hash = fnv1a(words.chain([cwd.as_ref()]));
    format!("{name}-{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}

/// Checks that a name fits in a URL and as a folder.
pub(super) fn validate(name: &str) -> ParseResult<String> {
    if is_valid(name) {
        return Ok(name.to_owned());
    }
    let message = format!("`{}` cannot be a server's name", name.escape_debug());
    Err(Problem::new(message).hint("up to 64 of A-Z a-z 0-9 _ - . without a leading dot: the name is part of URLs"))
}

fn is_valid(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(valid) && !name.starts_with('.')
}

/// The last part of a path, without an executable or script extension.
fn base_name(path: &str) -> String {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let endings = [".exe", ".cmd", ".js", ".mjs", ".cjs", ".ts", ".py", ".sh"];
    let ending = endings.iter().find_map(|ending| name.strip_suffix(ending));
    ending.filter(|rest| !rest.is_empty()).unwrap_or(name).to_owned()
}

/// `@scope/name@1.2`, `name==1.2`, `image:tag` and `path/to/name.py` are all `name`.
fn package_name(word: &str) -> String {
    let last = base_name(word);
    let end = last.find(['@', '=', ':', '[']).filter(|&at| at > 0);
    last[..end.unwrap_or(last.len())].to_owned()
}

/// The name with a dash for each character that is not valid. May be empty.
pub(super) fn sanitize(name: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name.chars().map(|c| if valid(c) { c } else { '-' }).take(48).collect();
    name.trim_matches(['-', '.']).to_owned()
}

/// FNV-1a. Stable across builds, unlike the standard hasher.
fn fnv1a<'a>(words: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = words.flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> (String, Vec<String>) {
        let mut words = line.split(' ').map(str::to_owned);
        (words.next().unwrap(), words.collect())
    }

    #[test]
    fn derived_name_follows_from_the_command() {
        let table = [
            ("my-server --flag", "my-server"),
            ("/opt/bin/my-server", "my-server"),
            ("./server.py", "server"),
            ("npx -y @modelcontextprotocol/server-everything", "server-everything"),
            ("npx @scope/name@1.2.3 stdio", "name"),
            ("uvx mcp-server-git==1.0 --repository .", "mcp-server-git"),
            ("uv run server.py", "server"),
            ("node build/index.js", "index"),
            ("python3 -u path/to/weather.py", "weather"),
            ("docker run -i --rm mcp/fetch:latest", "fetch"),
            ("node", "node"),
            ("..", "server"),
        ];
        for (line, expected) in table {
            let (command, args) = words(line);
            assert_eq!(derive_name(&command, &args), expected, "{line}");
        }
        assert!(is_valid(&derive_name("übung äöü", &[])));
    }

    #[test]
    fn derived_folder_differs_between_commands() {
        let of = |line: &str, cwd: &str| {
            let (command, args) = words(line);
            derive_folder("a", &command, &args, Path::new(cwd))
        };
        assert_eq!(of("node a.js", "/x"), of("node a.js", "/x"));
        assert_ne!(of("node a.js", "/x"), of("node a.js", "/y"));
        assert_ne!(of("node a.js", "/x"), of("node a.js b", "/x"));
        assert_ne!(of("s a b", "/x"), of("s ab", "/x"));
        // Sessions outlive releases, so this value may never change.
        assert_eq!(of("s", "/"), "a-f2eb6c49");
    }

    #[test]
    fn valid_names_fit_urls_and_folders() {
        for valid in ["a", "server-1", "A_b.c"] {
            assert!(is_valid(valid), "{valid}");
        }
        for invalid in ["", ".", "..", ".a", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_valid(invalid), "{invalid}");
        }
    }
}
