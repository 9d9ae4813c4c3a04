//! An issuer of JSON Web Tokens: an HTTP server that publishes keys, and can rotate them, be slow, be down or serve garbage.

use crate::certificates::Authority;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::KeyPair as RsaKeyPair;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

/// A private key for tests. It protects nothing.
const RSA_2048: &[u8] = include_bytes!("issuer/rsa_2048.der");

/// How the issuer answers requests for its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssuerMode {
    /// With its keys.
    Working,
    /// With its keys, after a pause.
    Slow(Duration),
    /// Every connection is closed without an answer.
    Down,
    /// With this status and body.
    Answer(u16, Vec<u8>),
    /// With a redirect to this URL.
    Redirect(String),
}

/// A running issuer. It stops when dropped.
pub struct Issuer {
    url: String,
    state: Arc<IssuerState>,
    server: AbortHandle,
}

struct IssuerState {
    url: String,
    mode: Mutex<IssuerMode>,
    keys: Mutex<Vec<Value>>,
    fetches: AtomicUsize,
    /// Requests for any other path: nothing may be fetched because of a token.
    other_requests: AtomicUsize,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Issuer {
    /// Starts an issuer without keys on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::serve(listener, "")
    }

    /// Starts an issuer whose URL has a path.
    pub async fn start_at(path: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::serve(listener, path)
    }

    /// Starts an issuer with HTTPS. Its certificate is of `authority`.
    pub async fn start_with_tls(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::serve_with(listener, "", Some(authority.acceptor()))
    }

    fn serve(listener: TcpListener, path: &str) -> Self {
        Self::serve_with(listener, path, None)
    }

    fn serve_with(listener: TcpListener, path: &str, tls: Option<TlsAcceptor>) -> Self {
        let address = listener.local_addr().expect("a bound socket has an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}{path}");
        let state = Arc::new(IssuerState {
            url: url.clone(),
            mode: Mutex::new(IssuerMode::Working),
            keys: Mutex::default(),
            fetches: AtomicUsize::new(0),
            other_requests: AtomicUsize::new(0),
        });
        let served = Arc::clone(&state);
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (state, tls) = (Arc::clone(&served), tls.clone());
                tokio::spawn(async move {
                    // The client may have gone, or it does not trust the certificate.
                    match tls {
                        Some(tls) => state.answer(tls.accept(socket).await?).await,
                        None => state.answer(socket).await,
                    }
                });
            }
        });
        Issuer {
            url,
            state,
            server: server.abort_handle(),
        }
    }

    /// The issuer in tokens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of the keys.
    pub fn jwks_url(&self) -> String {
        self.state.jwks_url()
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        let host = self.url.split("//").nth(1).unwrap_or_default();
        let host = host.split('/').next().unwrap_or_default();
        host.parse().expect("the URL has an address")
    }

    /// Changes how requests for keys are answered.
    pub fn set_mode(&self, mode: IssuerMode) {
        *self.state.mode.lock().expect("no test has panicked here") = mode;
    }

    /// Replaces the published keys.
    pub fn publish(&self, keys: &[&SigningKey]) {
        self.publish_raw(keys.iter().map(|key| key.jwk()).collect());
    }

    /// Replaces the published keys by any JSON.
    pub fn publish_raw(&self, keys: Vec<Value>) {
        *self.state.keys.lock().expect("no test has panicked here") = keys;
    }

    /// How often the keys were asked for.
    pub fn fetches(&self) -> usize {
        self.state.fetches.load(Ordering::Relaxed)
    }

    /// How often anything but keys and metadata was asked for.
    pub fn other_requests(&self) -> usize {
        self.state.other_requests.load(Ordering::Relaxed)
    }

    /// Claims of a token that is valid for an hour.
    pub fn claims(&self, subject: &str, audience: &str) -> Value {
        let now = now_seconds();
        json!({
            "iss": self.url, "sub": subject, "aud": audience, "iat": now, "exp": now + 3600,
        })
    }
}

impl IssuerState {
    fn jwks_url(&self) -> String {
        format!("{}/jwks", self.url.trim_end_matches('/'))
    }

