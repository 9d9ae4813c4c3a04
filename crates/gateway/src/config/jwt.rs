//! Resolves the providers of JWTs.

use super::jwt_options::{ALGORITHMS, AUDIENCE, COOLDOWN, ISSUER, JWKS_FILE, JWKS_URL, JWT, MAX_STALE, REFRESH};
use super::layer::{ConfigValue, Layer, Source, SourcedValue};
use super::option::{Scope, TypedOption};
use super::options::OPTIONS;
use super::problem::Problem;
use super::resolver::Resolver;
use super::suggest::suggest;
use super::value;
use crate::settings::{JwtSettings, KeyLocation};
use rethread_auth::{Algorithm, JwtRules, KeyTiming, STATIC_PROVIDER};
use rethread_proto::auth::normalized_url;
use std::collections::BTreeMap;

/// The provider that flags define.
const FLAG_PROVIDER: &str = "idp";

impl Resolver<'_> {
    /// The source of the first flag or variable of a provider.
    pub(super) fn provider_flag(&self) -> Option<Source> {
        let found = provider_keys().into_iter().find_map(|key| self.input.layer.get(key));
        found.map(|found| found.source.clone())
    }

    /// All providers of JWTs: those of the file, and the one of the flags.
    pub(super) fn jwt_providers(&mut self) -> Vec<JwtSettings> {
        let mut tables: BTreeMap<String, (Layer, Source)> = BTreeMap::new();
        if let Some(found) = self.file.get(JWT.key) {
            let ConfigValue::Table(providers) = &found.value else {
                let problem = Problem::new("`auth.jwt` is not a table").at(&found.source);
                self.problems
                    .push(problem.hint("[auth.jwt.NAME] and its settings below"));
                return Vec::new();
            };
            for (name, provider) in providers {
                match &provider.value {
                    ConfigValue::Table(table) => {
                        self.refuse_unknown_keys(name, table);
                        tables.insert(name.clone(), (table.clone(), provider.source.clone()));
                    }
                    _ => {
                        let problem = Problem::new(format!("`auth.jwt.{name}` is not a table")).at(&provider.source);
                        self.problems
                            .push(problem.hint(format!("[auth.jwt.{name}] and its settings below")));
                    }
                }
            }
        }
        if let Some(source) = self.provider_flag() {
            let (table, _) = tables
                .entry(FLAG_PROVIDER.to_owned())
                .or_insert_with(|| (Layer::new(), source));
            for key in provider_keys() {
                table.extend(self.input.layer.get(key).map(|found| (key.to_owned(), found.clone())));
            }
        }
        let providers = tables.iter();
        let providers = providers.filter_map(|(name, (table, source))| self.jwt_provider(name, table, source));
        let providers: Vec<JwtSettings> = providers.collect();
        for (n, provider) in providers.iter().enumerate() {
            let issuer = &provider.rules.issuer;
            if providers[..n].iter().any(|other| other.rules.issuer == *issuer) {
                let problem = Problem::new(format!("two providers have the issuer `{issuer}`"));
                self.problems.push(problem.hint("one [auth.jwt.NAME] for each issuer"));
            }
        }
        providers
    }

    fn jwt_provider(&mut self, name: &str, table: &Layer, source: &Source) -> Option<JwtSettings> {
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if !is_name || name == STATIC_PROVIDER {
            let problem = Problem::new(format!("`{}` cannot be the name of a provider", name.escape_debug()));
            let hint = "letters, digits, `-` and `_`, but not `tokens`";
            self.problems.push(problem.at(source).hint(hint));
        }
        let issuer = self.provider_value(name, table, &ISSUER);
        let url = self.provider_value(name, table, &JWKS_URL);
        let file = self.provider_value(name, table, &JWKS_FILE);
        let keys = match (url, file) {
            (Some(_), Some(_)) => {
                let problem = Problem::new(format!("`{name}` has a URL and a file for its keys")).at(source);
                self.problems.push(problem.hint("one of jwks_url and jwks_file"));
                KeyLocation::Discover
            }
            (Some(url), None) => KeyLocation::Url(url),
            (None, Some(file)) => {
                let source = table.get(JWKS_FILE.def.key).map_or(source, |found| &found.source);
                KeyLocation::File(self.path(source, &file))
            }
            (None, None) => KeyLocation::Discover,
        };
        let audience = self.provider_value(name, table, &AUDIENCE);
        let algorithms = self.provider_value(name, table, &ALGORITHMS);
        let timing = KeyTiming {
            refresh: self.provider_duration(name, table, &REFRESH),
            cooldown: self.provider_duration(name, table, &COOLDOWN),
            max_stale: self.provider_duration(name, table, &MAX_STALE),
        };
        let Some(issuer) = issuer else {
            if !table.contains_key(ISSUER.def.key) {
                let problem = Problem::new(format!("the provider `{name}` has no issuer")).at(source);
                self.problems
                    .push(problem.hint("issuer = \"https://login.example.com/realms/corp\", or --issuer"));
            }
            return None;
        };
        Some(JwtSettings {
            rules: JwtRules {
                name: name.into(),
                issuer: issuer.into(),
                audience: audience.map(|list| list.iter().map(|text| normalized_url(text)).collect()),
                algorithms: algorithms.unwrap_or_else(|| Algorithm::DEFAULT.to_vec()),
            },
            keys,
            timing,
        })
    }

    /// A value of one provider. A flag is for another one, unless it is in `table`.
    fn provider_value<T>(&mut self, name: &str, table: &Layer, option: &TypedOption<T>) -> Option<T> {
        let key = format!("{}.{name}.{}", JWT.key, option.def.key);
        let Some(found) = table.get(option.def.key) else {
            let shown = match option.def.default {
                super::option::DefaultValue::Computed(text) => text.to_owned(),
                _ => value::none(),
            };
            self.add_row(None, key, shown, &Source::Default);
            return None;
        };
        let parsed = self.parse(option, found);
        let shown = parsed.as_ref().map_or_else(|| found.value.to_string(), option.show);
        self.add_row(None, key, shown, &found.source);
        parsed
    }

    fn provider_duration(
        &mut self,
        name: &str,
        table: &Layer,
        option: &TypedOption<std::time::Duration>,
    ) -> std::time::Duration {
        let key = format!("{}.{name}.{}", JWT.key, option.def.key);
        let default = SourcedValue {
            value: ConfigValue::Text((option.show)(&option.default_value())),
            source: Source::Default,
        };
        let found = table.get(option.def.key).unwrap_or(&default);
        let parsed = self.parse(option, found);
        let shown = parsed.as_ref().map_or_else(|| found.value.to_string(), option.show);
        self.add_row(None, key, shown, &found.source);
        parsed.unwrap_or_else(|| option.default_value())
    }

    fn refuse_unknown_keys(&mut self, name: &str, table: &Layer) {
        let known = provider_keys();
        for (key, found) in table.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
            let hint = match suggest(key, known.iter().copied()) {
                Some(similar) => format!("`auth.jwt.{name}.{similar}`"),
                None => format!("one of {}", known.join(", ")),
            };
            let problem = Problem::new(format!("unknown key `auth.jwt.{name}.{key}`"));
            self.problems.push(problem.at(&found.source).hint(hint));
        }
    }
}

/// The keys below `[auth.jwt.NAME]`.
fn provider_keys() -> Vec<&'static str> {
    let options = OPTIONS.iter().filter(|option| option.scope == Scope::Provider);
    options.map(|option| option.key).collect()
}
