//! What a tenant may have in the store, and what it gets when that is too much.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use firstwrite::core::MemoryStore;
use firstwrite::{Store as _, Timestamp};
use firstwrite_gateway::{
    Counting, Gateway, Holdings, Limits, Metrics, MetricsLimits, Rate, Rules, TenantLimits,
};

use crate::client::{Client, ask, keyed};
use crate::gateway::{away_store, rules, start, start_on};
use crate::scrape::Watched;
use crate::upstream::{Script, Upstream, answer};
use crate::wire::Message;

/// Limits for everybody, with counts of their own.
fn limited(rules: Rules, usual: TenantLimits, every: Duration) -> (Rules, Arc<Holdings>) {
    let holdings = Arc::new(Holdings::new());
    let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
    let observer = Limits::new(usual, HashMap::new(), Arc::clone(&holdings), metrics);
    let counting = Some(Counting { holdings: Arc::clone(&holdings), every });
    (Rules { observer: Some(Arc::new(observer)), counting, ..rules }, holdings)
}

fn keys(active_keys_max: u64) -> TenantLimits {
    TenantLimits { active_keys_max: Some(active_keys_max), ..TenantLimits::default() }
}

const NEVER: Duration = Duration::from_hours(24);

async fn pay(gateway: &Gateway, who: &str, key: &str) -> Message {
    let credentials = format!("authorization: Bearer {who}\r\n");
    ask(gateway.address(), &keyed("/pay", key, &credentials, "{}")).await
}

async fn statuses(gateway: &Gateway, who: &str, wanted: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for key in wanted {
        statuses.push(pay(gateway, who, key).await.status());
    }
    statuses
}

#[tokio::test]
async fn a_tenant_at_its_cap_gets_no_new_key_and_all_its_answers() {
    let upstream = Upstream::start().await;
    let (rules, _holdings) = limited(rules(&[&upstream]), keys(2), NEVER);
    let gateway = start_on(Arc::new(firstwrite::memory_store()), rules).await;
    assert_eq!(
        statuses(&gateway, "a", &["1", "2", "3", "1", "2", "3"]).await,
        [201, 201, 429, 201, 201, 429]
    );
    let refused = pay(&gateway, "a", "3").await;
    assert_eq!(refused.code(), "rate-limited");
    assert!(refused.text().contains("too many active keys"), "{}", refused.text());
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    let replay = pay(&gateway, "a", "1").await;
    assert!(replay.is_replay());
    assert_eq!(
        statuses(&gateway, "b", &["1", "2", "3"]).await,
        [201, 201, 429],
        "others have theirs"
    );
    assert_eq!(upstream.seen().len(), 4);
}

#[tokio::test]
async fn bytes_are_those_of_the_answers_that_are_kept() {
    let upstream = Upstream::start().await;
    let usual = TenantLimits { stored_bytes_max: Some(1000), ..TenantLimits::default() };
    let (rules, _holdings) = limited(rules(&[&upstream]), usual, NEVER);
    let gateway = start_on(Arc::new(firstwrite::memory_store()), rules).await;
    upstream.does(Script::Answer(answer("500 Internal Server Error", "", &"x".repeat(5000))));
    assert_eq!(statuses(&gateway, "a", &["f"]).await, [500], "what is not kept costs nothing");
    upstream.does(Script::Answer(answer("201 Created", "", &"x".repeat(600))));
    assert_eq!(statuses(&gateway, "a", &["1", "2", "3", "1"]).await, [201, 201, 429, 201]);
    let refused = pay(&gateway, "a", "3").await;
    assert!(refused.text().contains("too many bytes"), "{}", refused.text());
}

#[tokio::test]
async fn a_key_that_was_freed_makes_room_for_another() {
    let upstream = Upstream::start().await;
    let (rules, _holdings) = limited(rules(&[&upstream]), keys(1), NEVER);
    let gateway = start_on(Arc::new(firstwrite::memory_store()), rules).await;
    upstream.does(Script::Answer(answer("503 Service Unavailable", "", "")));
    assert_eq!(statuses(&gateway, "a", &["1", "2", "3"]).await, [503, 503, 503]);
    upstream.does(Script::Answer(answer("201 Created", "", "")));
    assert_eq!(statuses(&gateway, "a", &["4", "5"]).await, [201, 429]);
}

