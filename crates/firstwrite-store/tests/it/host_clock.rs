//! The host's clock: what a wrong one may not do to keys, while the store is open and over a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use firstwrite_core::{
    AuditEntry, Change, Draft, Found, Guard, OnLostAnswer, Query, State, StateFilter, Store,
    Timestamp, Verdict, judge,
};
use firstwrite_store::{SqliteStore, doctor};
use firstwrite_testkit::ManualClock;

use crate::shop::{RETENTION, Shop, completed, id_of, options, request, reserved};

const TWO_HOURS: Duration = Duration::from_hours(2);

/// Closes the shop's store and opens it again with the host's clock at `wall`.
async fn reopened(shop: &Shop, wall: Timestamp) -> SqliteStore {
    shop.store.clone().close().await;
    open_at(shop, wall)
}

fn open_at(shop: &Shop, wall: Timestamp) -> SqliteStore {
    let clock = Arc::new(AtomicI64::new(wall.as_millis()));
    SqliteStore::open_with(shop.path(), options(&clock)).unwrap()
}

async fn found(store: &SqliteStore, key: &str) -> Option<Found> {
    store.get(id_of(key)).await.unwrap()
}

async fn verdict(store: &SqliteStore, key: &str) -> Verdict {
    judge(found(store, key).await.as_ref(), &request(key))
}

