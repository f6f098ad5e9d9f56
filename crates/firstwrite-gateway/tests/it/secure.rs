//! TLS and HTTP/2, on both sides.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use firstwrite_gateway::tenants::Settings;
use firstwrite_gateway::tenants::settings::{
    Anonymous, CertificateName, CertificateSettings, Source,
};
use firstwrite_gateway::{Calling, Gateway, Listening, Rules, Target};
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::gateway::{anywhere, by, rules, start};
use crate::upstream::Upstream;

/// Who vouches for everybody here.
struct Authority(CertifiedIssuer<'static, KeyPair>);

type Identity = (CertificateDer<'static>, PrivateKeyDer<'static>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.into(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    /// Speaks both versions; asks for certificates, and takes connections without one.
    fn server(&self, name: &str) -> Arc<ServerConfig> {
        let (certificate, key) = self.issue(name);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots().into(), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }

    /// A client that shows this certificate.
    fn connector(&self, identity: Option<Identity>, protocol: &[u8]) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots());
        let mut config = match identity {
            Some((certificate, key)) => {
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

/// An API that speaks what it is spoken to in, and says what it saw.
async fn modern(tls: Option<Arc<ServerConfig>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                match tls {
                    Some(tls) => {
                        if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                            converse(TokioIo::new(stream)).await;
                        }
                    }
                    None => converse(TokioIo::new(stream)).await,
                }
            });
        }
    });
    address
}

/// How a connection ends is the gateway's business.
async fn converse<T>(io: T)
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let builder = auto::Builder::new(TokioExecutor::new());
    let (Ok(()) | Err(_)) = builder.serve_connection(io, service_fn(say)).await;
}

async fn say(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let proto =
        parts.headers.get("x-forwarded-proto").map_or("none", |value| value.to_str().unwrap());
    let body = body.collect().await.unwrap().to_bytes();
    let text = format!("{:?} {proto} {}", parts.version, String::from_utf8_lossy(&body));
    Ok(Response::builder().status(StatusCode::CREATED).body(Full::from(text)).unwrap())
}

fn posted(authority: &str, key: &str) -> Request<Full<Bytes>> {
    Request::post(format!("https://{authority}/pay"))
        .header("idempotency-key", key)
        .body(Full::from("{}"))
        .unwrap()
}

async fn h2_over_tls(
    gateway: &Gateway,
    connector: TlsConnector,
) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn clients_speak_http2_over_tls_and_the_upstream_http1() {
    let authority = Authority::new();
    let upstream = Upstream::start().await;
    let listening = Listening { tls: Some(authority.server("localhost")), ..anywhere() };
    let store = Arc::new(firstwrite::memory_store());
    let gateway = Gateway::start(store, &listening, rules(&[&upstream])).await.unwrap();
    let mut sender = h2_over_tls(&gateway, authority.connector(None, b"h2")).await;
    let first = sender.send_request(posted("shop.example", "k")).await.unwrap();
    assert_eq!((first.status(), first.version()), (StatusCode::CREATED, Version::HTTP_2));
    let again = sender.send_request(posted("shop.example", "k")).await.unwrap();
    assert_eq!(again.headers()["idempotent-replayed"], "true");
    assert_eq!(text(again).await, "made");
    let seen = upstream.seen();
    assert_eq!((seen.len(), seen[0].start.as_str()), (1, "POST /pay HTTP/1.1"));
    assert_eq!(seen[0].all("host"), ["shop.example"]);
    assert_eq!(seen[0].header("x-forwarded-proto"), Some("https"));
}

#[tokio::test]
async fn an_upstream_is_spoken_to_over_tls_and_in_http2() {
    let authority = Authority::new();
    for http2 in [false, true] {
        let address = modern(Some(authority.server("localhost"))).await;
        let trusted =
            Calling { http2, root_certificates: Some(authority.0.pem()), ..Calling::default() };
        let target = Target::new(&format!("https://localhost:{}", address.port())).unwrap();
        let usual = rules(&[]);
        let rules = Rules { upstreams: vec![target], calling: trusted, ..usual };
        let gateway = start(rules.clone()).await;
        let answered = crate::client::ask(gateway.address(), &crate::client::post("k", "{}")).await;
        let version = if http2 { "HTTP/2.0" } else { "HTTP/1.1" };
        assert_eq!(answered.text(), format!("{version} http {{}}"));
        // Nobody vouches for it: nothing is sent.
        let stranger = Some(Authority::new().0.pem());
        let calling = Calling { root_certificates: stranger, ..rules.calling.clone() };
        let gateway = start(Rules { calling, ..rules }).await;
        let refused = crate::client::ask(gateway.address(), &crate::client::post("k", "{}")).await;
        assert_eq!(refused.status(), 502);
    }
}

#[tokio::test]
async fn many_calls_share_one_connection_in_http2() {
    let address = modern(None).await;
    let target = Target::new(&format!("http://{address}")).unwrap();
    let calling = Calling { http2: true, ..Calling::default() };
    let gateway = start(Rules { upstreams: vec![target], calling, ..rules(&[]) }).await;
    for number in 0..20 {
        let request = crate::client::post(&format!("k{number}"), "{}");
        let answered = crate::client::ask(gateway.address(), &request).await;
        assert_eq!(answered.text(), "HTTP/2.0 http {}");
    }
}

#[tokio::test]
async fn a_certificate_says_who_is_there() {
    let authority = Authority::new();
    let upstream = Upstream::start().await;
    let listening = Listening { tls: Some(authority.server("localhost")), ..anywhere() };
    let certificate = CertificateSettings {
        tenant: CertificateName::Dns,
        principal: None,
        namespace: String::new(),
    };
    let settings =
        Settings { anonymous: Anonymous::Never, sources: vec![Source::Certificate(certificate)] };
    let rules = Rules { tenants: by(&settings), ..rules(&[&upstream]) };
    let store = Arc::new(firstwrite::memory_store());
    let gateway = Gateway::start(store, &listening, rules).await.unwrap();
    let identity = authority.issue("acme.example");
    for (identity, status) in [(Some(identity), 201), (None, 401)] {
        let mut sender = h2_over_tls(&gateway, authority.connector(identity, b"h2")).await;
        let answered = sender.send_request(posted("shop.example", "k")).await.unwrap();
        assert_eq!(answered.status(), status);
    }
    assert_eq!(upstream.seen()[0].all("firstwrite-tenant"), ["acme.example"]);
    // One that nobody vouches for is no connection at all.
    let stranger = Authority::new().issue("acme.example");
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let connector = authority.connector(Some(stranger), b"h2");
    let name = ServerName::try_from("localhost").unwrap();
    if let Ok(stream) = connector.connect(name, stream).await {
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        if let Ok((mut sender, connection)) = handshake {
            tokio::spawn(connection);
            assert!(sender.send_request(posted("shop.example", "k")).await.is_err());
        }
    }
    assert_eq!(upstream.seen().len(), 1);
}
