//! Tests that sealed outcomes stay sealed and open only in their place.

use std::sync::Arc;

use bytes::Bytes;
use firstwrite_core::codec::hex;
use firstwrite_core::protocol::{self, Completed, Reserved};
use firstwrite_core::{
    Body, Certainty, Change, Fence, Guard, HeaderPolicy, Inserted, KeptHeaders, OnLostAnswer,
    Outcome, Policy, Query, Record, RecordId, Request, Retention, State, Store, StoreError,
    StoreErrorKind, Swapped, Verdict,
};
use firstwrite_testkit::{MemorySubject, Subject, sample};
use firstwrite_wrappers::{KeyRing, SealedStore, SealingKey};
use http::{HeaderMap, HeaderValue, StatusCode, header};

const SECRET_BODY: &[u8] = b"card 4242";
const SECRET_PLACE: &str = "/payments/4242";

/// A sealed store, and the store beneath with the same records as the database shows them.
struct Scene {
    bare: Arc<dyn Store>,
    sealed: SealedStore,
}

fn key(id: &str, first: u8) -> SealingKey {
    SealingKey::new(
        id,
        std::array::from_fn(|place| first.wrapping_add(u8::try_from(place).unwrap())),
    )
    .unwrap()
}

fn ring(ids: &[(&str, u8)]) -> KeyRing {
    KeyRing::new(ids.iter().map(|(id, first)| key(id, *first)).collect()).unwrap()
}

fn outcome() -> Outcome {
    let mut headers = HeaderMap::new();
    headers.insert(header::LOCATION, HeaderValue::from_static(SECRET_PLACE));
    let headers = HeaderPolicy::default().keep(&headers);
    Outcome::new(StatusCode::CREATED, headers, Bytes::from_static(SECRET_BODY))
}

fn request(tenant: &str, key: &str) -> Request {
    sample::request(&sample::tenant(tenant), &sample::key(key), 1)
}

fn retention() -> Retention {
    Policy::default().record_retention()
}

impl Scene {
    fn new(ring: KeyRing) -> Self {
        let bare = MemorySubject::new().store();
        Self { sealed: SealedStore::new(Arc::clone(&bare), ring), bare }
    }

    /// Reserves and completes; hands back the record as it is stored.
    async fn complete(&self, tenant: &str, key: &str) -> Record {
        let (request, policy) = (request(tenant, key), sample::policy(OnLostAnswer::Uncertain));
        let nonce = fastrand::u64(..);
        let reserved = protocol::reserve(&self.sealed, &request, &policy, nonce).await.unwrap();
        let Reserved::Granted(reservation) = reserved else { panic!("the key is free") };
        let done = protocol::complete(&self.sealed, reservation, outcome()).await;
        assert!(matches!(done, Ok(Completed::Kept { .. })));
        self.stored(request.id).await
    }

    async fn stored(&self, id: RecordId) -> Record {
        self.bare.get(id).await.unwrap().unwrap().record
    }

    /// Returns the verdict on a retry.
    async fn retry(&self, tenant: &str, key: &str) -> Result<Verdict, StoreError> {
        verdict(&self.sealed, tenant, key).await
    }

    /// Puts this outcome, as it is, in the place of a record, under a tenant.
    async fn replace(&self, record: &Record, tenant: &str, outcome: Outcome) {
        let guard = Guard::Seen(self.stored(record.id).await.seen());
        self.bare.swap(record.id, guard, Change::Remove, None).await.unwrap();
        let request = Request { id: record.id, ..request(tenant, record.key.as_str()) };
        let draft = sample::completed(&request, &Policy::default(), record.fence, outcome);
        assert!(matches!(self.bare.insert(&draft).await.unwrap(), Inserted::Done(_)));
    }

    /// Puts this outcome, as it is, where nothing stands.
    async fn plant(&self, tenant: &str, key: &str, fence: Fence, outcome: Outcome) {
        let draft = sample::completed(&request(tenant, key), &Policy::default(), fence, outcome);
        assert!(matches!(self.bare.insert(&draft).await.unwrap(), Inserted::Done(_)));
    }
}

