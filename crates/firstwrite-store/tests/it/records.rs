//! Records survive being written, moved, listed and reaped.

use std::time::Duration;

use firstwrite_core::{
    AuditEntry, Body, Change, Draft, DraftState, Fence, Found, Guard, Inserted, KeptHeaders,
    Outcome, Query, Record, RecordId, Retention, State, StateFilter, StateKind, Store, Swapped,
    Tenant, Timestamp,
};
use http::StatusCode;

use crate::shop::{LEASE, RETENTION, Shop, completed, draft_of, id_of, outcome, reserved, tenant};

async fn get(shop: &Shop, key: &str) -> Record {
    shop.store.get(id_of(key)).await.unwrap().expect("a record stands").record
}

async fn keys(shop: &Shop, query: &Query) -> Vec<String> {
    let page = shop.store.list(query).await.unwrap();
    page.records.iter().map(|record| record.key.as_str().to_owned()).collect()
}

fn everything() -> Query {
    Query { tenant: None, state: None, after: None, limit: 100 }
}

#[tokio::test]
async fn every_field_of_a_record_comes_back() {
    let shop = Shop::open();
    let now = Timestamp::from_millis(1_000_000);
    let long = Duration::from_millis(i64::MAX.unsigned_abs());
    let ever = Retention { replay_for: long, linger_for: long, refuses_spent: true };
    for draft in [
        reserved("plain"),
        Draft { retention: ever, ..reserved("for-ever") },
        Draft { retention: ever, ..completed("done-for-ever", "{}") },
        completed("order-1", "{}"),
        completed("8e03978e-40d5-43e8-bc93-6894a57f9324", "{\"id\":1}"),
        draft_of(
            &Tenant::new("org:müller").unwrap(),
            "order-1",
            DraftState::Completed {
                outcome: Outcome::tombstone(StatusCode::OK, KeptHeaders::default()),
            },
        ),
    ] {
        assert_eq!(shop.store.insert(&draft).await.unwrap(), Inserted::Done(now));
        let expected = Found { record: Record::from_draft(&draft, now), now };
        assert_eq!(shop.store.get(draft.id).await.unwrap(), Some(expected.clone()));
        let again = shop.store.insert(&draft).await.unwrap();
        assert_eq!(again, Inserted::Stands(Box::new(expected)));
    }
    assert_eq!(shop.store.get(id_of("nobody")).await.unwrap(), None);
}

#[tokio::test]
async fn a_reservation_completed_later_keeps_when_it_was_created() {
    let shop = Shop::open();
    let draft = reserved("k");
    shop.store.insert(&draft).await.unwrap();
    shop.pass(Duration::from_millis(1500));
    let owner = Guard::Owner(draft.fence);
    let renew = Change::Renew { lease_for: LEASE };
    let renewed = shop.store.swap(draft.id, owner, renew, None).await.unwrap();
    assert_eq!(renewed, Swapped::Done(Timestamp::from_millis(1_001_500)));
    let lease_until = get(&shop, "k").await.state.lease_until();
    assert_eq!(lease_until, Some(Timestamp::from_millis(1_031_500)));
    shop.pass(Duration::from_millis(500));

    let complete = Change::Complete { outcome: outcome("done"), retention: RETENTION };
    shop.store.swap(draft.id, owner, complete.clone(), None).await.unwrap();
    let record = get(&shop, "k").await;
    assert_eq!(record.created_at, Timestamp::from_millis(1_000_000));
    assert_eq!(record.fence, draft.fence);
    let expected = State::completed(outcome("done"), RETENTION, Timestamp::from_millis(1_002_000));
    assert_eq!(record.state, expected);

    // What is completed never changes under its owner's fence.
    let late = shop.store.swap(draft.id, owner, complete, None).await.unwrap();
    assert!(matches!(late, Swapped::Moved(Some(_))), "{late:?}");
}

