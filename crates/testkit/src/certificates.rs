//! A certificate authority for tests, and a tunnel through which a client without TLS reaches a server with it.
//!
//! ```no_run
//! # async fn example(server: std::net::SocketAddr, dir: &std::path::Path) -> std::io::Result<()> {
//! use rethread_testkit::certificates::Authority;
//!
//! let authority = Authority::new();
//! authority.write_pair(&dir.join("cert.pem"), &dir.join("key.pem"));
//! // Start the server with both files, then:
//! let plain = authority.tunnel(server).await?;
//! # let _ = plain; Ok(())
//! # }
//! ```

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The names in every certificate.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];

/// A certificate authority. Each one is different.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Makes an authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // OpenSSL takes a certificate whose issuer has its own name for a self-signed one.
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().expect("a key can be made");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate can be made"))
    }

    /// The certificate of the authority, as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A new certificate for 127.0.0.1 and localhost, and its key, both as PEM.
    pub fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().expect("a key can be made");
        let params = CertificateParams::new(NAMES.map(str::to_owned)).expect("the names are valid");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate can be made");
        (certificate.pem(), key.serialize_pem())
    }

    /// Writes a new certificate and its key.
    pub fn write_pair(&self, cert: &Path, key: &Path) {
        let (cert_pem, key_pem) = self.issue();
        std::fs::write(cert, cert_pem).expect("the certificate can be written");
        std::fs::write(key, key_pem).expect("the key can be written");
    }

    /// A client that trusts this authority and offers `protocols` by ALPN.
    pub fn client_config(&self, protocols: &[&[u8]]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("the authority is valid");
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("the provider has all versions");
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config
    }

    /// Accepts connections with a new certificate of this authority.
    pub fn acceptor(&self) -> TlsAcceptor {
        let (cert, key) = self.issue();
        let chain = CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("the key is PEM");
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("the provider has all versions").with_no_client_auth();
        let config = builder.with_single_cert(chain.expect("the certificate is PEM"), key);
        Arc::new(config.expect("the key fits the certificate")).into()
    }

    /// Connects with TLS and checks the certificate.
    pub async fn connect(&self, server: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        connect(&self.client_config(&[b"http/1.1"]).into(), server).await
    }

    /// A listener whose connections continue with TLS to `server`. It ends with the runtime.
    pub async fn tunnel(&self, server: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let config = Arc::new(self.client_config(&[b"http/1.1"]));
        tokio::spawn(async move {
            while let Ok((mut plain, _)) = listener.accept().await {
                let config = Arc::clone(&config);
                tokio::spawn(async move {
                    let mut secure = connect(&config, server).await?;
                    tokio::io::copy_bidirectional(&mut plain, &mut secure).await
                });
            }
        });
        Ok(address)
    }
}

/// Connects with a configuration of one's own. The server is known as its address.
pub async fn connect(config: &Arc<ClientConfig>, server: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::IpAddress(server.ip().into());
    let socket = TcpStream::connect(server).await?;
    TlsConnector::from(Arc::clone(config)).connect(name, socket).await
}
