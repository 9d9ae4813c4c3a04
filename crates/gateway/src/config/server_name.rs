//! What a server is called when nobody named it.

use std::path::Path;

/// Programs that run something else, which is what a person would name.
const RUNNERS: [&str; 14] = [
    "npx", "bunx", "pnpx", "uvx", "pipx", "node", "bun", "deno", "python", "python3", "uv", "npm", "pnpm", "docker",
];

/// Words that runners take before the name of what they run.
const VERBS: [&str; 5] = ["run", "exec", "dlx", "x", "tool"];

/// A name for a command: its program, or what that runs if it is a runner such as `npx`.
pub(crate) fn derived(command: &str, args: &[String]) -> String {
    let program = base(command);
    let run = RUNNERS.contains(&program.as_str()).then(|| {
        let mut words = args.iter().map(String::as_str);
        // Flags of the runner are skipped. One that takes a value of its own hides the name; `--name` then helps.
        words.find(|word| !word.starts_with('-') && !VERBS.contains(word))
    });
    let name = run.flatten().map_or(program, package);
    let name = clean(&name);
    if name.is_empty() { "server".to_owned() } else { name }
}

/// The folder of a command that nobody named. Other words, or the same in another directory, are another server: two
/// that differ may not share sessions.
pub(crate) fn folder(name: &str, command: &str, args: &[String], cwd: &Path) -> String {
    let cwd = cwd.to_string_lossy();
    let words = std::iter::once(command).chain(args.iter().map(String::as_str));
    let hash = fnv(words.chain([cwd.as_ref()]));
    format!("{name}-{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}

/// Whether a name can stand in a URL and be a folder.
pub(crate) fn is_fit(name: &str) -> bool {
    let proper = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(proper) && !name.starts_with('.')
}

/// The last part of a path, without an ending that says how it is run.
fn base(path: &str) -> String {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let endings = [".exe", ".cmd", ".js", ".mjs", ".cjs", ".ts", ".py", ".sh"];
    let ending = endings.iter().find_map(|ending| name.strip_suffix(ending));
    ending.filter(|rest| !rest.is_empty()).unwrap_or(name).to_owned()
}

/// `@scope/name@1.2`, `name==1.2`, `image:tag` and `path/to/name.py` are all `name`.
fn package(word: &str) -> String {
    let last = base(word);
    let end = last.find(['@', '=', ':', '[']).filter(|&at| at > 0);
    last[..end.unwrap_or(last.len())].to_owned()
}

fn clean(name: &str) -> String {
    let proper = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = name.chars().map(|c| if proper(c) { c } else { '-' }).take(48).collect();
    name.trim_matches(['-', '.']).to_owned()
}

/// FNV-1a: the same in every build, which the standard hasher does not promise.
fn fnv<'a>(words: impl Iterator<Item = &'a str>) -> u64 {
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
    fn names_follow_from_commands() {
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
            assert_eq!(derived(&command, &args), expected, "{line}");
        }
        assert!(is_fit(&derived("übung äöü", &[])));
    }

    #[test]
    fn different_commands_have_different_folders() {
        let of = |line: &str, cwd: &str| {
            let (command, args) = words(line);
            folder("a", &command, &args, Path::new(cwd))
        };
        assert_eq!(of("node a.js", "/x"), of("node a.js", "/x"));
        assert_ne!(of("node a.js", "/x"), of("node a.js", "/y"));
        assert_ne!(of("node a.js", "/x"), of("node a.js b", "/x"));
        assert_ne!(of("s a b", "/x"), of("s ab", "/x"));
        // Sessions outlive releases, so this value may never change.
        assert_eq!(of("s", "/"), "a-f2eb6c49");
    }

    #[test]
    fn names_are_fit_for_urls_and_folders() {
        for fit in ["a", "server-1", "A_b.c"] {
            assert!(is_fit(fit), "{fit}");
        }
        for unfit in ["", ".", "..", ".a", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_fit(unfit), "{unfit}");
        }
    }
}
