//! The status resource, `GET /.firstwrite/operations/{key}`: a tenant's own record.
//!
//! A key that clients or servers on the way would take for a way to another resource, such as `..`, is asked for
//! with `GET /.firstwrite/operations?key={key}`: paths are normalised, escaped dots included, and queries are not.
//! Both forms are understood for every key.
//!
//! `?wait=20s` waits for the outcome. Another tenant's key looks exactly like one that was never
//! used: the record is looked up under the caller's own tenant.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::codec::{hex, path, percent};
use firstwrite_core::{
    Body, Found, Key, Outcome, RecordId, Rejection, RejectionKind, State, StoreError,
    StoreErrorKind, Timestamp,
};
use http::header::RETRY_AFTER;
use http::request::Parts;
use http::{HeaderValue, Method, Response, Uri};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::body::ResponseBody;
use crate::coalesce::Follow;
use crate::layer::Shared;
use crate::observe::Place;
use crate::respond;

const PATH: &str = "/.firstwrite/operations";
/// Below the idle limit of nearly every proxy on the way.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// Interval between look-ups in the store while another process runs the attempt.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Time that a client is told to wait before it asks again.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Returns the address of a key's status: a path, with a query where a path would not arrive as it is.
pub(crate) fn location(key: &Key) -> String {
    let encoded = percent::encode(key.as_str());
    // The key's own escapes count too: some servers decode twice.
    if path::is_misread(key.as_str()) {
        format!("{PATH}?key={encoded}")
    } else {
        format!("{PATH}/{encoded}")
    }
}