async fn verdict(store: &dyn Store, tenant: &str, key: &str) -> Result<Verdict, StoreError> {
    let policy = sample::policy(OnLostAnswer::Uncertain);
    let reserved =
        protocol::reserve(store, &request(tenant, key), &policy, fastrand::u64(..)).await;
    match reserved.map_err(|unreserved| unreserved.error)? {
        Reserved::Refused(verdict, ..) => Ok(verdict),
        Reserved::Granted(_) => panic!("the key is taken"),
    }
}

fn replays(verdict: Result<Verdict, StoreError>) -> bool {
    matches!(verdict.unwrap(), Verdict::Replay { outcome: replayed, .. } if replayed == outcome())
}

fn is_closed(verdict: Result<Verdict, StoreError>) -> bool {
    verdict.unwrap_err().kind() == StoreErrorKind::Corrupt
}

fn sealed_bytes(record: &Record) -> Bytes {
    match &record.state {
        State::Completed {
            outcome: Outcome { body: Body::Sealed(bytes), headers, .. }, ..
        } => {
            assert_eq!(headers.iter().len(), 0, "headers are sealed too");
            bytes.clone()
        }
        State::Completed { .. } | State::Reserved(_) | State::Uncertain { .. } => {
            panic!("a sealed outcome")
        }
    }
}

fn stored_outcome(record: &Record) -> Outcome {
    match &record.state {
        State::Completed { outcome, .. } => outcome.clone(),
        State::Reserved(_) | State::Uncertain { .. } => panic!("a completed record"),
    }
}

#[tokio::test]
async fn the_store_holds_the_status_and_nothing_else() {
    let scene = Scene::new(ring(&[("k", 1)]));
    let record = scene.complete("acme", "order").await;
    assert_eq!(stored_outcome(&record).status, StatusCode::CREATED);
    let bytes = sealed_bytes(&record);
    for secret in [SECRET_BODY, SECRET_PLACE.as_bytes()] {
        assert!(!bytes.windows(secret.len()).any(|part| part == secret));
    }
    assert!(replays(scene.retry("acme", "order").await));
    // Without the keys, no retry is answered with it.
    assert_eq!(verdict(&*scene.bare, "acme", "order").await.unwrap(), Verdict::Unreadable);
}

#[tokio::test]
async fn equal_outcomes_are_sealed_differently() {
    let scene = Scene::new(ring(&[("k", 1)]));
    let one = sealed_bytes(&scene.complete("acme", "one").await);
    let other = sealed_bytes(&scene.complete("acme", "other").await);
    assert_ne!(one, other);
}

#[tokio::test]
async fn a_row_copied_to_another_record_attempt_or_tenant_does_not_open() {
    let scene = Scene::new(ring(&[("k", 1)]));
    let record = scene.complete("acme", "order").await;
    let copied = stored_outcome(&record);
    scene.plant("acme", "copied", record.fence, copied.clone()).await;
    assert!(is_closed(scene.retry("acme", "copied").await), "another key");
    scene.plant("other", "order", record.fence, copied.clone()).await;
    assert!(is_closed(scene.retry("other", "order").await), "another tenant");
    // Were the same id another tenant's, the key would still not be.
    scene.replace(&record, "other", copied.clone()).await;
    assert!(scene.sealed.get(record.id).await.is_err(), "another tenant's key");
    let guard = Guard::Seen(record.seen());
    scene.bare.swap(record.id, guard, Change::Remove, None).await.unwrap();
    scene.plant("acme", "order", record.fence.next(7), copied.clone()).await;
    assert!(is_closed(scene.retry("acme", "order").await), "another attempt");
    let moved = scene.stored(record.id).await;
    let guard = Guard::Seen(moved.seen());
    scene.bare.swap(record.id, guard, Change::Remove, None).await.unwrap();
    scene.plant("acme", "order", record.fence, copied).await;
    assert!(replays(scene.retry("acme", "order").await), "back in its place");
}

