//! Two stores used as one while records move: what holds whichever way round they are.

mod races;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::protocol::{self, Completed, Reserved, Settled, Settlement};
use firstwrite_core::{
    Change, Fence, Guard, Inserted, MemoryStore, OnLostAnswer, Policy, Query, Request, Seen, State,
    StateKind, Store, Swapped, Verdict,
};
use firstwrite_testkit::{ManualClock, sample};
use firstwrite_wrappers::MovingStore;

/// Two stores on one clock, and both ways to use them as one.
struct Houses {
    clock: ManualClock,
    old: Arc<dyn Store>,
    new: Arc<dyn Store>,
    /// New keys go into the old store, as before the move.
    before: MovingStore,
    /// New keys go into the new store.
    after: MovingStore,
}

impl Houses {
    fn new() -> Self {
        let clock = ManualClock::new();
        let old: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.reader()));
        let new: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.reader()));
        let before = MovingStore::new(Arc::clone(&old), Arc::clone(&new));
        let after = MovingStore::new(Arc::clone(&new), Arc::clone(&old));
        Self { clock, old, new, before, after }
    }
}

fn request(key: &str) -> Request {
    sample::request(&sample::tenant("acme"), &sample::key(key), 1)
}

fn policy() -> Policy {
    sample::policy(OnLostAnswer::Uncertain)
}

async fn granted(store: &dyn Store, key: &str, policy: &Policy) -> protocol::Reservation {
    match protocol::reserve(store, &request(key), policy, fastrand::u64(..)).await.unwrap() {
        Reserved::Granted(reservation) => reservation,
        Reserved::Refused(verdict, ..) => panic!("{key} is refused: {verdict:?}"),
    }
}

async fn refused(store: &dyn Store, key: &str, policy: &Policy) -> Verdict {
    match protocol::reserve(store, &request(key), policy, fastrand::u64(..)).await.unwrap() {
        Reserved::Granted(_) => panic!("{key} runs"),
        Reserved::Refused(verdict, ..) => verdict,
    }
}

async fn complete(store: &dyn Store, reservation: protocol::Reservation, text: &str) {
    let outcome = sample::outcome(201, text);
    let completed = protocol::complete(store, reservation, outcome).await.unwrap();
    assert!(matches!(completed, Completed::Kept { .. }), "{completed:?}");
}

#[tokio::test]
async fn what_stands_in_either_store_answers_both_ways() {
    let houses = Houses::new();
    for (first, second, key) in
        [(&houses.before, &houses.after, "a"), (&houses.after, &houses.before, "b")]
    {
        let reservation = granted(first, key, &policy()).await;
        let verdict = refused(second, key, &policy()).await;
        assert!(matches!(verdict, Verdict::InProgress { .. }), "{verdict:?}");
        complete(first, reservation, key).await;
        for store in [first, second] {
            let Verdict::Replay { outcome, .. } = refused(store, key, &policy()).await else {
                panic!("{key} is not replayed");
            };
            assert_eq!(outcome, sample::outcome(201, key));
            assert!(store.get(request(key).id).await.unwrap().is_some());
        }
    }
    let place = async |store: &Arc<dyn Store>, key| store.get(request(key).id).await.unwrap();
    assert!(place(&houses.old, "a").await.is_some() && place(&houses.new, "a").await.is_none());
    assert!(place(&houses.new, "b").await.is_some() && place(&houses.old, "b").await.is_none());
}

/// An owner who began before the move ends where its record stands.
#[tokio::test]
async fn a_change_is_made_where_the_record_stands() {
    let houses = Houses::new();
    let reservation = granted(&houses.before, "a", &policy()).await;
    complete(&houses.after, reservation, "done").await;
    let found = houses.old.get(request("a").id).await.unwrap().unwrap();
    assert_eq!(found.record.state.kind(), StateKind::Completed);
    let reservation = granted(&houses.before, "b", &policy()).await;
    protocol::release(&houses.after, reservation).await.unwrap();
    assert!(houses.old.get(request("b").id).await.unwrap().is_none());
    // A lapsed lease in the old store is found by those who sweep both.
    let _lost = granted(&houses.before, "c", &policy()).await;
    houses.clock.advance(policy().lease);
    assert_eq!(protocol::sweep_once(&houses.after, 10).await.unwrap().uncertain, 1);
    assert_eq!(refused(&houses.before, "c", &policy()).await, Verdict::Uncertain);
}

/// What may run again does so in the new store, and leaves the old one.
#[tokio::test]
async fn a_take_over_moves_the_record() {
    let houses = Houses::new();
    let resend = sample::policy(OnLostAnswer::Resend);
    let lost = granted(&houses.before, "lapsed", &resend).await;
    let spent = granted(&houses.before, "spent", &policy()).await;
    complete(&houses.before, spent, "first").await;
    houses.clock.advance(policy().record_retention().replay_for + policy().lease);
    for key in ["lapsed", "spent"] {
        let reservation = granted(&houses.after, key, &resend).await;
        assert_eq!(reservation.fence().count(), 2, "{key}");
        assert!(houses.old.get(request(key).id).await.unwrap().is_none(), "{key}");
        let verdict = refused(&houses.before, key, &resend).await;
        assert!(matches!(verdict, Verdict::InProgress { .. }), "{key}: {verdict:?}");
        complete(&houses.after, reservation, "second").await;
    }
    let late = protocol::complete(&houses.before, lost, sample::outcome(201, "late"));
    assert!(matches!(late.await.unwrap(), Completed::Late(Some(_))));
}

