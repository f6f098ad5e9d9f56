//! Answers that stand in for others: replaced once, by whoever settles the message, and seen by everybody.

use std::time::Duration;

use firstwrite_core::outbox::{
    Answers, ClaimStatus, Ending, Next, Outbox, Resolution, Settlement, protocol,
};
use firstwrite_core::{
    AsyncTransactionalStore, BeginResult, Body, Change, Draft, Fence, Guard, Outcome, Policy,
    Query, RecordId, State, StateFilter, StateKind, Store, Swapped, Timestamp, Transacted, Write,
};
use firstwrite_store::{PostgresOptions, PostgresStore};
use firstwrite_testkit::{Subject, sample};

use super::{
    LEASE, arrived, claim, message, number, receipt, settle, settlement, somebody, subject,
};
use crate::server::{Database, Way, on_database};
use crate::subject::{PostgresSubject, reserved};

fn interim() -> Outcome {
    sample::outcome(202, "being done").interim()
}

fn answers() -> Answers {
    Answers {
        delivered: sample::outcome(201, "{\"provider\":\"{provider_id}\"}"),
        refused: sample::outcome(402, "refused"),
    }
}

fn draft(key: &str, fence: u64) -> Draft {
    let request = sample::request(&sample::tenant("shop"), &sample::key(key), 1);
    sample::completed(&request, &Policy::default(), Fence::first(fence), interim())
}

/// A handler's transaction that ends in an interim answer and a message.
async fn accept<S: AsyncTransactionalStore>(
    store: &S,
    key: &str,
    enqueue: impl FnOnce(&mut S::Tx, &firstwrite_core::Message),
) -> RecordId {
    let draft = draft(key, 1);
    let id = draft.id;
    let BeginResult::Open(mut tx, None) = store.begin(id).await.unwrap() else {
        panic!("the key is free");
    };
    enqueue(&mut tx, &message(key, "provider").answering(answers()));
    let done = store.conclude(tx, Write::All(Box::new(draft))).await.unwrap();
    assert!(matches!(done, Transacted::Done(..)));
    id
}

async fn stands(store: &impl Store, id: RecordId) -> (u16, String, Timestamp) {
    let record = store.get(id).await.unwrap().unwrap().record;
    let State::Completed { outcome, retained_until, kept_until } = record.state else {
        panic!("not completed: {:?}", record.state);
    };
    assert_eq!(outcome.is_interim, retained_until == Timestamp::NEVER);
    assert!(retained_until <= kept_until);
    let Body::Bytes(body) = outcome.body else { panic!("a tombstone") };
    (outcome.status.as_u16(), String::from_utf8(body.to_vec()).unwrap(), retained_until)
}

/// The claim's end, with the answer that follows from it.
fn answered(
    claimed_message: &firstwrite_core::outbox::ClaimedMessage,
    settlement: Settlement,
) -> Settlement {
    let answer = claimed_message.answers.as_ref().unwrap().after(&settlement.next);
    Settlement { answer, ..settlement }
}