#[tokio::test]
async fn one_altered_bit_anywhere_is_noticed() {
    let scene = Scene::new(ring(&[("k", 1), ("l", 2)]));
    let record = scene.complete("acme", "order").await;
    let whole = stored_outcome(&record);
    let bytes = sealed_bytes(&record);
    let opens = async |outcome: Outcome| {
        scene.replace(&record, "acme", outcome).await;
        scene.sealed.get(record.id).await.is_ok()
    };
    assert!(opens(whole.clone()).await);
    for place in 0..bytes.len() * 8 {
        let mut altered = bytes.to_vec();
        altered[place / 8] ^= 1 << (place % 8);
        let altered = Outcome { body: Body::Sealed(altered.into()), ..whole.clone() };
        assert!(!opens(altered).await, "bit {place}");
    }
    for length in 0..bytes.len() {
        let cut = Outcome { body: Body::Sealed(bytes.slice(..length)), ..whole.clone() };
        assert!(!opens(cut).await, "cut to {length}");
    }
    let other_status = Outcome { status: StatusCode::OK, ..whole.clone() };
    assert!(!opens(other_status).await, "the status");
    assert!(!opens(whole.clone().interim()).await, "interim or not");
    // The whole way: an error without a body, and never the ciphertext.
    let mut altered = bytes.to_vec();
    *altered.last_mut().unwrap() ^= 1;
    let altered = Outcome { body: Body::Sealed(altered.into()), ..whole };
    scene.plant("acme", "altered", record.fence, altered).await;
    let error = scene.retry("acme", "altered").await.unwrap_err();
    assert_eq!(error.certainty(), Certainty::Definite);
    assert!(scene.sealed.get(request("acme", "altered").id).await.is_err());
}

#[tokio::test]
async fn what_was_sealed_before_opens() {
    // Part of what is stored: it must open for ever.
    let sealed = "0107323032362d31316e85d94f9c026bb7428a6d898b09987bd10cf29697dec72b9f4634b0265e065597e8b0\
                  add6dbda7b2f334cd24aeadd5967a07f317ff461ad";
    let bytes = hex::decode(sealed.as_bytes()).unwrap();
    let sealed = Outcome::sealed(StatusCode::CREATED, bytes.into());
    let scene = Scene::new(ring(&[("2026-11", 1)]));
    scene.plant("acme", "order-1", Fence::first(7), sealed).await;
    assert!(replays(scene.retry("acme", "order-1").await));
}

#[tokio::test]
async fn keys_are_rotated_by_their_ids() {
    let scene = Scene::new(ring(&[("old", 1)]));
    scene.complete("acme", "before").await;
    scene.sealed.replace_keys(ring(&[("new", 2), ("old", 1)]));
    let after = scene.complete("acme", "after").await;
    assert!(sealed_bytes(&after).starts_with(b"\x01\x03new"));
    assert!(replays(scene.retry("acme", "before").await));
    assert!(replays(scene.retry("acme", "after").await));
    scene.sealed.replace_keys(ring(&[("new", 2)]));
    assert!(is_closed(scene.retry("acme", "before").await), "its key is gone");
    assert!(replays(scene.retry("acme", "after").await));
    scene.sealed.replace_keys(ring(&[("new", 3)]));
    assert!(is_closed(scene.retry("acme", "after").await), "another key by that id");
}

#[tokio::test]
async fn a_tenants_own_key_taken_off_the_ring_takes_its_outcomes_along() {
    let own = key("acme-1", 9).only_for(sample::tenant("acme"));
    let scene = Scene::new(KeyRing::new(vec![key("k", 1), own]).unwrap());
    scene.complete("acme", "order").await;
    scene.complete("other", "order").await;
    scene.sealed.replace_keys(ring(&[("k", 1)]));
    assert!(is_closed(scene.retry("acme", "order").await));
    assert!(replays(scene.retry("other", "order").await));
}

#[tokio::test]
async fn a_dropped_tenant_is_neither_read_nor_begun_and_what_runs_is_ended() {
    let scene = Scene::new(ring(&[("k", 1)]));
    scene.complete("acme", "order").await;
    let (running, policy) = (request("acme", "runs"), sample::policy(OnLostAnswer::Uncertain));
    let reserved = protocol::reserve(&scene.sealed, &running, &policy, 1).await.unwrap();
    let Reserved::Granted(reservation) = reserved else { panic!("the key is free") };

    scene.sealed.replace_keys(ring(&[("k", 1)]).dropping([sample::tenant("acme")]));
    // An error that is no damage: nothing is looked at for a tenant who is gone.
    let refused = scene.retry("acme", "order").await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Unsupported);
    assert!(scene.sealed.get(request("acme", "order").id).await.is_err());
    let fresh = protocol::reserve(&scene.sealed, &request("acme", "new"), &policy, 2).await;
    assert_eq!(fresh.unwrap_err().error.kind(), StoreErrorKind::Unsupported);
    assert!(scene.bare.get(request("acme", "new").id).await.unwrap().is_none());

    let done = protocol::complete(&scene.sealed, reservation, outcome()).await;
    assert!(matches!(done, Ok(Completed::Kept { .. })), "its key is spent");
    let kept = stored_outcome(&scene.stored(running.id).await);
    assert_eq!(kept, Outcome::tombstone(StatusCode::CREATED, KeptHeaders::default()));
    scene.complete("other", "order").await;
}

