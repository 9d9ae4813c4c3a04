//! nginx with the documented file.

use crate::deploy_file;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) struct Nginx {
    dir: TempDir,
    process: Option<Child>,
}

/// The path of nginx. CI must have it; elsewhere the tests are skipped.
pub(crate) fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let found = places.map(|dir| dir.join("nginx")).find(|program| program.is_file());
    if found.is_none() {
        let hint = "nginx is not installed: apt-get install nginx-light";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
        eprintln!("skipped: {hint}");
    }
    found
}

impl Nginx {
    /// nginx with the documented file in front of the server at `upstream`.
    pub(crate) fn start(program: &PathBuf, upstream: &str) -> Self {
        Self::with(program, &[("127.0.0.1:8080", upstream)], deploy_file("nginx.conf"))
    }

    /// nginx with the documented file for several nodes.
    pub(crate) fn in_front_of_nodes(program: &PathBuf, nodes: &[(&str, &str)]) -> Self {
        Self::with(program, nodes, deploy_file("nginx-nodes.conf"))
    }

    /// nginx with its default settings.
    pub(crate) fn with_defaults(program: &PathBuf, upstream: &str) -> Self {
        let site = "server { listen 80; location / { proxy_pass http://mcp; proxy_set_header Host $host; } }";
        let upstreams = "upstream mcp { server 127.0.0.1:8080; }";
        Self::with(
            program,
            &[("127.0.0.1:8080", upstream)],
            format!("{upstreams}\n{site}\n"),
        )
    }

    /// `upstreams` are the addresses in the file, each with the one that takes its place.
    fn with(program: &PathBuf, upstreams: &[(&str, &str)], mut site: String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        // Replaces only the addresses.
        let listen = ("listen 80;".to_owned(), format!("listen unix:{at}/socket;"));
        let servers = upstreams
            .iter()
            .map(|(from, to)| (format!("server {from}"), format!("server {to}")));
        for (from, to) in servers.chain([listen]) {
            assert_eq!(site.matches(&from).count(), 1, "{from}");
            site = site.replace(&from, &to);
        }
        let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temp: String = temp.iter().map(|of| format!("{of}_temp_path {at}/{of};\n")).collect();
        let all = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
             events {{}}\nhttp {{\nlog_format upstream '$upstream_addr';\naccess_log {at}/upstreams upstream;\n{temp}{site}}}\n"
        );
        std::fs::write(dir.path().join("all.conf"), all).unwrap();
        let mut nginx = Nginx { dir, process: None };
        nginx.run(program);
        nginx
    }

    /// Starts nginx, also after `kill`.
    pub(crate) fn run(&mut self, program: &PathBuf) {
        let _ = std::fs::remove_file(self.socket()); // a killed nginx leaves its socket behind
        let at = self.dir.path();
        let process = Command::new(program)
            .arg("-p")
            .arg(at)
            .arg("-e")
            .arg(at.join("error.log"))
            .arg("-c")
            .arg(at.join("all.conf"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
        let start = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            let log = || std::fs::read_to_string(at.join("error.log")).unwrap_or_default();
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "nginx does not start: {}",
                log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills nginx without a shutdown.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// The upstream of each request that has ended, in order.
    pub(crate) fn upstreams(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path().join("upstreams")).unwrap();
        log.lines().map(str::to_owned).collect()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.kill();
    }
}
