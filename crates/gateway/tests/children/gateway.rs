//! The gateway as a process, and the processes that it starts.

use crate::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a gateway may take to start on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a test may take. Beyond: its gateway is killed, so that the test fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The options of a gateway.
pub(crate) struct GatewayBuilder {
    dir: Arc<TempDir>,
    marker: String,
    options: Vec<String>,
    vars: Vec<(String, String)>,
    command: Vec<String>,
    timeout: Duration,
}

/// A running gateway. Dropping it kills it.
pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    builder: GatewayBuilder,
    process: Child,
    log: Arc<Mutex<String>>,
    _watchdog: mpsc::Sender<()>,
}

/// A running process with the marker of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
}

/// A gateway with a memory store and a fake child. `behavior` is a comma-separated list for `child.py`.
pub(crate) fn gateway_with(behavior: &str) -> GatewayBuilder {
    let mut builder = GatewayBuilder::new();
    builder.command = fake_child_command(behavior, &builder.marker);
    builder.option("--memory")
}

/// The command line of a fake child.
pub(crate) fn fake_child_command(behavior: &str, marker: &str) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/children/child.py");
    [python(), "-S", "-E", script, behavior, marker]
        .map(str::to_owned)
        .to_vec()
}

/// The path of the interpreter. `python3` may be a slow wrapper script.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let asked = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        let path = String::from_utf8(asked.expect("python3 is installed").stdout).unwrap();
        path.trim().to_owned()
    })
}

impl GatewayBuilder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        GatewayBuilder {
            dir: Arc::new(tempfile::tempdir().unwrap()),
            marker: format!("marker-{}-{number}-end", std::process::id()),
            options: Vec::new(),
            vars: Vec::new(),
            command: Vec::new(),
            timeout: TEST_TIMEOUT,
        }
    }

    /// Gives a long test more time.
    pub(crate) fn test_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn option(mut self, option: &str) -> Self {
        self.options.extend(option.split(' ').map(str::to_owned));
        self
    }

    /// Sets a variable for the gateway.
    pub(crate) fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces the script of the fake child.
    pub(crate) fn script(mut self, path: &str) -> Self {
        path.clone_into(&mut self.command[3]);
        self
    }

    /// Replaces the fake child.
    pub(crate) fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Uses the embedded store instead of memory.
    pub(crate) fn with_data_dir(mut self) -> Self {
        self.options.retain(|option| option != "--memory");
        let data = self.path("data").display().to_string();
        self.options.extend(["--data".to_owned(), data]);
        self
    }

    /// Removes options, separated by spaces.
    pub(crate) fn without(mut self, options: &str) -> Self {
        self.options
            .retain(|option| !options.split(' ').any(|other| other == option));
        self
    }

    /// Replaces the URL of the store.
    pub(crate) fn store_url(mut self, url: &str) -> Self {
        let at = self.options.iter().position(|option| option == "--store").unwrap();
        url.clone_into(&mut self.options[at + 1]);
        self
    }

    /// Removes the command: a file has the servers.
    pub(crate) fn without_command(mut self) -> Self {
        self.command.clear();
        self.options
            .retain(|option| option != "--env" && !option.starts_with("RECORD="));
        self
    }

    /// Makes the children record the messages that they receive.
    pub(crate) fn record_messages(mut self) -> Self {
        let record = format!("RECORD={}", self.path("record").display());
        self.options.extend(["--env".to_owned(), record]);
        self
    }

    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn build(&self, subcommand: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rethread"));
        command.args([subcommand, "-v"]);
        if !self.options.iter().any(|option| option == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command
            .args(&self.options)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .envs(self.vars.clone())
            .stdin(Stdio::null());
        if !self.command.is_empty() {
            command.arg("--").args(&self.command);
        }
        command
    }

    /// Runs `serve` until it exits, for configurations that cannot start.
    pub(crate) fn run_to_exit(&self) -> (Option<i32>, String) {
        self.run_subcommand("serve")
    }

    /// Runs a command with the options of `serve` until it exits.
    pub(crate) fn run_subcommand(&self, subcommand: &str) -> (Option<i32>, String) {
        let output = self.build(subcommand).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Runs a command with the options of `serve`. Returns its stdout.
    pub(crate) fn run_stdout(&self, subcommand: &str) -> String {
        let output = self.build(subcommand).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `check`. Returns its exit code, stdout and stderr.
    pub(crate) fn run_check(&self) -> (Option<i32>, String, String) {
        let output = self.build("check").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Starts the gateway without waiting until it is ready.
    pub(crate) fn spawn(self) -> (Gateway, mpsc::Receiver<SocketAddr>) {
        let mut process = self.build("serve").stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (ready_sender, ready) = mpsc::channel();
        let (stderr, lines) = (process.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            let mut addr = None;
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if addr.is_none()
                    && !line.contains("traces are exported")
                    && let Some(at) = line.find("://127.0.0.1:")
                {
                    let rest = &line[at + "://".len()..];
                    addr = rest[..rest.find('/').unwrap()].parse().ok();
                }
                if line.starts_with("Ctrl-C stops it") || line.contains("\"message\":\"ready\"") {
                    let _ = ready_sender.send(addr.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0))));
                }
                lines.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        let (watchdog, watchdog_dropped) = mpsc::channel::<()>();
        let (pid, timeout) = (process.id(), self.timeout);
        std::thread::spawn(move || {
            if watchdog_dropped.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
                kill(pid, Signal::KILL);
            }
        });
        let gateway = Gateway {
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            builder: self,
            process,
            log,
            _watchdog: watchdog,
        };
        (gateway, ready)
    }

    pub(crate) fn start(self) -> Gateway {
        Gateway::when_ready(self.spawn())
    }

    /// Starts a gateway whose start message has its public URL instead of its address.
    pub(crate) fn start_on_public_url(self) -> Gateway {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let (mut gateway, ready) = self.option(&format!("--listen {addr}")).spawn();
        let _ = ready.recv_timeout(START_TIMEOUT);
        gateway.addr = addr;
        gateway
    }
}

