//! The handler: makes the order, and sees to it that effect and record are one step.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::Request;
use super::defect::Defect;
use super::delays;
use super::json::Json;
use super::message::Answer;
use super::process::Shared;
use super::records::{Id, Outcome};

/// The right to run once.
pub(super) struct Attempt {
    /// Nothing where a server runs requests unprotected.
    pub(super) id: Option<Id>,
    pub(super) tenant: &'static str,
    pub(super) fingerprint: Vec<u8>,
    pub(super) request: Request,
}

/// Runs an attempt to its end, whether anybody waits for the answer or not.
pub(super) async fn run(attempt: Attempt, shared: &Shared, mut done: oneshot::Sender<Answer>) {
    let slow = attempt.request.head.one("x-slow").and_then(|ms| ms.parse().ok());
    if let Some(slow) = slow.map(Duration::from_millis) {
        delays::pass(slow.min(delays::SLOW_MAX)).await;
    }
    let (answer, order) = handle(&attempt.request);
    let Attempt { mut id, tenant, fingerprint, request } = attempt;
    if shared.has(Defect::FailsOpen) && shared.is_away() {
        shared.change(|store| id.take().map(|id| store.release(&id)));
    }
    let Some(id) = id else {
        shared.change(|store| store.order(tenant, order.as_deref()));
        return tell(done, answer);
    };
    if shared.is_away() {
        // Effect and record are one step, so what cannot be recorded has not happened.
        shared.change(|store| store.release(&id));
        return tell(done, Answer::problem(503, "store-unavailable").with("Retry-After", "1"));
    }
    if answer.status >= 500 && !shared.has(Defect::Cached500) {
        shared.change(|store| store.release(&id));
        return tell(done, answer);
    }
    let expires = delays::date_in(shared.retention);
    let outcome = Arc::new(Outcome { first: answer.clone(), expires });
    let answer = dated(answer, &outcome, shared);
    let effect = order.as_deref();
    match shared.defect {
        Some(Defect::CutRunsAgain) => {
            shared.change(|store| store.order(tenant, effect));
            if timeout(delays::EFFECT_TO_RECORD, done.closed()).await.is_ok() {
                return shared.change(|store| store.release(&id));
            }
            shared.change(|store| store.complete(id, fingerprint, outcome, shared.kept_for()));
            tell(done, answer);
        }
        Some(Defect::ReplyBeforeRecord) => {
            shared.change(|store| {
                store.order(tenant, effect);
                store.release(&id);
            });
            tell(done, answer);
            delays::pass(delays::REPLY_TO_RECORD).await;
            shared.change(|store| store.complete(id, fingerprint, outcome, shared.kept_for()));
        }
        _ => {
            shared.change(|store| {
                store.order(tenant, effect);
                store.complete(id, fingerprint, outcome, shared.kept_for());
            });
            if let (Some(url), Some(order)) = (request.head.one("x-notify"), effect) {
                notify(url, order).await;
            }
            tell(done, answer);
        }
    }
}

/// Tells an address of an order, as a webhook does; one that is not there is not told.
async fn notify(url: &str, order: &str) {
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    let Ok(mut stream) = TcpStream::connect(host).await else { return };
    let notice = format!("POST / HTTP/1.1\r\nWebhook-Id: {order}\r\nContent-Length: 2\r\n\r\n{{}}");
    if stream.write_all(notice.as_bytes()).await.is_ok() {
        // The receiver ends the connection when it has taken it.
        drop(stream.read_to_end(&mut Vec::new()).await);
    }
}

/// Hands an answer over; where the caller has hung up, nobody takes it, and that is all.
pub(super) fn tell(done: oneshot::Sender<Answer>, answer: Answer) {
    drop(done.send(answer));
}

/// The answer with the date until which it is kept.
pub(super) fn dated(answer: Answer, outcome: &Outcome, shared: &Shared) -> Answer {
    match shared.defect {
        Some(Defect::NoExpiryHeader) => answer,
        _ => answer.with("Idempotency-Expires", &*outcome.expires),
    }
}

/// Gives the order in an answer another id, as if it had been made anew.
pub(super) fn renew_id(answer: &mut Answer) {
    let location = answer.headers.iter().find(|(name, _)| *name == "Location");
    if let Some(old) = location.and_then(|(_, path)| path.strip_prefix("/orders/")) {
        let body = String::from_utf8_lossy(&answer.body).replace(old, &new_id());
        answer.body = body.into_bytes();
    }
}

/// The answer, and the order to be made.
fn handle(request: &Request) -> (Answer, Option<String>) {
    if request.head.one("x-fault") == Some("500") {
        return (Answer::problem(500, "internal-error"), None);
    }
    let json = Json::parse(&request.body);
    let Some(Json::Number(amount)) = json.as_ref().and_then(|json| json.member("amount")) else {
        return (Answer::problem(400, "order-invalid"), None);
    };
    let id = new_id();
    let answer = Answer::json(201, format!(r#"{{"id":"{id}","amount":{amount}}}"#))
        .with("Location", format!("/orders/{id}"))
        .with("X-Order-Kind", "standard")
        .with("Set-Cookie", format!("session={:016x}; HttpOnly", fastrand::u64(..)))
        .with_hop("X-Hop", "1");
    (answer, Some(id))
}

fn new_id() -> String {
    format!("ord_{:016x}", fastrand::u64(..))
}
