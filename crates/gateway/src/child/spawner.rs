//! Starts the processes of one server.

use super::guardian::Guardian;
use super::pool::ChildPermit;
use super::process::{ChildPipes, ChildProcess};
use crate::settings::{IdentitySetting, ServerSettings};
use rethread::Principal;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use tokio::process::Command;

/// Variables that name the caller to a child.
const ISSUER_VARIABLE: &str = "RETHREAD_ISSUER";
const SUBJECT_VARIABLE: &str = "RETHREAD_SUBJECT";

/// Starts the processes of one server.
#[derive(Clone, Debug)]
pub(crate) struct ChildSpawner {
    pub(crate) server: Arc<ServerSettings>,
    guardian: Guardian,
    /// The one caller of the children, if they learn it from their environment.
    caller: Option<Principal>,
}

impl ChildSpawner {
    pub(crate) fn new(server: Arc<ServerSettings>, guardian: Guardian) -> Self {
        ChildSpawner {
            server,
            guardian,
            caller: None,
        }
    }

    /// The same spawner for children that serve one caller. Only `identity = "env"` makes a difference (AUTH-23).
    pub(crate) fn for_caller(&self, caller: &Principal) -> Self {
        let is_told = self.server.identity == IdentitySetting::Env && !caller.is_anonymous();
        ChildSpawner {
            caller: is_told.then(|| caller.clone()),
            ..self.clone()
        }
    }

    /// Starts a child. Only the operator sets its command line, environment and working directory (GW-10). The identity of the
    /// caller is the exception that the operator asks for. A zero byte, which a variable cannot have, is an error here.
    pub(super) fn spawn(&self, place: ChildPermit) -> io::Result<(ChildProcess, ChildPipes)> {
        let server = &*self.server;
        let inherited = std::env::vars_os().filter(|(name, _)| server.inherit_env.includes(name));
        let mut command = Command::new(&server.command);
        command
            .args(&server.args)
            .env_clear()
            .envs(inherited)
            .envs(&server.env)
            .env(rethread::BEHIND_GATEWAY, env!("CARGO_PKG_VERSION"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(caller) = &self.caller {
            command
                .env(ISSUER_VARIABLE, caller.issuer())
                .env(SUBJECT_VARIABLE, caller.subject());
        }
        if let Some(cwd) = &server.cwd {
            command.current_dir(cwd);
        }
        let child = command.spawn().map_err(|error| {
            let message = format!("cannot start {}: {error}", server.command.display());
            io::Error::new(error.kind(), message)
        })?;
        let (process, pipes) = ChildProcess::new(child, place, &self.guardian)?;
        self.guardian.table.started(process.group, &server.name);
        Ok((process, pipes))
    }
}
