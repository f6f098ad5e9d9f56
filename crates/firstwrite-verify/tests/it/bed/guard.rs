//! What happens to a request before its handler runs, and instead of it.
//!
//! 1. route: other paths are 404, other methods 405
//! 2. credentials: without them 401, whatever is stored
//! 3. key: missing or unfit is 400
//! 4. the store is away: 503, and nothing runs
//! 5. another request has the key: 422, in flight or completed
//! 6. the same one is in flight: 409 with `Retry-After`
//! 7. the same one is completed: its answer again
//! 8. otherwise the key is reserved and the handler runs

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::connection::Request;
use super::defect::Defect;
use super::handler::{self, Attempt};
use super::key::Key;
use super::message::{Answer, Head};
use super::process::Shared;
use super::records::{Id, Outcome, Verdict};
use super::{delays, fingerprint};

/// What is to be done with a request.
enum Decision {
    Answer(Answer),
    /// Under this record, or under none.
    Run(Option<Id>),
}

/// Answers a request through the channel.
pub(super) async fn answer(request: Request, shared: &Shared, done: oneshot::Sender<Answer>) {
    let tenant = match route(&request, shared) {
        Ok(tenant) => tenant,
        Err(answer) => return handler::tell(done, answer),
    };
    let print = fingerprint::of(&request, shared.defect);
    match decide(&request, tenant, &print, shared).await {
        Decision::Answer(answer) => handler::tell(done, answer),
        Decision::Run(id) => {
            let attempt = Attempt { id, tenant, fingerprint: print, request };
            handler::run(attempt, shared, done).await;
        }
    }
}

/// Reserves the key of a request whose body is still to come, which only a broken server does.
pub(super) fn reserve_early(shared: &Shared, head: &Head) -> bool {
    if !shared.has(Defect::ReservesBeforeBody) || head.method != "POST" || head.path != "/orders" {
        return false;
    }
    let (Some(tenant), Key::Given(key)) = (tenant(head, shared), Key::of(head, shared.defect))
    else {
        return false;
    };
    let id = Id { tenant: tenant.to_owned(), key, body: Vec::new() };
    let is_away = shared.is_away();
    shared.change(|store| {
        let is_free = matches!(store.judge(&id, b""), Verdict::Fresh) && !is_away;
        is_free && matches!(store.reserve(&id, None, None), Verdict::Fresh)
    })
}

