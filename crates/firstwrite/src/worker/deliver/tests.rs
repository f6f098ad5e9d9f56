//! Deliveries over the store in memory, on a paused clock, to destinations that do as they are told.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use firstwrite_core::outbox::{
    ClaimedMessage, Delivery, DestinationView, Ending, MessageQuery, MessageState, Outbox, Probed,
    Receipt, protocol,
};
use firstwrite_core::{BoxFuture, Key, MemoryStore, Tenant, Timestamp};
use tokio::sync::Semaphore;
use tokio::time::{Instant, advance};

use super::*;
use crate::worker::{Schedule, Worker};

mod flaky_store;

/// A destination that keeps what it got and ends deliveries as planned; delivered, where nothing is
/// planned.
#[derive(Debug, Default)]
struct Scripted {
    got: Mutex<Vec<String>>,
    plan: Mutex<VecDeque<Ending>>,
    probed: Mutex<VecDeque<Probed>>,
    can_be_asked: bool,
    /// It says "not so fast" where it says "not now".
    is_overloaded: bool,
    /// Each delivery takes one; none is needed if there is no gate.
    gate: Option<Semaphore>,
    at_once_max: AtomicUsize,
    at_once: AtomicUsize,
}

impl Scripted {
    fn plan(&self, endings: impl IntoIterator<Item = Ending>) {
        self.plan.lock().unwrap().extend(endings);
    }

    fn got(&self) -> Vec<String> {
        self.got.lock().unwrap().clone()
    }
}

impl Carrier for Scripted {
    fn carry<'a>(&'a self, claimed_message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(async move {
            let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.at_once_max.fetch_max(at_once, Ordering::SeqCst);
            if let Some(gate) = &self.gate {
                gate.acquire().await.unwrap().forget();
            }
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            self.got.lock().unwrap().push(claimed_message.derived_key.clone());
            let planned = self.plan.lock().unwrap().pop_front();
            let receipt = Receipt { provider_id: Some(format!("pay_{}", claimed_message.number)) };
            let ending = planned.unwrap_or(Ending::Delivered(receipt));
            let is_overloaded = self.is_overloaded && ending == Ending::Retry;
            let status = is_overloaded.then_some(429);
            Delivery { status, is_overloaded, ..Delivery::new(ending, "as planned") }
        })
    }

    fn probe<'a>(&'a self, _claimed_message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>> {
        self.can_be_asked.then(|| -> BoxFuture<'a, Probed> {
            Box::pin(async move {
                let planned = self.probed.lock().unwrap().pop_front();
                planned.unwrap_or(Probed::Silent("nothing was planned".to_owned()))
            })
        })
    }
}

fn store() -> MemoryStore {
    let start = Instant::now();
    MemoryStore::new(move || Timestamp::from_millis(1_700_000_000_000).plus(start.elapsed()))
}

fn honouring() -> Terms {
    Terms { dedupe_for: Duration::from_hours(24), ..Terms::default() }
}

fn deliver(store: &MemoryStore, terms: Terms, carrier: &Arc<Scripted>) -> Deliver {
    let carrier: Arc<dyn Carrier> = Arc::clone(carrier) as _;
    let destination = Destination::new("provider", terms, carrier);
    Deliver::new(Arc::new(store.clone()), vec![destination]).unwrap()
}

async fn enqueue_to(store: &MemoryStore, keys: &[&str], destination: &str) {
    let tenant = Tenant::new("acme").unwrap();
    for key in keys {
        let key = Key::new(key).unwrap();
        let message = Message::new(&tenant, &key, "pay", destination, Bytes::new()).unwrap();
        store.enqueue(&message).await.unwrap();
    }
}

async fn enqueue(store: &MemoryStore, keys: &[&str]) {
    enqueue_to(store, keys, "provider").await;
}

