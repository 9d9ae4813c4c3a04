//! Tasks of the gateway.

use std::pin::Pin;
use tokio::task::JoinHandle;

/// Spawns a task. The future is boxed: tokio compiles its machinery once for each type of future and each of its two schedulers.
/// Without the boxes the release program is 360 kB larger.
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    tokio::spawn(future)
}

/// Aborts a task when dropped.
pub(crate) struct AbortOnDrop(Option<JoinHandle<()>>);

impl AbortOnDrop {
    pub(crate) fn new(task: JoinHandle<()>) -> Self {
        AbortOnDrop(Some(task))
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The task ends by itself.
    pub(crate) fn detach(&mut self) -> Option<JoinHandle<()>> {
        self.0.take()
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}