/// Asks for new keys until one is answered like this.
async fn until(gateway: &Gateway, who: &str, status: u16) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while tokio::time::Instant::now() < deadline {
        if pay(gateway, who, "wanted").await.status() == status {
            return;
        }
    }
    panic!("no new key was ever answered with {status}");
}

#[tokio::test]
async fn what_stands_is_counted_at_the_start_and_what_was_reaped_is_not() {
    let clock = Arc::new(AtomicU64::new(0));
    let hours = Arc::clone(&clock);
    let now = move || {
        let past = Duration::from_hours(hours.load(Ordering::SeqCst));
        Timestamp::from_millis(1_700_000_000_000).plus(past)
    };
    let store = Arc::new(MemoryStore::new(now));
    let upstream = Upstream::start().await;
    let former = start_on(Arc::clone(&store), rules(&[&upstream])).await;
    assert_eq!(statuses(&former, "a", &["1", "2"]).await, [201, 201]);
    let (rules, holdings) = limited(rules(&[&upstream]), keys(2), Duration::from_millis(20));
    let gateway = start_on(Arc::clone(&store), rules).await;
    while format!("{holdings:?}") == "Holdings { tenants: 0 }" {
        tokio::task::yield_now().await;
    }
    assert_eq!(pay(&gateway, "a", "wanted").await.status(), 429);
    clock.store(24 * 365, Ordering::SeqCst);
    while store.reap(100).await.unwrap() > 0 {}
    until(&gateway, "a", 201).await;
}

#[tokio::test]
async fn a_store_that_is_away_neither_opens_nor_closes_a_limit() {
    let upstream = Upstream::start().await;
    let every = Duration::from_millis(20);
    let (rules, _holdings) = limited(rules(&[&upstream]), keys(1), every);
    let store = away_store();
    let gateway = Gateway::start(store.clone(), &crate::gateway::anywhere(), rules).await.unwrap();
    assert_eq!(statuses(&gateway, "a", &["1", "2"]).await, [201, 429]);
    store.goes_away();
    while store.refused() == 0 {
        tokio::task::yield_now().await;
    }
    let away = pay(&gateway, "a", "2").await;
    assert_eq!((away.status(), away.code().as_str()), (503, "store-unavailable"));
    assert_eq!(pay(&gateway, "b", "1").await.status(), 503);
    store.comes_back();
    assert_eq!(statuses(&gateway, "a", &["2", "1"]).await, [429, 201]);
    assert_eq!(statuses(&gateway, "b", &["1"]).await, [201]);
}

#[tokio::test]
async fn a_reload_keeps_the_counts_unless_nobody_follows_them_any_more() {
    let upstream = Upstream::start().await;
    let (first, holdings) = limited(rules(&[&upstream]), keys(10), NEVER);
    let gateway = start_on(Arc::new(firstwrite::memory_store()), first).await;
    assert_eq!(statuses(&gateway, "a", &["1", "2"]).await, [201, 201]);
    let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
    let observer = Limits::new(keys(2), HashMap::new(), Arc::clone(&holdings), metrics);
    let counting = Some(Counting { holdings: Arc::clone(&holdings), every: NEVER });
    let next = Rules { observer: Some(Arc::new(observer)), counting, ..rules(&[&upstream]) };
    gateway.reload(next).unwrap();
    assert_eq!(format!("{holdings:?}"), "Holdings { tenants: 1 }");
    assert_eq!(statuses(&gateway, "a", &["3", "2"]).await, [429, 201]);
    gateway.reload(rules(&[&upstream])).unwrap();
    assert_eq!(format!("{holdings:?}"), "Holdings { tenants: 0 }");
    assert_eq!(statuses(&gateway, "a", &["3"]).await, [201]);
}

#[tokio::test]
async fn counts_are_told_by_tenant_and_their_age_grows_while_the_store_is_away() {
    let upstream = Upstream::start().await;
    let counting = Counting { holdings: Arc::default(), every: Duration::from_millis(20) };
    let rules = Rules { counting: Some(counting), ..rules(&[&upstream]) };
    let watched = Watched::limited(rules, MetricsLimits { tenants_max: 1 }).await;
    for (who, key) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
        pay(&watched.gateway, who, key).await;
    }
    let scraped = watched.scrape_until("active_keys{tenant=\"other\"}", 2.0).await;
    let [(labelled, keys), (_, others)] = scraped.all("active_keys")[..] else {
        panic!("one tenant has a label: {}", scraped.text);
    };
    assert!(labelled.starts_with("tenant=\"auth-") && (keys, others) == (2.0, 2.0), "{labelled}");
    let bytes: f64 = scraped.all("stored_bytes").iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes > 4.0 * 4.0, "{}", scraped.text);
    watched.store.goes_away();
    watched.scrape_until("store_errors_total{step=\"usage\",kind=\"unavailable\"}", 1.0).await;
    let aged = watched.scrape().await;
    assert!(aged.is("active_keys{tenant=\"other\"}", 2.0), "{}", aged.text);
    let later = watched.scrape().await.get("count_age_seconds").unwrap();
    assert!(later > aged.get("count_age_seconds").unwrap());
}

