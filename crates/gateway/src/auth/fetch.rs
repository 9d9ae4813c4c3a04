//! Fetches a document of an issuer: one GET, bounded in time and bytes, without redirects.

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// A larger document is not a key set.
const MAX_DOCUMENT_BYTES: usize = 512 * 1024;
/// How long one document may take. Only callers whose key is not known wait for it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a document could not be fetched. The text has no content of the document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("not a URL with a host")]
    InvalidUrl,
    #[error("no answer within {} seconds", FETCH_TIMEOUT.as_secs())]
    Timeout,
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("the HTTP exchange failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("the status is {0}")]
    Status(u16),
    #[error("the body is broken, or larger than {MAX_DOCUMENT_BYTES} bytes")]
    Body,
}

/// Fetches `url`.
pub(crate) async fn get(url: &str) -> Result<Bytes, FetchError> {
    let request = Request::get("/").header(header::ACCEPT, "application/json");
    let request = request.body(Full::default()).map_err(|_| FetchError::InvalidUrl)?;
    let fetching = tokio::time::timeout(FETCH_TIMEOUT, send(url, request));
    fetching.await.unwrap_or(Err(FetchError::Timeout))
}

/// Sends a request to `url`, which replaces its target. The caller bounds the time.
pub(crate) async fn send(url: &str, mut request: Request<Full<Bytes>>) -> Result<Bytes, FetchError> {
    let uri: Uri = url.parse().map_err(|_| FetchError::InvalidUrl)?;
    let host = uri.host().ok_or(FetchError::InvalidUrl)?;
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    *request.uri_mut() = target.parse().map_err(|_| FetchError::InvalidUrl)?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, authority.parse().map_err(|_| FetchError::InvalidUrl)?);
    headers.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("rethread/", env!("CARGO_PKG_VERSION"))),
    );
    let is_secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let socket = TcpStream::connect((name.as_str(), port)).await?;
    if !is_secure {
        return exchange(socket, request).await;
    }
    let server = ServerName::try_from(name).map_err(|_| FetchError::InvalidUrl)?;
    let socket = TlsConnector::from(tls_config()).connect(server, socket).await?;
    exchange(socket, request).await
}

async fn exchange<S>(socket: S, request: Request<Full<Bytes>>) -> Result<Bytes, FetchError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let responding = async {
        let response = sender.send_request(request).await?;
        if response.status() != http::StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16())); // redirects too
        }
        let body = Limited::new(response.into_body(), MAX_DOCUMENT_BYTES).collect();
        body.await
            .map(http_body_util::Collected::to_bytes)
            .map_err(|_| FetchError::Body)
    };
    // The connection is driven here, so that it ends with this future. It may end before the body was read.
    let mut responding = pin!(responding);
    tokio::select! {
        responded = &mut responding => responded,
        _ = connection => responding.await,
    }
}

/// The certificates of the system, read once.
fn tls_config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.expect("ring has suites of all default versions");
        Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
    });
    Arc::clone(config)
}
