//! The gateway as a process, and what it leaves on the machine.

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

/// How long a gateway may take until it is ready. The machine may be busy.
const START: Duration = Duration::from_secs(30);
/// How long a test may take. Beyond: its gateway is killed, and nothing waits for it any more.
const LIFE: Duration = Duration::from_secs(60);

/// A gateway to be started.
pub(crate) struct Plan {
    dir: Arc<TempDir>,
    marker: String,
    options: Vec<String>,
    vars: Vec<(String, String)>,
    command: Vec<String>,
}

/// A running gateway. Dropping it kills it.
pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    plan: Plan,
    process: Child,
    log: Arc<Mutex<String>>,
    _lives: mpsc::Sender<()>,
}

/// A living process that carries the marker of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
}

/// A gateway in memory whose children behave as `words` say.
pub(crate) fn plan(words: &str) -> Plan {
    let mut plan = Plan::new();
    plan.command = fake(words, &plan.marker);
    plan.option("--memory")
}

/// The command of a fake child.
pub(crate) fn fake(words: &str, marker: &str) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/children/child.py");
    [python(), "-S", "-E", script, words, marker]
        .map(str::to_owned)
        .to_vec()
}

/// The interpreter itself: what is called so may be a script that looks for it, which takes its time.
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

impl Plan {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Plan {
            dir: Arc::new(tempfile::tempdir().unwrap()),
            marker: format!("marker-{}-{number}-end", std::process::id()),
            options: Vec::new(),
            vars: Vec::new(),
            command: Vec::new(),
        }
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

    /// Replaces the fake child.
    pub(crate) fn command(mut self, command: &[&str]) -> Self {
        self.command = command.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Keeps sessions in files instead of memory.
    pub(crate) fn durable(mut self) -> Self {
        self.options.retain(|option| option != "--memory");
        let data = self.path("data").display().to_string();
        self.options.extend(["--data".to_owned(), data]);
        self
    }

    /// Has the children write down what they are told.
    pub(crate) fn recording(mut self) -> Self {
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

    /// Runs it to its end: for what cannot be started.
    pub(crate) fn fails(&self) -> (Option<i32>, String) {
        self.runs("serve")
    }

    /// Runs a command that takes the options of `serve` to its end.
    pub(crate) fn runs(&self, subcommand: &str) -> (Option<i32>, String) {
        let output = self.build(subcommand).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Starts it, and does not wait until it is ready.
    pub(crate) fn spawn(self) -> (Gateway, mpsc::Receiver<SocketAddr>) {
        let mut process = self.build("serve").stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (tell, told) = mpsc::channel();
        let (stderr, lines) = (process.stderr.take().unwrap(), Arc::clone(&log));
        std::thread::spawn(move || {
            let mut addr = None;
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if addr.is_none()
                    && let Some(at) = line.find("http://127.0.0.1:")
                {
                    let rest = &line[at + "http://".len()..];
                    addr = rest[..rest.find('/').unwrap()].parse().ok();
                }
                if line.starts_with("Ctrl-C stops it") {
                    let _ = tell.send(addr.unwrap());
                }
                lines.lock().unwrap().push_str(&format!("{line}\n"));
            }
        });
        let (lives, life) = mpsc::channel::<()>();
        let pid = process.id();
        std::thread::spawn(move || {
            if life.recv_timeout(LIFE) == Err(mpsc::RecvTimeoutError::Timeout) {
                kill(pid, Signal::KILL);
            }
        });
        let gateway = Gateway {
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            plan: self,
            process,
            log,
            _lives: lives,
        };
        (gateway, told)
    }

    pub(crate) fn start(self) -> Gateway {
        let (mut gateway, told) = self.spawn();
        gateway.addr = told
            .recv_timeout(START)
            .unwrap_or_else(|_| panic!("not ready: {}", gateway.log()));
        gateway
    }
}

impl Gateway {
    pub(crate) fn client(&self) -> Client {
        Client::new(self.addr, "")
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// All it has written to stderr so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The line of the start message that says what the servers speak.
    pub(crate) fn eras(&self) -> String {
        let log = self.log();
        let line = log.lines().find(|line| line.trim().starts_with("eras"));
        line.unwrap_or_default().trim()[4..].trim().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.process.id(), signal);
    }

    /// Whether it has ended, and how, after at most `limit`.
    pub(crate) fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.process.try_wait().unwrap() {
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                status => return status,
            }
        }
    }

