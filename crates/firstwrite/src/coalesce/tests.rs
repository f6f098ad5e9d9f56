//! Leading and following.

use firstwrite_core::{FingerprintRules, Key, Parts, Tenant};
use http::{HeaderMap, Method};

use super::*;

fn exchange(key: &str) -> Exchange {
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new(key).unwrap());
    let id = RecordId::of(&tenant, &key);
    let (method, headers) = (Method::POST, HeaderMap::new());
    let (authority, path, query, body) = ("", "/", None, &b""[..]);
    let asked = Parts { method: &method, authority, path, query, headers: &headers, body };
    let fingerprint = Fingerprint::of(&asked, &FingerprintRules::default(), None, &id);
    let request = Request { id, tenant, key, operation: "POST /".into(), fingerprint };
    let (request, policy) = (Arc::new(request), Arc::default());
    Exchange { request, policy, answer_when: AnswerWhen::Ended }
}

fn place() -> Arc<Place> {
    let observer: Arc<dyn crate::Observer> = Arc::new(crate::observe::Nobody);
    Place::new(&observer, &Tenant::new("acme").unwrap())
}

fn lead(running: &Arc<Running>, key: &str) -> Lead {
    match running.join(&exchange(key), &place(), None) {
        Joined::Lead(lead) => lead,
        Joined::Follow(_) | Joined::Wait(_) | Joined::Full => panic!("somebody leads already"),
    }
}

fn follow(running: &Arc<Running>, key: &str) -> Follow {
    match running.join(&exchange(key), &place(), None) {
        Joined::Follow(follow) => follow,
        Joined::Lead(_) | Joined::Wait(_) | Joined::Full => panic!("nobody leads"),
    }
}

#[tokio::test]
async fn the_first_leads_the_next_follows_and_other_keys_are_other_keys() {
    let running = Arc::new(Running::new(9, 9, None));
    let first = lead(&running, "a");
    let other = lead(&running, "b");
    let mut follower = follow(&running, "a");
    first.owned();
    assert!(matches!(follower.decided().await, Phase::Owned));
    first.end(Ended::StoreFailed(StoreErrorKind::Full));
    assert!(matches!(follower.ended().await, Ended::StoreFailed(StoreErrorKind::Full)));
    assert_eq!(format!("{running:?}"), "Running { attempt_count: 1, .. }");
    drop(other);
    assert_eq!(format!("{running:?}"), "Running { attempt_count: 0, .. }");
}

#[test]
fn when_it_is_full_nobody_leads_until_one_ends_and_everybody_may_follow() {
    let running = Arc::new(Running::new(1, 1, None));
    let first = lead(&running, "a");
    let full = running.join(&exchange("b"), &place(), None);
    assert!(matches!(full, Joined::Full));
    drop(follow(&running, "a"));
    drop(first);
    drop(lead(&running, "b"));
}

#[tokio::test]
async fn a_leader_that_panics_leaves_the_key_open() {
    let running = Arc::new(Running::new(9, 9, None));
    let first = lead(&running, "a");
    let mut follower = follow(&running, "a");
    let broken = tokio::spawn(async move {
        first.owned();
        panic!("a bug");
    });
    assert!(broken.await.unwrap_err().is_panic());
    assert!(matches!(follower.ended().await, Ended::Open));
    drop(lead(&running, "a"));
}