#[tokio::test]
async fn what_holds_for_a_tenant_holds_for_its_principals() {
    let (alice, long) = ("/acme/alice", sample::tenant("acme").bound_to(&"y".repeat(300)));
    let own = key("acme-1", 9).only_for(sample::tenant("acme"));
    let scene = Scene::new(KeyRing::new(vec![key("k", 1), own]).unwrap());
    for name in [alice, long.as_str()] {
        let stored = scene.complete(name, "order").await;
        assert!(sealed_bytes(&stored).starts_with(b"\x01\x06acme-1"), "{name}");
        assert!(replays(scene.retry(name, "order").await), "{name}");
    }
    scene.complete("/other/alice", "order").await;
    // Its key is destroyed.
    scene.sealed.replace_keys(ring(&[("k", 1)]));
    for name in [alice, long.as_str()] {
        assert!(is_closed(scene.retry(name, "order").await), "{name}");
    }
    assert!(replays(scene.retry("/other/alice", "order").await));
    // It is dropped: nothing of it is opened, and nothing begun.
    scene.sealed.replace_keys(ring(&[("k", 1)]).dropping([sample::tenant("acme")]));
    let policy = sample::policy(OnLostAnswer::Uncertain);
    for name in [alice, long.as_str()] {
        let fresh = protocol::reserve(&scene.sealed, &request(name, "new"), &policy, 2).await;
        assert_eq!(fresh.unwrap_err().error.kind(), StoreErrorKind::Unsupported, "{name}");
        assert!(scene.sealed.get(request(name, "order").id).await.is_err(), "{name}");
    }
    scene.complete("/other/alice", "another").await;
}

#[tokio::test]
async fn what_is_not_sealed_is_refused_unless_the_ring_reads_it() {
    let scene = Scene::new(ring(&[("k", 1)]));
    let forged = Outcome { body: Body::Bytes("{\"status\":\"refunded\"}".into()), ..outcome() };
    let empty = Outcome::tombstone(StatusCode::OK, KeptHeaders::default());
    for (key, planted) in [("forged", &forged), ("empty", &empty)] {
        scene.plant("acme", key, Fence::first(1), planted.clone()).await;
        assert!(is_closed(scene.retry("acme", key).await), "{key}");
        assert!(scene.sealed.get(request("acme", key).id).await.is_err(), "{key}");
    }
    // A released outcome is never replayed, so there is nothing to forge.
    let released = Outcome::released(StatusCode::SERVICE_UNAVAILABLE);
    scene.plant("acme", "released", Fence::first(1), released).await;
    assert!(scene.sealed.get(request("acme", "released").id).await.is_ok());

    scene.sealed.replace_keys(ring(&[("k", 1)]).reading_plain());
    for (key, planted) in [("forged", forged), ("empty", empty)] {
        let verdict = scene.retry("acme", key).await.unwrap();
        assert!(matches!(verdict, Verdict::Replay { outcome, .. } if outcome == planted), "{key}");
    }
    // Bytes that look sealed are the body of an answer like any other.
    let look_alike = sealed_bytes(&scene.complete("acme", "order").await);
    let plain = Outcome { body: Body::Bytes(look_alike.clone()), ..outcome() };
    scene.plant("acme", "look-alike", Fence::first(1), plain.clone()).await;
    let verdict = scene.retry("acme", "look-alike").await.unwrap();
    assert!(matches!(verdict, Verdict::Replay { outcome, .. } if outcome == plain));
}

