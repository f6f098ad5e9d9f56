//! Interim answers stand until a message replaces them, once, and records wait for their messages.

use std::time::Duration;

use firstwrite_core::outbox::{
    Answers, ClaimStatus, Delivery, Ending, MessageState, Next, Outbox, Resolution, protocol,
};
use firstwrite_core::{
    DraftState, Inserted, Record, State, Store, Timestamp, Transacted, TransactionalStore, Write,
};
use firstwrite_store::SqliteTx;

use super::{ada, claim_one, delivered, failed, message, receipt, settle};
use crate::shop::{RETENTION, Shop, completed, draft_of, id_of, outcome, tenant};

/// A record that answers for now, with the message that will say more.
async fn accept(shop: &Shop) {
    let state = DraftState::Completed { outcome: outcome("for now").interim() };
    let draft = draft_of(&tenant(), "k", state);
    let answers = Answers { delivered: outcome("paid as {provider_id}"), refused: outcome("no") };
    let message = message("k").answering(answers);
    let work = move |tx: &mut SqliteTx<'_>, _found: Option<_>| {
        tx.enqueue(&message).unwrap();
        firstwrite_core::Conclusion { write: Write::All(Box::new(draft)), answer: () }
    };
    let ended = shop.store.transact(id_of("k"), work).await.unwrap();
    assert!(matches!(ended, Transacted::Done((), _)), "{ended:?}");
}

async fn record(shop: &Shop) -> Record {
    shop.store.get(id_of("k")).await.unwrap().expect("a record stands").record
}

/// Reaps all there is to reap, however few are looked at in one step.
async fn reap(shop: &Shop) -> usize {
    let mut count = 0;
    for _ in 0..5 {
        count += shop.store.reap(100).await.unwrap();
    }
    count
}

#[tokio::test]
async fn an_interim_answer_stands_for_ever_and_the_final_one_for_its_retention() {
    let shop = Shop::open();
    accept(&shop).await;
    shop.pass(RETENTION.replay_for * 100);
    assert_eq!(reap(&shop).await, 0);
    let before = record(&shop).await;
    let State::Completed { outcome: interim, retained_until, kept_until } = &before.state else {
        panic!("{before:?}");
    };
    assert!(interim.is_interim);
    assert_eq!((*retained_until, *kept_until), (Timestamp::NEVER, Timestamp::NEVER));

    let claimed_message = claim_one(&shop.store).await;
    let answer = claimed_message.answers.as_ref().unwrap().when_delivered(&receipt("pay_1"));
    let mut last = delivered(&claimed_message, "pay_1");
    last.answer = Some(answer);
    settle(&shop.store, last).await;
    let now = shop.store.now().await.unwrap();
    let expected = State::completed(outcome("paid as pay_1"), RETENTION, now);
    assert_eq!(record(&shop).await, Record { state: expected, ..before });

    // 100 s and 10 s, but for one millisecond.
    shop.pass(Duration::from_millis(109_999));
    assert_eq!(reap(&shop).await, 0);
    shop.pass(Duration::from_millis(1));
    assert_eq!(reap(&shop).await, 1);
}

#[tokio::test]
async fn a_refusal_answers_and_a_later_finding_changes_nothing() {
    let shop = Shop::open();
    accept(&shop).await;
    let claimed_message = claim_one(&shop.store).await;
    let mut refused = failed(&claimed_message, Next::Refused);
    refused.delivery = Some(Delivery::new(Ending::Refused, "declined"));
    refused.answer = claimed_message.answers.as_ref().unwrap().after(&refused.next);
    settle(&shop.store, refused).await;
    let first = record(&shop).await;
    assert!(
        matches!(&first.state, State::Completed { outcome: told, .. } if *told == outcome("no"))
    );
    let found = Resolution::Delivered {
        receipt: receipt("pay_1"),
        answer: Some(outcome("paid after all")),
    };
    let by = ada("resolve");
    let held =
        protocol::resolve(&shop.store, claimed_message.number, claimed_message.fence, &found, &by)
            .await
            .unwrap();
    assert_eq!(held, ClaimStatus::Lost);
    assert_eq!(record(&shop).await, first);
    let story = shop.store.message(claimed_message.number).await.unwrap().unwrap();
    assert_eq!((story.message.state, story.audits.len()), (MessageState::Refused, 0));
}

#[tokio::test]
async fn a_finding_answers_and_tells_who_found_it() {
    let shop = Shop::open();
    accept(&shop).await;
    let claimed_message = claim_one(&shop.store).await;
    settle(&shop.store, failed(&claimed_message, Next::Unknown("nobody knows"))).await;
    let found = Resolution::Delivered { receipt: receipt("pay_1"), answer: Some(outcome("paid")) };
    let by = ada("resolve");
    let held =
        protocol::resolve(&shop.store, claimed_message.number, claimed_message.fence, &found, &by)
            .await
            .unwrap();
    assert_eq!(held, ClaimStatus::Current);
    let again =
        protocol::resolve(&shop.store, claimed_message.number, claimed_message.fence, &found, &by)
            .await
            .unwrap();
    assert_eq!(again, ClaimStatus::Lost);
    let story = shop.store.message(claimed_message.number).await.unwrap().unwrap();
    let told: Vec<_> = story
        .deliveries
        .iter()
        .map(|past| (past.ending.as_str(), past.detail.as_str(), past.provider_id.as_deref()))
        .collect();
    let finding = ("delivered", "asked the provider", Some("pay_1"));
    assert_eq!(told, [("unknown", "it was away", None), finding]);
    let audits = shop.store.audits(id_of("k")).await.unwrap();
    let actions: Vec<_> = audits.iter().map(|audit| audit.entry.action.as_str()).collect();
    assert_eq!(actions, ["resolve message 1"]);
    assert_eq!(story.audits, audits);
}

#[tokio::test]
async fn a_record_is_not_reaped_before_its_messages_are_settled() {
    let shop = Shop::open();
    let inserted = shop.store.insert(&completed("k", "{}")).await.unwrap();
    assert!(matches!(inserted, Inserted::Done(_)));
    shop.store.enqueue(&message("k")).await.unwrap();
    shop.pass(RETENTION.replay_for * 100);
    assert_eq!(reap(&shop).await, 0);
    let claimed_message = claim_one(&shop.store).await;
    settle(&shop.store, failed(&claimed_message, Next::Unknown("nobody knows"))).await;
    assert_eq!(reap(&shop).await, 0, "it may still have to be looked into");
    let by = ada("resolve");
    let dropped = Resolution::Dropped;
    protocol::resolve(&shop.store, claimed_message.number, claimed_message.fence, &dropped, &by)
        .await
        .unwrap();
    assert_eq!(reap(&shop).await, 1);
}

#[tokio::test]
async fn a_message_is_settled_even_if_its_record_cannot_be_read() {
    let shop = Shop::open();
    accept(&shop).await;
    let damage = "UPDATE firstwrite_records SET profile = 77";
    shop.store.write(move |connection| connection.execute_batch(damage)).await.unwrap();
    let claimed_message = claim_one(&shop.store).await;
    let mut last = delivered(&claimed_message, "pay_1");
    last.answer = Some(outcome("paid"));
    settle(&shop.store, last).await;
    assert_eq!(super::counts(&shop.store).await, [0, 0, 0, 1]);
}