    async fn answer(&self, mut socket: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut head = Vec::new();
        let mut chunk = [0; 1024];
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            match socket.read(&mut chunk).await? {
                0 => return Ok(()),
                read => head.extend_from_slice(&chunk[..read]),
            }
        }
        let head = String::from_utf8_lossy(&head);
        let path = head.split(' ').nth(1).unwrap_or_default();
        let own_path = &self.url[self.url.find("//").map_or(0, |at| at + 2)..];
        // A final slash is part of the issuer, and not of the paths below it.
        let own_path = own_path
            .find('/')
            .map_or("", |at| &own_path[at..])
            .trim_end_matches('/');
        let is_keys = path == format!("{own_path}/jwks");
        let is_oauth = path == format!("/.well-known/oauth-authorization-server{own_path}");
        let is_oidc = path == format!("{own_path}/.well-known/openid-configuration");
        let mode = self.mode.lock().expect("no test has panicked here").clone();
        let (status, body) = if is_keys {
            self.fetches.fetch_add(1, Ordering::Relaxed);
            let keys = self.keys.lock().expect("no test has panicked here").clone();
            let keys = json!({ "keys": keys }).to_string().into_bytes();
            match mode {
                IssuerMode::Working => (200, keys),
                IssuerMode::Slow(pause) => {
                    tokio::time::sleep(pause).await;
                    (200, keys)
                }
                IssuerMode::Down => return Ok(()),
                IssuerMode::Answer(status, body) => (status, body),
                IssuerMode::Redirect(to) => {
                    let head = format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
                    socket.write_all(head.as_bytes()).await?;
                    return socket.shutdown().await;
                }
            }
        } else if is_oidc && mode != IssuerMode::Down {
            let metadata = json!({ "issuer": self.url, "jwks_uri": self.jwks_url() });
            (200, metadata.to_string().into_bytes())
        } else if is_oauth {
            (404, Vec::new())
        } else {
            self.other_requests.fetch_add(1, Ordering::Relaxed);
            (404, Vec::new())
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        socket.write_all(&[head.as_bytes(), &body].concat()).await?;
        socket.shutdown().await
    }
}

/// A private key of an issuer.
pub struct SigningKey {
    kid: Option<String>,
    pair: KeyPair,
}

enum KeyPair {
    Es256(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    /// A new key for ES256.
    pub fn es256(kid: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("random bytes");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("a new key");
        Self::new(kid, KeyPair::Es256(pair))
    }

    /// A new key for `EdDSA`.
    pub fn ed25519(kid: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("random bytes");
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a new key");
        Self::new(kid, KeyPair::EdDsa(pair))
    }

    /// The one RSA key, of 2048 bits.
    pub fn rsa(kid: &str) -> Self {
        Self::new(
            kid,
            KeyPair::Rsa(RsaKeyPair::from_pkcs8(RSA_2048).expect("the key of this crate")),
        )
    }

    fn new(kid: &str, pair: KeyPair) -> Self {
        SigningKey {
            kid: Some(kid.to_owned()),
            pair,
        }
    }

    /// The public key.
    pub fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.pair {
            KeyPair::Es256(pair) => {
                let point = pair.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..]) })
            }
            KeyPair::EdDsa(pair) => json!({ "kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref()) }),
            KeyPair::Rsa(pair) => {
                let public: signature::RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({ "kty": "RSA", "n": text(&public.n), "e": text(&public.e) })
            }
        };
        if let Some(kid) = &self.kid {
            jwk["kid"] = json!(kid);
        }
        jwk
    }

    /// The algorithm that the key is for by default.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            KeyPair::Es256(_) => "ES256",
            KeyPair::EdDsa(_) => "EdDSA",
            KeyPair::Rsa(_) => "RS256",
        }
    }

    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(json!({}), claims)
    }

    /// A token with further members of the header. Null removes one.
    pub fn token_with(&self, header: Value, claims: &Value) -> String {
        let mut all = json!({ "alg": self.algorithm(), "kid": self.kid, "typ": "at+jwt" });
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), header) {
            all.extend(more);
            all.retain(|_, value| !value.is_null());
        }
        let signed = format!("{}.{}", encode(&all), encode(claims));
        let pss = all["alg"] == "PS256";
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.sign(signed.as_bytes(), pss)))
    }

    fn sign(&self, message: &[u8], pss: bool) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            KeyPair::Es256(pair) => pair.sign(&random, message).expect("random bytes").as_ref().to_vec(),
            KeyPair::EdDsa(pair) => pair.sign(message).as_ref().to_vec(),
            KeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let encoding: &'static dyn signature::RsaEncoding = match pss {
                    true => &signature::RSA_PSS_SHA256,
                    false => &signature::RSA_PKCS1_SHA256,
                };
                pair.sign(encoding, &random, message, &mut signature)
                    .expect("a long enough key");
                signature
            }
        }
    }
}

/// A part of a token.
pub fn encode(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

/// The time in tokens.
pub fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
