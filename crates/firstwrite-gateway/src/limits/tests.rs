//! Tests how limits are used up, given back and forgotten.

use super::*;

struct Nobody;

impl Observer for Nobody {}

fn limits(usual: TenantLimits) -> Limits {
    let special = HashMap::from([("big".to_owned(), TenantLimits::default())]);
    Limits::new(usual, special, Arc::new(TenantUsage::new()), Arc::new(Nobody))
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_used_up_and_comes_back() {
    let rate = Some(Rate { per_second: 2.0, burst: 3.0 });
    let limits = limits(TenantLimits { requests: rate, ..TenantLimits::default() });
    let acme = tenant("acme");
    for _ in 0..3 {
        assert!(limits.take(&acme, Instant::now()).is_ok());
    }
    let refused = limits.take(&acme, Instant::now()).err().unwrap();
    assert_eq!((refused.what, refused.wait), ("too many requests", Duration::from_millis(500)));
    assert!(limits.take(&tenant("globex"), Instant::now()).is_ok(), "others do not notice");
    assert!(limits.take(&tenant("big"), Instant::now()).is_ok());
    tokio::time::advance(Duration::from_millis(500)).await;
    assert!(limits.take(&acme, Instant::now()).is_ok());
    assert!(limits.take(&acme, Instant::now()).is_err());
    tokio::time::advance(Duration::from_hours(1)).await;
    for _ in 0..3 {
        assert!(limits.take(&acme, Instant::now()).is_ok());
    }
    assert!(limits.take(&acme, Instant::now()).is_err(), "no more than the burst is saved up");
}

#[tokio::test(start_paused = true)]
async fn only_a_key_that_was_made_is_counted_as_a_new_one() {
    let rate = Some(Rate { per_second: 0.5, burst: 1.0 });
    let limits = limits(TenantLimits { new_keys: rate, ..TenantLimits::default() });
    let acme = &tenant("acme");
    let may = || limits.room(acme, Instant::now());
    let made = |step| {
        let id = firstwrite_core::RecordId::of(acme, &firstwrite::Key::new("k").unwrap());
        limits.stored(&RecordChange { tenant: acme, id, step });
    };
    assert!(limits.take(acme, Instant::now()).is_ok());
    assert!(may().is_ok() && may().is_ok(), "whoever asks has made none yet");
    made(RecordStep::Kept(1));
    assert!(may().is_ok(), "a key that stood already");
    made(RecordStep::Made);
    let refused = may().err().unwrap();
    assert_eq!((refused.what, refused.wait), ("too many new keys", Duration::from_secs(2)));
    assert!(limits.take(acme, Instant::now()).is_ok(), "requests are let in, for what stands");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(may().is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_counted_until_it_ends() {
    let limits = limits(TenantLimits { in_flight_max: Some(2), ..TenantLimits::default() });
    let acme = tenant("acme");
    assert!(limits.take(&acme, Instant::now()).is_ok());
    assert!(limits.take(&acme, Instant::now()).is_ok());
    assert!(limits.take(&acme, Instant::now()).is_err());
    limits.give_back(&acme);
    assert!(limits.take(&acme, Instant::now()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn newcomers_are_let_in_and_who_is_away_the_longest_is_forgotten() {
    let limits = limits(TenantLimits { in_flight_max: Some(1), ..TenantLimits::default() });
    let busy = tenant("busy");
    assert!(limits.take(&busy, Instant::now()).is_ok());
    for number in 0..table::TENANTS_MAX * 3 / 2 {
        let one = tenant(&format!("t{number}"));
        assert!(limits.take(&one, Instant::now()).is_ok(), "{number}");
        limits.give_back(&one);
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!(limits.used.tenant_count() <= table::TENANTS_MAX);
    assert!(limits.take(&busy, Instant::now()).is_err(), "who has something under way is known");
    let last = tenant(&format!("t{}", table::TENANTS_MAX * 3 / 2 - 1));
    assert!(limits.used.with(&last, |_| ()).is_some());
    assert!(limits.used.with(&tenant("t0"), |_| ()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_without_limits_is_not_remembered() {
    let limits = limits(TenantLimits::default());
    assert!(limits.take(&tenant("acme"), Instant::now()).is_ok());
    assert_eq!(limits.used.tenant_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_verified_here_shares_one_limit_of_new_keys_with_all_like_it() {
    let limits =
        limits(TenantLimits::default()).unverified_new_keys(Rate { per_second: 0.5, burst: 2.0 });
    let made = |name: &str| {
        let tenant = &tenant(name);
        let id = firstwrite_core::RecordId::of(tenant, &firstwrite::Key::new("k").unwrap());
        limits.stored(&RecordChange { tenant, id, step: RecordStep::Made });
    };
    made("auth-abababababababababababab");
    made("/auth-cdcdcdcdcdcdcdcdcdcdcdcd/auth-cdcdcdcdcdcdcdcdcdcdcdcd");
    made("acme");
    for stranger in ["anonymous", "single", "auth-efefefefefefefefefefefef"] {
        let refused = limits.may_make_key(&tenant(stranger)).unwrap_err();
        assert_eq!(refused.kind(), RejectionKind::RateLimited);
        assert_eq!(refused.to_response().headers()["retry-after"], "2");
    }
    assert!(limits.may_make_key(&tenant("acme")).is_ok(), "it was verified");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(limits.may_make_key(&tenant("anonymous")).is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_principals_use_is_their_tenants() {
    let usual = TenantLimits {
        in_flight_max: Some(2),
        active_keys_max: Some(2),
        ..TenantLimits::default()
    };
    let limits = limits(usual);
    let (operation, parts) = (operation(), http::Request::new(()).into_parts().0);
    let key = &firstwrite::Key::new("k").unwrap();
    let admit = |name: &str| {
        let tenant = &tenant(name);
        limits.admit(&AdmitContext { operation: &operation, tenant, key, request: &parts }).is_ok()
    };
    assert_eq!(
        [admit("/acme/alice"), admit("/acme/bob"), admit("/acme/carol")],
        [true, true, false]
    );
    assert!(admit("/globex/alice"));
    for (name, is_let) in [("/acme/alice", true), ("/acme/bob", true), ("/acme/carol", false)] {
        let tenant = &tenant(name);
        assert_eq!(limits.may_make_key(tenant).is_ok(), is_let, "{name}");
        let id = firstwrite_core::RecordId::of(tenant, key);
        limits.stored(&RecordChange { tenant, id, step: RecordStep::Made });
    }
    let refused = limits.may_make_key(&tenant("acme")).unwrap_err();
    assert_eq!(refused.kind(), RejectionKind::RateLimited);
    assert!(
        limits.may_make_key(&tenant("/big/alice")).is_ok(),
        "a name of its own, a limit of its own"
    );
}

fn operation() -> firstwrite::Operation {
    firstwrite::Operation { name: "POST /pay".into(), policy: Arc::default() }
}
