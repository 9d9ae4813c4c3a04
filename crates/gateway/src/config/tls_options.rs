//! The options of `[tls]`.

use super::option::{DefaultValue, Flag, FlagKind, Heading, OptionDef, Reload, Scope, TypedOption};
use super::problem::Problem;
use super::resolver::Resolver;
use super::value;
use crate::tls::TlsFiles;

pub(crate) static TLS_CERT: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "tls.cert",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--tls-cert", FlagKind::File("FILE")).heading(Heading::Clients)),
        env: Some("RETHREAD_TLS_CERT"),
        default: DefaultValue::Unset,
        help: "Certificate chain for HTTPS, as PEM; read again when it changes",
        reload: Reload::Applied {
            differs: |old, new| old.tls.as_ref().map(|tls| &tls.cert) != new.tls.as_ref().map(|tls| &tls.cert),
        },
    },
    parse: value::text,
    show: String::clone,
};

pub(crate) static TLS_KEY: TypedOption<String> = TypedOption {
    def: OptionDef {
        key: "tls.key",
        scope: Scope::Gateway,
        flag: Some(Flag::new("--tls-key", FlagKind::File("FILE")).heading(Heading::Clients)),
        env: Some("RETHREAD_TLS_KEY"),
        default: DefaultValue::Unset,
        help: "Private key of the certificate, as PEM",
        reload: Reload::Applied {
            differs: |old, new| old.tls.as_ref().map(|tls| &tls.key) != new.tls.as_ref().map(|tls| &tls.key),
        },
    },
    parse: value::text,
    show: String::clone,
};

impl Resolver<'_> {
    /// `[tls]`, or its flags. One file without the other is a problem.
    pub(super) fn tls(&mut self) -> Option<TlsFiles> {
        let sources = [&TLS_CERT, &TLS_KEY].map(|option| self.find(None, option.def.key).map(|found| found.source));
        let [cert, key] = [&TLS_CERT, &TLS_KEY].map(|option| self.file_path(option));
        let missing = match sources {
            [Some(source), None] => Some((source, "--tls-key FILE, or `key` below [tls]")),
            [None, Some(source)] => Some((source, "--tls-cert FILE, or `cert` below [tls]")),
            _ => None,
        };
        if let Some((source, hint)) = missing {
            let problem = Problem::new("TLS needs a certificate and its key").at(&source);
            self.problems.push(problem.hint(hint));
        }
        Some(TlsFiles { cert: cert?, key: key? })
    }
}