    /// Kills it and starts its successor on the same data.
    pub(crate) fn restarted(mut self) -> Gateway {
        self.signal(Signal::KILL);
        self.ended_within(Duration::from_secs(5));
        self.again()
    }

    /// Starts the successor of one that has ended.
    pub(crate) fn again(&self) -> Gateway {
        let plan = Plan {
            dir: Arc::clone(&self.plan.dir),
            marker: self.plan.marker.clone(),
            options: self.plan.options.clone(),
            vars: self.plan.vars.clone(),
            command: self.plan.command.clone(),
        };
        plan.start()
    }

    /// The children that live, and what they have started.
    pub(crate) fn children(&self) -> Vec<Found> {
        let mut found = living(&self.plan.marker);
        found.retain(|process| process.pid != self.process.id());
        found
    }

    /// The processes that it has started itself, marked or not, its guardian aside.
    pub(crate) fn own_children(&self) -> Vec<u32> {
        let own = processes().filter(|(pid, parent, state)| {
            *parent == self.process.id() && *state != 'Z' && !command_line(*pid).contains("guardian")
        });
        own.map(|(pid, ..)| pid).collect()
    }

    /// Waits until as many processes live.
    pub(crate) async fn has_children(&self, count: usize, limit: Duration) {
        let right = until(limit, || self.children().len() == count).await;
        assert!(
            right,
            "{count} children are expected, not {:?}\n{}",
            self.children(),
            self.log()
        );
    }

    /// Waits until at least one process lives.
    pub(crate) async fn has_some_children(&self, limit: Duration) {
        let some = until(limit, || !self.children().is_empty()).await;
        assert!(some, "no child lives\n{}", self.log());
    }

    /// Waits until a line of the log holds `words`.
    pub(crate) async fn says(&self, words: &str) {
        let said = until(Duration::from_secs(10), || self.log().contains(words)).await;
        assert!(said, "`{words}` is not in\n{}", self.log());
    }

    /// Waits until every child that has ended is reaped.
    pub(crate) async fn has_no_zombies(&self) {
        let of_ours = |(_, parent, state): &(u32, u32, char)| *parent == self.process.id() && *state == 'Z';
        let reaped = until(Duration::from_secs(2), || processes().filter(of_ours).count() == 0).await;
        assert!(reaped, "{:?}", processes().filter(of_ours).collect::<Vec<_>>());
    }

    /// The gateway's memory in KiB.
    pub(crate) fn rss(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// What its children were told, by pid, in order.
    pub(crate) fn record(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.plan.path("record")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The methods that the child `pid` was told, in order.
    pub(crate) fn told(&self, pid: u64) -> Vec<String> {
        let of_it = self.record().into_iter().filter(|told| told["pid"] == pid);
        of_it.map(|told| told["method"].as_str().unwrap().to_owned()).collect()
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

/// Polls until `done` or the limit; says whether it is done.
pub(crate) async fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

/// The living processes that carry `marker` in an argument.
pub(crate) fn living(marker: &str) -> Vec<Found> {
    let found = processes().filter(|(pid, _, state)| *state != 'Z' && command_line(*pid).contains(marker));
    found.map(|(pid, parent, _)| Found { pid, parent }).collect()
}

fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).into_owned()
}

/// Every process: its id, its parent, its state.
fn processes() -> impl Iterator<Item = (u32, u32, char)> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name stands in parentheses and may hold anything.
        let mut rest = stat[stat.rfind(')')? + 1..].split_whitespace();
        let state = rest.next()?.chars().next()?;
        Some((pid, rest.next()?.parse().ok()?, state))
    })
}
