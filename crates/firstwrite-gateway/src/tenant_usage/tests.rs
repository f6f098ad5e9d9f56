//! Counts that are right whatever happens while they are made.

use firstwrite::{Key, memory_store};
use firstwrite_core::MemoryStore;
use firstwrite_core::{
    BodyForm, Draft, DraftState, Fence, Fingerprint, KeptHeaders, OnLostAnswer, Outcome,
    PartDigests, Policy,
};

use super::*;

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

fn id_of(name: &str, key: &str) -> RecordId {
    RecordId::of(&tenant(name), &Key::new(key).unwrap())
}

/// A completed record with a body of so many bytes.
async fn put(store: &MemoryStore, name: &str, key: &str, bytes: usize) {
    let (tenant, key) = (tenant(name), Key::new(key).unwrap());
    let parts = PartDigests::from_bytes(&[0; 32]).unwrap();
    let outcome = Outcome::new(http::StatusCode::OK, KeptHeaders::default(), vec![0; bytes].into());
    let draft = Draft {
        id: RecordId::of(&tenant, &key),
        tenant,
        key,
        operation: "POST /pay".into(),
        fingerprint: Fingerprint::from_stored(1, BodyForm::Raw, [0; 32], parts),
        fence: Fence::first(1),
        on_lost_answer: OnLostAnswer::Uncertain,
        retention: Policy::default().record_retention(),
        state: DraftState::Completed { outcome },
    };
    store.insert(&draft).await.unwrap();
}

async fn pass(tenant_usage: &TenantUsage, store: &dyn Store) {
    while tenant_usage.count_once(store).await.unwrap() == Counted::Page {}
}

fn has(tenant_usage: &TenantUsage, name: &str) -> (u64, u64) {
    let Usage { keys, bytes } = tenant_usage.of(&tenant(name));
    (keys, bytes)
}

fn noted(tenant_usage: &TenantUsage, name: &str, key: &str, steps: &[RecordStep]) {
    for step in steps {
        let tenant = &tenant(name);
        tenant_usage.note(&RecordChange { tenant, id: id_of(name, key), step: *step });
    }
}