#[tokio::test]
async fn a_page_shows_what_it_can_and_leaves_the_rest_sealed() {
    let scene = Scene::new(ring(&[("k", 1)]));
    let good = scene.complete("acme", "good").await;
    scene.plant("acme", "moved", good.fence, stored_outcome(&good)).await;
    scene.plant("acme", "forged", good.fence, sample::outcome(200, "forged")).await;
    let query = Query { tenant: None, state: None, after: None, limit: 10 };
    let page = scene.sealed.list(&query).await.unwrap();
    let is_sealed = |record: &&Record| matches!(stored_outcome(record).body, Body::Sealed(_));
    let sealed = page.records.iter().filter(is_sealed).count();
    let open = page.records.iter().any(|record| stored_outcome(record) == outcome());
    assert_eq!((page.records.len(), sealed, open), (3, 2, true));
}

#[tokio::test]
async fn a_record_reserved_elsewhere_is_completed_here() {
    let scene = Scene::new(ring(&[("k", 1)]));
    let (request, policy) = (request("acme", "order"), sample::policy(OnLostAnswer::Uncertain));
    let draft = sample::reserved(&request, &policy, Fence::first(1));
    scene.bare.insert(&draft).await.unwrap();
    let change = Change::Complete { outcome: outcome(), retention: retention() };
    let guard = Guard::Owner(draft.fence);
    let swapped = scene.sealed.swap(draft.id, guard, change.clone(), None).await.unwrap();
    assert!(matches!(swapped, Swapped::Done(_)));
    assert!(replays(scene.retry("acme", "order").await));
    let nobody = sample::request(&sample::tenant("acme"), &sample::key("none"), 1).id;
    let swapped = scene.sealed.swap(nobody, guard, change, None).await.unwrap();
    assert_eq!(swapped, Swapped::Moved(None));
}

#[tokio::test]
async fn the_answer_that_a_message_brings_is_sealed() {
    use firstwrite_core::Message;
    use firstwrite_core::outbox::{
        Answers, ClaimRequest, ClaimStatus, Next, Receipt, Resolution, Settlement, protocol,
    };
    use firstwrite_testkit::{Ending, Script};

    let subject = MemorySubject::new();
    let scene = Scene {
        sealed: SealedStore::new(subject.store(), ring(&[("k", 1)])),
        bare: subject.store(),
    };
    for (number, key) in ["settled", "resolved", "dropped"].into_iter().enumerate() {
        let request = request("acme", key);
        let answers = Answers { delivered: outcome(), refused: sample::outcome(402, "no") };
        let message =
            Message::new(&request.tenant, &request.key, "pay", "bank", Bytes::new()).unwrap();
        let mut script = Script::new(request.clone(), Ending::Interim(202));
        script.messages.push(message.answering(answers));
        subject.transact(script).await.unwrap();
        if key == "dropped" {
            scene.sealed.replace_keys(ring(&[("k", 1)]).dropping([sample::tenant("acme")]));
        }
        let outbox = scene.sealed.outbox().unwrap();
        let lease_for = std::time::Duration::from_secs(9);
        let claiming = ClaimRequest { destination: "bank".to_owned(), count_max: 9, lease_for };
        let claimed = outbox.claim(&[claiming], number as u64).await.unwrap();
        let [claimed_message] = &claimed.messages[..] else { panic!("one is due") };
        let receipt = Receipt::default();
        let held = if key == "resolved" {
            // Its claim runs out first.
            subject.advance(lease_for).await;
            let answer = Some(outcome());
            let resolution = Resolution::Delivered { receipt, answer };
            let seen = outbox.message(claimed_message.number).await.unwrap().unwrap().message.fence;
            let by = sample::audit("seen");
            protocol::resolve(outbox, claimed_message.number, seen, &resolution, &by).await.unwrap()
        } else {
            let next = Next::Delivered(receipt);
            let (claim, answer) = (claimed_message.claim(), Some(outcome()));
            let settlement = Settlement { claim, delivery: None, next, answer };
            protocol::settle(outbox, &[], &[settlement]).await.unwrap()[0]
        };
        assert_eq!(held, ClaimStatus::Current, "{key}");
        let stored = scene.stored(request.id).await;
        if key == "dropped" {
            assert_eq!(stored_outcome(&stored).body, Body::Tombstone);
        } else {
            sealed_bytes(&stored);
            assert!(replays(scene.retry("acme", key).await), "{key}");
        }
    }
}