#[tokio::test]
async fn a_record_moves_through_all_states_and_is_free_again() {
    let shop = Shop::open();
    let draft = reserved("k");
    let id = draft.id;
    shop.store.insert(&draft).await.unwrap();
    let wrong = Guard::Owner(Fence::first(6));
    let refused = shop.store.swap(id, wrong, Change::MARK_UNCERTAIN, None).await.unwrap();
    assert!(matches!(refused, Swapped::Moved(Some(_))), "{refused:?}");
    let owner = Guard::Owner(draft.fence);
    shop.store.swap(id, owner, Change::MARK_UNCERTAIN, None).await.unwrap();
    let since = Timestamp::from_millis(1_000_000);
    assert_eq!(get(&shop, "k").await.state, State::Uncertain { since });

    let mut next = completed("k", "taken over");
    next.fence = draft.fence.next(9);
    let seen = Guard::Seen(get(&shop, "k").await.seen());
    shop.store.swap(id, seen, Change::TakeOver(Box::new(next.clone())), None).await.unwrap();
    let record = get(&shop, "k").await;
    assert_eq!(record, Record::from_draft(&next, Timestamp::from_millis(1_000_000)));

    // An operator may take even a completed record back to uncertain, and remove it.
    let seen = Guard::Seen(record.seen());
    shop.store.swap(id, seen, Change::MARK_UNCERTAIN, None).await.unwrap();
    let record = get(&shop, "k").await;
    assert_eq!((record.state.kind(), record.fence), (StateKind::Uncertain, next.fence));
    shop.store.swap(id, Guard::Seen(record.seen()), Change::Remove, None).await.unwrap();
    assert_eq!(shop.store.get(id).await.unwrap(), None);
    let gone = shop.store.swap(id, owner, Change::Remove, None).await.unwrap();
    assert_eq!(gone, Swapped::Moved(None));
    let rows = shop.column(
        "SELECT count(*) || '' FROM firstwrite_ids UNION ALL
         SELECT count(*) || '' FROM firstwrite_records UNION ALL
         SELECT count(*) || '' FROM firstwrite_reservations",
    );
    assert_eq!(rows.await, ["0", "0", "0"]);
}

#[tokio::test]
async fn an_audit_entry_is_written_with_its_change_or_not_at_all() {
    let shop = Shop::open();
    let draft = reserved("k");
    shop.store.insert(&draft).await.unwrap();
    let entry = |reason: &str| AuditEntry {
        actor: "ada".to_owned(),
        action: "release".to_owned(),
        reason: reason.to_owned(),
    };
    let wrong = Guard::Owner(Fence::first(99));
    shop.store.swap(draft.id, wrong, Change::Remove, Some(&entry("guessed"))).await.unwrap();
    assert_eq!(shop.store.audits(draft.id).await.unwrap(), []);
    let owner = Guard::Owner(draft.fence);
    shop.store.swap(draft.id, owner, Change::MARK_UNCERTAIN, Some(&entry("a"))).await.unwrap();
    shop.pass(Duration::from_secs(1));
    shop.store.swap(draft.id, owner, Change::Remove, Some(&entry("b"))).await.unwrap();
    let audits = shop.store.audits(draft.id).await.unwrap();
    let told: Vec<_> = audits.iter().map(|a| (a.at.as_millis(), a.entry.reason.as_str())).collect();
    assert_eq!(told, [(1_000_000, "a"), (1_001_000, "b")]);
}

#[tokio::test]
async fn listing_goes_by_id_in_pages_and_filters_by_tenant_and_state() {
    let shop = Shop::open();
    let other = Tenant::new("globex").unwrap();
    for number in 0..20 {
        shop.store.insert(&completed(&format!("done-{number}"), "{}")).await.unwrap();
        shop.store.insert(&reserved(&format!("held-{number}"))).await.unwrap();
    }
    let state = DraftState::Completed { outcome: outcome("{}") };
    shop.store.insert(&draft_of(&other, "theirs", state)).await.unwrap();
    let held = DraftState::reserved(LEASE);
    shop.store.insert(&draft_of(&other, "held-theirs", held)).await.unwrap();
    let draft = reserved("held-7");
    let owner = Guard::Owner(draft.fence);
    shop.store.swap(draft.id, owner, Change::MARK_UNCERTAIN, None).await.unwrap();

    let mut ids: Vec<RecordId> = Vec::new();
    let mut query = Query { limit: 5, ..everything() };
    loop {
        let page = shop.store.list(&query).await.unwrap();
        assert!(page.records.len() <= 5);
        ids.extend(page.records.iter().map(|record| record.id));
        query.after = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(ids.len(), 42);
    assert!(ids.is_sorted_by(|a, b| a < b), "not in the order of ids, or one twice");

    let of = |tenant: &Tenant, state| Query { tenant: Some(tenant.clone()), state, ..everything() };
    assert_eq!(keys(&shop, &of(&tenant(), None)).await.len(), 40);
    assert_eq!(keys(&shop, &of(&tenant(), Some(StateFilter::Completed))).await.len(), 20);
    assert_eq!(keys(&shop, &of(&tenant(), Some(StateFilter::Reserved))).await.len(), 19);
    assert_eq!(keys(&shop, &of(&tenant(), Some(StateFilter::Uncertain))).await, ["held-7"]);
    assert_eq!(keys(&shop, &of(&other, Some(StateFilter::Completed))).await, ["theirs"]);
    assert_eq!(keys(&shop, &of(&other, Some(StateFilter::Reserved))).await, ["held-theirs"]);
    let nobody = Tenant::new("nobody").unwrap();
    assert!(keys(&shop, &of(&nobody, None)).await.is_empty());
    let reserved = Query { state: Some(StateFilter::Reserved), limit: 7, ..everything() };
    let first = shop.store.list(&reserved).await.unwrap();
    let second = Query { after: first.next, limit: 100, ..reserved };
    assert_eq!((first.records.len(), keys(&shop, &second).await.len()), (7, 13));
}

#[tokio::test]
async fn only_reservations_past_their_lease_have_lapsed() {
    let shop = Shop::open();
    shop.store.insert(&reserved("early")).await.unwrap();
    shop.store.insert(&completed("done", "{}")).await.unwrap();
    shop.pass(Duration::from_millis(29_999));
    shop.store.insert(&reserved("late")).await.unwrap();
    assert_eq!(shop.store.list(&Query::lapsed(10)).await.unwrap().records, []);
    shop.pass(Duration::from_millis(1));
    let lapsed = shop.store.list(&Query::lapsed(10)).await.unwrap();
    let keys: Vec<_> = lapsed.records.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, ["early"]);
    shop.pass(LEASE);
    assert_eq!(shop.store.list(&Query::lapsed(10)).await.unwrap().records.len(), 2);
    assert_eq!(shop.store.list(&Query::lapsed(1)).await.unwrap().records.len(), 1);
}

