//! The files of a certificate and its key.

use crate::config::Problem;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto, version};

/// A larger file is not a chain of certificates.
const MAX_PEM_BYTES: u64 = 1024 * 1024;

/// A certificate chain and its private key, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// Time and size of both files. Links are followed: Kubernetes replaces the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileStamp([Option<(SystemTime, u64)>; 2]);

impl TlsFiles {
    pub(super) fn stamp(&self) -> FileStamp {
        let stamp = |meta: Metadata| Some((meta.modified().ok()?, meta.len()));
        FileStamp([&self.cert, &self.key].map(|path| fs::metadata(path).ok().and_then(stamp)))
    }

    /// Reads both files. The key must belong to the certificate.
    pub(crate) fn server_config(&self) -> Result<Arc<ServerConfig>, Problem> {
        let (cert, key) = (self.cert.display(), self.key.display());
        let text = read(&self.cert, "certificate")?;
        let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
            let problem = Problem::new(format!("{cert} has no certificate"));
            problem.hint("a PEM file with the certificate first, then those of its issuers")
        })?;
        let private = PrivateKeyDer::from_pem_slice(&read(&self.key, "key")?).map_err(|_| {
            let problem = Problem::new(format!("{key} has no private key"));
            problem.hint("a PEM file with a key that is not encrypted: PKCS#8, PKCS#1 or SEC1")
        })?;
        // The library's error may not quote the key, but nobody needs more than this either.
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(&[&version::TLS13, &version::TLS12]);
        let builder = builder.map_err(|error| Problem::new(format!("TLS cannot be used: {error}")))?;
        let config = builder.with_no_client_auth().with_single_cert(chain, private);
        let mut config = config.map_err(|error| {
            let problem = Problem::new(format!("{cert} and {key} cannot be used together: {error}"));
            problem.hint("the key that the certificate was made for: RSA from 2048 bits, P-256, P-384 or Ed25519")
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn read(path: &Path, what: &str) -> Result<Vec<u8>, Problem> {
    let shown = path.display();
    let fail = |reason: String| Problem::new(format!("cannot read the {what} {shown}: {reason}"));
    let size = fs::metadata(path).map_err(|error| fail(error.to_string()))?.len();
    if size > MAX_PEM_BYTES {
        return Err(fail(format!("it is larger than {MAX_PEM_BYTES} bytes")));
    }
    fs::read(path).map_err(|error| fail(error.to_string()))
}
