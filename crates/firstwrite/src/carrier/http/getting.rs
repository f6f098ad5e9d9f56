//! Asking by GET, with the guard and the limits of a destination: for accounts of what a provider did.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Full;

use super::connect::{self, HttpClient};
use super::destination::{HttpDestinationError, check_url, system_clock};
use super::exchange::{exchange, retry_after, whole_body};
use super::guard::{Guard, check_allowed};
use super::network::Network;

/// Settings of a GET. They are those of [`super::HttpDestination`], with the same meaning.
#[derive(Clone)]
pub(crate) struct GetSettings {
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) headers: HeaderMap,
    pub(crate) answer_bytes_max: usize,
    pub(crate) allowed_networks: Vec<Network>,
    pub(crate) root_certificates: Vec<u8>,
}

/// Asks one server.
pub(crate) struct Getter {
    client: HttpClient,
    timeout: Duration,
    headers: HeaderMap,
    answer_bytes_max: usize,
    allowed_networks: Vec<Network>,
}

/// Reason why there is no answer.
#[derive(Debug)]
pub(crate) struct NotGot {
    pub(crate) detail: String,
    /// True if another try may succeed.
    pub(crate) is_transient: bool,
    /// Time for which the server asked to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

/// Checks a URL as that of a destination is checked.
pub(crate) fn check(url: &str, subject: &str) -> Result<Uri, HttpDestinationError> {
    check_url(url).map_err(|error| error.of(subject))
}

impl Getter {
    pub(crate) fn new(
        mut settings: GetSettings,
        is_https: bool,
    ) -> Result<Self, HttpDestinationError> {
        if settings.timeout.is_zero() || settings.connect_timeout.is_zero() {
            return Err(HttpDestinationError::new("a timeout is longer than zero"));
        }
        check_allowed(&settings.allowed_networks)?;
        let tls = connect::tls(&settings.root_certificates, is_https)?;
        let guard = Guard::new(settings.allowed_networks.clone());
        let ours = HeaderValue::from_static(concat!("firstwrite/", env!("CARGO_PKG_VERSION")));
        settings.headers.entry(header::USER_AGENT).or_insert(ours);
        Ok(Self {
            client: connect::client(guard, tls, settings.connect_timeout),
            timeout: settings.timeout,
            headers: settings.headers,
            answer_bytes_max: settings.answer_bytes_max,
            allowed_networks: settings.allowed_networks,
        })
    }

    /// The headers and the body of a 200.
    pub(crate) async fn get(&self, url: Uri) -> Result<(HeaderMap, Bytes), NotGot> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = url;
        request.headers_mut().clone_from(&self.headers);
        let answer = exchange(&self.client, request, self.timeout, self.answer_bytes_max).await;
        let answer = answer.map_err(|failed| NotGot {
            detail: failed.detail,
            is_transient: true,
            retry_after: None,
        })?;
        let status = answer.status;
        if status != StatusCode::OK {
            let is_transient = status.is_server_error()
                || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
            let retry_after = retry_after(&answer.headers, system_clock());
            let detail = format!("answered {status}");
            return Err(NotGot { detail, is_transient, retry_after });
        }
        let body = whole_body(&answer).map_err(|reason| NotGot {
            detail: format!("answered {status}, but {reason}"),
            is_transient: answer.body != Err(super::exchange::Unread::TooLong),
            retry_after: None,
        })?;
        Ok((answer.headers, body))
    }
}

impl std::fmt::Debug for Getter {
    /// Shows only the names of headers: values may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Getter")
            .field("timeout", &self.timeout)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("answer_bytes_max", &self.answer_bytes_max)
            .field("allowed_networks", &self.allowed_networks)
            .finish_non_exhaustive()
    }
}
