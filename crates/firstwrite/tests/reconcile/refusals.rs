//! Refusals of messages that may have arrived: the worker believes none that is no answer by key.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use firstwrite::carrier::http::{HttpDestination, ProbeSettings};
use firstwrite::worker::{Deliver, DeliveredCounts, Destination};
use firstwrite_core::outbox::{Answers, MessageState, Terms};
use firstwrite_core::{Fence, Policy, RecordId, State};
use firstwrite_provider::Chance;
use firstwrite_testkit::sample;
use http::StatusCode;

use crate::over_each_store;
use crate::stand::{Faults, HOUR, Stand, payment, tenant};

/// What a login, a router or a maintenance page in front of the provider says.
const AT_THE_DOOR: [StatusCode; 5] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::FOUND,
];

/// What the provider itself, or something before it, may say of a request that it dislikes.
const REFUSALS: [StatusCode; 3] =
    [StatusCode::BAD_REQUEST, StatusCode::PAYMENT_REQUIRED, StatusCode::UNPROCESSABLE_ENTITY];

fn recognises_keys() -> Terms {
    Terms { dedupe_for: 24 * HOUR, ..Terms::default() }
}

/// Answers everything with `status`, and does nothing.
async fn closed_door(status: StatusCode) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(move || async move { status });
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// Delivers what is due to `url`; probes go to the provider.
async fn deliver(stand: &Stand, url: &str, terms: &Terms) -> DeliveredCounts {
    worker(stand, url, terms).run_until_idle().await.unwrap()
}

/// Delivers the oldest message that is due, to the provider.
async fn deliver_one(stand: &Stand) {
    let worker = worker(stand, &stand.provider.url(), &recognises_keys()).claim_max(1);
    worker.run_once().await.unwrap();
}

fn worker(stand: &Stand, url: &str, terms: &Terms) -> Deliver {
    let mut settings = HttpDestination::new(&format!("{url}/v1/payments"))
        .provider_id("/id".parse().unwrap())
        .allow_network("127.0.0.0/8".parse().unwrap());
    if terms.can_be_asked {
        let probe = format!("{}/v1/payments?idempotency_key={{key}}", stand.provider.url());
        let [list, key, id] =
            ["/data", "/idempotency_key", "/id"].map(|pointer| pointer.parse().unwrap());
        let list = ProbeSettings::list(&probe, list, key, id).empty_is_absent();
        settings = settings.probe(list);
    }
    let carrier = Arc::new(settings.build().unwrap());
    let destination = Destination::new("provider", terms.clone(), carrier);
    Deliver::new(Arc::clone(&stand.store), vec![destination]).unwrap()
}

/// Pays, and loses the answer.
async fn deliver_and_lose(stand: &Stand, terms: &Terms) {
    deliver_badly(stand, terms, Faults { lose_answers: Chance::Always, ..Faults::default() }).await;
}

/// Fails before it pays, which the worker cannot know.
async fn deliver_to_no_avail(stand: &Stand, terms: &Terms) {
    let faults = Faults { fail_before_effect: Chance::Always, ..Faults::default() };
    deliver_badly(stand, terms, faults).await;
}

async fn deliver_badly(stand: &Stand, terms: &Terms, faults: Faults) {
    stand.provider.behave(faults).unwrap();
    deliver(stand, &stand.provider.url(), terms).await;
    stand.provider.behave(Faults::default()).unwrap();
    // The longest pause before the second delivery, or the question.
    stand.advance(Duration::from_mins(1)).await;
}

/// Writes a message that a client waits for, and its client's interim answer.
async fn ask_awaited(stand: &Stand, key: &str) -> RecordId {
    let request = sample::request(&tenant(), &sample::key(key), 1);
    let interim = sample::outcome(202, "wait").interim();
    let draft = sample::completed(&request, &Policy::default(), Fence::first(1), interim);
    stand.store.insert(&draft).await.unwrap();
    let answers =
        Answers { delivered: sample::outcome(201, "paid"), refused: sample::outcome(402, "no") };
    let message = payment(key, 500).answering(answers);
    stand.store.outbox().unwrap().enqueue(&message).await.unwrap();
    draft.id
}

async fn told(stand: &Stand, id: RecordId) -> u16 {
    let record = stand.store.get(id).await.unwrap().unwrap().record;
    let State::Completed { outcome, .. } = record.state else { panic!("{record:?}") };
    outcome.status.as_u16()
}

