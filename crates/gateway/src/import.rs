//! `rethread import`: prints the JSON file of a client as TOML.

use crate::config::client_file::{self, ClientFile, ClientServer, Template};
use crate::config::{Environment, Problem, Problems};
use std::path::Path;
use toml_writer::{ToTomlKey as _, ToTomlValue};

/// The outcome of `import`.
#[derive(Debug)]
pub(crate) struct ClientImport {
    /// For stdout.
    pub(crate) toml: String,
    pub(crate) warnings: Vec<String>,
}

/// Reads the JSON file of a client.
pub(crate) fn import(path: &Path, environment: &Environment) -> Result<ClientImport, Problems> {
    let name = path.display().to_string();
    let refuse = |message: String, hint: &str| Problems(vec![Problem::new(message).hint(hint)]);
    let absolute = environment.cwd.join(path);
    let text = std::fs::read_to_string(&absolute).map_err(|error| {
        refuse(
            format!("cannot read {name}: {error}"),
            "the path of a client's JSON file",
        )
    })?;
    if !client_file::is_json(&text) {
        let hint = "the JSON file of a client; `rethread check --config FILE` reads TOML";
        return Err(refuse(format!("{name} is not JSON"), hint));
    }
    let file = client_file::parse(&name, &text).map_err(Problems)?;
    let dir = absolute.parent().unwrap_or(&environment.cwd);
    let writer = TomlWriter {
        environment,
        dir,
        text: format!("# From {}.\n", one_line(&name)),
        secrets: Vec::new(),
        expanded: Vec::new(),
    };
    writer.file(file)
}

/// A comment must not end before its line does.
fn one_line(text: &str) -> String {
    text.escape_debug().to_string()
}

struct TomlWriter<'a> {
    environment: &'a Environment,
    /// The folder of the JSON file. Its relative paths become absolute, since the TOML file may be elsewhere.
    dir: &'a Path,
    text: String,
    /// Variables whose values are in the text.
    secrets: Vec<String>,
    /// Keys whose variables had to be replaced.
    expanded: Vec<String>,
}

impl TomlWriter<'_> {
    fn file(mut self, file: ClientFile) -> Result<ClientImport, Problems> {
        for note in &file.notes {
            self.text.push_str(&format!("# {}\n", one_line(note)));
        }
        let outcomes: Vec<_> = file.servers.iter().map(|server| self.server(server)).collect();
        let problems: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        if !problems.is_empty() {
            return Err(Problems(problems));
        }
        let mut warnings = file.notes;
        if !self.expanded.is_empty() {
            let keys = self.expanded.join(", ");
            warnings.push(format!("the output has the present values of the variables in {keys}"));
        }
        if !self.secrets.is_empty() {
            let names = self.secrets.join(", ");
            let advice = "keep it private, or write ${NAME} in their place and export NAME";
            warnings.push(format!("the output has the values of {names}; {advice}"));
        }
        Ok(ClientImport {
            toml: self.text,
            warnings,
        })
    }

    fn server(&mut self, server: &ClientServer) -> Result<(), Problem> {
        let key = server.name.to_toml_key();
        let program = self.expand(server, "command", &server.command)?;
        let mut words = vec![if program.contains('/') {
            self.absolute(&program)
        } else {
            program
        }];
        for arg in &server.args {
            words.push(self.expand(server, "args", arg)?);
        }
        let words: Vec<_> = words.iter().map(ToTomlValue::to_toml_value).collect();
        self.text
            .push_str(&format!("\n[servers.{key}]\ncommand = [{}]\n", words.join(", ")));
        if let Some(cwd) = &server.cwd {
            let cwd = self.expand(server, "cwd", cwd)?;
            let cwd = self.absolute(&cwd);
            self.text.push_str(&format!("cwd = {}\n", cwd.to_toml_value()));
        }
        if !server.env.is_empty() {
            self.text.push_str(&format!("\n[servers.{key}.env]\n"));
        }
        for variable in &server.env {
            let name = &variable.name;
            let value = match variable.value.to_toml_variable() {
                Some(value) => value,
                None => self
                    .expand(server, &format!("env.{name}"), &variable.value)?
                    .replace("${", "$${"),
            };
            if !variable.value.has_variables() {
                self.secrets.push(format!("{}.env.{name}", server.name));
            }
            self.text
                .push_str(&format!("{} = {}\n", name.to_toml_key(), value.to_toml_value()));
        }
        Ok(())
    }

    fn expand(&mut self, server: &ClientServer, key: &str, template: &Template) -> Result<String, Problem> {
        let path = format!("{}.{key}", server.name);
        let expanded = server.expand(key, template, self.environment)?;
        if template.has_variables() && !self.expanded.contains(&path) {
            self.expanded.push(path);
        }
        Ok(expanded)
    }

    fn absolute(&self, path: &str) -> String {
        self.environment.absolute(self.dir, path).display().to_string()
    }
}
