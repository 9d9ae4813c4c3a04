use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The return type of store methods: a result that is ready, or a future. The memory backend returns ready results without an
/// allocation or a task.
pub struct StoreFuture<T>(Inner<T>);

enum Inner<T> {
    Ready(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> StoreFuture<T> {
    /// A result that is ready.
    pub fn ready(value: T) -> Self {
        StoreFuture(Inner::Ready(Some(value)))
    }

    /// A result that a future yields later.
    pub fn later(future: impl Future<Output = T> + Send + 'static) -> Self {
        StoreFuture(Inner::Later(Box::pin(future)))
    }

    /// The result if it is ready, the future otherwise.
    pub fn now(self) -> Result<T, Self> {
        match self.0 {
            Inner::Ready(Some(value)) => Ok(value),
            other => Err(StoreFuture(other)),
        }
    }
}

impl<T: Unpin> Future for StoreFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            Inner::Ready(value) => Poll::Ready(value.take().expect("a future is not polled after it is done")),
            Inner::Later(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Inner::Ready(_) => "StoreFuture(ready)",
            Inner::Later(_) => "StoreFuture(later)",
        })
    }
}
