//! Which pages of other origins may read answers (the fetch standard's CORS protocol).
//!
//! Decided for each exchange, outside of the record: a kept answer says nothing of origins, so a replay and a
//! refusal carry the same permission as the first answer.

use bytes::Bytes;
use firstwrite::{
    IDEMPOTENCY_EXPIRES, IDEMPOTENCY_INTERIM, IDEMPOTENCY_OUTCOME, IDEMPOTENT_REPLAYED,
    ResponseBody,
};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, DATE, ETAG, LINK, LOCATION,
    ORIGIN, RETRY_AFTER, VARY,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri};

/// Which origins may read answers, and what of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    origins: Origins,
    allows_credentials: bool,
    exposed: HeaderValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origins {
    Any,
    Listed(Vec<HeaderValue>),
}

/// Headers of every answer that pages may read, beside the few that they always may.
static EXPOSED: [HeaderName; 10] = [
    // By it a client reads the dates of the others, whatever its own clock says.
    DATE,
    IDEMPOTENT_REPLAYED,
    IDEMPOTENCY_EXPIRES,
    IDEMPOTENCY_INTERIM,
    IDEMPOTENCY_OUTCOME,
    RETRY_AFTER,
    LOCATION,
    ETAG,
    LINK,
    HeaderName::from_static("preference-applied"),
];

/// Headers that a page may send to any protected operation, even if its preflight request does not list them.
const ACCEPTED: &str = "idempotency-key, prefer";

/// Browsers keep a permission for as long, at most: Chromium's own limit is two hours.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

impl Cors {
    /// `origins` such as `https://shop.example`, or `*` alone. `exposed`: headers of the API that pages may read.
    pub fn new(
        origins: &[String],
        allows_credentials: bool,
        exposed: &[String],
    ) -> Result<Self, String> {
        let origins = if origins == ["*"] {
            if allows_credentials {
                return Err(
                    "with credentials, origins are named: * would let any page act for its \
                            visitor"
                        .to_owned(),
                );
            }
            Origins::Any
        } else {
            Origins::Listed(origins.iter().map(|text| origin(text)).collect::<Result<_, _>>()?)
        };
        if matches!(&origins, Origins::Listed(listed) if listed.is_empty()) {
            return Err("name at least one origin, such as https://shop.example".to_owned());
        }
        let mut names: Vec<String> = EXPOSED.iter().map(ToString::to_string).collect();
        for name in exposed {
            let name: HeaderName =
                name.parse().map_err(|_no_name| format!("{name:?} is no header"))?;
            names.push(name.to_string());
        }
        let exposed = HeaderValue::try_from(names.join(", ")).map_err(|error| error.to_string())?;
        Ok(Self { origins, allows_credentials, exposed })
    }

    /// The answer to a browser that asks whether a page may send a request. The API need not know of it.
    pub(crate) fn preflight(&self, request: &Parts) -> Option<Response<ResponseBody>> {
        let headers = &request.headers;
        let asked = headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        let origin = headers.get(ORIGIN).filter(|_| request.method == Method::OPTIONS)?;
        let mut response = Response::new(ResponseBody::from(Bytes::new()));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let answer = response.headers_mut();
        for name in [ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_REQUEST_HEADERS] {
            answer.append(VARY, HeaderValue::from(name));
        }
        if self.permission(origin).is_some() {
            answer.insert(ACCESS_CONTROL_ALLOW_METHODS, asked.clone());
            let mut accepted = ACCEPTED.as_bytes().to_vec();
            for line in headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
                accepted.extend_from_slice(b", ");
                accepted.extend_from_slice(line.as_bytes());
            }
            if let Ok(accepted) = HeaderValue::from_bytes(&accepted) {
                answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, accepted);
            }
            answer.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
        Some(response)
    }

    /// Says in an answer, wherever it comes from, who may read it. What the API says of it is replaced: it
    /// cannot say it of a replay.
    pub(crate) fn allow(
        &self,
        origin: Option<&HeaderValue>,
        response: &mut Response<ResponseBody>,
    ) {
        let headers = response.headers_mut();
        for name in [
            ACCESS_CONTROL_ALLOW_ORIGIN,
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            ACCESS_CONTROL_EXPOSE_HEADERS,
        ] {
            headers.remove(name);
        }
        headers.append(VARY, HeaderValue::from(ORIGIN));
        let Some(permission) = origin.and_then(|origin| self.permission(origin)) else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, permission);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.exposed.clone());
        if self.allows_credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }

    fn permission(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        match &self.origins {
            Origins::Any => Some(HeaderValue::from_static("*")),
            Origins::Listed(listed) => listed.contains(origin).then(|| origin.clone()),
        }
    }
}

/// An origin as browsers spell it: a scheme, a host in small letters, and a port if it is not the usual one.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let wrong = || {
        format!(
            "{text:?} is no origin such as https://shop.example or http://localhost:5173, or \"*\" alone"
        )
    };
    let uri: Uri = text.parse().map_err(|_not_a_uri| wrong())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    let spelt = format!("{}://{authority}", uri.scheme_str().unwrap_or_default());
    let is_usual = (text.starts_with("https:") && text.ends_with(":443"))
        || (text.starts_with("http:") && text.ends_with(":80"));
    if !is_http || spelt != text || authority.contains('@') || is_usual {
        return Err(wrong());
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(format!("{text:?}: browsers spell origins in small letters"));
    }
    HeaderValue::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str], allows_credentials: bool) -> Result<Cors, String> {
        let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
        Cors::new(&origins, allows_credentials, &["X-Request-Id".to_owned()])
    }

    #[test]
    fn an_origin_is_spelt_as_browsers_spell_it() {
        assert!(cors(&["https://shop.example", "http://localhost:5173"], true).is_ok());
        assert!(cors(&["*"], false).is_ok());
        for wrong in [
            &[][..],
            &["shop.example"],
            &["https://shop.example/"],
            &["https://Shop.example"],
            &["https://shop.example:443"],
            &["https://u@shop.example"],
            &["null"],
            &["ftp://a"],
            &["*", "https://shop.example"],
        ] {
            assert!(cors(wrong, false).is_err(), "{wrong:?}");
        }
        assert!(cors(&["*"], true).is_err(), "any page could act for its visitor");
    }
}