/// Returns true if a request is for a status.
pub(crate) fn is_status(request: &Parts) -> bool {
    let rest = request.uri.path().strip_prefix(PATH);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request for a status.
pub(crate) async fn answer(shared: &Shared, request: &Parts) -> Response<ResponseBody> {
    // Before anything else: a stranger learns nothing, not even which methods there are.
    let tenants = match shared.tenants.resolve_all(request) {
        Ok(tenants) => tenants,
        Err(refusal) => return respond::rejection(&refusal),
    };
    if request.method != Method::GET && request.method != Method::HEAD {
        return respond::read_only();
    }
    // One caller, by one or two names.
    let Some(tenant) = tenants.last() else { return unknown() };
    if let Err(refusal) = shared.observer.admit_look_up(tenant) {
        return respond::rejection(&refusal);
    }
    let _place = Place::new(&shared.observer, tenant);
    let key = asked_key(&request.uri);
    let ids = key.iter().flat_map(|key| tenants.iter().map(|tenant| RecordId::of(tenant, key)));
    let ids = ids.collect();
    let response = look_up(shared, ids, wait(request.uri.query())).await;
    if request.method == Method::HEAD {
        return response.map(|_| ResponseBody::whole(Bytes::new()));
    }
    response
}

/// Answers with the status of the first of `ids` that has a record or a running attempt.
async fn look_up(shared: &Shared, ids: Vec<RecordId>, wait: Duration) -> Response<ResponseBody> {
    let until = Instant::now() + wait;
    loop {
        let (found, in_flight) = match find(shared, &ids).await {
            Ok(found) => found,
            Err(error) => {
                shared.lines.not_looked_up(&error, None);
                if error.kind() == StoreErrorKind::HistoryLost {
                    return respond::store_failed(error.kind());
                }
                let refusal = Rejection::new(RejectionKind::StoreUnavailable)
                    .detail("The status cannot be looked up at the moment.");
                return respond::rejection(&refusal);
            }
        };
        let now = Instant::now();
        let undecided = match &found {
            Some(found) => match &found.record.state {
                State::Reserved(_) => true,
                State::Completed { outcome, .. } => outcome.is_interim,
                State::Uncertain { .. } => false,
            },
            None => in_flight.is_some(),
        };
        if !undecided || now >= until {
            return match found {
                Some(found) => describe(&found),
                None if in_flight.is_some() => running_here(),
                None => unknown(),
            };
        }
        match in_flight {
            // Ended or out of time: either way the record is read once more.
            Some(mut in_flight) => drop(timeout_at(until, in_flight.ended()).await),
            None => sleep_until(until.min(now + POLL_EVERY)).await,
        }
    }
}

async fn find(
    shared: &Shared,
    ids: &[RecordId],
) -> Result<(Option<Found>, Option<Follow>), StoreError> {
    for id in ids {
        let found = shared.store.get(*id).await?;
        // In atomic mode the record appears with its outcome: until then only this process knows.
        let in_flight = shared.running.watch(*id);
        if found.is_some() || in_flight.is_some() {
            return Ok((found, in_flight));
        }
        // "It was not used" must be true.
        shared.store.check_history(*id).await?;
    }
    Ok((None, None))
}

fn describe(found: &Found) -> Response<ResponseBody> {
    let Found { record, now } = found;
    let mut document = Map::new();
    document.insert("state".to_owned(), json!(record.state.kind().as_str()));
    document.insert("operation".to_owned(), json!(&*record.operation));
    document.insert("created_at".to_owned(), json!(date(record.created_at)));
    match &record.state {
        State::Completed { outcome, .. } if outcome.is_release_note() => {
            document.insert("state".to_owned(), json!("released"));
            document.insert("status".to_owned(), json!(outcome.status.as_u16()));
            let detail = "The attempt failed and its key is free. The same request runs again.";
            document.insert("detail".to_owned(), json!(detail));
            respond::document(&Value::Object(document))
        }
        // As a request under the key is answered.
        State::Completed { retained_until, .. } if retained_until <= now => {
            if record.retention.refuses_spent {
                respond::rejection(&Rejection::new(RejectionKind::KeyExpired))
            } else {
                unknown()
            }
        }
        State::Completed { outcome, .. } if outcome.is_interim => {
            document.insert("state".to_owned(), json!("interim"));
            document.insert("outcome".to_owned(), describe_outcome(outcome));
            pending(document)
        }
        State::Completed { outcome, retained_until, .. } => {
            document.insert("expires_at".to_owned(), json!(date(*retained_until)));
            document.insert("outcome".to_owned(), describe_outcome(outcome));
            let mut response = respond::document(&Value::Object(document));
            respond::stamp(response.headers_mut(), *retained_until);
            response
        }
        State::Uncertain { since } => {
            document.insert("uncertain_since".to_owned(), json!(date(*since)));
            pending(document)
        }
        State::Reserved(_) => pending(document),
    }
}

/// An attempt of this process whose record is not there yet.
fn running_here() -> Response<ResponseBody> {
    let mut document = Map::new();
    document.insert("state".to_owned(), json!("reserved"));
    pending(document)
}

fn pending(mut document: Map<String, Value>) -> Response<ResponseBody> {
    document.insert("retry_after".to_owned(), json!(RETRY_AFTER_DEFAULT.as_secs()));
    let mut response = respond::document(&Value::Object(document));
    response.headers_mut().insert(RETRY_AFTER, respond::seconds(RETRY_AFTER_DEFAULT));
    response
}

/// Status, headers and body. `body_form` says how to read `body`: `text` as it is (a JSON body too:
/// as a value, its big numbers would be rounded), `bytes` as their hexadecimal digits, `not-kept`
/// and `sealed` (there, and not to be read here) as `null`.
fn describe_outcome(outcome: &Outcome) -> Value {
    let header = |(name, value): (&http::HeaderName, &HeaderValue)| {
        json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())])
    };
    let shown = outcome.headers.iter().filter(|(name, _)| *name != respond::ATTEMPT_TRACEPARENT);
    let headers: Vec<Value> = shown.map(header).collect();
    let (form, body) = match &outcome.body {
        Body::Tombstone => ("not-kept", Value::Null),
        Body::Sealed(_) => ("sealed", Value::Null),
        Body::Released => ("none", Value::Null),
        Body::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => ("text", json!(text)),
            Err(_) => ("bytes", json!(hex::encode(bytes))),
        },
    };
    json!({ "status": outcome.status.as_u16(), "headers": headers, "body_form": form, "body": body })
}

fn unknown() -> Response<ResponseBody> {
    respond::rejection(&Rejection::new(RejectionKind::KeyUnknown))
}

/// Returns the key that is asked for: of the path, or of the query where the path has none.
fn asked_key(uri: &Uri) -> Option<Key> {
    let named = uri.path().strip_prefix(PATH)?.strip_prefix('/').filter(|named| !named.is_empty());
    let text = named.or_else(|| only_key(uri.query()?))?;
    let decoded = percent::decode_lenient(text).collect();
    Key::new(&String::from_utf8(decoded).ok()?).ok()
}

