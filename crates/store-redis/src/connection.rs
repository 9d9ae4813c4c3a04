//! The connection for commands. All tasks share it, and it is restored when it is lost.

use crate::error::{ConnectError, Remedy, store_error};
use crate::link::{Connector, Wire, in_time};
use crate::reply::Reply;
use crate::scripts::{SCRIPTS, Script};
use redis::aio::ConnectionLike as _;
use redis::{Cmd, RedisError, RedisResult, Value};
use rethread_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// The delay between two attempts to connect doubles from the first value to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub(crate) struct Connection(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    connector: Arc<Connector>,
    timeout: Duration,
    state: watch::Sender<State>,
}

#[derive(Clone)]
enum State {
    Up {
        generation: u64,
        wire: Wire,
    },
    /// The connection was lost at this time. A task reconnects.
    Down {
        since: Instant,
    },
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Up { .. } => "Up",
            State::Down { .. } => "Down",
        })
    }
}

impl Connection {
    pub(crate) async fn new(connector: Arc<Connector>, timeout: Duration) -> Result<Self, ConnectError> {
        let wire = connect(&connector, timeout).await.map_err(ConnectError::unreachable)?;
        let state = State::Up { generation: 0, wire };
        Ok(Connection(Arc::new(Shared {
            connector,
            timeout,
            state: watch::Sender::new(state),
        })))
    }

    /// Runs a script, for the timeout at most. A refusal by the script becomes an error.
    pub(crate) async fn run(&self, script: &Script, call: &Cmd) -> Result<Reply, StoreError> {
        Reply::of_script(self.run_raw(script, call).await?)
    }

    /// Runs a script whose reply has its own format.
    pub(crate) async fn run_raw(&self, script: &Script, call: &Cmd) -> Result<Value, StoreError> {
        self.send(call, script.repeatable, Some(script))
            .await
            .map_err(store_error)
    }

    /// Runs a command that may be repeated after a lost reply.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.send(command, true, None).await.map_err(store_error)
    }

    async fn send(&self, command: &Cmd, repeatable: bool, script: Option<&Script>) -> RedisResult<Value> {
        let deadline = Instant::now() + self.0.timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let (generation, mut wire) = self.wire(deadline).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match in_time(left, wire.req_packed_command(command)).await {
                // A cluster connection returns errors of single servers as values.
                Ok(Value::ServerError(error)) => RedisError::from(error),
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match Remedy::of(&error) {
                Remedy::LoadScripts => {
                    let Some(load) = script.map(Script::load) else {
                        return Err(error);
                    };
                    in_time(left, wire.req_packed_command(&load)).await?;
                }
                Remedy::WaitAndRepeat => {
                    self.lose(generation);
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Remedy::Reconnect => {
                    self.lose(generation);
                    if !repeatable || error.is_timeout() {
                        return Err(error);
                    }
                }
                Remedy::None => return Err(error),
            }
            if Instant::now() >= deadline {
                return Err(error);
            }
        }
    }

    /// The current connection. Waits for a reconnect until `deadline`, or until the timeout since the loss. Later calls
    /// fail at once until the connection is restored.
    async fn wire(&self, deadline: Instant) -> RedisResult<(u64, Wire)> {
        let mut state = self.0.state.subscribe();
        loop {
            let since = match &*state.borrow_and_update() {
                State::Up { generation, wire } => return Ok((*generation, wire.clone())),
                State::Down { since } => *since,
            };
            let deadline = deadline.min(since + self.0.timeout);
            match timeout_at(deadline, state.changed()).await {
                Ok(Ok(())) => {}
                _ => return Err(timed_out()),
            }
        }
    }

    /// Reconnects if the sentinels name another primary.
    pub(crate) async fn follow_primary(&self) {
        let generation = match &*self.0.state.borrow() {
            State::Up { generation, .. } => *generation,
            State::Down { .. } => return,
        };
        if self.0.connector.has_moved().await {
            self.lose(generation);
        }
    }

    /// Marks a connection as lost. The first caller starts a task that reconnects.
    fn lose(&self, lost: u64) {
        let since = Instant::now();
        let was_up = self.0.state.send_if_modified(|state| {
            let is_up = matches!(state, State::Up { generation, .. } if *generation == lost);
            if is_up {
                *state = State::Down { since };
            }
            is_up
        });
        if was_up {
            tracing::warn!("connection to the store lost");
            let shared = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                let mut pause = FIRST_PAUSE;
                while let Some(shared) = shared.upgrade() {
                    match connect(&shared.connector, shared.timeout).await {
                        Ok(wire) => {
                            let generation = lost + 1;
                            shared.state.send_replace(State::Up { generation, wire });
                            tracing::info!("connection to the store made again");
                            return;
                        }
                        Err(error) => tracing::debug!(%error, "no connection to the store yet"),
                    }
                    drop(shared);
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            });
        }
    }
}

fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// Connects and loads the scripts. A cluster loads them on demand, because its servers can change.
async fn connect(connector: &Connector, timeout: Duration) -> RedisResult<Wire> {
    let mut wire = connector.commands().await?;
    if let Wire::Single(_) = &wire {
        let mut load = redis::Pipeline::new();
        for script in SCRIPTS.all() {
            load.add_command(script.load());
        }
        let count = SCRIPTS.all().len();
        let replies = in_time(timeout, wire.req_packed_commands(&load, 0, count)).await?;
        for reply in replies {
            if let Value::ServerError(error) = reply {
                return Err(error.into());
            }
        }
    }
    Ok(wire)
}
