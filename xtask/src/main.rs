//! Development commands of this repository. `cargo xtask help` lists them.

mod bench;
mod dist;
mod external_types;
mod files;
mod fuzz;
mod instructions;
mod layers;
mod lexer;
mod mutants;
mod picture;
mod prose;
mod run;
mod soak;
mod test;
mod toolchains;
mod tools;
mod trace;
#[cfg(test)]
mod walks;

use std::process::ExitCode;

/// `{parts}` stands for the parts of a test run.
const HELP: &str = "\
usage: cargo xtask <command>

  test [--fast] [PART ...]      everything that CI runs: checks, tests, and the suites with the official clients, a
                                browser and the packages; at the end a table of the times; as root on Debian it
                                installs the programs it needs, elsewhere it prints the line that does and stops;
                                --fast needs nothing but Rust: it leaves the suites out, and tests whose programs
                                are missing; PART is one of:
{parts}
  dist [--target TRIPLE] [--profile NAME] [--binary FILE] [--out DIR]
                                makes the packages with checksums: tarball, npm packages and wheel; the profile is
                                `dist` and the folder `packages` in the build folder unless options change them
  trace [--write FILE] [--check]
                                which code and which tests cover which requirement, as Markdown;
                                --check fails if a MUST has no test and is not listed in spec/not-yet.txt
  layers [--report]             the import graph of crates/server/src by layer; fails on an import that does not point down,
                                on a cycle of files, and on a file that is in no layer; and on an import in crates/gateway/src
                                from upstream to child, or from either to relay; --report only prints
  prose [--list] [--write]      phrases to avoid in Markdown and comments; fails on a file with more of them than
                                xtask/prose-baseline.txt allows; --list prints all, --write sets the baseline
  typos [OPTION ...]            spelling, with the exceptions of typos.toml; installs the checker in the build folder
  deny                          licences, sources and advisories of dependencies; installs cargo-deny if it is missing
  external-types [--write]      types of other crates in public signatures; fails if xtask/external-types.txt has others;
                                --write sets the list
  wasm                          compiles proto for wasm32-unknown-unknown, which it adds if it is missing
  msrv                          compiles each package with its rust-version; installs that toolchain if it is missing
  bench [--quick] [--suite NAME] [--only SERVER] [--rounds N] [--seconds S] [--write DIR]
                                measures this library beside bare hyper, rmcp and other gateways; without options the
                                report goes to docs/benchmarks, with options to benchmarks in the build folder
  soak kills [--kills N] | readers [--readers N] | isolation [--attempts N] | faults [--runs N]
                                longer tests than CI can run: three nodes on Redis with 1,000 kills under load, 10,000
                                idle remote readers, or 100,000 attempts to read sessions of others; 200 runs of the
                                power cuts of the embedded store; builds what it needs in release mode; the last line
                                has the figures; --seed N repeats the random choices of a run on nodes
  instructions [--bench core|service] [--against REF]
                                counts the instructions of the pure core and of whole calls with callgrind, beside
                                those of a commit, such as `main`, or of the last count
  mutants [NAME ...]            breaks the engines and the embedded store of the last commit in one place at a time;
                                fails if a mutant passes the tests of its package
  picture [PROGRAM]             draws docs/demo.svg from the real output of `rethread demo`
  fuzz [SECONDS] [TARGET ...]   runs the fuzz targets, 60 seconds each
  help                          this text
";

fn main() -> ExitCode {
    if std::env::var_os(external_types::RUSTDOC_VARIABLE).is_some() {
        return external_types::rustdoc();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["test", options @ ..] => test::Selection::parse(options).and_then(|selection| test::run(&selection)),
        ["dist", options @ ..] => dist::run(options),
        ["trace", options @ ..] => trace::Options::parse(options).and_then(|options| trace::run(&options)),
        ["bench", options @ ..] => bench::run(options),
        ["soak", options @ ..] => soak::run(options),
        ["instructions", options @ ..] => instructions::run(options),
        ["layers", options @ ..] => layers::run(options),
        ["prose", options @ ..] => prose::run(options),
        ["typos", options @ ..] => tools::typos(options),
        ["deny"] => tools::deny(),
        ["external-types", options @ ..] => external_types::run(options),
        ["wasm"] => toolchains::wasm(),
        ["msrv"] => toolchains::msrv(),
        ["mutants", names @ ..] => mutants::run(names),
        ["picture"] => picture::run(None),
        ["picture", program] => picture::run(Some(program)),
        ["fuzz", options @ ..] => fuzz::run(options),
        [] | ["help" | "--help" | "-h"] => {
            print!("{}", help());
            Ok(())
        }
        _ => Err(format!("unknown command: {}\n\n{}", arguments.join(" "), help())),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            if !message.is_empty() {
                eprintln!("{message}");
            }
            ExitCode::FAILURE
        }
    }
}

fn help() -> String {
    HELP.replace("{parts}\n", &test::list_parts(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_every_part_of_a_test_run() {
        let help = help();
        for part in ["checks", "nodes", "bridge"] {
            assert!(help.lines().any(|line| line.trim().starts_with(part)), "{part}: {help}");
        }
        assert!(!help.contains('{'), "{help}");
    }
}