#[tokio::test]
async fn reaping_takes_all_that_is_due_and_nothing_else() {
    let shop = Shop::open();
    let long = Retention {
        replay_for: Duration::from_secs(1000),
        linger_for: Duration::ZERO,
        refuses_spent: false,
    };
    for number in 0..50 {
        shop.store.insert(&completed(&format!("short-{number}"), "{}")).await.unwrap();
        let draft = completed(&format!("long-{number}"), "{}");
        shop.store.insert(&Draft { retention: long, ..draft }).await.unwrap();
    }
    shop.store.insert(&reserved("held")).await.unwrap();
    shop.pass(Duration::from_millis(109_999));
    shop.store.insert(&completed("young", "{}")).await.unwrap();
    assert_eq!(shop.store.reap(100).await.unwrap(), 0, "inside retention and slack");
    shop.pass(Duration::from_millis(1));
    let mut steps = Vec::new();
    for _ in 0..8 {
        steps.push(shop.store.reap(20).await.unwrap());
    }
    assert!(steps.iter().all(|count| *count <= 20), "{steps:?}");
    assert_eq!(steps.iter().sum::<usize>(), 50, "{steps:?}");
    assert_eq!(shop.store.list(&everything()).await.unwrap().records.len(), 52);
    // 110 s have passed; the long ones are kept for 1000 s, to the millisecond.
    shop.pass(Duration::from_millis(889_999));
    let mut reaped = 0;
    for _ in 0..8 {
        reaped += shop.store.reap(100).await.unwrap();
    }
    assert_eq!(reaped, 1, "only the young one has grown old");
    shop.pass(Duration::from_millis(1));
    let mut left = 0;
    for _ in 0..8 {
        left += shop.store.reap(100).await.unwrap();
    }
    assert_eq!(left, 50);
    assert_eq!(keys(&shop, &everything()).await, ["held"], "a reservation is never reaped");
}

#[tokio::test]
async fn a_reaped_key_is_free_and_a_spent_one_can_be_taken_over() {
    let shop = Shop::open();
    let first = completed("k", "first");
    shop.store.insert(&first).await.unwrap();
    shop.pass(Duration::from_secs(200));
    let mut second = completed("k", "second");
    second.fence = first.fence.next(1);
    let seen = Guard::Seen(get(&shop, "k").await.seen());
    shop.store.swap(first.id, seen, Change::TakeOver(Box::new(second)), None).await.unwrap();
    assert_eq!(shop.store.reap(10).await.unwrap(), 0, "the new life is young");
    let State::Completed { outcome, .. } = get(&shop, "k").await.state else { panic!() };
    assert_eq!(outcome.body, Body::Bytes("second".into()));
    shop.pass(Duration::from_secs(200));
    assert_eq!(shop.store.reap(10).await.unwrap(), 1);
    assert!(matches!(shop.store.insert(&first).await.unwrap(), Inserted::Done(_)));
}
