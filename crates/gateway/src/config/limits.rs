//! `[limits]`: every field of [`Limits`] under its own name, and `connections_per_peer`.

use super::layer::{ConfigValue, Layer, Source, SourcedValue};
use super::option::{DefaultValue, OptionDef, Reload, Scope};
use super::options::MAX_CONNECTIONS_PER_PEER;
use super::problem::Problem;
use super::resolver::Resolver;
use super::suggest::suggest;
use super::value;
use rethread::Limits;
use serde_json::{Map, Value, json};

pub(crate) static LIMITS: OptionDef = OptionDef {
    key: "limits",
    scope: Scope::Gateway,
    flag: None,
    env: None,
    default: DefaultValue::Unset,
    help: "Table of limits, such as calls_per_principal = 256 and rate = \"50/s\"",
    reload: Reload::Applied {
        differs: |old, new| old.limits != new.limits,
    },
};

/// The name of `max_connections_per_peer` in this table.
const CONNECTIONS_PER_PEER: &str = "connections_per_peer";
/// The only limit that is not a number.
const RATE: &str = "rate";

impl Resolver<'_> {
    /// The limits of every server, and the connections of one address.
    pub(super) fn limits(&mut self) -> (Limits, usize) {
        let empty = Layer::new();
        let found = self.find(None, LIMITS.key);
        let table = match found.as_ref().map(|found| (&found.value, &found.source)) {
            None => &empty,
            Some((ConfigValue::Table(table), _)) => table,
            Some((_, source)) => {
                let problem = Problem::new("`limits` is not a table").at(source);
                self.problems
                    .push(problem.hint("[limits] and its settings below, such as rate = \"50/s\""));
                &empty
            }
        };
        let mut fields = fields_of(&Limits::default());
        self.refuse_unknown_limits(table, &fields);
        for (key, field) in &mut fields {
            let found = table.get(key);
            if let Some(found) = found {
                let parsed = match key.as_str() {
                    RATE => value::rate(&found.value).map(|rate| json!(rate)),
                    _ => value::integer(&found.value, 1).map(|number| json!(number)),
                };
                *field = self.record(parsed, &found.source).unwrap_or(field.take());
            }
            let shown = match (found, &*field) {
                (Some(found), _) => found.value.to_string(),
                (None, Value::Null) => value::none(),
                (None, default) => default.to_string(),
            };
            let source = found.map_or(Source::Default, |found| found.source.clone());
            self.add_row(None, format!("{}.{key}", LIMITS.key), shown, &source);
        }
        let limits = serde_json::from_value(Value::Object(fields));
        let limits = limits.unwrap_or_else(|error| {
            self.problems
                .push(Problem::new(format!("[limits] has a value that is too large: {error}")));
            Limits::default()
        });
        (limits, self.connections_per_peer(table.get(CONNECTIONS_PER_PEER)))
    }

    /// The flag, then the table, then the older key at the top of the file.
    fn connections_per_peer(&mut self, limit: Option<&SourcedValue>) -> usize {
        let older = MAX_CONNECTIONS_PER_PEER.def.key;
        let Some(limit) = limit.filter(|_| !self.input.layer.contains_key(older)) else {
            return self.value(&MAX_CONNECTIONS_PER_PEER);
        };
        if let Some(other) = self.file.get(older) {
            let problem = Problem::new(format!(
                "`{older}` and `limits.{CONNECTIONS_PER_PEER}` are the same limit"
            ));
            self.problems.push(problem.at(&other.source).hint("one of the two"));
        }
        let parsed = self.parse(&MAX_CONNECTIONS_PER_PEER, limit);
        let key = format!("{}.{CONNECTIONS_PER_PEER}", LIMITS.key);
        self.add_row(None, key, limit.value.to_string(), &limit.source);
        parsed.unwrap_or_else(|| MAX_CONNECTIONS_PER_PEER.default_value())
    }

    fn refuse_unknown_limits(&mut self, table: &Layer, fields: &Map<String, Value>) {
        let known = || fields.keys().map(String::as_str).chain([CONNECTIONS_PER_PEER]);
        for (key, found) in table.iter().filter(|(key, _)| known().all(|known| known != *key)) {
            let hint = match suggest(key, known()) {
                Some(similar) => format!("`limits.{similar}`"),
                None => format!("one of {}", known().collect::<Vec<_>>().join(", ")),
            };
            let problem = Problem::new(format!("unknown key `limits.{key}`")).at(&found.source);
            self.problems.push(problem.hint(hint));
        }
    }
}

/// The limits by name. A limit that is not set is null.
fn fields_of(limits: &Limits) -> Map<String, Value> {
    match serde_json::to_value(limits) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(), // cannot happen: the limits are a struct
    }
}