impl Gateway {
    /// Waits until a gateway is ready.
    pub(crate) fn when_ready((mut gateway, ready): (Gateway, mpsc::Receiver<SocketAddr>)) -> Self {
        gateway.addr = ready
            .recv_timeout(START_TIMEOUT)
            .unwrap_or_else(|_| panic!("not ready: {}", gateway.log()));
        gateway
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.addr, "")
    }

    pub(crate) fn builder(&self) -> &GatewayBuilder {
        &self.builder
    }

    /// All of stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The eras in the start message.
    pub(crate) fn eras(&self) -> String {
        let log = self.log();
        let line = log.lines().find(|line| line.trim().starts_with("eras"));
        line.unwrap_or_default().trim()[4..].trim().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.process.id(), signal);
    }

    /// Stops the process until it gets SIGCONT. Its threads run on for a moment after the signal, and could take a request.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.process.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        while !std::fs::read_dir(&tasks)
            .unwrap()
            .filter_map(Result::ok)
            .all(is_stopped)
        {
            assert!(Instant::now() < deadline, "the gateway does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits up to `limit` for the exit.
    pub(crate) fn wait_for_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.process.try_wait().unwrap() {
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                status => return status,
            }
        }
    }

    /// Kills the gateway, and starts another one with the same options and data.
    pub(crate) fn kill_and_restart(mut self) -> Gateway {
        self.signal(Signal::KILL);
        self.wait_for_exit(Duration::from_secs(5));
        self.start_successor()
    }

    /// Starts another gateway with the same options and data.
    pub(crate) fn start_successor(&self) -> Gateway {
        let builder = GatewayBuilder {
            dir: Arc::clone(&self.builder.dir),
            marker: self.builder.marker.clone(),
            options: self.builder.options.clone(),
            vars: self.builder.vars.clone(),
            command: self.builder.command.clone(),
            timeout: self.builder.timeout,
        };
        builder.start()
    }

    /// The running children and their descendants.
    pub(crate) fn children(&self) -> Vec<ProcessInfo> {
        let mut found = live_processes(&self.builder.marker);
        found.retain(|process| process.pid != self.process.id());
        found
    }

    /// The direct child processes without the guardian, marked or not.
    pub(crate) fn own_children(&self) -> Vec<u32> {
        let own = processes().filter(|(pid, parent, state)| {
            *parent == self.process.id() && *state != 'Z' && !command_line(*pid).contains("guardian")
        });
        own.map(|(pid, ..)| pid).collect()
    }

    /// Waits until `count` children and descendants run.
    pub(crate) async fn wait_for_children(&self, count: usize, limit: Duration) {
        let right = wait_until(limit, || self.children().len() == count).await;
        assert!(
            right,
            "{count} children are expected, not {:?}\n{}",
            self.children(),
            self.log()
        );
    }

    /// Waits until at least one child runs.
    pub(crate) async fn wait_for_any_child(&self, limit: Duration) {
        let some = wait_until(limit, || !self.children().is_empty()).await;
        assert!(some, "no child lives\n{}", self.log());
    }

    /// Waits until the log contains `words`.
    pub(crate) async fn wait_for_log(&self, words: &str) {
        let said = wait_until(Duration::from_secs(10), || self.log().contains(words)).await;
        assert!(said, "`{words}` is not in\n{}", self.log());
    }

    /// Waits until every exited child is reaped.
    pub(crate) async fn wait_for_no_zombies(&self) {
        let of_ours = |(_, parent, state): &(u32, u32, char)| *parent == self.process.id() && *state == 'Z';
        let reaped = wait_until(Duration::from_secs(2), || processes().filter(of_ours).count() == 0).await;
        assert!(reaped, "{:?}", processes().filter(of_ours).collect::<Vec<_>>());
    }

    /// The resident memory of the gateway in KiB.
    pub(crate) fn rss(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The messages that its children have received, in order.
    pub(crate) fn recorded_messages(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.builder.path("record")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The methods that the child `pid` has received, in order.
    pub(crate) fn methods_received(&self, pid: u64) -> Vec<String> {
        let of_it = self
            .recorded_messages()
            .into_iter()
            .filter(|message| message["pid"] == pid);
        of_it
            .map(|message| message["method"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may have ended
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("--- the gateway's log\n{}---", self.log());
        }
    }
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, signal); // it may have ended
}

/// Polls until `done` returns true. False if `limit` passes first.
pub(crate) async fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

/// The running processes with `marker` in an argument.
pub(crate) fn live_processes(marker: &str) -> Vec<ProcessInfo> {
    let found = processes().filter(|(pid, _, state)| *state != 'Z' && command_line(*pid).contains(marker));
    found.map(|(pid, parent, _)| ProcessInfo { pid, parent }).collect()
}

fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// All processes: pid, parent pid, state.
fn processes() -> impl Iterator<Item = (u32, u32, char)> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in parentheses and may contain any character.
        let mut rest = stat[stat.rfind(')')? + 1..].split_whitespace();
        let state = rest.next()?.chars().next()?;
        Some((pid, rest.next()?.parse().ok()?, state))
    })
}
