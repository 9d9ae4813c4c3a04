//! State that functions of a catalog share.

use crate::call::context::Context;

/// Makes a function of a catalog from one that also takes a state. Each call gets a clone, so the state is usually an `Arc` or a
/// handle that is cheap to clone.
///
/// ```
/// use rethread::Context;
/// use rethread::catalog::{Catalog, NoArgs, Tool, with_state};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// async fn next(counter: Arc<AtomicU64>, _: NoArgs, _: Context) -> String {
///     counter.fetch_add(1, Ordering::Relaxed).to_string()
/// }
///
/// async fn reset(counter: Arc<AtomicU64>, _: NoArgs, _: Context) {
///     counter.store(0, Ordering::Relaxed);
/// }
///
/// let counter = Arc::new(AtomicU64::new(0));
/// let catalog = Catalog::new("counter", "1.0.0")
///     .tool(Tool::new("next"), with_state(&counter, next))
///     .tool(Tool::new("reset"), with_state(&counter, reset));
/// ```
///
/// A closure that captures does the same: `move |args, cx| next(counter.clone(), args, cx)`.
pub fn with_state<S, A, F, Fut>(state: &S, run: F) -> impl Fn(A, Context) -> Fut + Send + Sync + 'static
where
    S: Clone + Send + Sync + 'static,
    A: 'static,
    F: Fn(S, A, Context) -> Fut + Send + Sync + 'static,
    Fut: 'static,
{
    let state = state.clone();
    move |arguments, cx| run(state.clone(), arguments, cx)
}
