//! What a tenant may have in the store, and what it gets when that is too much.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use firstwrite::{Store as _, Timestamp};
use firstwrite_core::MemoryStore;
use firstwrite_gateway::tenants::Settings;
use firstwrite_gateway::tenants::settings::{
    Anonymous, AuthorizationSettings, HeaderSettings, Source,
};
use firstwrite_gateway::{
    Calling, Counting, Gateway, Limits, Metrics, MetricsLimits, Rate, Rules, TenantLimits,
    TenantUsage,
};

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Client, ask, keyed, post};
use crate::gateway::{anybody, away_store, by, rules, start, start_on};
use crate::scrape::Watched;
use crate::upstream::{Script, Upstream, answer};
use crate::wire::{Message, read_head};

/// Limits for everybody, with counts of their own.
fn limited(rules: Rules, usual: TenantLimits, every: Duration) -> (Rules, Arc<TenantUsage>) {
    let tenant_usage = Arc::new(TenantUsage::new());
    let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
    let observer = Limits::new(usual, HashMap::new(), Arc::clone(&tenant_usage), metrics);
    let counting = Some(Counting { tenant_usage: Arc::clone(&tenant_usage), every });
    (Rules { observer: Some(Arc::new(observer)), counting, ..rules }, tenant_usage)
}

fn keys(active_keys_max: u64) -> TenantLimits {
    TenantLimits { active_keys_max: Some(active_keys_max), ..TenantLimits::default() }
}

const NEVER: Duration = Duration::from_hours(24);
/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(30);

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
    let (rules, tenant_usage) = limited(rules(&[&upstream]), keys(2), Duration::from_millis(20));
    let gateway = start_on(Arc::clone(&store), rules).await;
    while format!("{tenant_usage:?}") == "TenantUsage { tenants: 0 }" {
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
    let (first, tenant_usage) = limited(rules(&[&upstream]), keys(10), NEVER);
    let gateway = start_on(Arc::new(firstwrite::memory_store()), first).await;
    assert_eq!(statuses(&gateway, "a", &["1", "2"]).await, [201, 201]);
    let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
    let observer = Limits::new(keys(2), HashMap::new(), Arc::clone(&tenant_usage), metrics);
    let counting = Some(Counting { tenant_usage: Arc::clone(&tenant_usage), every: NEVER });
    let next = Rules { observer: Some(Arc::new(observer)), counting, ..rules(&[&upstream]) };
    gateway.reload(next).unwrap();
    assert_eq!(format!("{tenant_usage:?}"), "TenantUsage { tenants: 1 }");
    assert_eq!(statuses(&gateway, "a", &["3", "2"]).await, [429, 201]);
    gateway.reload(rules(&[&upstream])).unwrap();
    assert_eq!(format!("{tenant_usage:?}"), "TenantUsage { tenants: 0 }");
    assert_eq!(statuses(&gateway, "a", &["3"]).await, [201]);
}