over_each_store!(a_refusal_after_a_lost_answer_is_held_with_its_doubt);
async fn a_refusal_after_a_lost_answer_is_held_with_its_doubt(stand: &Stand) {
    for (number, status) in REFUSALS.into_iter().enumerate() {
        let (plain, awaited) = (format!("plain-{number}"), format!("awaited-{number}"));
        stand.ask(&plain, 500).await.unwrap();
        let record = ask_awaited(stand, &awaited).await;
        deliver_and_lose(stand, &recognises_keys()).await;
        let since = stand.message(&plain).await.maybe_sent_at;
        assert!(since.is_some());
        let counts = deliver(stand, &closed_door(status).await, &recognises_keys()).await;
        assert_eq!((counts.unknown, counts.dead, counts.refused), (2, 0, 0), "{status}");
        for key in [&plain, &awaited] {
            let message = stand.message(key).await;
            assert_eq!(message.state, MessageState::Unknown, "{status}");
            assert_eq!(message.maybe_sent_at, since);
            let problem = message.problem.unwrap();
            assert!(problem.contains("may have arrived"), "{problem}");
            assert!(problem.contains(status.as_str()), "{problem}");
        }
        assert_eq!(told(stand, record).await, 202, "its client is not told what nobody knows");
    }
    assert_eq!(stand.provider.payments().len(), 2 * REFUSALS.len());
}

over_each_store!(what_answers_in_the_providers_place_ends_nothing);
async fn what_answers_in_the_providers_place_ends_nothing(stand: &Stand) {
    for (number, status) in AT_THE_DOOR.into_iter().enumerate() {
        let (doubtful, fresh) = (format!("doubtful-{number}"), format!("fresh-{number}"));
        let records = [ask_awaited(stand, &doubtful).await, ask_awaited(stand, &fresh).await];
        // Of the two, the first is paid, and its answer is lost.
        stand
            .provider
            .behave(Faults { lose_answers: Chance::Always, ..Faults::default() })
            .unwrap();
        deliver_one(stand).await;
        stand.provider.behave(Faults::default()).unwrap();
        stand.advance(Duration::from_mins(1)).await;
        let since = stand.message(&doubtful).await.maybe_sent_at;
        assert!(since.is_some());
        let counts = deliver(stand, &closed_door(status).await, &recognises_keys()).await;
        let ended = (counts.unknown, counts.dead, counts.refused, counts.delivered);
        assert_eq!((counts.waiting, ended), (2, (0, 0, 0, 0)), "{status}");
        for (key, since) in [(&doubtful, since), (&fresh, None)] {
            let message = stand.message(key).await;
            assert_eq!((message.state, message.maybe_sent_at), (MessageState::Waiting, since));
            assert!(message.problem.unwrap().contains(status.as_str()), "{status}");
        }
        stand.advance(Duration::from_mins(1)).await;
        let counts = deliver(stand, &stand.provider.url(), &recognises_keys()).await;
        assert_eq!(counts.delivered, 2, "{status}");
        for record in records {
            assert_eq!(told(stand, record).await, 201, "{status}");
        }
    }
    assert_eq!(stand.provider.payments().len(), 2 * AT_THE_DOOR.len(), "none is paid twice");
}

over_each_store!(a_probe_is_asked_before_a_refusal_is_met_and_decides);
async fn a_probe_is_asked_before_a_refusal_is_met_and_decides(stand: &Stand) {
    let asked = Terms { can_be_asked: true, ..Terms::default() };
    let paid = ask_awaited(stand, "paid").await;
    deliver_and_lose(stand, &asked).await;
    let door = closed_door(StatusCode::UNPROCESSABLE_ENTITY).await;
    assert_eq!(deliver(stand, &door, &asked).await.delivered, 1);
    assert_eq!(told(stand, paid).await, 201);
    // The provider failed before it paid: the probe proves it, and then a refusal is the truth.
    let unpaid = ask_awaited(stand, "unpaid").await;
    deliver_to_no_avail(stand, &asked).await;
    assert_eq!(deliver(stand, &door, &asked).await.refused, 1);
    assert_eq!(told(stand, unpaid).await, 402);
    assert_eq!(stand.provider.payments().len(), 1);
}

over_each_store!(a_refusal_by_key_ends_a_doubt_while_the_key_is_recognised);
async fn a_refusal_by_key_ends_a_doubt_while_the_key_is_recognised(stand: &Stand) {
    let by_key = Terms { answers_refusals_by_key: true, ..recognises_keys() };
    // An amount that the provider declines.
    stand.ask("declined", 666).await.unwrap();
    deliver_to_no_avail(stand, &by_key).await;
    assert_eq!(stand.state("declined").await, MessageState::Waiting);
    assert_eq!(deliver(stand, &stand.provider.url(), &by_key).await.dead, 1);
    let message = stand.message("declined").await;
    assert!(message.maybe_sent_at.is_some(), "the listing shows the doubt that there was");
    assert_eq!(stand.provider.payments().len(), 0);
}