/// Returns the value of `key` in a query, as it is written; `None` if there are several.
fn only_key(query: &str) -> Option<&str> {
    let mut keys = query.split('&').filter_map(|pair| pair.strip_prefix("key="));
    let key = keys.next()?;
    keys.next().is_none().then_some(key)
}

/// Returns the time that the client wants to wait: `wait=20s`, or plain seconds. Zero if it cannot be parsed.
fn wait(query: Option<&str>) -> Duration {
    let mut pairs = query.unwrap_or("").split('&');
    let Some(text) = pairs.find_map(|pair| pair.strip_prefix("wait=")) else {
        return Duration::ZERO;
    };
    let seconds = text.parse().map(Duration::from_secs).ok();
    seconds.or_else(|| humantime::parse_duration(text).ok()).unwrap_or_default().min(WAIT_MAX)
}

fn date(at: Timestamp) -> String {
    /// The last instant that a four-digit year can name.
    const LAST: Timestamp = Timestamp::from_millis(253_402_300_799_000);
    humantime::format_rfc3339_seconds(at.min(LAST).to_system_time()).to_string()
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn a_wait_is_read_and_bounded() {
        let check = |query, seconds| assert_eq!(wait(query), Duration::from_secs(seconds));
        check(None, 0);
        check(Some("wait=20s"), 20);
        check(Some("a=b&wait=7"), 7);
        check(Some("wait=1m"), 60);
        check(Some("wait=9999h"), 60);
        check(Some("wait=18446744073709551615"), 60);
        check(Some("wait=-1"), 0);
        check(Some("wait=soon"), 0);
    }

    #[test]
    fn the_location_leads_back_to_the_key() {
        assert!(Key::new("a b").is_err() && Key::new("é").is_err(), "keys are visible ASCII");
        // A client resolves the location with its own parser, which takes dot segments out of paths, escaped or not.
        let base = Url::parse("https://api.example/shop/payments").unwrap();
        let request = |uri: &str| {
            let (mut request, ()) = http::Request::new(()).into_parts();
            request.uri = uri.parse().unwrap();
            request
        };
        for key in [
            "order-1",
            "a/b",
            "a/b?c%20\"#",
            ".",
            "..",
            "...",
            "%2e",
            "%2e%2e",
            "%2E.",
            "a/../b",
            "a/./b",
            "../../problems/x",
            "a/..",
            "/..",
            "..;a",
            "a\\..\\b",
            "a+b",
            "a&key=b",
            "a?wait=20s",
            "%",
            "%25",
        ] {
            let key = Key::new(key).unwrap();
            let location = location(&key);
            let url = base.join(&location).unwrap();
            assert!(url.path().starts_with(PATH), "{url}");
            let resolved = [url.path(), url.query().map_or("", |_| "?"), url.query().unwrap_or("")];
            for uri in [location.as_str(), &resolved.concat()] {
                let request = request(uri);
                assert!(is_status(&request), "{uri}");
                assert_eq!(asked_key(&request.uri).as_ref(), Some(&key), "{uri}");
            }
            // A wait is added as to any address.
            let waiting = base
                .join(&location)
                .unwrap()
                .query_pairs_mut()
                .append_pair("wait", "7s")
                .finish()
                .clone();
            let waiting = request(&format!("{}?{}", waiting.path(), waiting.query().unwrap()));
            assert_eq!(asked_key(&waiting.uri).as_ref(), Some(&key), "{waiting:?}");
            assert_eq!(wait(waiting.uri.query()), Duration::from_secs(7));
        }
        assert_eq!(location(&Key::new("a/b").unwrap()), "/.firstwrite/operations/a%2Fb");
        assert_eq!(location(&Key::new("..").unwrap()), "/.firstwrite/operations?key=..");
        for without in ["", "/", "/%ff", "?key=", "?key=%ff", "?keys=a", "?key=a&key=b", "?wait=7"]
        {
            let request = request(&format!("{PATH}{without}"));
            assert_eq!((is_status(&request), asked_key(&request.uri)), (true, None), "{without}");
        }
        assert!(!is_status(&request("/.firstwrite/operationsx?key=a")));
    }
}
