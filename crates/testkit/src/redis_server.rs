//! A real `redis-server` or `valkey-server` on a free port.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A longer start counts as a failure.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A server with its data in a temporary directory. Dropping it stops the server.
pub struct RedisServer {
    program: PathBuf,
    dir: TempDir,
    port: u16,
    settings: Vec<(String, String)>,
    /// The configuration file of a sentinel.
    file: Option<PathBuf>,
    process: Option<Child>,
}

impl RedisServer {
    /// The path of the server program. CI must have it. Without it, tests are skipped elsewhere.
    pub fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let names = ["redis-server", "valkey-server"];
        let mut found = names
            .iter()
            .flat_map(|name| places.iter().map(move |dir| dir.join(name)));
        let found = found.find(|program| program.is_file());
        if found.is_none() {
            let hint = "redis-server is not installed: apt-get install redis-server";
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
            eprintln!("skipped: {hint}");
        }
        found
    }

    /// Starts a server with an append-only file that is synced every second. `None` without the program.
    pub fn start() -> Option<Self> {
        Self::start_with(&[("appendonly", "yes"), ("appendfsync", "everysec")])
    }

    /// Starts a server with settings of `redis.conf`. `None` without the program.
    pub fn start_with(settings: &[(&str, &str)]) -> Option<Self> {
        let mut server = RedisServer {
            program: Self::program()?,
            dir: tempfile::tempdir().expect("tempdir"),
            port: free_port(),
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            file: None,
            process: None,
        };
        server.run();
        Some(server)
    }

    /// Starts a sentinel that watches `primary` under the name `main`. `None` without the program.
    fn start_sentinel(primary: &RedisServer) -> Option<Self> {
        let dir = tempfile::tempdir().expect("tempdir");
        let file = dir.path().join("sentinel.conf"); // the sentinel rewrites it
        let settings = format!(
            "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 1000\n\
             sentinel failover-timeout main 10000\n",
            primary.port
        );
        std::fs::write(&file, settings).expect("a file in the folder");
        let mut server = RedisServer {
            program: Self::program()?,
            dir,
            port: free_port(),
            settings: Vec::new(),
            file: Some(file),
            process: None,
        };
        server.run();
        Some(server)
    }

    /// Starts the server. After [`stop`](Self::stop) or [`kill`](Self::kill) it has the same data and port.
    pub fn run(&mut self) {
        let mut command = Command::new(&self.program);
        if let Some(file) = &self.file {
            command.arg(file).arg("--sentinel");
        }
        command.arg("--port").arg(self.port.to_string());
        command.args(["--bind", "127.0.0.1", "--daemonize", "no"]);
        if self.file.is_none() {
            command.args(["--save", ""]);
        }
        command.arg("--dir").arg(self.dir.path());
        for (name, value) in &self.settings {
            command.arg(format!("--{name}")).args(value.split(' '));
        }
        let log = std::fs::File::create(self.dir.path().join("log")).expect("a file in the folder");
        command.stdin(Stdio::null()).stdout(log).stderr(Stdio::inherit());
        self.process = Some(command.spawn().expect("the server starts"));
        let deadline = Instant::now() + START_TIMEOUT;
        // A server with a password answers with an error, which is enough.
        while !["+PONG", "-NOAUTH"]
            .iter()
            .any(|reply| self.command(&["PING"]).starts_with(reply))
        {
            if Instant::now() > deadline {
                let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("redis-server did not answer:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The id of the process. `None` while it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Sends a command on a new connection. Returns the raw reply, or an empty text after an error.
    pub fn command(&self, words: &[&str]) -> String {
        let send = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.address())?;
            stream.set_read_timeout(Some(START_TIMEOUT))?;
            let mut request = format!("*{}\r\n", words.len());
            for word in words {
                request += &format!("${}\r\n{word}\r\n", word.len());
            }
            stream.write_all(request.as_bytes())?;
            stream.shutdown(std::net::Shutdown::Write)?; // the server closes the connection after its reply
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok(reply)
        };
        send().unwrap_or_default()
    }

    /// Sets a setting of the running server.
    pub fn config(&self, name: &str, value: &str) {
        assert_eq!(
            self.command(&["CONFIG", "SET", name, value]),
            "+OK\r\n",
            "{name} {value}"
        );
    }

    /// Closes connections: `normal` or `pubsub`.
    pub fn close_connections(&self, kind: &str) {
        let reply = self.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        assert!(reply.starts_with(':'), "{reply}");
    }

    /// Stops the server with SIGTERM. It writes its data first.
    pub fn stop(&mut self) {
        self.end("-TERM");
    }

    /// Stops the server with SIGKILL.
    pub fn kill(&mut self) {
        self.end("-KILL");
    }

    /// Suspends the process (SIGSTOP). Connections stay open without replies.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Continues a paused process.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        if let Some(process) = &self.process {
            let sent = Command::new("kill").arg(signal).arg(process.id().to_string()).status();
            assert!(sent.expect("kill runs").success(), "the server does not run");
        }
    }

    fn end(&mut self, signal: &str) {
        self.signal(signal);
        if let Some(mut process) = self.process.take() {
            process.wait().expect("the server ends");
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill(); // fails if it has ended
            let _ = process.wait();
        }
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisServer")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// A cluster, or a primary with a replica and a sentinel.
#[derive(Debug)]
pub struct RedisServers {
    servers: Vec<RedisServer>,
    is_cluster: bool,
}

impl RedisServers {
    /// Starts a cluster of primaries without replicas. `None` without the program.
    pub fn start_cluster(size: usize) -> Option<Self> {
        const SLOTS: usize = 16384;
        let settings = [("cluster-enabled", "yes"), ("cluster-node-timeout", "5000")];
        let servers: Vec<_> = (0..size)
            .map(|_| RedisServer::start_with(&settings))
            .collect::<Option<_>>()?;
        for (at, server) in servers.iter().enumerate() {
            let (first, last) = (SLOTS * at / size, SLOTS * (at + 1) / size - 1);
            // One slot per word, because older servers do not support ranges.
            let slots: Vec<String> = (first..=last).map(|slot| slot.to_string()).collect();
            let words: Vec<&str> = ["CLUSTER", "ADDSLOTS"]
                .into_iter()
                .chain(slots.iter().map(String::as_str))
                .collect();
            assert_eq!(server.command(&words), "+OK\r\n");
            let epoch = (at + 1).to_string();
            assert_eq!(server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), "+OK\r\n");
            let port = servers[0].port.to_string();
            assert_eq!(server.command(&["CLUSTER", "MEET", "127.0.0.1", &port]), "+OK\r\n");
        }
        let servers = RedisServers {
            servers,
            is_cluster: true,
        };
        servers.wait("the cluster is complete", |server| {
            let info = server.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{size}"))
        });
        Some(servers)
    }

    /// Starts a primary, a replica and a sentinel, in this order. `None` without the program.
    pub fn start_sentinel() -> Option<Self> {
        let primary = RedisServer::start()?;
        let of = format!("127.0.0.1 {}", primary.port);
        let replica = RedisServer::start_with(&[("replicaof", &of), ("appendonly", "yes")])?;
        let sentinel = RedisServer::start_sentinel(&primary)?;
        let servers = RedisServers {
            servers: vec![primary, replica, sentinel],
            is_cluster: false,
        };
        servers.wait("the sentinel knows the replica", |server| {
            let info = server.command(&["INFO"]);
            info.contains("master_link_status:up") || info.contains("connected_slaves:1") || info.contains("slaves=1")
        });
        Some(servers)
    }

    /// The servers.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The URL.
    pub fn url(&self) -> String {
        if self.is_cluster {
            let hosts: Vec<_> = self.servers.iter().map(|server| server.address().to_string()).collect();
            format!("redis+cluster://{}", hosts.join(","))
        } else {
            format!("redis+sentinel://{}/main", self.servers[2].address())
        }
    }

    /// Whether the replica has all data of the primary.
    pub fn is_replicated(&self) -> bool {
        let offset = |server: &RedisServer| {
            let info = server.command(&["INFO", "replication"]);
            let line = info.lines().find(|line| line.starts_with("master_repl_offset:"));
            line.map(str::to_owned)
        };
        offset(&self.servers[0]) == offset(&self.servers[1])
    }

    /// Makes the replica the primary.
    pub fn fail_over(&self) {
        let (replica, sentinel) = (&self.servers[1], &self.servers[2]);
        let reply = sentinel.command(&["SENTINEL", "FAILOVER", "main"]);
        assert_eq!(reply, "+OK\r\n");
        let deadline = Instant::now() + START_TIMEOUT;
        while !replica.command(&["INFO", "replication"]).contains("role:master") {
            assert!(Instant::now() < deadline, "the replica did not become the primary");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait(&self, what: &str, holds: impl Fn(&RedisServer) -> bool) {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.servers.iter().all(&holds) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("the listener is bound").port()
}
