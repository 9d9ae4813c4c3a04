//! `rethread console`: the URL of the console page, with the token in its fragment.

use crate::admin;
use crate::config::{self, CliInput, ConfigValue, Environment, Problems, Source, SourcedValue, options};
use crate::exit::{Exit, Failure};
use crate::settings::AdminSettings;
use crate::start_message::listener_url;

/// The URL. Browsers never send the part behind `#`.
pub(crate) fn url(input: &CliInput) -> Result<Result<String, Failure>, Problems> {
    let (admin, has_certificate) = settings(input)?;
    Ok(url_of(&admin, has_certificate && !admin.listen.ip().is_loopback()))
}

fn url_of(admin: &AdminSettings, is_tls: bool) -> Result<String, Failure> {
    let base = match &admin.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None if admin.listen.port() == 0 => {
            let failure = Failure::new(Exit::Usage, "the admin listener has no fixed port");
            return Err(failure.hint("--admin 127.0.0.1:9465, also for `serve`"));
        }
        None => listener_url(admin.listen, is_tls),
    };
    if !admin.token_file.exists() {
        let message = format!("there is no admin token in {}", admin.token_file.display());
        return Err(Failure::new(Exit::Failure, message)
            .hint("start the gateway with --admin 127.0.0.1:9465, or name its file: --config FILE"));
    }
    Ok(format!("{base}/#{}", admin::read_token(&admin.token_file)?))
}

/// The admin listener of the gateway that the command line describes, and whether there is a certificate. Without one, that of `--admin` with its usual address.
fn settings(input: &CliInput) -> Result<(AdminSettings, bool), Problems> {
    let mut input = input.clone();
    if !input.has_servers() {
        input.command = vec!["any-server".to_owned()]; // the console does not depend on it
    }
    let environment = Environment::current();
    let mut resolved = config::resolve(&input, &environment);
    if resolved.settings.admin.is_none() && resolved.problems.is_empty() {
        let usual = SourcedValue {
            value: ConfigValue::Text("127.0.0.1:9465".to_owned()),
            source: Source::Default,
        };
        input.layer.insert(options::ADMIN.def.key.to_owned(), usual);
        resolved = config::resolve(&input, &environment);
    }
    match resolved.settings.admin {
        Some(admin) if resolved.problems.is_empty() => Ok((admin, resolved.settings.tls.is_some())),
        _ => Err(Problems(resolved.problems)),
    }
}