async fn an_interim_answer_is_replaced_once(database: Database) {
    let subject = PostgresSubject::new(&database, PostgresOptions::default()).await;
    let (store, rival) = (subject.postgres(), subject.rival().await);
    let id = accept(&store, "k", |tx, message| tx.enqueue(message).unwrap()).await;
    for _ in 0..2 {
        assert_eq!(stands(&rival, id).await, (202, "being done".to_owned(), Timestamp::NEVER));
    }
    let status = "SELECT state || ' ' || status || ' ' || retained_until FROM keys";
    let shown = subject.admin().query_one(status, &[]).await.unwrap();
    assert_eq!(shown.get::<_, String>(0), "completed 202 infinity");
    // However long it takes, it is neither lapsed nor uncertain, and not reaped.
    subject.advance(Duration::from_hours(24 * 400)).await;
    assert!(store.list(&Query::lapsed(10)).await.unwrap().records.is_empty());
    assert_eq!(store.reap(100).await.unwrap(), 0);
    let uncertain =
        Query { tenant: None, state: Some(StateFilter::Uncertain), after: None, limit: 9 };
    assert!(store.list(&uncertain).await.unwrap().records.is_empty());
    let completed = Query { state: Some(StateFilter::Completed), ..uncertain };
    assert_eq!(store.list(&completed).await.unwrap().records.len(), 1);
    let messages = claim(&store, "provider", 9).await;
    let settled = answered(&messages[0], arrived(&messages[0]));
    assert_eq!(settle(&store, std::slice::from_ref(&settled)).await, [ClaimStatus::Current]);
    assert_eq!(settle(&store, &[settled]).await, [ClaimStatus::Lost]);
    let now = store.now().await.unwrap();
    let until = now.plus(Policy::default().record_retention().replay_for);
    let body = format!("{{\"provider\":\"id-{}\"}}", messages[0].number);
    for store in [&store, &rival] {
        assert_eq!(stands(store, id).await, (201, body.clone(), until));
    }
    let listed = store.list(&completed).await.unwrap().records.remove(0);
    let State::Completed { outcome, .. } = listed.state else { panic!("not completed") };
    assert_eq!(outcome.status.as_u16(), 201);
    // A retry is answered with the final one, and the key is free again when that is over.
    let (BeginResult::Stands(_) | BeginResult::Open(_, Some(_))) = rival.begin(id).await.unwrap()
    else {
        panic!("a retry finds the answer");
    };
    let retention = Policy::default().record_retention();
    subject.advance(retention.replay_for + retention.linger_for).await;
    assert_eq!(store.reap(100).await.unwrap(), 1);
    assert_eq!(number(&subject, "SELECT count(*) FROM records").await, 0);
    assert_eq!(number(&subject, "SELECT count(*) FROM endings").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interim_answer_is_replaced_once_directly() {
    on_database(Way::Direct, &[], an_interim_answer_is_replaced_once).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interim_answer_is_replaced_once_behind_a_pooler() {
    on_database(Way::Pooler, &[], an_interim_answer_is_replaced_once).await;
}

#[cfg(feature = "sqlx")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interim_answer_written_by_sqlx_is_replaced_too() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let pool = sqlx::PgPool::connect(subject.url()).await.unwrap();
        let store = firstwrite_store::SqlxPostgresStore::new(subject.rival().await, pool);
        let id = accept(&store, "k", |tx, message| tx.enqueue(message).unwrap()).await;
        assert_eq!(stands(&store, id).await.0, 202);
        let messages = claim(store.store(), "provider", 9).await;
        let refused = settlement(&messages[0], Ending::Refused, Next::Refused);
        settle(store.store(), &[answered(&messages[0], refused)]).await;
        assert_eq!(stands(&store, id).await.0, 402);
        // The key was told of its end: what operators find out later changes nothing.
        let claimed_message = &messages[0];
        let outbox = store.outbox().unwrap();
        let late = Resolution::Delivered {
            receipt: receipt("late"),
            answer: Some(
                claimed_message.answers.as_ref().unwrap().when_delivered(&receipt("late")),
            ),
        };
        let held = protocol::resolve(
            outbox,
            claimed_message.number,
            claimed_message.fence,
            &late,
            &somebody("resolve"),
        )
        .await;
        assert_eq!(held.unwrap(), ClaimStatus::Lost);
        assert_eq!(stands(&store, id).await.0, 402);
    })
    .await;
}

