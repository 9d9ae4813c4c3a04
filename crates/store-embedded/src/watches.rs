//! Watches: wake readers when a stream grows.

use rethread_store::Watch;
use tokio::sync::watch;

/// The watches of one stream. They end when this is dropped. They are not a part of the state of the stream: a copy has
/// none.
#[derive(Debug, Default)]
pub(crate) struct Watches(Option<Box<watch::Sender<u64>>>);

impl Watches {
    pub(crate) fn watch(&mut self) -> Watch {
        Watch::new(
            self.0
                .get_or_insert_with(|| Box::new(watch::Sender::new(0)))
                .subscribe(),
        )
    }

    pub(crate) fn any(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn wake(&self) {
        if let Some(sender) = &self.0 {
            sender.send_modify(|count| *count += 1);
        }
    }
}

impl Clone for Watches {
    fn clone(&self) -> Self {
        Watches(None)
    }
}

impl PartialEq for Watches {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
