//! Messages of which nobody knows whether they arrived.

use std::time::Duration;

use bytes::Bytes;
use firstwrite::Key;
use firstwrite::reconcile::{AnswerTemplate, Limits, RecordScope, Settings};
use firstwrite_core::findings::Findings;
use firstwrite_core::outbox::{
    Answers, Cause, ClaimRequest, Delivery, Ending, MessageState, Next, Settlement, protocol,
};
use firstwrite_core::{
    Body, BodyForm, Draft, DraftState, Fence, Fingerprint, KeptHeaders, OnLostAnswer, Outcome,
    PartDigests, Policy, RecordId, State,
};
use firstwrite_provider::{Chance, Foreign, Plant};
use http::StatusCode;

use crate::over_each_store;
use crate::stand::{Faults, HOUR, Stand, found, payment, settings, tenant};

fn lost() -> Faults {
    Faults { lose_answers: Chance::Always, ..Faults::default() }
}

fn away() -> Faults {
    Faults { fail_before_effect: Chance::Always, ..Faults::default() }
}

over_each_store!(one_that_arrived_is_delivered);
async fn one_that_arrived_is_delivered(stand: &Stand) {
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(lost()).await;
    assert_eq!(stand.state("order-1").await, MessageState::Unknown);
    // It is proven at once: no grace is needed for what is there.
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!((report.delivered, report.classes.matched, report.found.len()), (1, 1, 0));
    let message = stand.message("order-1").await;
    assert_eq!(message.state, MessageState::Delivered);
    assert_eq!(message.receipt.unwrap().provider_id, Some(stand.id_of("order-1")));
    let audits = stand.store.audits(message.record).await.unwrap();
    let entry = &audits[0].entry;
    assert_eq!(entry.actor, "reconcile payments");
    assert_eq!(entry.action, format!("delivered message {}", message.number));
    assert!(entry.reason.contains("matched by key"), "{entry:?}");
    stand.deliver(Faults::default()).await;
    assert_eq!(stand.provider.payments().len(), 1);
}

over_each_store!(one_that_did_not_arrive_is_sent_again_once);
async fn one_that_did_not_arrive_is_sent_again_once(stand: &Stand) {
    stand.witness("before").await;
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(away()).await;
    assert_eq!(stand.state("order-1").await, MessageState::Unknown);
    // Too early to tell: it may still be under way there.
    stand.advance(HOUR / 2).await;
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!((report.resent, report.classes.late), (0, 1));
    assert_eq!(stand.state("order-1").await, MessageState::Unknown);
    stand.advance(HOUR).await;
    // An account without an entry after it may end before it.
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!((report.resent, report.classes.late), (0, 1));
    stand.witness("after").await;
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!((report.resent, report.classes.absent, report.found.len()), (1, 1, 0));
    assert_eq!(stand.state("order-1").await, MessageState::Waiting);
    stand.deliver(Faults::default()).await;
    assert_eq!(stand.state("order-1").await, MessageState::Delivered);
    assert_eq!(stand.provider.payments().len(), 3);
    stand.advance(3 * HOUR).await;
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!((report.classes.matched, report.found.len(), report.resent), (3, 0, 0));
}

over_each_store!(one_that_is_doubled_or_differs_is_left_to_people);
async fn one_that_is_doubled_or_differs_is_left_to_people(stand: &Stand) {
    for (key, amount) in [("order-1", 500), ("order-2", 600)] {
        stand.ask(key, amount).await.unwrap();
    }
    stand.deliver(lost()).await;
    let plant = async |plant| stand.provider.plant(plant).await.unwrap();
    plant(Plant::Duplicate { id: stand.id_of("order-1") }).await;
    plant(Plant::ChangeAmount { id: stand.id_of("order-2"), amount: 6 }).await;
    stand.advance(3 * HOUR).await;
    let report = stand.run(&*stand.http(), &settings()).await;
    let kinds: Vec<_> = found(&report).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["differs", "duplicate"]);
    assert_eq!((report.delivered, report.resent), (0, 0));
    assert_eq!(stand.state("order-1").await, MessageState::Unknown);
    assert_eq!(stand.state("order-2").await, MessageState::Unknown);
}