/// The same record past its retention in both: of two who take it over, each in its own, one stays.
#[tokio::test]
async fn a_spent_copy_does_not_stand_in_the_way() {
    let houses = Houses::new();
    let outcome = sample::outcome(201, "first");
    for store in [&houses.old, &houses.new] {
        let draft = sample::completed(&request("a"), &policy(), Fence::first(7), outcome.clone());
        assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)));
    }
    houses.clock.advance(policy().record_retention().replay_for);
    let _reservation = granted(&houses.after, "a", &policy()).await;
    assert!(houses.old.get(request("a").id).await.unwrap().is_none());
    let verdict = refused(&houses.before, "a", &policy()).await;
    assert!(matches!(verdict, Verdict::InProgress { .. }), "{verdict:?}");
}

/// Two lives of one key are over, one in each store.
#[tokio::test]
async fn a_spent_record_of_another_life_does_not_stand_in_the_way() {
    let houses = Houses::new();
    for (store, nonce) in [(&houses.old, 7), (&houses.new, 8)] {
        let outcome = sample::outcome(201, "over");
        let draft = sample::completed(&request("a"), &policy(), Fence::first(nonce), outcome);
        assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)));
    }
    houses.clock.advance(policy().record_retention().replay_for);
    let _reservation = granted(&houses.after, "a", &policy()).await;
    assert!(houses.old.get(request("a").id).await.unwrap().is_none());
}

/// What was to be taken over has had another life meanwhile, which is over too.
#[tokio::test]
async fn only_what_was_seen_is_taken_over() {
    let houses = Houses::new();
    let outcome = sample::outcome(201, "over");
    let draft = sample::completed(&request("a"), &policy(), Fence::first(7), outcome);
    houses.old.insert(&draft).await.unwrap();
    houses.clock.advance(policy().record_retention().replay_for);
    let stale = Seen { fence: Fence::first(8), state: StateKind::Completed, lease_until: None };
    let next = sample::reserved(&request("a"), &policy(), stale.fence.next(1));
    let change = Change::TakeOver(Box::new(next));
    let swapped = houses.after.swap(draft.id, Guard::Seen(stale), change, None).await.unwrap();
    let Swapped::Moved(Some(found)) = swapped else { panic!("it was taken over: {swapped:?}") };
    assert_eq!(found.record.fence, draft.fence);
    assert!(houses.new.get(draft.id).await.unwrap().is_none());
    assert!(houses.old.get(draft.id).await.unwrap().is_some());
}

/// As it is after an uncertain record was copied.
async fn uncertain_in_both(houses: &Houses, key: &str) -> Seen {
    let draft = sample::reserved(&request(key), &policy(), Fence::first(7));
    for store in [&houses.old, &houses.new] {
        store.insert(&draft).await.unwrap();
        let mark = store.swap(draft.id, Guard::Owner(draft.fence), Change::MARK_UNCERTAIN, None);
        assert!(matches!(mark.await.unwrap(), Swapped::Done(_)));
    }
    houses.new.get(draft.id).await.unwrap().unwrap().record.seen()
}

#[tokio::test]
async fn a_settlement_reaches_the_copy_too() {
    let houses = Houses::new();
    for key in ["happened", "not"] {
        uncertain_in_both(&houses, key).await;
    }
    let outcome = sample::outcome(201, "it did");
    for (key, settlement) in
        [("happened", Settlement::Happened { outcome }), ("not", Settlement::NotHappened)]
    {
        let seen = houses.after.get(request(key).id).await.unwrap().unwrap().record;
        let audit = sample::audit("asked the provider");
        let settled =
            protocol::settle(&houses.after, &seen, settlement, protocol::Force::No, &audit);
        assert_eq!(settled.await.unwrap(), Settled::Done);
        assert_eq!(houses.after.audits(request(key).id).await.unwrap().len(), 1);
    }
    for store in [&houses.old, &houses.new] {
        let happened = store.get(request("happened").id).await.unwrap().unwrap();
        assert_eq!(happened.record.state.kind(), StateKind::Completed);
        let not = store.get(request("not").id).await.unwrap().unwrap().record.state;
        let State::Completed { outcome, .. } = not else { panic!("it is not free: {not:?}") };
        assert!(outcome.is_release_note());
    }
}

#[tokio::test]
async fn listings_and_counts_cover_both_and_count_once() {
    let houses = Houses::new();
    for number in 0..30 {
        let key = format!("key-{number}");
        let draft = sample::completed(
            &request(&key),
            &policy(),
            Fence::first(number),
            sample::outcome(201, "twelve bytes"),
        );
        if number % 3 != 0 {
            houses.old.insert(&draft).await.unwrap();
        }
        if number % 3 != 1 {
            houses.new.insert(&draft).await.unwrap();
        }
    }
    let (mut after, mut listed) = (None, Vec::new());
    loop {
        let query = Query { tenant: None, state: None, after, limit: 4 };
        let page = houses.after.list(&query).await.unwrap();
        assert!(page.records.len() <= 4);
        listed.extend(page.records.iter().map(|record| record.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), 30);
    assert!(listed.is_sorted_by(|one, next| one < next), "in the order of ids, each once");
    let (mut after, mut keys) = (None, 0);
    loop {
        let page = houses.after.usage(after, 7).await.unwrap();
        keys += page.tenants.iter().map(|(_, usage)| usage.keys).sum::<u64>();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys, 30);
    houses.clock.advance(policy().record_retention().replay_for + Duration::from_hours(24 * 365));
    assert_eq!(houses.after.reap(100).await.unwrap(), 40);
}
