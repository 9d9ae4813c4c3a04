//! The npm packages: `npx rethread`. The launcher replaces its process where Node can, and starts the gateway elsewhere.

use super::{
    assert_call_through, assert_serves, assert_version, open_session, output, package, post_bytes, run, signal,
    wait_for_closed_port, wait_for_exit,
};
use crate::gateway::process::Gateway;
use crate::script;
use crate::server::fresh_folder;
use rethread_testkit::raw::RawConnection;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the launcher runs the gateway.
#[derive(Clone, Copy, Debug)]
enum Launch {
    /// `process.execve`, which Node has from 22.15 on.
    Replace,
    /// A child process, as with an older Node.
    Spawn,
}

/// A clean directory with installed packages.
struct Installation(PathBuf);

impl Installation {
    /// Installs packages from files, without a network.
    fn of(name: &str, packages: &[PathBuf]) -> Self {
        let folder = fresh_folder(&format!("packages-{name}"));
        std::fs::write(folder.join("package.json"), "{}").expect("a folder that can be written to");
        std::fs::write(folder.join("old-node.cjs"), "delete process.execve;").expect("the same folder");
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--offline",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ])
        .args(packages)
        .env("npm_config_cache", folder.join("cache"))
        .current_dir(&folder);
        run(&mut npm);
        Installation(folder)
    }

    /// Both packages, as npm installs them from a registry.
    fn complete(name: &str) -> Self {
        Self::of(name, &[launcher(), program()])
    }

    fn rethread(&self, launch: Launch) -> Command {
        let mut command = Command::new(script::node());
        if matches!(launch, Launch::Spawn) {
            command.arg("--require").arg(self.0.join("old-node.cjs"));
        }
        command.arg(self.file()).current_dir(&self.0);
        command
    }

    fn npx(&self, launch: Launch) -> Command {
        let node = script::node();
        let own = node.parent().map(Path::to_owned).into_iter();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(own.chain(std::env::split_paths(&path))).expect("plain paths");
        let mut command = Command::new("npx");
        command
            .args(["--offline", "rethread"])
            .env("PATH", path)
            .env("npm_config_cache", self.0.join("cache"))
            .current_dir(&self.0);
        if matches!(launch, Launch::Spawn) {
            let option = format!("--require={}", self.0.join("old-node.cjs").display());
            command.env("NODE_OPTIONS", option);
        }
        command
    }

    /// The link that npm makes for the launcher.
    fn file(&self) -> PathBuf {
        let file = self.0.join("node_modules/.bin/rethread");
        assert!(file.is_file(), "{} is missing", file.display());
        file
    }

    /// Removes the directory. It stays after a failure.
    fn remove(self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}

fn launcher() -> PathBuf {
    // The name continues with a digit: the package of a platform has a letter there.
    let platform = program();
    let name = platform.file_name().expect("a name").to_string_lossy().into_owned();
    let version = name.rsplit('-').next().expect("a version").to_owned();
    platform.with_file_name(format!("rethread-{version}"))
}

fn program() -> PathBuf {
    package("rethread-linux-", ".tgz")
}

/// `Replace` tests nothing if Node cannot do it.
#[tokio::test]
async fn pinned_node_can_replace_its_process() {
    let kind = run(Command::new(script::node()).args(["-p", "typeof process.execve"]));
    assert_eq!(kind.trim(), "function");
}

#[tokio::test]
async fn npm_package_serves_from_a_clean_directory() {
    let installation = Installation::complete("npm-serve");
    for launch in [Launch::Replace, Launch::Spawn] {
        assert_version(installation.rethread(launch));
        assert_serves(installation.rethread(launch)).await;
    }
    // As npm's own script starts it, with the Node of the system.
    assert_version(Command::new(installation.file()));
    installation.remove();
}

/// npx starts the launcher in a shell, which forwards no signal.
#[tokio::test]
async fn gateway_ends_with_npx() {
    let installation = Installation::complete("npm-npx");
    for launch in [Launch::Replace, Launch::Spawn] {
        assert_version(installation.npx(launch));
        let mut gateway = Gateway::installed(installation.npx(launch));
        assert_call_through(&gateway).await;
        signal("TERM", gateway.process().id().into());
        wait_for_closed_port(gateway.addr()).await;
    }
    installation.remove();
}

/// The exit code of the gateway is that of the launcher, and so is the signal that killed it.
#[tokio::test]
async fn launcher_ends_as_the_gateway_does() {
    let installation = Installation::complete("npm-exit");
    for launch in [Launch::Replace, Launch::Spawn] {
        let refused = output(installation.rethread(launch).args(["serve", "--no-such-option"]));
        assert_eq!(refused.status.code(), Some(2), "{launch:?}");
        let complaint = String::from_utf8_lossy(&refused.stderr);
        assert!(
            complaint.contains("--no-such-option") && !complaint.contains("Warning"),
            "{complaint}"
        );

        let mut gateway = Gateway::installed(installation.rethread(launch));
        let process = match launch {
            Launch::Replace => gateway.process().id(),
            Launch::Spawn => only_child(gateway.process().id()),
        };
        signal("KILL", process.into());
        let status = wait_for_exit(&mut gateway).await;
        assert_eq!(status.signal(), Some(9), "{launch:?}: {status}");
    }
    installation.remove();
}

/// SIGKILL cannot be forwarded.
#[tokio::test]
async fn gateway_ends_with_a_launcher_that_is_killed() {
    let installation = Installation::complete("npm-kill");
    for launch in [Launch::Replace, Launch::Spawn] {
        let mut gateway = Gateway::installed(installation.rethread(launch));
        assert_call_through(&gateway).await;
        signal("KILL", gateway.process().id().into());
        wait_for_closed_port(gateway.addr()).await;
    }
    installation.remove();
}

/// Ctrl-C in a terminal reaches the whole process group. A second signal would end the gateway in the middle of its call.
#[tokio::test]
async fn ctrl_c_reaches_the_gateway_once() {
    let installation = Installation::complete("npm-ctrl-c");
    for launch in [Launch::Replace, Launch::Spawn] {
        let mut rethread = installation.rethread(launch);
        rethread.process_group(0);
        let mut gateway = Gateway::installed(rethread);
        let session = open_session(gateway.addr()).await;
        let mut call = RawConnection::open(gateway.addr()).await.expect("the gateway listens");
        let burst = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"burst","arguments":{"events":10,"delay_us":100000,"bytes":8},"_meta":{"progressToken":1}}}"#;
        call.send(&post_bytes(Some(&session), burst))
            .await
            .expect("it takes the call");
        assert_eq!(call.read_head().await.expect("it answers").0, 200);
        signal("INT", -i64::from(gateway.process().id()));
        let status = wait_for_exit(&mut gateway).await;
        assert_eq!(status.code(), Some(0), "{launch:?}: {status}");
    }
    installation.remove();
}

#[tokio::test]
async fn launcher_without_a_program_names_the_package() {
    let installation = Installation::of("npm-alone", &[launcher()]);
    let refused = output(installation.rethread(Launch::Spawn).arg("--version"));
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("the package @rethread/linux-"), "{complaint}");
    assert!(complaint.contains("--omit=optional"), "{complaint}");
    installation.remove();
}

/// The process id of the only child of a process.
fn only_child(process: u32) -> u32 {
    let children = Path::new("/proc").join(format!("{process}/task/{process}/children"));
    let children = std::fs::read_to_string(children).expect("the process runs");
    let ids: Vec<u32> = children.split_whitespace().filter_map(|id| id.parse().ok()).collect();
    let [id] = ids[..] else { panic!("children: {ids:?}") };
    id
}