/// The same for a key that was reserved first.
async fn accept_reserved(store: &PostgresStore, key: &str) -> RecordId {
    let draft = reserved(key, Fence::first(1));
    store.insert(&draft).await.unwrap();
    store.enqueue(&message(key, "provider").answering(answers())).await.unwrap();
    let change =
        Change::Complete { outcome: interim(), retention: Policy::default().record_retention() };
    let done = store.swap(draft.id, Guard::Owner(draft.fence), change, None).await.unwrap();
    assert!(matches!(done, Swapped::Done(_)));
    draft.id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reserved_record_is_completed_for_the_time_being_too() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        let id = accept_reserved(&store, "k").await;
        let retention = Policy::default().record_retention();
        subject.advance(Duration::from_hours(24 * 400)).await;
        assert_eq!(store.reap(100).await.unwrap(), 0);
        assert_eq!(stands(&store, id).await.0, 202);
        let messages = claim(&store, "provider", 9).await;
        settle(&store, &[answered(&messages[0], arrived(&messages[0]))]).await;
        let until = store.now().await.unwrap().plus(retention.replay_for);
        let (status, _, retained_until) = stands(&store, id).await;
        assert_eq!((status, retained_until), (201, until));
        subject.advance(retention.replay_for + retention.linger_for).await;
        assert_eq!(store.reap(100).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_message_does_not_change_what_the_first_one_answered() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        let atomic = accept(&store, "a", |tx, message| tx.enqueue(message).unwrap()).await;
        let reserved = accept_reserved(&store, "r").await;
        for claimed_message in claim(&store, "provider", 9).await {
            settle(&store, &[answered(&claimed_message, arrived(&claimed_message))]).await;
        }
        for key in ["a", "r"] {
            store.enqueue(&message(key, "provider").answering(answers())).await.unwrap();
        }
        for claimed_message in claim(&store, "provider", 9).await {
            let refused = settlement(&claimed_message, Ending::Refused, Next::Refused);
            assert_eq!(
                settle(&store, &[answered(&claimed_message, refused)]).await,
                [ClaimStatus::Current]
            );
        }
        // One that has nothing in memory.
        let rival = subject.rival().await;
        for id in [atomic, reserved] {
            assert_eq!(stands(&rival, id).await.0, 201);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_comes_to_nothing_where_its_record_is_gone_or_another() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let store = subject.postgres();
        let removed = accept(&store, "removed", |tx, message| tx.enqueue(message).unwrap()).await;
        let uncertain =
            accept(&store, "untrusted", |tx, message| tx.enqueue(message).unwrap()).await;
        for (id, change) in [(removed, Change::Remove), (uncertain, Change::MARK_UNCERTAIN)] {
            let seen = store.get(id).await.unwrap().unwrap().record.seen();
            let swapped = store.swap(id, Guard::Seen(seen), change, None).await.unwrap();
            assert!(matches!(swapped, Swapped::Done(_)));
        }
        let messages = claim(&store, "provider", 9).await;
        let all: Vec<Settlement> = messages
            .iter()
            .map(|claimed_message| answered(claimed_message, arrived(claimed_message)))
            .collect();
        assert_eq!(settle(&store, &all).await, [ClaimStatus::Current, ClaimStatus::Current]);
        assert_eq!(store.get(removed).await.unwrap(), None);
        let record = store.get(uncertain).await.unwrap().unwrap().record;
        assert_eq!(record.state.kind(), StateKind::Uncertain);
    })
    .await;
}

/// Claims run out while the answer is under way: whoever comes first decides, and the other one's answer is
/// the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_with_different_answers_the_one_that_holds_the_claim_is_heard() {
    on_database(Way::Direct, &[], async |database| {
        let subject = subject(&database).await;
        let (store, rival): (PostgresStore, _) = (subject.postgres(), subject.rival().await);
        let id = accept(&store, "k", |tx, message| tx.enqueue(message).unwrap()).await;
        let old = claim(&store, "provider", 1).await;
        subject.advance(LEASE).await;
        let new = claim(&rival, "provider", 1).await;
        let refused = settlement(&old[0], Ending::Refused, Next::Refused);
        let late = [answered(&old[0], refused)];
        let mine = [answered(&new[0], arrived(&new[0]))];
        let (late, mine) = tokio::join!(
            protocol::settle(&store, &[], &late),
            protocol::settle(&rival, &[], &mine)
        );
        assert_eq!(
            (late.unwrap(), mine.unwrap()),
            (vec![ClaimStatus::Lost], vec![ClaimStatus::Current])
        );
        assert_eq!(stands(&store, id).await.0, 201);
    })
    .await;
}
