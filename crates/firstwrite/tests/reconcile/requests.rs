//! Requests whose handlers call the provider themselves, and of which nobody knows how they ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use axum::{Router, http};
use firstwrite::reconcile::{
    AnswerTemplate, RecordScope, Settings, Window, next_window, reconcile_once,
};
use firstwrite::{Attempt, IdempotencyLayer, Store};
use firstwrite_core::protocol::mark_given_up_now;
use firstwrite_core::{AuditEntry, OnLostAnswer, Policy};
use firstwrite_provider::{Foreign, Plant, Provider};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::over_each_store;
use crate::stand::{HOUR, Stand, found, settings, tenant};

/// What the handlers share.
#[derive(Clone)]
struct Shop {
    provider: Arc<Provider>,
    runs: Arc<AtomicUsize>,
    died: Arc<AtomicBool>,
}

/// Pays at the provider, or not, and dies or answers, as the body says.
async fn pay(State(shop): State<Shop>, attempt: Attempt, body: String) -> (StatusCode, String) {
    shop.runs.fetch_add(1, Ordering::SeqCst);
    let wire_key = attempt.wire_key("charge").unwrap();
    if body == "resent" && shop.died.swap(true, Ordering::SeqCst) {
        // The provider recognises the key, and says again what it made.
        return (StatusCode::CREATED, "{}".to_owned());
    }
    let dies = body.contains("dies-before") && !shop.died.swap(true, Ordering::SeqCst);
    assert!(!dies, "in a test: before the payment");
    let foreign = Foreign {
        amount: 500,
        currency: "EUR".to_owned(),
        reference: None,
        idempotency_key: Some(wire_key),
        created_at: None,
    };
    let payment = shop.provider.plant(Plant::AddForeign(foreign)).await.unwrap();
    let dies = body.contains("dies-after") || body == "resent";
    assert!(!dies, "in a test: after the payment");
    (StatusCode::CREATED, format!(r#"{{"payment":"{}"}}"#, payment.id))
}

struct Answer {
    status: StatusCode,
    is_replay: bool,
    body: String,
}

async fn send(app: &Router, key: &str, body: &'static str) -> Answer {
    let request = Request::post("/payments").header("idempotency-key", key);
    let response = app.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
    let (status, is_replay) =
        (response.status(), response.headers().contains_key("idempotent-replayed"));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Answer { status, is_replay, body: String::from_utf8(body.to_vec()).unwrap() }
}

/// The application, and how often its handler ran. The stand's provider is shared with it.
fn app(store: Arc<dyn Store>, provider: Arc<Provider>) -> (Router, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    app_with(store, provider, Policy::default(), runs)
}

fn app_with(
    store: Arc<dyn Store>,
    provider: Arc<Provider>,
    policy: Policy,
    runs: Arc<AtomicUsize>,
) -> (Router, Arc<AtomicUsize>) {
    let layer = IdempotencyLayer::new(store).policy(policy).unwrap().single_tenant(tenant());
    let shop = Shop { provider, runs: Arc::clone(&runs), died: Arc::default() };
    (Router::new().route("/payments", post(pay)).layer(layer).with_state(shop), runs)
}

fn record_settings() -> Settings {
    let answer = AnswerTemplate::created(r#"{"payment":"{provider_id}"}"#);
    let scope = RecordScope::new("charge", "POST /payments", answer);
    Settings { messages: None, records: Some(scope), ..settings() }
}

over_each_store!(one_that_happened_is_replayed_as_a_true_201);
async fn one_that_happened_is_replayed_as_a_true_201(stand: &Stand) {
    let (app, runs) = app(Arc::clone(&stand.store), Arc::clone(&stand.provider));
    let first = send(&app, "order-1", "dies-after").await;
    assert!(first.status.is_server_error() || first.status == StatusCode::CONFLICT);
    let again = send(&app, "order-1", "dies-after").await;
    assert_eq!((again.status, again.is_replay), (StatusCode::CONFLICT, false));
    let report = stand.run(&*stand.http(), &record_settings()).await;
    assert_eq!((report.completed, report.freed, report.found.len()), (1, 0, 0), "{report:?}");
    let replay = send(&app, "order-1", "dies-after").await;
    assert_eq!((replay.status, replay.is_replay), (StatusCode::CREATED, true));
    assert_eq!(replay.body, format!(r#"{{"payment":"{}"}}"#, stand.id_of("order-1")));
    assert_eq!((runs.load(Ordering::SeqCst), stand.provider.payments().len()), (1, 1));
    let id = firstwrite::RecordId::of(&tenant(), &firstwrite::Key::new("order-1").unwrap());
    let audits = stand.store.audits(id).await.unwrap();
    let said: Vec<_> =
        audits.iter().map(|audit| (&*audit.entry.actor, &*audit.entry.action)).collect();
    let expected = [("firstwrite", "uncertain"), ("reconcile payments", "settle: happened")];
    assert_eq!(said, expected);
}

over_each_store!(one_that_did_not_happen_is_free_and_runs_once);
async fn one_that_did_not_happen_is_free_and_runs_once(stand: &Stand) {
    let (app, runs) = app(Arc::clone(&stand.store), Arc::clone(&stand.provider));
    send(&app, "before", "well").await;
    stand.advance(HOUR).await;
    send(&app, "order-1", "dies-before").await;
    stand.advance(HOUR).await;
    // An attempt may take an hour, and what it did may be reported an hour later.
    let report = stand.run(&*stand.http(), &record_settings()).await;
    assert_eq!((report.freed, report.classes.late), (0, 1), "{report:?}");
    assert_eq!(send(&app, "order-1", "dies-before").await.status, StatusCode::CONFLICT);
    stand.advance(HOUR).await;
    send(&app, "after", "well").await;
    let report = stand.run(&*stand.http(), &record_settings()).await;
    assert_eq!((report.freed, report.completed, report.found.len()), (1, 0, 0), "{report:?}");
    let retry = send(&app, "order-1", "dies-before").await;
    assert_eq!((retry.status, retry.is_replay), (StatusCode::CREATED, false));
    assert!(send(&app, "order-1", "dies-before").await.is_replay);
    assert_eq!((runs.load(Ordering::SeqCst), stand.provider.payments().len()), (4, 3));
}

over_each_store!(one_that_was_given_up_anew_is_free_only_after_that);
/// After a history loss, an attempt that the store knows nothing of may have sent it a moment before.
async fn one_that_was_given_up_anew_is_free_only_after_that(stand: &Stand) {
    let (app, _) = app(Arc::clone(&stand.store), Arc::clone(&stand.provider));
    send(&app, "before", "well").await;
    stand.advance(HOUR).await;
    send(&app, "order-1", "dies-before").await;
    stand.advance(3 * HOUR).await;
    let [actor, action, reason] = ["ada", "clear history loss", "compared"].map(str::to_owned);
    let by = AuditEntry { actor, action, reason };
    assert_eq!(mark_given_up_now(&*stand.store, &by).await.unwrap(), 1);
    send(&app, "after", "well").await;
    let report = stand.run(&*stand.http(), &record_settings()).await;
    assert_eq!((report.freed, report.classes.late), (0, 1), "{report:?}");
    stand.advance(2 * HOUR).await;
    send(&app, "later", "well").await;
    let report = stand.run(&*stand.http(), &record_settings()).await;
    assert_eq!((report.freed, report.found.len()), (1, 0), "{report:?}");
}

over_each_store!(those_that_were_answered_are_compared_too);
async fn those_that_were_answered_are_compared_too(stand: &Stand) {
    let (app, _) = app(Arc::clone(&stand.store), Arc::clone(&stand.provider));
    for number in 0..10 {
        let answer = send(&app, &format!("order-{number}"), "well").await;
        assert_eq!(answer.status, StatusCode::CREATED);
    }
    stand.advance(3 * HOUR).await;
    let report = stand.run(&*stand.http(), &record_settings()).await;
    assert_eq!((report.classes.matched, report.found.len()), (10, 0), "{report:?}");
    let removed = stand.id_of("order-3");
    stand.provider.plant(Plant::Remove { id: removed }).await.unwrap();
    stand.provider.plant(Plant::Duplicate { id: stand.id_of("order-4") }).await.unwrap();
    let report = stand.run(&*stand.http(), &record_settings()).await;
    let kinds: Vec<_> = found(&report).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["duplicate", "missing_there"]);
    // Long after, when their records are gone, what the provider has of them is nobody's fault.
    stand.advance(50 * HOUR).await;
    while stand.store.reap(1000).await.unwrap() > 0 {}
    let report = stand.run(&*stand.http(), &record_settings()).await;
    assert_eq!((report.read.ours, report.found.len()), (0, 0), "{report:?}");
}

over_each_store!(a_payment_that_a_resent_request_found_there_is_not_missing);
async fn a_payment_that_a_resent_request_found_there_is_not_missing(stand: &Stand) {
    let policy = Policy::default().on_lost_answer(OnLostAnswer::Resend);
    let (store, provider) = (Arc::clone(&stand.store), Arc::clone(&stand.provider));
    let (app, runs) = app_with(store, provider, policy, Arc::default());
    let whole = stand.window().await;
    // It is paid, its answer is lost, and the client comes again ten hours later.
    send(&app, "order-1", "resent").await;
    stand.advance(5 * HOUR).await;
    let from = stand.store.now().await.unwrap();
    stand.advance(5 * HOUR).await;
    let retry = send(&app, "order-1", "resent").await;
    assert_eq!((retry.status, retry.is_replay), (StatusCode::CREATED, false));
    assert_eq!((runs.load(Ordering::SeqCst), stand.provider.payments().len()), (2, 1));
    stand.advance(3 * HOUR).await;
    let until = stand.store.now().await.unwrap();
    let run = async |from| {
        let (source, window) = (stand.http(), Window { from, until });
        let settings = record_settings();
        reconcile_once(&*stand.store, &*source, &settings, window, &mut |_| {}).await.unwrap()
    };
    // The account of a time after the payment does not have it, and the account of the whole time does.
    let report = run(from).await;
    assert_eq!((report.classes.missing_there, report.found.len()), (0, 0), "{report:?}");
    let report = run(whole.from).await;
    assert_eq!((report.classes.matched, report.found.len()), (1, 0), "{report:?}");
    // The next run reads as much of the account as the payment can be older than its record.
    let next = next_window(&*stand.store, &record_settings()).await.unwrap();
    assert_eq!(next.from.plus(26 * HOUR), until);
    stand.provider.plant(Plant::Remove { id: stand.id_of("order-1") }).await.unwrap();
    let report = run(whole.from).await;
    assert_eq!(report.classes.missing_there, 1, "{report:?}");
}

over_each_store!(other_operations_are_left_alone);
async fn other_operations_are_left_alone(stand: &Stand) {
    let (app, _) = app(Arc::clone(&stand.store), Arc::clone(&stand.provider));
    send(&app, "order-1", "dies-before").await;
    stand.advance(5 * HOUR).await;
    let mut settings = record_settings();
    settings.records.as_mut().unwrap().operations = vec!["POST /refunds".to_owned()];
    let report = stand.run(&*stand.http(), &settings).await;
    assert_eq!((report.freed, report.read.ours), (0, 0));
    assert_eq!(send(&app, "order-1", "dies-before").await.status, StatusCode::CONFLICT);
}