over_each_store!(nothing_is_settled_by_an_account_with_a_hole_in_it);
async fn nothing_is_settled_by_an_account_with_a_hole_in_it(stand: &Stand) {
    stand.witness("before").await;
    for (key, amount) in [("order-1", 500), ("order-2", 600)] {
        stand.ask(key, amount).await.unwrap();
    }
    stand.deliver(away()).await;
    stand.advance(3 * HOUR).await;
    stand.witness("after").await;
    let check = async |source: &dyn firstwrite::reconcile::Source| {
        let report = stand.run(source, &settings()).await;
        assert!(!report.is_complete && !report.flaws.is_empty(), "{report:?}");
        assert!(report.resent == 0 && report.classes.late >= 2, "{report:?}");
        let run = Findings::of(&*stand.store).unwrap().last_run("payments").await.unwrap();
        assert_eq!(run, None, "the next run looks at the same time again");
    };
    stand.provider.behave(Faults { fail_lookups: Chance::Always, ..Faults::default() }).unwrap();
    check(&*stand.http()).await;
    stand.provider.behave(Faults::default()).unwrap();
    check(&*stand.csv(|text| text + "pay_9,,five,EUR,,2026-03-01T12:00:00Z\n").await).await;
    // An answer that fails now and then is asked for again.
    let shaky = Faults { fail_lookups: Chance::First(2), ..Faults::default() };
    stand.provider.behave(shaky).unwrap();
    let report = stand.run(&*stand.http(), &settings()).await;
    assert!(report.is_complete, "{report:?}");
    assert_eq!(report.resent, 2);
}

over_each_store!(nothing_is_absent_in_a_run_that_reached_a_limit_of_its_own);
async fn nothing_is_absent_in_a_run_that_reached_a_limit_of_its_own(stand: &Stand) {
    stand.witness("before").await;
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(away()).await;
    let foreign = |key: &str| Foreign {
        amount: 700,
        currency: "EUR".to_owned(),
        reference: None,
        idempotency_key: Some(format!("of-another-system-{key}")),
        created_at: None,
    };
    for key in ["1", "2"] {
        stand.provider.plant(Plant::AddForeign(foreign(key))).await.unwrap();
    }
    stand.advance(3 * HOUR).await;
    stand.witness("after").await;
    // A request of the same account, behind more messages than are read.
    stand.store.insert(&answered("order-2")).await.unwrap();
    let answer = AnswerTemplate::created("{}");
    let records = Some(RecordScope::new("charge", "POST /payments", answer));
    let few_entries = Limits { entries_max: 1, ..settings().limits };
    let few_findings = Limits { findings_max: 1, ..settings().limits };
    for (limits, records, place) in
        [(few_entries, records, "our books"), (few_findings, None, "findings")]
    {
        let settings = Settings { limits, records, ..settings() };
        let source = stand.http_list().build().unwrap();
        let report = stand.run(&source, &settings).await;
        let places: Vec<_> = report.flaws.iter().map(|flaw| &*flaw.place).collect();
        assert_eq!((report.is_complete, &*places), (false, &[place][..]), "{report:?}");
        assert_eq!((report.classes.absent, report.resent), (0, 0), "{report:?}");
        assert_eq!(stand.state("order-1").await, MessageState::Unknown);
    }
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!((report.is_complete, report.resent, report.found.len()), (true, 1, 2), "{report:?}");
}

/// What is missing may have sent the message a moment ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_absent_while_acknowledged_history_is_missing() {
    let stand = Stand::sqlite().await;
    stand.witness("before").await;
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(away()).await;
    stand.advance(3 * HOUR).await;
    stand.witness("after").await;
    stand.lose_history();
    let report = stand.run(&*stand.http(), &settings()).await;
    let classes = (report.classes.absent, report.classes.unproven);
    assert_eq!((classes, report.resent), ((0, 1), 0), "{report:?}");
    assert!(!report.is_complete, "{report:?}");
    assert!(report.flaws[0].detail.contains("lost history"), "{report:?}");
    assert_eq!(stand.state("order-1").await, MessageState::Unknown);
}

over_each_store!(a_dry_run_changes_nothing);
async fn a_dry_run_changes_nothing(stand: &Stand) {
    stand.witness("before").await;
    stand.ask("order-1", 500).await.unwrap();
    stand.deliver(lost()).await;
    stand.ask("order-2", 600).await.unwrap();
    stand.deliver(away()).await;
    let foreign = Foreign {
        amount: 700,
        currency: "EUR".to_owned(),
        reference: None,
        idempotency_key: Some("of-another-system".to_owned()),
        created_at: None,
    };
    stand.provider.plant(Plant::AddForeign(foreign)).await.unwrap();
    stand.advance(3 * HOUR).await;
    stand.witness("after").await;
    let mut settings = settings();
    settings.dry_run = true;
    let report = stand.run(&*stand.http(), &settings).await;
    assert_eq!((report.classes.matched, report.classes.absent, report.found.len()), (3, 1, 1));
    let preview = &report.preview;
    assert_eq!((preview.delivered, preview.resent), (1, 1), "{preview:?}");
    let paid = Some(stand.id_of("order-1"));
    let ids: Vec<_> = preview.named.iter().map(|(_, provider_id)| provider_id.clone()).collect();
    assert_eq!(ids, [paid, None]);
    assert_eq!((report.delivered, report.resent, report.noted.new), (0, 0, 0));
    assert_eq!(stand.state("order-1").await, MessageState::Unknown);
    assert_eq!(stand.state("order-2").await, MessageState::Unknown);
    assert_eq!(Findings::of(&*stand.store).unwrap().last_run("payments").await.unwrap(), None);
}