#[tokio::test]
async fn nothing_is_counted_where_there_is_no_such_limit() {
    let upstream = Upstream::start().await;
    let watched = Watched::start(rules(&[&upstream])).await;
    pay(&watched.gateway, "a", "1").await;
    let scraped = watched.scrape().await;
    assert!(!scraped.text.contains("active_keys") && !scraped.text.contains("count_age"));
}

/// How many records there are.
async fn written(store: &MemoryStore) -> u64 {
    let page = store.usage(None, 1000).await.unwrap();
    page.tenants.iter().map(|(_, usage)| usage.keys).sum()
}

#[tokio::test]
async fn over_a_rate_nothing_is_written_and_others_do_not_notice() {
    let upstream = Upstream::start().await;
    let slow = Some(Rate { per_second: 0.01, burst: 1.0 });
    for usual in [
        TenantLimits { new_keys: slow, ..TenantLimits::default() },
        TenantLimits { requests: slow, ..TenantLimits::default() },
    ] {
        let (rules, _holdings) = limited(rules(&[&upstream]), usual, NEVER);
        let store = Arc::new(firstwrite::memory_store());
        let gateway = start_on(Arc::clone(&store), rules).await;
        assert_eq!(statuses(&gateway, "a", &["1", "2"]).await, [201, 429]);
        let refused = pay(&gateway, "a", "2").await;
        assert_eq!(
            (refused.code().as_str(), refused.header("retry-after")),
            ("rate-limited", Some("100"))
        );
        assert_eq!(statuses(&gateway, "b", &["1"]).await, [201]);
        assert_eq!(written(&store).await, 2);
    }
}

#[tokio::test]
async fn with_too_many_under_way_nothing_is_written_and_others_do_not_notice() {
    let upstream = Upstream::start().await;
    let usual = TenantLimits { in_flight_max: Some(1), ..TenantLimits::default() };
    let (rules, _holdings) = limited(rules(&[&upstream]), usual, NEVER);
    let store = Arc::new(firstwrite::memory_store());
    let gateway = start_on(Arc::clone(&store), rules).await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let mut first = Client::connect(gateway.address()).await;
    first.send(&keyed("/pay", "1", "authorization: Bearer a\r\n", "{}")).await;
    upstream.arrived().await;
    upstream.does(Script::Answer(answer("201 Created", "", "made")));
    let refused = pay(&gateway, "a", "2").await;
    assert_eq!((refused.status(), refused.code().as_str()), (429, "rate-limited"));
    assert_eq!(statuses(&gateway, "b", &["1"]).await, [201]);
    assert_eq!(written(&store).await, 2);
    upstream.release();
    assert_eq!(first.read().await.unwrap().status(), 201);
    assert_eq!(statuses(&gateway, "a", &["2"]).await, [201]);
}

#[tokio::test]
async fn an_attempt_counts_as_under_way_also_when_its_caller_has_its_answer() {
    let upstream = Upstream::start().await;
    let usual = TenantLimits { in_flight_max: Some(1), ..TenantLimits::default() };
    let (rules, _holdings) = limited(rules(&[&upstream]), usual, NEVER);
    let gateway = start(rules).await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let headers = "authorization: Bearer a\r\nprefer: respond-async\r\n";
    let early = ask(gateway.address(), &keyed("/pay", "1", headers, "{}")).await;
    assert_eq!(early.status(), 202);
    upstream.arrived().await;
    upstream.does(Script::Answer(answer("201 Created", "", "made")));
    assert_eq!(statuses(&gateway, "a", &["2"]).await, [429]);
    assert_eq!(statuses(&gateway, "b", &["1"]).await, [201]);
    assert_eq!(upstream.seen().len(), 2);
}