async fn states(store: &MemoryStore) -> Vec<MessageState> {
    let query = MessageQuery { limit: 1000, ..MessageQuery::default() };
    let page = protocol::messages(store, &query).await.unwrap();
    page.messages.into_iter().map(|view| view.state).collect()
}

async fn provider(store: &MemoryStore) -> DestinationView {
    let all = store.destinations().await.unwrap();
    all.into_iter().find(|view| view.name == "provider").unwrap()
}

/// A probe finds payments by the wire key, which is the same in every life of a key.
#[tokio::test(start_paused = true)]
async fn the_payment_of_another_message_under_the_key_proves_nothing() {
    let paid = |id: &str| Receipt { provider_id: Some(id.to_owned()) };
    for (second, found, state) in [
        (Ending::Delivered(paid("pay_2")), "pay_2", MessageState::Waiting),
        (Ending::Delivered(paid("pay_2")), "pay_1", MessageState::Delivered),
        // The destination gave no id, or its answer was lost: the payment can be either one's.
        (Ending::Delivered(Receipt { provider_id: None }), "pay_1", MessageState::Waiting),
        (Ending::Unknown, "pay_2", MessageState::Waiting),
        (Ending::Refused, "pay_1", MessageState::Delivered),
    ] {
        let (store, carrier) =
            (store(), Arc::new(Scripted { can_be_asked: true, ..Scripted::default() }));
        carrier.plan([Ending::Unknown, second.clone()]);
        let terms = Terms { can_be_asked: true, ..Terms::default() };
        let deliver = deliver(&store, terms, &carrier);
        enqueue(&store, &["order-1"]).await;
        deliver.run_once().await.unwrap();
        // Only the first is due again at the end.
        advance(Duration::from_secs(20)).await;
        enqueue(&store, &["order-1"]).await;
        deliver.run_once().await.unwrap();
        advance(Duration::from_secs(15)).await;
        carrier.probed.lock().unwrap().push_back(Probed::Happened(paid(found)));
        deliver.run_once().await.unwrap();
        assert_eq!(states(&store).await[0], state, "{second:?}, {found}");
        assert_eq!(carrier.got().len(), 2, "{second:?}, {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_due_is_delivered_once() {
    let (store, carrier) = (store(), Arc::new(Scripted::default()));
    enqueue(&store, &["a", "b", "c"]).await;
    let deliver = deliver(&store, honouring(), &carrier);
    let counts = deliver.run_until_idle().await.unwrap();
    assert_eq!(counts, DeliveredCounts { delivered: 3, ..DeliveredCounts::default() });
    assert_eq!(carrier.got(), ["a:pay", "b:pay", "c:pay"]);
    assert_eq!(states(&store).await, [MessageState::Delivered; 3]);
    assert_eq!(deliver.run_once().await.unwrap(), DeliveredCounts::default());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_repeated_where_the_key_is_recognised_and_held_where_not() {
    for (terms, state, deliveries) in
        [(honouring(), MessageState::Delivered, 2), (Terms::default(), MessageState::Unknown, 1)]
    {
        let (store, carrier) = (store(), Arc::new(Scripted::default()));
        enqueue(&store, &["a"]).await;
        carrier.plan([Ending::Unknown]);
        let deliver = deliver(&store, terms, &carrier);
        deliver.run_until_idle().await.unwrap();
        advance(Duration::from_secs(2)).await;
        deliver.run_until_idle().await.unwrap();
        advance(Duration::from_hours(48)).await;
        deliver.run_until_idle().await.unwrap();
        assert_eq!(states(&store).await, [state]);
        assert_eq!(carrier.got().len(), deliveries);
    }
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_can_be_asked_is_asked_before_anything_is_sent_again() {
    let terms = Terms { can_be_asked: true, ..Terms::default() };
    let receipt = Receipt { provider_id: Some("pay_77".to_owned()) };
    for (probed, got, state) in [
        (vec![Probed::Happened(receipt)], 1, MessageState::Delivered),
        (vec![Probed::NotHappened], 2, MessageState::Delivered),
        (vec![Probed::Silent("away".to_owned()), Probed::NotHappened], 2, MessageState::Delivered),
    ] {
        let carrier = Scripted { can_be_asked: true, ..Scripted::default() };
        let (store, carrier) = (store(), Arc::new(carrier));
        enqueue(&store, &["a"]).await;
        carrier.plan([Ending::Unknown]);
        carrier.probed.lock().unwrap().extend(probed);
        let deliver = deliver(&store, terms.clone(), &carrier);
        for _ in 0..4 {
            deliver.run_once().await.unwrap();
            advance(terms.timeout).await;
        }
        assert_eq!(states(&store).await, [state]);
        assert_eq!(carrier.got().len(), got);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_day_makes_no_dead_letter_and_ends_in_delivery() {
    let (store, carrier) = (store(), Arc::new(Scripted::default()));
    let keys: Vec<String> = (0..30).map(|number| format!("k{number}")).collect();
    enqueue(&store, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    carrier.plan(std::iter::repeat_n(Ending::Retry, 100_000));
    let worker = Worker::start(Arc::new(store.clone()), Schedule::default()).delivering(deliver(
        &store,
        honouring(),
        &carrier,
    ));
    pass(Duration::from_hours(24)).await;
    let left_alone = provider(&store).await;
    assert_eq!((left_alone.dead_count, left_alone.open_count), (0, 30));
    assert!(left_alone.opening_count > 50, "{left_alone:?}");
    let met = carrier.got().len();
    assert!(met < 10_000, "{met} deliveries met a destination that is down");
    carrier.plan.lock().unwrap().clear();
    pass(Duration::from_hours(2)).await;
    assert_eq!(states(&store).await, [MessageState::Delivered; 30]);
    assert_eq!(provider(&store).await.opening_count, 0);
    worker.stop().await;
}

/// Lets time pass, second by second, so that tasks run in between.
async fn pass(duration: Duration) {
    for _ in 0..duration.as_secs() {
        advance(Duration::from_secs(1)).await;
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn exhausted_deliveries_make_a_dead_letter_while_others_get_through() {
    let (store, carrier) = (store(), Arc::new(Scripted::default()));
    let terms = Terms { delivery_count_max: 3, ..honouring() };
    let deliver = deliver(&store, terms, &carrier);
    enqueue(&store, &["poison"]).await;
    for _ in 0..3 {
        carrier.plan([Ending::Retry]);
        deliver.run_once().await.unwrap();
        enqueue(&store, &["good"]).await;
        deliver.run_until_idle().await.unwrap();
        advance(Duration::from_hours(1)).await;
    }
    let states = states(&store).await;
    assert_eq!(states[0], MessageState::Dead);
    assert_eq!(states[1..], [MessageState::Delivered; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_dead_letter_at_once_and_says_nothing_against_the_destination() {
    let (store, carrier) = (store(), Arc::new(Scripted::default()));
    let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
    enqueue(&store, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    carrier.plan(vec![Ending::Refused; 40]);
    let deliver = deliver(&store, honouring(), &carrier);
    assert_eq!(deliver.run_until_idle().await.unwrap().dead, 40);
    assert_eq!(provider(&store).await.open_until, None);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_not_there_makes_no_dead_letters_and_is_left_alone() {
    // What is not there does not answer a probe either.
    for can_be_asked in [false, true] {
        let (store, carrier) =
            (store(), Arc::new(Scripted { can_be_asked, ..Scripted::default() }));
        let away = vec![Probed::NotThere("answered 404".to_owned()); 12];
        carrier.probed.lock().unwrap().extend(away);
        carrier.probed.lock().unwrap().extend(vec![Probed::NotHappened; 12]);
        let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
        enqueue(&store, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let terms = Terms { delivery_count_max: 1, can_be_asked, ..honouring() };
        let deliver = deliver(&store, terms, &carrier);
        carrier.plan(vec![Ending::NotThere; 12]);
        deliver.run_until_idle().await.unwrap();
        assert!(provider(&store).await.open_until.is_some());
        assert!(carrier.got().len() < 10, "{:?}", carrier.got());
        while states(&store).await.contains(&MessageState::Waiting) {
            deliver.run_until_idle().await.unwrap();
            advance(Duration::from_secs(10)).await;
        }
        assert_eq!(states(&store).await, [MessageState::Delivered; 40]);
        assert_eq!(carrier.got().len(), 40 + 12);
    }
}

#[tokio::test(start_paused = true)]
async fn a_trial_is_not_spent_on_a_message_that_is_only_held() {
    let (store, carrier) = (store(), Arc::new(Scripted::default()));
    enqueue(&store, &["lost-1", "lost-2"]).await;
    let request = firstwrite_core::outbox::ClaimRequest {
        destination: "provider".to_owned(),
        count_max: 2,
        lease_for: Duration::from_secs(1),
    };
    store.claim(&[request], 7).await.unwrap();
    let cause = "it was away".to_owned();
    let switch = firstwrite_core::outbox::Switch::Open { open_for: Duration::from_secs(5), cause };
    protocol::switch(&store, "provider", &switch).await.unwrap();
    advance(Duration::from_secs(5)).await;
    enqueue(&store, &["next"]).await;
    deliver(&store, Terms::default(), &carrier).run_until_idle().await.unwrap();
    assert_eq!(carrier.got(), ["next:pay"], "held ones are no trial");
    let now = [MessageState::Unknown, MessageState::Unknown, MessageState::Delivered];
    assert_eq!(states(&store).await, now);
    assert_eq!(provider(&store).await.open_until, None);
}

#[tokio::test(start_paused = true)]
async fn one_that_says_not_so_fast_is_asked_for_no_more_and_not_left_alone() {
    for (is_overloaded, at_a_time) in [(true, [1; 12].as_slice()), (false, &[1, 2, 4, 0])] {
        let carrier = Arc::new(Scripted { is_overloaded, ..Scripted::default() });
        let store = store();
        let keys: Vec<String> = (0..40).map(|number| format!("k{number}")).collect();
        enqueue(&store, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
        carrier.plan(vec![Ending::Retry; 40]);
        let deliver = deliver(&store, honouring(), &carrier);
        let mut dispatcher = Dispatcher::new(&deliver);
        for count in at_a_time {
            assert_eq!(dispatcher.once().await.unwrap().waiting, *count);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_destination_does_not_hold_the_others() {
    let store = store();
    let stuck = Arc::new(Scripted { gate: Some(Semaphore::new(0)), ..Scripted::default() });
    let quick = Arc::new(Scripted::default());
    let keys: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    enqueue_to(&store, &keys, "stuck").await;
    enqueue_to(&store, &keys, "quick").await;
    let terms = Terms { concurrency_max: 1000, timeout: Duration::from_hours(1), ..honouring() };
    let to = |name: &str, carrier: &Arc<Scripted>| {
        Destination::new(name, terms.clone(), Arc::clone(carrier) as Arc<dyn Carrier>)
    };
    let destinations = vec![to("stuck", &stuck), to("quick", &quick)];
    let deliver = Deliver::new(Arc::new(store.clone()), destinations).unwrap().slot_count(16);
    let worker = Worker::start(Arc::new(store.clone()), Schedule::default()).delivering(deliver);
    pass(Duration::from_mins(1)).await;
    assert_eq!(quick.got().len(), 200);
    let used = stuck.at_once_max.load(Ordering::SeqCst);
    assert!(used <= 12, "{used} of 16 slots were held by one destination");
    stuck.gate.as_ref().unwrap().add_permits(1000);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_worker_ends_what_it_began_and_begins_nothing() {
    let carrier = Arc::new(Scripted { gate: Some(Semaphore::new(0)), ..Scripted::default() });
    let store = store();
    enqueue(&store, &["a", "b", "c"]).await;
    let worker = Worker::start(Arc::new(store.clone()), Schedule::default()).delivering(deliver(
        &store,
        honouring(),
        &carrier,
    ));
    pass(Duration::from_secs(3)).await;
    assert_eq!(carrier.at_once.load(Ordering::SeqCst), 1, "one at a time at first");
    let stopping = tokio::spawn(worker.stop());
    pass(Duration::from_secs(3)).await;
    assert!(!stopping.is_finished(), "a delivery is under way");
    carrier.gate.as_ref().unwrap().add_permits(10);
    stopping.await.unwrap();
    let left = states(&store).await;
    assert_eq!(left, [MessageState::Delivered, MessageState::Waiting, MessageState::Waiting]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_hangs_is_given_up_in_time() {
    let carrier = Arc::new(Scripted { gate: Some(Semaphore::new(0)), ..Scripted::default() });
    let store = store();
    enqueue(&store, &["a"]).await;
    let counts = deliver(&store, Terms::default(), &carrier).run_once().await.unwrap();
    assert_eq!(counts.unknown, 1);
}

#[tokio::test(start_paused = true)]
async fn what_has_a_receipt_is_settled_and_not_sent() {
    let (store, carrier) = (store(), Arc::new(Scripted::default()));
    enqueue(&store, &["a"]).await;
    let request = firstwrite_core::outbox::ClaimRequest {
        destination: "provider".to_owned(),
        count_max: 1,
        lease_for: Duration::from_secs(1),
    };
    let claimed = store.claim(&[request], 7).await.unwrap();
    let claimed_message = &claimed.messages[0];
    let receipt = Receipt { provider_id: Some("pay_1".to_owned()) };
    let received = firstwrite_core::outbox::Received {
        number: claimed_message.number,
        fence: claimed_message.fence,
        delivery: Delivery::new(Ending::Delivered(receipt), "before the worker died"),
    };
    protocol::settle(&store, &[received], &[]).await.unwrap();
    advance(Duration::from_secs(1)).await;
    deliver(&store, Terms::default(), &carrier).run_once().await.unwrap();
    assert_eq!(carrier.got(), Vec::<String>::new());
    assert_eq!(states(&store).await, [MessageState::Delivered]);
}

#[test]
fn destinations_have_names_of_their_own() {
    let store = Arc::new(MemoryStore::new(|| Timestamp::EPOCH));
    let named = |names: &[&str]| {
        let carrier: Arc<dyn Carrier> = Arc::new(Scripted::default());
        let all = names
            .iter()
            .map(|name| Destination::new(*name, Terms::default(), Arc::clone(&carrier)));
        Deliver::new(Arc::clone(&store) as Arc<dyn Store>, all.collect()).map(drop)
    };
    assert_eq!(named(&["a", "b"]), Ok(()));
    assert_eq!(named(&["a", "a"]), Err(DeliverError::TwoOfOneName("a".to_owned())));
    assert_eq!(named(&["a:b"]), Err(DeliverError::NotAName("a:b".to_owned())));
}

#[test]
fn terms_that_contradict_themselves_are_refused() {
    let store = Arc::new(MemoryStore::new(|| Timestamp::EPOCH));
    let with = |terms| {
        let carrier: Arc<dyn Carrier> = Arc::new(Scripted::default());
        let destination = Destination::new("provider", terms, carrier);
        Deliver::new(Arc::clone(&store) as Arc<dyn Store>, vec![destination]).map(drop)
    };
    let by_key = Terms { answers_refusals_by_key: true, ..Terms::default() };
    let refused = with(by_key.clone()).unwrap_err().to_string();
    assert!(refused.starts_with("destination provider: answers_refusals_by_key"), "{refused}");
    assert_eq!(with(Terms { dedupe_for: Duration::from_hours(1), ..by_key }), Ok(()));
}