#[tokio::test]
async fn counts_are_told_by_tenant_and_their_age_grows_while_the_store_is_away() {
    let upstream = Upstream::start().await;
    let counting = Counting { tenant_usage: Arc::default(), every: Duration::from_millis(20) };
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

#[tokio::test]
async fn who_hangs_up_or_asks_for_early_answers_has_no_more_attempts_than_others() {
    let upstream = Upstream::start().await;
    let usual = TenantLimits { in_flight_max: Some(5), ..TenantLimits::default() };
    let (rules, _holdings) = limited(rules(&[&upstream]), usual, NEVER);
    let gateway = start(rules).await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let early = "authorization: Bearer a\r\nprefer: respond-async\r\n";
    for number in 0..60 {
        let request = keyed("/pay", &format!("early-{number}"), early, "{}");
        let answered = ask(gateway.address(), &request).await;
        assert_eq!(answered.status(), if number < 5 { 202 } else { 429 }, "{number}");
    }
    for _ in 0..5 {
        upstream.arrived().await;
    }
    for number in 0..60 {
        let mut client = Client::connect(gateway.address()).await;
        let key = format!("gone-{number}");
        client.send(&keyed("/pay", &key, "authorization: Bearer b\r\n", "{}")).await;
        if number < 5 {
            upstream.arrived().await;
        }
        drop(client);
    }
    assert_eq!(statuses(&gateway, "b", &["next"]).await, [429]);
    assert_eq!(upstream.seen().len(), 10);
}

#[tokio::test]
async fn one_tenant_has_all_attempts_until_another_one_wants_some() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { attempts_max: 8, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let early = "authorization: Bearer a\r\nprefer: respond-async\r\n";
    for number in 0..10 {
        let request = keyed("/pay", &number.to_string(), early, "{}");
        let answered = ask(gateway.address(), &request).await;
        assert_eq!(answered.status(), if number < 8 { 202 } else { 503 }, "{number}");
    }
    for _ in 0..8 {
        upstream.arrived().await;
    }
    let mut others = Vec::new();
    for key in ["1", "2"] {
        let mut other = Client::connect(gateway.address()).await;
        other.send(&keyed("/pay", key, "authorization: Bearer b\r\n", "{}")).await;
        others.push(other);
    }
    for _ in 0..2 {
        upstream.release();
        timeout(PATIENCE, upstream.arrived()).await.expect("the other one is passed on");
    }
    let request = keyed("/pay", "next", early, "{}");
    assert_eq!(ask(gateway.address(), &request).await.status(), 503);
    for _ in 0..8 {
        upstream.release();
    }
    for mut other in others {
        // As many answers wait as there are, and each release lets one of them go.
        upstream.release();
        assert_eq!(other.read().await.unwrap().status(), 201);
    }
}

/// Attempts beyond the connections to the API wait where they are shared out, and not in a line of their own.
#[tokio::test]
async fn attempts_without_a_connection_to_the_api_are_shared_out_too() {
    for (tenants, other) in
        [(anybody(), "authorization: Bearer b\r\n"), (some_verified(), "x-tenant: acme\r\n")]
    {
        // Three have room; where some callers are verified, one of these is for them alone.
        let passed_max = if other.starts_with("x-") { 2 } else { 3 };
        let upstream = Upstream::start().await;
        upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
        let usual = rules(&[&upstream]);
        let calling =
            Calling { attempts_max: 100, upstream_connections_max: 8, ..usual.calling.clone() };
        let gateway = start(Rules { calling, tenants: by(&tenants), ..usual }).await;
        for number in 0..20 {
            // One tenant, or several that nobody verified and that count as one.
            let who = if other.starts_with("x-") { number } else { 0 };
            let early = format!("authorization: Bearer a{who}\r\nprefer: respond-async\r\n");
            let request = keyed("/pay", &format!("early-{number}"), &early, "{}");
            let status = ask(gateway.address(), &request).await.status();
            // One that was accepted early may be released without a call.
            let is_open = number >= passed_max && passed_max < 3 && status == 202;
            assert!(is_open || status == if number < passed_max { 202 } else { 503 }, "{number}");
        }
        for _ in 0..passed_max {
            upstream.arrived().await;
        }
        assert_eq!(upstream.seen().len(), passed_max);
        let mut client = Client::connect(gateway.address()).await;
        client.send(&keyed("/pay", "k", other, "{}")).await;
        upstream.release();
        timeout(PATIENCE, upstream.arrived()).await.expect("the other one is passed on");
        let next = upstream.seen().pop().unwrap();
        let key = next.header("firstwrite-key").unwrap();
        assert_eq!(key, "k");
    }
}

fn status_of(key: &str, query: &str) -> String {
    format!(
        "GET /.firstwrite/operations/{key}{query} HTTP/1.1\r\nhost: shop.example\r\n\
         authorization: Bearer a\r\n\r\n"
    )
}

#[tokio::test]
async fn a_look_at_a_status_counts_like_a_request() {
    let upstream = Upstream::start().await;
    let rate = Some(Rate { per_second: 0.01, burst: 3.0 });
    let usual = TenantLimits { requests: rate, ..TenantLimits::default() };
    let (limited_rules, _holdings) = limited(rules(&[&upstream]), usual, NEVER);
    let gateway = start(limited_rules).await;
    assert_eq!(statuses(&gateway, "a", &["1"]).await, [201]);
    for expected in [200, 200, 429] {
        let answered = ask(gateway.address(), &status_of("1", "")).await;
        assert_eq!(answered.status(), expected);
    }
    let refused = ask(gateway.address(), &status_of("1", "")).await;
    assert_eq!(
        (refused.code().as_str(), refused.header("retry-after")),
        ("rate-limited", Some("100"))
    );
    assert_eq!(statuses(&gateway, "b", &["1"]).await, [201]);
}

#[tokio::test]
async fn who_waits_for_a_status_is_under_way() {
    let upstream = Upstream::start().await;
    let usual = TenantLimits { in_flight_max: Some(2), ..TenantLimits::default() };
    let (rules, _holdings) = limited(rules(&[&upstream]), usual, NEVER);
    let gateway = start(rules).await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let early = "authorization: Bearer a\r\nprefer: respond-async\r\n";
    let accepted = ask(gateway.address(), &keyed("/pay", "1", early, "{}")).await;
    assert_eq!(accepted.status(), 202);
    upstream.arrived().await;
    let mut waiting =
        [Client::connect(gateway.address()).await, Client::connect(gateway.address()).await];
    for client in &mut waiting {
        client.send(&status_of("1", "?wait=60s")).await;
    }
    // The attempt has one of the two places: whichever question comes first takes the other.
    let [one, other] = &mut waiting;
    let (refused, waits) = tokio::select! {
        refused = one.read() => (refused, other),
        refused = other.read() => (refused, one),
    };
    assert_eq!(refused.unwrap().status(), 429);
    upstream.release();
    assert_eq!(waits.read().await.unwrap().status(), 200);
    assert_eq!(ask(gateway.address(), &status_of("1", "")).await.status(), 200);
}

#[tokio::test]
async fn callers_that_nobody_verified_make_so_many_keys_together() {
    let upstream = Upstream::start().await;
    let tenant_usage = Arc::new(TenantUsage::new());
    let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
    let observer = Limits::new(TenantLimits::default(), HashMap::new(), tenant_usage, metrics)
        .unverified_new_keys(Rate { per_second: 0.01, burst: 3.0 });
    let proxy = Source::Header(HeaderSettings {
        tenant: "x-tenant".to_owned(),
        principal: None,
        peers: vec!["127.0.0.0/8".to_owned()],
        namespace: String::new(),
    });
    let sources = vec![proxy, Source::Authorization(AuthorizationSettings::default())];
    let tenants = by(&Settings { anonymous: Anonymous::Everywhere, sources });
    let rules = Rules { observer: Some(Arc::new(observer)), tenants, ..rules(&[&upstream]) };
    let store = Arc::new(firstwrite::memory_store());
    let gateway = start_on(Arc::clone(&store), rules).await;
    assert_eq!(statuses(&gateway, "made-up-1", &["1", "2"]).await, [201, 201]);
    assert_eq!(ask(gateway.address(), &keyed("/pay", "3", "", "{}")).await.status(), 201);
    for who in ["", "authorization: Bearer made-up-2\r\n"] {
        let refused = ask(gateway.address(), &keyed("/pay", "4", who, "{}")).await;
        assert_eq!((refused.status(), refused.code().as_str()), (429, "rate-limited"));
        assert_eq!(refused.header("retry-after"), Some("100"));
        assert!(refused.text().contains("\"retry_after\":100"), "{}", refused.text());
    }
    assert!(pay(&gateway, "made-up-1", "1").await.is_replay(), "what stands is told as ever");
    for key in ["1", "2", "3", "4"] {
        let verified = keyed("/pay", key, "x-tenant: acme\r\n", "{}");
        assert_eq!(ask(gateway.address(), &verified).await.status(), 201, "{key}");
    }
    assert_eq!(written(&store).await, 7);
}

#[tokio::test]
async fn an_answer_that_says_that_nothing_ran_leaves_nothing_behind() {
    let upstream = Upstream::start().await;
    let store = Arc::new(firstwrite::memory_store());
    let gateway = start_on(Arc::clone(&store), rules(&[&upstream])).await;
    let refusals = ["401 Unauthorized", "407 Auth", "421 Misdirected", "431 Too Large"];
    for (made_count, status) in (0..).zip(refusals) {
        upstream.does(Script::Answer(answer(status, "", "no")));
        let expected: u16 = status[..3].parse().unwrap();
        assert_eq!(statuses(&gateway, "a", &[&status[..3]]).await, [expected]);
        assert_eq!(written(&store).await, made_count, "{status}");
        upstream.does(Script::Answer(answer("201 Created", "", "made")));
        let made = pay(&gateway, "a", &status[..3]).await;
        assert_eq!((made.status(), made.is_replay()), (201, false), "{status}");
    }
    upstream.does(Script::Answer(answer("403 Forbidden", "", "no")));
    assert_eq!(statuses(&gateway, "a", &["no"]).await, [403]);
    assert!(pay(&gateway, "a", "no").await.is_replay(), "a decision is kept");
}

/// A request of which the body stops after these bytes.
fn stalled(who: &str, key: &str, sent: usize) -> String {
    let head = keyed("/pay", key, &format!("authorization: Bearer {who}\r\n"), "");
    let head = head.replace("content-length: 0", "content-length: 999999");
    format!("{head}{}", "x".repeat(sent))
}

#[tokio::test]
async fn bodies_that_stall_take_no_more_than_a_tenants_part_of_the_room() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { held_bytes_max: 1024 * 1024, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    let mut stalls = JoinSet::new();
    for number in 0..18 {
        let mut client = Client::connect(gateway.address()).await;
        client.send(&stalled("a", &number.to_string(), 65_000)).await;
        stalls.spawn(async move { client.read().await.unwrap() });
    }
    // Eight fit into the half that is for anybody, so that ten are refused.
    for _ in 0..10 {
        let refused = stalls.join_next().await.unwrap().unwrap();
        assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    }
    for (who, bytes, expected) in [("b", 100_000, 201), ("b", 200_000, 201), ("a", 2, 201)] {
        let body = "x".repeat(bytes);
        let key = format!("large-{bytes}");
        let request = keyed("/pay", &key, &format!("authorization: Bearer {who}\r\n"), &body);
        assert_eq!(ask(gateway.address(), &request).await.status(), expected, "{who} {bytes}");
    }
}

/// Callers that a proxy on this machine vouches for, and others who make up what they like.
fn some_verified() -> Settings {
    let proxy = Source::Header(HeaderSettings {
        tenant: "x-tenant".to_owned(),
        principal: None,
        peers: vec!["127.0.0.0/8".to_owned()],
        namespace: String::new(),
    });
    let sources = vec![proxy, Source::Authorization(AuthorizationSettings::default())];
    Settings { anonymous: Anonymous::Everywhere, sources }
}

#[tokio::test]
async fn bodies_of_made_up_callers_leave_room_for_verified_ones() {
    // Large ones and small ones, each of another tenant.
    for (bytes, room) in [(65_000, 8), (16_000, 32)] {
        let upstream = Upstream::start().await;
        let usual = rules(&[&upstream]);
        let calling = Calling { held_bytes_max: 1024 * 1024, ..usual.calling.clone() };
        let gateway = start(Rules { calling, tenants: by(&some_verified()), ..usual }).await;
        let mut stalls = JoinSet::new();
        for number in 0..room + 36 {
            let mut client = Client::connect(gateway.address()).await;
            client.send(&stalled(&format!("made-up-{number}"), "k", bytes)).await;
            stalls.spawn(async move { client.read().await.unwrap() });
        }
        for _ in 0..36 {
            let refused = timeout(PATIENCE, stalls.join_next()).await.expect("it has no room");
            assert_eq!(refused.unwrap().unwrap().status(), 503);
        }
        for (key, bytes) in [("large", 100_000), ("small", 100)] {
            let request = keyed("/pay", key, "x-tenant: acme\r\n", &"x".repeat(bytes));
            assert_eq!(ask(gateway.address(), &request).await.status(), 201, "{key}");
        }
    }
}

/// Headers of as many bytes as a head may have, nearly.
fn wide() -> String {
    let half = "y".repeat(14_000);
    format!("x-a: {half}\r\nx-b: {half}\r\n")
}

/// Sends each request on a connection of its own, and reads this many refusals.
async fn are_refused(
    gateway: &Gateway,
    requests: impl Iterator<Item = String>,
    count: usize,
) -> JoinSet<Message> {
    let mut asked = JoinSet::new();
    for request in requests {
        let mut client = Client::connect(gateway.address()).await;
        client.send(&request).await;
        asked.spawn(async move { client.read().await.unwrap() });
    }
    for _ in 0..count {
        let refused = timeout(PATIENCE, asked.join_next()).await.expect("it has no room");
        let refused = refused.unwrap().unwrap();
        assert_eq!((refused.status(), refused.code().as_str()), (503, "overloaded"));
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    asked
}

#[tokio::test]
async fn heads_whose_bodies_do_not_come_take_room_too() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { held_bytes_max: 1024 * 1024, ..usual.calling.clone() };
    let gateway = start(Rules { calling, tenants: by(&some_verified()), ..usual }).await;
    let head = |number| {
        stalled(&format!("made-up-{number}"), "k", 0).replacen(
            "\r\n",
            &format!("\r\n{}", wide()),
            1,
        )
    };
    let stalls = are_refused(&gateway, (0..40).map(head), 20).await;
    for bytes in [2, 100_000] {
        let headers = format!("x-tenant: acme\r\n{}", wide());
        let request = keyed("/pay", &bytes.to_string(), &headers, &"x".repeat(bytes));
        assert_eq!(ask(gateway.address(), &request).await.status(), 201, "{bytes}");
    }
    assert_eq!(upstream.seen().len(), 2);
    drop(stalls);
    // What was given back is free.
    let again = format!("authorization: Bearer again\r\n{}", wide());
    let again = keyed("/pay", "k", &again, "{}");
    let asking = async { while ask(gateway.address(), &again).await.status() == 503 {} };
    timeout(PATIENCE, asking).await.expect("there is room again");
}

#[tokio::test]
async fn heads_of_those_who_wait_for_a_status_take_room_too() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let usual = rules(&[&upstream]);
    let calling = Calling { held_bytes_max: 1024 * 1024, ..usual.calling.clone() };
    let gateway = start(Rules { calling, tenants: by(&some_verified()), ..usual }).await;
    let early = "authorization: Bearer a\r\nprefer: respond-async\r\n";
    assert_eq!(ask(gateway.address(), &keyed("/pay", "k", early, "{}")).await.status(), 202);
    upstream.arrived().await;
    let wait = status_of("k", "?wait=60s").replacen("\r\n", &format!("\r\n{}", wide()), 1);
    let mut waiting = are_refused(&gateway, (0..40).map(|_| wait.clone()), 20).await;
    upstream.release();
    while let Some(told) = waiting.join_next().await {
        let status = told.unwrap().status();
        assert!(matches!(status, 200 | 503), "{status}");
    }
    assert_eq!(ask(gateway.address(), &wait).await.status(), 200);
}