#[tokio::test(start_paused = true)]
async fn a_pass_says_what_stands_and_steps_are_followed_meanwhile() {
    let (store, tenant_usage) = (memory_store(), TenantUsage::new());
    put(&store, "acme", "a", 10).await;
    put(&store, "acme", "b", 20).await;
    put(&store, "globex", "a", 5).await;
    assert_eq!(has(&tenant_usage, "acme"), (0, 0));
    pass(&tenant_usage, &store).await;
    assert_eq!((has(&tenant_usage, "acme"), has(&tenant_usage, "globex")), ((2, 30), (1, 5)));
    noted(&tenant_usage, "acme", "c", &[RecordStep::Made, RecordStep::Kept(7)]);
    noted(&tenant_usage, "acme", "d", &[RecordStep::Made, RecordStep::Freed]);
    noted(&tenant_usage, "initech", "a", &[RecordStep::Made]);
    assert_eq!((has(&tenant_usage, "acme"), has(&tenant_usage, "initech")), ((3, 37), (1, 0)));
    // What others wrote shows with the next pass, and what this process only thought it wrote goes.
    put(&store, "acme", "e", 1).await;
    pass(&tenant_usage, &store).await;
    assert_eq!((has(&tenant_usage, "acme"), has(&tenant_usage, "initech")), ((3, 31), (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn keys_bound_to_principals_are_their_tenants() {
    let (store, tenant_usage) = (memory_store(), TenantUsage::new());
    put(&store, "/acme/alice", "a", 10).await;
    put(&store, "/acme/bob", "a", 10).await;
    put(&store, "acme", "a", 10).await;
    pass(&tenant_usage, &store).await;
    noted(&tenant_usage, "/acme/carol", "a", &[RecordStep::Made]);
    assert_eq!(has(&tenant_usage, "acme"), (4, 30));
}

/// Fills more than a page, so that a pass can be stopped in its middle.
async fn two_pages(store: &MemoryStore) {
    for number in 0..PAGE + 200 {
        put(store, "acme", &format!("k{number}"), 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn before_the_first_pass_is_over_it_counts_as_far_as_it_came() {
    let (store, tenant_usage) = (memory_store(), TenantUsage::new());
    two_pages(&store).await;
    assert_eq!(tenant_usage.count_once(&store).await.unwrap(), Counted::Page);
    assert_eq!(has(&tenant_usage, "acme"), (1000, 1000));
    assert_eq!(tenant_usage.count_once(&store).await.unwrap(), Counted::Pass);
    assert_eq!(has(&tenant_usage, "acme"), (1200, 1200));
    // From now on the last pass counts until the next one has found more.
    assert_eq!(tenant_usage.count_once(&store).await.unwrap(), Counted::Page);
    assert_eq!(has(&tenant_usage, "acme"), (1200, 1200));
}

#[tokio::test(start_paused = true)]
async fn what_is_made_during_a_pass_is_counted_once_whichever_side_of_it_it_is() {
    let (store, tenant_usage) = (memory_store(), TenantUsage::new());
    two_pages(&store).await;
    assert_eq!(tenant_usage.count_once(&store).await.unwrap(), Counted::Page);
    let after = tenant_usage.known().walk.as_ref().unwrap().after.unwrap();
    let (mut behind, mut ahead) = (0, 0);
    for number in 0.. {
        let key = format!("new{number}");
        let is_behind = id_of("acme", &key) <= after;
        if behind >= 3 && ahead >= 3 {
            break;
        }
        if is_behind {
            behind += 1;
        } else {
            ahead += 1;
        }
        put(&store, "acme", &key, 1).await;
        noted(&tenant_usage, "acme", &key, &[RecordStep::Made, RecordStep::Kept(1)]);
    }
    pass(&tenant_usage, &store).await;
    let all = 1200 + behind + ahead;
    assert_eq!(has(&tenant_usage, "acme"), (all, all), "{behind} behind, {ahead} ahead");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_two_have_read_is_counted_once() {
    let (store, tenant_usage) = (memory_store(), TenantUsage::new());
    two_pages(&store).await;
    tenant_usage.count_once(&store).await.unwrap();
    let after = tenant_usage.known().walk.as_ref().unwrap().after;
    let page = store.usage(after, 100).await.unwrap();
    assert_eq!(tenant_usage.known().fold(after, page.clone()), Counted::Page);
    assert_eq!(tenant_usage.known().fold(after, page), Counted::Page);
    pass(&tenant_usage, &store).await;
    assert_eq!(has(&tenant_usage, "acme"), (1200, 1200));
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_when_there_are_new_counts() {
    let (store, tenant_usage) = (memory_store(), Arc::new(TenantUsage::new()));
    let shared: Arc<dyn Store> = Arc::new(store);
    let counting =
        Counting { tenant_usage: Arc::clone(&tenant_usage), every: Duration::from_mins(1) };
    let counted = tokio::spawn(keep_counting(counting, shared, None));
    while tenant_usage.known().last.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(tenant_usage.renewed_in(), Duration::from_mins(1));
    tokio::time::advance(Duration::from_secs(45)).await;
    assert_eq!(tenant_usage.renewed_in(), Duration::from_secs(15));
    counted.abort();
    tokio::time::advance(Duration::from_hours(9)).await;
    assert_eq!(tenant_usage.renewed_in(), Duration::from_secs(1), "it is overdue");
}

#[test]
fn tenants_beyond_the_bound_are_not_counted_and_the_others_are() {
    let mut counts = HashMap::new();
    for number in 0..TENANTS_MAX + 10 {
        add(&mut counts, &tenant(&format!("t{number}")), Usage::one(1));
    }
    assert_eq!(counts.len(), TENANTS_MAX);
    add(&mut counts, &tenant("t7"), Usage::one(1));
    assert_eq!(counts[&tenant("t7")], Usage { keys: 2, bytes: 2 });
}
