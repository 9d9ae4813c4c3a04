//! Resolves the options that choose the store.

use super::Layer;
use super::layer::{Source, SourcedValue};
use super::options;
use super::problem::Problem;
use super::resolver::Resolver;
use super::value;
use crate::settings::{RedisSettings, StoreSettings};
use std::path::PathBuf;

/// The options that choose a store, from one source.
#[derive(Default)]
struct StoreChoice {
    memory: Option<SourcedValue>,
    data: Option<SourcedValue>,
    store: Option<SourcedValue>,
}

impl StoreChoice {
    fn new(layer: &Layer, has_source: fn(&Source) -> bool) -> Self {
        let get = |key: &str| layer.get(key).filter(|found| has_source(&found.source)).cloned();
        StoreChoice {
            memory: get(options::MEMORY.def.key),
            data: get(options::DATA.def.key),
            store: get(options::STORE.def.key),
        }
    }

    fn is_made(&self) -> bool {
        self.memory.is_some() || self.data.is_some() || self.store.is_some()
    }
}

impl Resolver<'_> {
    /// `memory`, `data` and `store` exclude each other. The first source that has one of them decides, so `--data` overrides
    /// `memory = true` in a file.
    pub(super) fn store(&mut self) -> StoreSettings {
        let sources = [
            StoreChoice::new(&self.input.layer, |source| !source.is_env()),
            StoreChoice::new(&self.input.layer, Source::is_env),
            StoreChoice::new(self.file, |_| true),
        ];
        let choice = sources.into_iter().find(StoreChoice::is_made).unwrap_or_default();
        let in_memory = (choice.memory.as_ref()).and_then(|found| self.parse(&options::MEMORY, found));
        let in_memory = in_memory.unwrap_or_else(|| options::MEMORY.default_value());
        let source = choice.memory.map_or(Source::Default, |found| found.source);
        self.add_row(None, options::MEMORY.def.key, in_memory.to_string(), &source);
        if let Some(store) = choice.store {
            if in_memory {
                self.exclude(&source, "a shared store and memory");
            }
            if let Some(data) = choice.data {
                self.exclude(&data.source, "a shared store and a data directory");
            }
            return self.redis(&store);
        }
        self.refuse_node_flags();
        if in_memory {
            if let Some(data) = choice.data {
                self.exclude(&data.source, "a data directory and memory");
            }
            return StoreSettings::Memory;
        }
        StoreSettings::Embedded {
            data: self.data_dir(choice.data),
            sync: self.value(&options::SYNC),
        }
    }

    fn exclude(&mut self, source: &Source, both: &str) {
        let problem = Problem::new(format!("{both} exclude each other")).at(source);
        self.problems.push(problem.hint("one of the two"));
    }

    fn redis(&mut self, found: &SourcedValue) -> StoreSettings {
        let url = self.parse(&options::STORE, found);
        // An invalid URL is not shown: it may contain a password.
        let shown = url.as_ref().map_or_else(|| "(invalid)".to_owned(), options::STORE.show);
        self.add_row(None, options::STORE.def.key, shown, &found.source);
        let node_id = self.optional(&options::NODE_ID);
        let lease = self.value(&options::LEASE);
        let secret_file = self.secret_file();
        let Some(url) = url else {
            return StoreSettings::Memory; // never used: there is a problem
        };
        StoreSettings::Redis(Box::new(RedisSettings {
            url,
            node_id,
            lease,
            secret_file,
        }))
    }

    fn secret_file(&mut self) -> Option<PathBuf> {
        let key = options::SECRET_FILE.def.key;
        let Some(found) = self.find(None, key) else {
            self.add_row(None, key, value::none(), &Source::Default);
            return None;
        };
        let text = self.parse(&options::SECRET_FILE, &found)?;
        let path = self.path(&found.source, &text);
        self.add_row(None, key, path.display().to_string(), &found.source);
        Some(path)
    }

    /// A flag for one of several nodes means nothing without a shared store, so `--store` was forgotten. A variable or a file
    /// may be meant for other commands.
    fn refuse_node_flags(&mut self) {
        for option in [&options::NODE_ID.def, &options::LEASE.def, &options::SECRET_FILE.def] {
            let found = self.input.layer.get(option.key);
            if let Some(source) = found.map(|found| &found.source).filter(|source| !source.is_env()) {
                let problem = Problem::new("this is for a store that several gateways share").at(source);
                self.problems.push(problem.hint("--store redis://HOST, too"));
            }
        }
    }

    fn data_dir(&mut self, found: Option<SourcedValue>) -> PathBuf {
        let (path, source) = match found {
            Some(found) => {
                let text = self.parse(&options::DATA, &found).unwrap_or_default();
                (self.path(&found.source, &text), found.source)
            }
            None => {
                let default = self.environment.state_dir();
                if default.is_none() {
                    let problem = Problem::new("there is no home directory to keep sessions in");
                    let hint = "--data DIR, or --memory to keep sessions in memory";
                    self.problems.push(problem.hint(hint));
                }
                (default.unwrap_or_default(), Source::Default)
            }
        };
        self.add_row(None, options::DATA.def.key, path.display().to_string(), &source);
        path
    }
}