#[tokio::test]
async fn attempts_of_made_up_callers_leave_a_quarter_to_verified_ones() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let usual = rules(&[&upstream]);
    let calling = Calling { attempts_max: 4, ..usual.calling.clone() };
    let gateway = start(Rules { calling, tenants: by(&some_verified()), ..usual }).await;
    let address = gateway.address();
    let mut under_way = JoinSet::new();
    let pay = |who: String| async move { ask(address, &keyed("/pay", "k", &who, "{}")).await };
    for number in 0..3 {
        under_way.spawn(pay(format!("authorization: Bearer made-up-{number}\r\n")));
        upstream.arrived().await;
    }
    for number in 3..8 {
        let refused = pay(format!("authorization: Bearer made-up-{number}\r\n"));
        let refused = timeout(Duration::from_secs(5), refused).await.expect("it does not wait");
        assert_eq!(refused.status(), 503);
    }
    // However long the others take.
    under_way.spawn(pay("x-tenant: acme\r\n".to_owned()));
    timeout(PATIENCE, upstream.arrived()).await.expect("a verified caller has room");
    for _ in 0..4 {
        upstream.release();
        let answered = timeout(PATIENCE, under_way.join_next()).await.expect("an answer");
        assert_eq!(answered.unwrap().unwrap().status(), 201);
    }
    assert!(upstream.seen().iter().any(|seen| seen.header("firstwrite-tenant") == Some("acme")));
}

