//! One HTTP request on a connection of its own, to a gateway on this machine.

use crate::task;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, SignatureScheme};

pub(crate) type ClientError = Box<dyn Error + Send + Sync>;

/// Closes the connection when dropped.
pub(crate) struct SocketGuard(AbortHandle);

impl Drop for SocketGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request. The body of the response ends with the guard. The caller bounds the time.
pub(crate) async fn send(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, SocketGuard), ClientError> {
    exchange(TcpStream::connect(address).await?, request).await
}

/// The same over TLS. The certificate is not checked, so the request must have no secret: the gateway is on this machine, and its
/// certificate names its public host. Plain HTTP to the same address would prove as much.
pub(crate) async fn send_tls(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, SocketGuard), ClientError> {
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let socket = TcpStream::connect(address).await?;
    let name = ServerName::IpAddress(address.ip().into());
    let socket = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
    exchange(socket, request).await
}

/// Accepts every certificate whose key signs the handshake.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

async fn exchange<S>(socket: S, request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, SocketGuard), ClientError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
    let guard = SocketGuard(task::spawn(connection).abort_handle());
    let response = sender.send_request(request).await?;
    Ok((response, guard))
}