#[tokio::test]
async fn a_reservation_of_an_earlier_life_is_swept_at_opening_whatever_the_clock_says() {
    let shop = Shop::open();
    shop.pass(TWO_HOURS);
    shop.store.insert(&reserved("may-have-happened")).await.unwrap();
    let resend = Draft { on_lost_answer: OnLostAnswer::Resend, ..reserved("safe-to-repeat") };
    shop.store.insert(&resend).await.unwrap();
    // The clock is right again: the leases seem to hold for two hours more.
    let store = reopened(&shop, Timestamp::from_millis(1_000_000)).await;
    assert_eq!(verdict(&store, "may-have-happened").await, Verdict::Uncertain);
    // A note of the attempt stands, which is replaced like an outcome past its time.
    let freed = verdict(&store, "safe-to-repeat").await;
    assert!(matches!(freed, Verdict::TakeOver { .. }), "{freed:?}");
    let audits = store.audits(id_of("may-have-happened")).await.unwrap();
    let [said] = &audits[..] else { panic!("one entry: {audits:?}") };
    assert_eq!(said.entry, AuditEntry::uncertain(AuditEntry::OWNER_DIED));
    assert!(store.audits(id_of("safe-to-repeat")).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_clock_that_is_ahead_at_a_restart_ends_no_retention() {
    let shop = Shop::open();
    shop.store.insert(&completed("paid", "{}")).await.unwrap();
    let ahead = shop.store.now().await.unwrap().plus(TWO_HOURS);
    let store = reopened(&shop, ahead).await;
    assert!(matches!(verdict(&store, "paid").await, Verdict::Replay { .. }));
    assert_eq!(store.reap(10).await.unwrap(), 0, "nothing is reaped on the word of that clock");
    let State::Completed { retained_until, kept_until, .. } =
        found(&store, "paid").await.unwrap().record.state
    else {
        panic!("a completed record stays completed");
    };
    assert!(retained_until >= ahead.plus(RETENTION.replay_for / 2), "{retained_until:?}");
    assert!(kept_until >= retained_until.plus(RETENTION.linger_for));
}

/// An hour after an attempt was given up, nothing of it can be under way; not an hour after a clock was set.
#[tokio::test]
async fn a_clock_that_is_ahead_at_a_restart_makes_no_doubt_older() {
    let shop = Shop::open();
    shop.store.insert(&reserved("lost")).await.unwrap();
    let seen = found(&shop.store, "lost").await.unwrap().record.seen();
    let lost = Change::MarkUncertain { ago: Duration::ZERO };
    shop.store.swap(id_of("lost"), Guard::Seen(seen), lost, None).await.unwrap();
    shop.pass(Duration::from_mins(2));
    let ahead = shop.store.now().await.unwrap().plus(TWO_HOURS);
    let store = reopened(&shop, ahead).await;
    let page = Query { tenant: None, state: Some(StateFilter::Uncertain), after: None, limit: 10 };
    let uncertain_for = async || {
        let Found { record, now } = found(&store, "lost").await.unwrap();
        let State::Uncertain { since } = record.state else { panic!("{record:?}") };
        let page = store.list(&page).await.unwrap();
        assert_eq!(page.records[0].state, State::Uncertain { since }, "lists say the same");
        now.since(since)
    };
    assert_eq!(uncertain_for().await, Duration::from_mins(2));
    store.confirm_clock("ann", "the machine was off").await.unwrap();
    assert_eq!(uncertain_for().await, TWO_HOURS + Duration::from_mins(2));
}

#[tokio::test]
async fn what_did_not_count_is_over_once_it_was_seen_passing_or_is_confirmed() {
    for is_confirmed in [false, true] {
        let shop = Shop::open();
        shop.store.insert(&completed("paid", "{}")).await.unwrap();
        let ahead = shop.store.now().await.unwrap().plus(TWO_HOURS);
        shop.store.clone().close().await;
        let clock = Arc::new(AtomicI64::new(ahead.as_millis()));
        let store = SqliteStore::open_with(shop.path(), options(&clock)).unwrap();
        let [jump] = store.clock_jumps().await.unwrap()[..] else { panic!("one jump") };
        assert_eq!((jump.at, jump.uncounted), (ahead, TWO_HOURS));
        store.insert(&completed("new", "{}")).await.unwrap();
        if is_confirmed {
            assert_eq!(store.confirm_clock("ann", "the machine was off").await.unwrap(), 1);
            assert!(store.clock_jumps().await.unwrap().is_empty());
        } else {
            assert!(matches!(verdict(&store, "paid").await, Verdict::Replay { .. }));
            let retention = i64::try_from(RETENTION.replay_for.as_millis()).unwrap();
            clock.fetch_add(retention, Ordering::SeqCst);
        }
        assert!(matches!(verdict(&store, "paid").await, Verdict::TakeOver { .. }));
        let is_over = !is_confirmed;
        assert_eq!(matches!(verdict(&store, "new").await, Verdict::TakeOver { .. }), is_over);
        // What was confirmed stays confirmed.
        store.close().await;
        let again = SqliteStore::open_with(shop.path(), options(&clock)).unwrap();
        assert_eq!(again.clock_jumps().await.unwrap().is_empty(), is_confirmed);
        assert!(matches!(verdict(&again, "paid").await, Verdict::TakeOver { .. }));
    }
}

#[tokio::test]
async fn a_short_stop_counts_as_time_that_passed() {
    let shop = Shop::open();
    shop.store.insert(&completed("paid", "{}")).await.unwrap();
    let later = shop.store.now().await.unwrap().plus(RETENTION.replay_for);
    let store = reopened(&shop, later).await;
    assert!(store.clock_jumps().await.unwrap().is_empty());
    assert!(matches!(verdict(&store, "paid").await, Verdict::TakeOver { .. }));
}

#[tokio::test]
async fn a_step_while_the_store_is_open_changes_nothing_then_or_at_the_next_opening() {
    for steps_back in [false, true] {
        let (wall, monotonic) = (ManualClock::new(), ManualClock::new());
        let open = |folder: &tempfile::TempDir| {
            let mut options = firstwrite_store::SqliteOptions::default();
            options.missing_file = firstwrite_store::MissingFile::Create;
            options.clock = Some(Arc::new(wall.reader()));
            let read = monotonic.reader();
            options.stopwatch = Some(Arc::new(move || read().since(ManualClock::START)));
            SqliteStore::open_with(folder.path().join("a.db"), options).unwrap()
        };
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder);
        store.insert(&completed("paid", "{}")).await.unwrap();
        store.insert(&reserved("running")).await.unwrap();
        if steps_back {
            wall.set(Timestamp::EPOCH);
        } else {
            wall.advance(TWO_HOURS);
        }
        assert_eq!(store.now().await.unwrap(), ManualClock::START);
        monotonic.advance(Duration::from_secs(1));
        assert!(matches!(verdict(&store, "paid").await, Verdict::Replay { .. }));
        assert!(matches!(verdict(&store, "running").await, Verdict::InProgress { .. }));
        store.insert(&reserved("another")).await.unwrap();
        let findings = doctor::sqlite(&store, &folder.path().join("a.db")).await.unwrap();
        assert!(findings.iter().any(|found| found.code == "clock-stepped"), "{findings:?}");
        store.close().await;
        let store = open(&folder);
        assert!(matches!(verdict(&store, "paid").await, Verdict::Replay { .. }));
        assert_eq!(store.clock_jumps().await.unwrap().is_empty(), steps_back);
        assert!(store.now().await.unwrap() >= ManualClock::START.plus(Duration::from_secs(1)));
    }
}

#[tokio::test]
async fn the_doctor_names_a_jump() {
    let shop = Shop::open();
    let ahead = shop.store.now().await.unwrap().plus(TWO_HOURS);
    let store = reopened(&shop, ahead).await;
    let findings = doctor::sqlite(&store, &shop.path()).await.unwrap();
    let jump = findings.iter().find(|found| found.code == "clock-jumped").expect("it is named");
    assert!(jump.what.contains("2.0 h") && jump.next_step.contains("--confirm-clock"), "{jump:?}");
}