#[tokio::test]
async fn an_answer_without_room_is_passed_on_and_its_key_is_spent() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { held_bytes_max: 1024 * 1024, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    let large = |bytes: usize| Script::Answer(answer("201 Created", "", &"x".repeat(bytes)));
    // What is given back is free: together they are more than there is room for.
    upstream.does(large(100_000));
    for number in 0..20 {
        let request = post(&format!("fits-{number}"), "{}");
        for is_replay in [false, true] {
            let answered = ask(gateway.address(), &request).await;
            assert_eq!((answered.status(), answered.is_replay()), (201, is_replay));
            assert_eq!(answered.body.len(), 100_000);
        }
    }
    upstream.does(large(900_000));
    let first = ask(gateway.address(), &post("large", "{}")).await;
    assert_eq!((first.status(), first.body.len()), (201, 900_000));
    let retry = ask(gateway.address(), &post("large", "{}")).await;
    assert_eq!((retry.status(), retry.code().as_str()), (409, "answer-not-kept"));
    assert_eq!(upstream.seen().len(), 21);
}

#[tokio::test]
async fn answers_that_stall_take_no_more_than_their_room() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { held_bytes_max: 1024 * 1024, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    let rest = "x".repeat(65_000);
    let stalled = format!("HTTP/1.1 201 Created\r\ncontent-length: 999999\r\n\r\n{rest}");
    upstream.does(Script::Answer(stalled));
    let mut clients = JoinSet::new();
    for number in 0..18 {
        let mut client = Client::connect(gateway.address()).await;
        client.send(&post(&number.to_string(), "{}")).await;
        clients.spawn(async move { read_head(&mut client.0).await.unwrap().unwrap() });
    }
    // Twelve at the most fit into three quarters; what does not is passed on as far as it has come.
    for _ in 0..6 {
        let passed = timeout(PATIENCE, clients.join_next()).await;
        let passed = passed.expect("it is not gathered").unwrap().unwrap();
        assert_eq!((passed.status(), passed.header("content-length")), (201, Some("999999")));
    }
    // Others are kept all the same, if they are small or come at once.
    upstream.does(Script::Answer(answer("201 Created", "", "made")));
    for is_replay in [false, true] {
        let answered = ask(gateway.address(), &post("small", "{}")).await;
        assert_eq!((answered.status(), answered.is_replay()), (201, is_replay));
    }
}