/// The tenant whose order is to be made, or the answer to anything else.
fn route(request: &Request, shared: &Shared) -> Result<&'static str, Answer> {
    let head = &request.head;
    let (method, path) = (head.method.as_str(), head.path.as_str());
    if (method, path) == ("GET", "/count") {
        return Err(Answer::json(200, format!(r#"{{"count":{}}}"#, shared.store().orders())));
    }
    let tenant = tenant(head, shared);
    let is_looked_up_first = match shared.defect {
        Some(Defect::BodyOnlyFingerprint) => method != "GET" && tenant.is_some(),
        Some(Defect::AuthAfterReplay) => method == "POST" && path == "/orders" && tenant.is_none(),
        _ => false,
    };
    if is_looked_up_first
        && let Key::Given(key) = Key::of(head, shared.defect)
        && !shared.is_away()
    {
        let print = fingerprint::of(request, shared.defect);
        let found = match tenant {
            Some(tenant) => {
                let id = Id { tenant: tenant.to_owned(), key, body: Vec::new() };
                shared.store().judge(&id, &print).outcome()
            }
            None => shared.store().of_anybody(&key, &print),
        };
        if let Some(outcome) = found {
            return Err(replay(&outcome, shared));
        }
    }
    if path == "/orders" && method != "POST" {
        return Err(Answer::problem(405, "method-not-allowed").with("Allow", "POST"));
    }
    let order = path.strip_prefix("/orders/").filter(|_| method == "GET");
    if path != "/orders" && order.is_none() {
        return Err(Answer::problem(404, "not-found"));
    }
    let Some(tenant) = tenant else {
        return Err(Answer::problem(401, "unauthorized").with("WWW-Authenticate", "Bearer"));
    };
    match order {
        None => Ok(tenant),
        Some(id) if shared.store().has_order(tenant, id) => {
            Err(Answer::json(200, serde_json::json!({"id": id}).to_string()))
        }
        Some(_) => Err(Answer::problem(404, "not-found")),
    }
}

fn tenant(head: &Head, shared: &Shared) -> Option<&'static str> {
    match head.one("authorization") {
        Some("Bearer acme") if !shared.is_revoked.load(Ordering::SeqCst) => Some("acme"),
        Some("Bearer globex") => Some("globex"),
        _ => None,
    }
}

async fn decide(request: &Request, tenant: &str, print: &[u8], shared: &Shared) -> Decision {
    let key = match Key::of(&request.head, shared.defect) {
        Key::Given(key) => key,
        Key::Unprotected => return Decision::Run(None),
        Key::Refused(answer) => return Decision::Answer(answer),
    };
    if shared.is_away() {
        return match shared.defect {
            Some(Defect::FailsOpen) => Decision::Run(None),
            _ => Decision::Answer(away()),
        };
    }
    let id = Id {
        tenant: if shared.has(Defect::GlobalKeys) { "" } else { tenant }.to_owned(),
        key,
        body: match shared.defect {
            Some(Defect::RunsOtherBody) => fingerprint::of_body(&request.body, None),
            _ => Vec::new(),
        },
    };
    if let Some(answer) = notice_others(&id, print, shared).await {
        return Decision::Answer(answer);
    }
    loop {
        let verdict = claim(&id, request.is_reserved, print, shared).await;
        if matches!(verdict, Verdict::Fresh) {
            return Decision::Run(Some(id));
        }
        let in_flight = matches!(verdict, Verdict::Mismatch { in_flight: true });
        if !in_flight || !shared.has(Defect::InFlightMismatchWaits) {
            return Decision::Answer(instead_of_running(verdict, shared));
        }
        if let Some(outcome) = end_of(&id, shared).await {
            return Decision::Answer(replay(&outcome, shared));
        }
    }
}

/// Judges, and reserves the key if it is free.
async fn claim(id: &Id, is_reserved: bool, print: &[u8], shared: &Shared) -> Verdict {
    let life = shared.has(Defect::OneLifetimeShort).then_some(delays::UNRENEWED);
    if shared.has(Defect::CheckThenInsert) {
        let verdict = shared.store().judge(id, print);
        if !matches!(verdict, Verdict::Fresh) {
            return verdict;
        }
        delays::pass(delays::CHECK_TO_INSERT).await;
        return shared.change(|store| store.reserve(id, Some(print), life));
    }
    // One lock from the look to the insert: that is all there is to it.
    shared.change(|store| {
        let verdict = store.judge(id, print);
        let is_own = is_reserved && matches!(verdict, Verdict::InFlight);
        if is_own || matches!(verdict, Verdict::Fresh) {
            return store.reserve(id, Some(print), life);
        }
        verdict
    })
}

fn instead_of_running(verdict: Verdict, shared: &Shared) -> Answer {
    match verdict {
        Verdict::Replay(outcome) => replay(&outcome, shared),
        Verdict::Mismatch { .. } => {
            let mut answer = Answer::problem(422, "key-reused");
            answer.leaves_body = shared.has(Defect::UnreadBody);
            answer
        }
        Verdict::InFlight => match shared.defect {
            Some(Defect::Conflict500) => Answer::problem(500, "internal-error"),
            Some(Defect::NoRetryAfter) => Answer::problem(409, "in-progress"),
            _ => Answer::problem(409, "in-progress").with("Retry-After", "1"),
        },
        Verdict::Fresh | Verdict::Full => away(),
    }
}

/// What another tenant's record under the same key does to a request: nothing, in a correct server.
async fn notice_others(id: &Id, print: &[u8], shared: &Shared) -> Option<Answer> {
    if !matches!(shared.defect, Some(Defect::TenantTiming | Defect::TenantExistence)) {
        return None;
    }
    let other = shared.store().of_others(id)?;
    if shared.has(Defect::TenantTiming) {
        delays::pass(delays::OTHERS_KEY).await;
        return None;
    }
    // Refused alike whether it is done or not, so nothing of the stored answer is seen.
    let verdict = match shared.store().judge(&other, print) {
        verdict @ Verdict::Mismatch { .. } => verdict,
        Verdict::Fresh | Verdict::Replay(_) | Verdict::InFlight | Verdict::Full => {
            Verdict::InFlight
        }
    };
    Some(instead_of_running(verdict, shared))
}

/// Waits until the attempt under a key has ended, and says how; nothing if it left no outcome.
async fn end_of(id: &Id, shared: &Shared) -> Option<Arc<Outcome>> {
    loop {
        // Made before the look, so that no change falls between the two.
        let changed = shared.changed.notified();
        if !shared.store().is_in_flight(id) {
            return shared.store().outcome(id);
        }
        changed.await;
    }
}

/// A stored answer for somebody who may not be the first caller.
fn replay(outcome: &Outcome, shared: &Shared) -> Answer {
    let mut answer = outcome.first.clone();
    if !shared.has(Defect::ReplayedCookie) {
        answer = answer.without("Set-Cookie");
    }
    if !shared.has(Defect::ReplayedHopByHop) {
        answer = answer.without_hop_by_hop();
    }
    match shared.defect {
        Some(Defect::NewBodyOnReplay) => handler::renew_id(&mut answer),
        Some(Defect::LostLocation) => answer = answer.without("Location"),
        Some(Defect::LostContentType) => {
            answer = answer.without("Content-Type").with("Content-Type", "text/plain");
        }
        Some(Defect::OtherStatus) if answer.status == 201 => answer.status = 200,
        Some(Defect::UnreadBody) => answer.leaves_body = true,
        _ => {}
    }
    if !shared.has(Defect::NoMarker) {
        answer = answer.with("Idempotent-Replayed", "true");
    }
    handler::dated(answer, outcome, shared)
}

fn away() -> Answer {
    Answer::problem(503, "store-unavailable").with("Retry-After", "1")
}
