//! The entries of a catalog, which may change while it is served.

use super::EntryError;
use super::listing::Listing;
use super::prompt::PromptEntry;
use super::resource::Resources;
use super::tool_entry::ToolEntry;
use crate::session::notifier::Notifier;
use rethread_store::ListKind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The lists of a catalog. A [`Catalog`](super::Catalog) owns them, and a [`CatalogHandle`](super::CatalogHandle) changes them.
pub(super) struct Entries {
    pub(super) tools: Listing<ToolEntry>,
    pub(super) resources: Resources,
    pub(super) prompts: Listing<PromptEntry>,
    /// Set when the service is built. Before that no client can have read a list.
    notifier: OnceLock<Notifier>,
    /// Whether a handle exists, so that every list may get entries.
    has_handle: AtomicBool,
}

impl Entries {
    pub(super) fn new() -> Self {
        Entries {
            tools: Listing::new("tool", "tools"),
            resources: Resources::default(),
            prompts: Listing::new("prompt", "prompts"),
            notifier: OnceLock::new(),
            has_handle: AtomicBool::new(false),
        }
    }

    pub(super) fn set_notifier(&self, notifier: &Notifier) {
        let _ = self.notifier.set(notifier.clone()); // a catalog has one service
    }

    pub(super) fn set_has_handle(&self) {
        self.has_handle.store(true, Ordering::Relaxed);
    }

    /// Whether clients must know of the list: it has entries, or may get some.
    pub(super) fn offers(&self, list: ListKind) -> bool {
        let is_empty = match list {
            ListKind::Tools => self.tools.is_empty(),
            ListKind::Resources => self.resources.is_empty(),
            ListKind::Prompts => self.prompts.is_empty(),
        };
        !is_empty || self.has_handle.load(Ordering::Relaxed)
    }

    /// Notifies all clients if an entry was added.
    pub(super) fn added(&self, list: ListKind, added: Result<(), EntryError>) -> Result<(), EntryError> {
        if added.is_ok() {
            self.changed(list);
        }
        added
    }

    /// Notifies all clients if an entry was removed.
    pub(super) fn removed(&self, list: ListKind, removed: bool) -> bool {
        if removed {
            self.changed(list);
        }
        removed
    }

    fn changed(&self, list: ListKind) {
        if let Some(notifier) = self.notifier.get() {
            notifier.list_changed(list);
        }
    }
}