over_each_store!(the_interim_answer_becomes_the_true_one);
async fn the_interim_answer_becomes_the_true_one(stand: &Stand) {
    let interim = outcome(StatusCode::ACCEPTED, "wait").interim();
    let draft = Draft { state: DraftState::Completed { outcome: interim }, ..answered("order-1") };
    let id = draft.id;
    stand.store.insert(&draft).await.unwrap();
    let answers = Answers {
        delivered: outcome(StatusCode::CREATED, r#"{"payment":"{provider_id}"}"#),
        refused: outcome(StatusCode::PAYMENT_REQUIRED, "no"),
    };
    let message = payment("order-1", 500).answering(answers);
    stand.store.outbox().unwrap().enqueue(&message).await.unwrap();
    stand.deliver(lost()).await;
    stand.advance(Duration::from_mins(1)).await;
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!(report.delivered, 1);
    let record = stand.store.get(id).await.unwrap().unwrap().record;
    let State::Completed { outcome, .. } = record.state else { panic!("{record:?}") };
    assert_eq!((outcome.status, outcome.is_interim), (StatusCode::CREATED, false));
    let body = format!(r#"{{"payment":"{}"}}"#, stand.id_of("order-1"));
    assert_eq!(outcome.body, Body::Bytes(Bytes::from(body)));
}

over_each_store!(one_that_was_refused_is_expected_nowhere);
async fn one_that_was_refused_is_expected_nowhere(stand: &Stand) {
    // An amount that the provider declines, and one that it takes in spite of having said no.
    for (key, amount) in [("order-1", 666), ("order-2", 666)] {
        stand.ask(key, amount).await.unwrap();
    }
    stand.deliver(Faults::default()).await;
    let message = stand.message("order-2").await;
    assert_eq!(message.state, MessageState::Dead);
    let key = firstwrite_core::outbox::wire_key(&message.derived_key, message.record);
    let foreign = Foreign {
        amount: 666,
        currency: "EUR".to_owned(),
        reference: None,
        idempotency_key: Some(key),
        created_at: None,
    };
    stand.provider.plant(Plant::AddForeign(foreign)).await.unwrap();
    stand.advance(3 * HOUR).await;
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!(found(&report), [("differs", format!("message {}", message.number))]);
    assert_eq!((report.classes.absent, report.delivered), (1, 0));
    assert_eq!(stand.state("order-2").await, MessageState::Dead);
}

over_each_store!(one_that_was_given_up_is_delivered_if_it_is_there);
async fn one_that_was_given_up_is_delivered_if_it_is_there(stand: &Stand) {
    for key in ["order-1", "order-2"] {
        stand.ask(key, 500).await.unwrap();
    }
    let outbox = stand.store.outbox().unwrap();
    let request = ClaimRequest {
        destination: "provider".to_owned(),
        count_max: 9,
        lease_for: Duration::from_mins(1),
    };
    for claimed_message in outbox.claim(&[request], 7).await.unwrap().messages {
        let settlement = Settlement {
            claim: claimed_message.claim(),
            delivery: Some(Delivery::new(Ending::Retry, "put off with 429")),
            next: Next::Dead(Cause::Exhausted),
            answer: None,
        };
        protocol::settle(outbox, &[], &[settlement]).await.unwrap();
        if claimed_message.derived_key == "order-1:charge" {
            let foreign = Foreign {
                amount: 500,
                currency: "EUR".to_owned(),
                reference: None,
                idempotency_key: Some(claimed_message.wire_key()),
                created_at: None,
            };
            stand.provider.plant(Plant::AddForeign(foreign)).await.unwrap();
        }
    }
    stand.advance(3 * HOUR).await;
    let report = stand.run(&*stand.http(), &settings()).await;
    assert_eq!((report.delivered, report.classes.absent, report.found.len()), (1, 1, 0));
    assert_eq!(stand.state("order-1").await, MessageState::Delivered);
    assert_eq!(stand.state("order-2").await, MessageState::Dead, "it is for people to redrive");
}

fn outcome(status: StatusCode, body: &'static str) -> Outcome {
    Outcome::new(status, KeptHeaders::default(), Bytes::from_static(body.as_bytes()))
}

/// The record of a request that was answered with 201.
fn answered(key: &str) -> Draft {
    let key = Key::new(key).unwrap();
    let parts = PartDigests::from_bytes(&[7; 32]).unwrap();
    Draft {
        id: RecordId::of(&tenant(), &key),
        tenant: tenant(),
        key,
        operation: "POST /payments".into(),
        fingerprint: Fingerprint::from_stored(
            Fingerprint::VERSION,
            BodyForm::Canonical,
            [7; 32],
            parts,
        ),
        fence: Fence::first(1),
        on_lost_answer: OnLostAnswer::Uncertain,
        retention: Policy::default().record_retention(),
        state: DraftState::Completed { outcome: outcome(StatusCode::CREATED, "{}") },
    }
}
