//! Tests which records are copied, which are left alone, and which are left for later.

use std::sync::Arc;

use firstwrite::reconcile::{
    AnswerTemplate, RecordScope, Settings, Source, SourceError, SourcePage, Window, reconcile_once,
};
use firstwrite_core::BoxFuture;
use firstwrite_core::outbox::wire_key;
use firstwrite_core::protocol::{self, Force, Settlement};
use firstwrite_core::reconcile::Theirs;
use firstwrite_core::{Fence, MemoryStore, Outcome, Policy, Request};
use firstwrite_testkit::{ManualClock, sample};

use super::*;

struct Scene {
    clock: ManualClock,
    from: Arc<dyn Store>,
    to: Arc<dyn Store>,
}

const MINE: Fence = Fence::first(1);
const THEIRS: Fence = Fence::first(2);

fn request() -> Request {
    sample::request(&sample::tenant("acme"), &sample::key("a"), 1)
}

fn policy() -> Policy {
    sample::policy(OnLostAnswer::Resend)
}

fn completed(fence: Fence, text: &str) -> Draft {
    sample::completed(&request(), &policy(), fence, sample::outcome(201, text))
}

fn reserved(fence: Fence) -> Draft {
    sample::reserved(&request(), &policy(), fence)
}

impl Scene {
    fn new() -> Self {
        let clock = ManualClock::new();
        let from: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.reader()));
        let to: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.reader()));
        Self { clock, from, to }
    }

    /// With these in the old store and the new one.
    async fn with(old: Draft, new: Option<Draft>) -> Self {
        let scene = Self::new();
        scene.from.insert(&old).await.unwrap();
        if let Some(new) = new {
            scene.to.insert(&new).await.unwrap();
        }
        scene
    }

    async fn record(&self, store: &Arc<dyn Store>) -> Option<Record> {
        store.get(request().id).await.unwrap().map(|found| found.record)
    }

    async fn old(&self) -> Record {
        self.record(&self.from).await.unwrap()
    }

    async fn new_state(&self) -> Option<(Fence, StateKind)> {
        self.record(&self.to).await.map(|record| (record.fence, record.state.kind()))
    }

    async fn copy(&self) -> Copied {
        self.copy_of(self.old().await).await
    }

    async fn copy_of(&self, record: Record) -> Copied {
        copy(&*self.from, &*self.to, record, self.clock.now()).await.unwrap()
    }

    async fn mark(&self, store: &Arc<dyn Store>, fence: Fence) {
        let change = Change::MARK_UNCERTAIN;
        let marked = store.swap(request().id, Guard::Owner(fence), change, None).await.unwrap();
        assert!(matches!(marked, Swapped::Done(_)));
    }

    async fn assert_same_audits(&self, count: usize) {
        let [old, new] = [&self.from, &self.to].map(|store| store.audits(request().id));
        let (old, new) = (old.await.unwrap(), new.await.unwrap());
        assert_eq!((&new, new.len()), (&old, count));
    }

    async fn settle(&self, outcome: Outcome) {
        let settlement = Settlement::Happened { outcome };
        let audit = sample::audit("asked the provider");
        let old = self.old().await;
        protocol::settle(&*self.from, &old, settlement, Force::No, &audit).await.unwrap();
    }
}

#[tokio::test]
async fn what_has_ended_is_written_once_and_what_has_not_is_left() {
    let scene = Scene::with(completed(MINE, "done"), None).await;
    assert_eq!(scene.copy().await, Copied::Written);
    let (old, new) = (scene.old().await, scene.record(&scene.to).await.unwrap());
    assert_eq!((old.fence, &old.fingerprint), (new.fence, &new.fingerprint));
    assert_eq!(old.state, new.state);
    assert_eq!(scene.copy().await, Copied::There);

    let mut interim = sample::outcome(202, "not yet");
    interim.is_interim = true;
    let interim = sample::completed(&request(), &policy(), MINE, interim);
    for left in [reserved(MINE), interim] {
        let scene = Scene::with(left, None).await;
        assert_eq!(scene.copy().await, Copied::UnderWay);
        assert_eq!(scene.new_state().await, None);
    }

    let scene = Scene::with(completed(MINE, "done"), None).await;
    let retention = policy().record_retention();
    scene.clock.advance(retention.replay_for + retention.linger_for);
    assert_eq!(scene.copy().await, Copied::Spent);
    assert_eq!(scene.new_state().await, None);
}

/// A reconciliation allows the payment of a resent request to be older than its record.
#[tokio::test]
async fn a_payment_that_a_resent_request_found_there_is_not_missing_after_a_move() {
    let scene = Scene::with(completed(MINE, "done"), None).await;
    let paid_at = scene.clock.now().minus(Duration::from_hours(10));
    // Less is left of its retention than the payment is older.
    scene.clock.advance(Duration::from_hours(20));
    assert_eq!(scene.copy().await, Copied::Written);
    let copy = scene.record(&scene.to).await.unwrap();
    assert_eq!(copy.on_lost_answer, OnLostAnswer::Resend);
    let key = wire_key(&format!("{}:charge", copy.key.as_str()), copy.id);
    let entry = Theirs {
        provider_id: "pay_1".to_owned(),
        key: Some(key),
        amount: None,
        currency: None,
        at: paid_at,
        is_made: true,
        raw: bytes::Bytes::new(),
    };
    let answer = AnswerTemplate::created("{}");
    let scope = RecordScope::new("charge", &copy.operation, answer);
    let settings =
        Settings { messages: None, records: Some(scope), ..Settings::new("payments", "-") };
    let window = Window { from: paid_at.minus(Duration::from_hours(1)), until: scene.clock.now() };
    let source = Listed(entry);
    let report = reconcile_once(&*scene.to, &source, &settings, window, &mut |_| {}).await.unwrap();
    assert_eq!((report.classes.matched, report.found.len()), (1, 0), "{report:?}");
}

/// An account of one entry.
#[derive(Debug)]
struct Listed(Theirs);

impl Source for Listed {
    fn pull<'a>(
        &'a self,
        _window: Window,
        _cursor: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SourcePage, SourceError>> {
        let entries = vec![self.0.clone()];
        Box::pin(async { Ok(SourcePage { entries, ..SourcePage::default() }) })
    }
}

/// The copying was killed after the reservation: its lease runs out, and a sweep frees it.
#[tokio::test]
async fn a_copy_that_was_broken_off_and_freed_is_made_again() {
    let scene = Scene::with(completed(MINE, "done"), None).await;
    let mut begun = reserved(MINE);
    begun.state = DraftState::Reserved { lease_for: LEASE, asked_ago: Duration::ZERO };
    scene.to.insert(&begun).await.unwrap();
    scene.clock.advance(LEASE);
    let swept = protocol::sweep_once(&*scene.to, 10).await.unwrap();
    assert_eq!(swept.freed, 1);
    assert_eq!(scene.copy().await, Copied::Written);
    assert_eq!(scene.old().await.state.kind(), StateKind::Completed);
    let State::Completed { outcome, .. } = scene.record(&scene.to).await.unwrap().state else {
        panic!("it is completed");
    };
    assert_eq!(outcome, sample::outcome(201, "done"));
}

/// A key that is refused although its answer is gone stays refused, whatever ends the copying.
#[tokio::test]
async fn a_spent_record_is_never_free_in_the_middle_of_its_copy() {
    let mut spent = completed(MINE, "done");
    spent.retention.refuses_spent = true;
    let scene = Scene::with(spent, None).await;
    scene.clock.advance(policy().record_retention().replay_for);
    assert_eq!(scene.copy().await, Copied::Written);
    let copy = scene.record(&scene.to).await.unwrap();
    assert_eq!(copy.on_lost_answer, OnLostAnswer::Uncertain);
}

#[tokio::test]
async fn what_stands_in_the_new_store_under_another_fence_is_kept() {
    for (theirs, expected, state) in [
        (reserved(THEIRS), Copied::UnderWay, StateKind::Reserved),
        (completed(THEIRS, "other"), Copied::Differs, StateKind::Completed),
    ] {
        let scene = Scene::with(completed(MINE, "done"), Some(theirs.clone())).await;
        assert_eq!(scene.copy().await, expected);
        assert_eq!(scene.new_state().await, Some((THEIRS, state)));
        // The same where ours is uncertain.
        let scene = Scene::with(reserved(MINE), Some(theirs)).await;
        scene.mark(&scene.from, MINE).await;
        assert_eq!(scene.copy().await, expected);
        assert_eq!(scene.new_state().await, Some((THEIRS, state)));
    }
}

#[tokio::test]
async fn of_two_answers_the_one_that_still_answers_stays() {
    // Theirs is over.
    let scene = Scene::with(completed(MINE, "done"), None).await;
    let mut short = completed(THEIRS, "other");
    short.retention.replay_for = Duration::from_secs(1);
    scene.to.insert(&short).await.unwrap();
    scene.clock.advance(Duration::from_secs(1));
    assert_eq!(scene.copy().await, Copied::Written);
    assert_eq!(scene.new_state().await, Some((MINE, StateKind::Completed)));
    // Ours is over, and only remembered as spent.
    let scene = Scene::with(completed(MINE, "done"), None).await;
    scene.clock.advance(policy().record_retention().replay_for);
    scene.to.insert(&completed(THEIRS, "next life")).await.unwrap();
    assert_eq!(scene.copy().await, Copied::There);
    assert_eq!(scene.new_state().await, Some((THEIRS, StateKind::Completed)));
}

#[tokio::test]
async fn what_is_uncertain_arrives_uncertain_and_its_settlement_follows() {
    let scene = Scene::with(reserved(MINE), None).await;
    scene.mark(&scene.from, MINE).await;
    assert_eq!(scene.copy().await, Copied::Written);
    assert_eq!(scene.new_state().await, Some((MINE, StateKind::Uncertain)));
    assert_eq!(scene.copy().await, Copied::There);
    scene.settle(sample::outcome(201, "it did")).await;
    assert_eq!(scene.copy().await, Copied::Written);
    assert_eq!(scene.record(&scene.to).await.unwrap().state, scene.old().await.state);
}

/// A process that dies between the reservation and the mark leaves what no lapsed lease may free.
#[tokio::test]
async fn an_uncertain_copy_without_its_mark_is_never_taken_over() {
    let scene = Scene::with(reserved(MINE), None).await;
    scene.mark(&scene.from, MINE).await;
    assert_eq!(scene.copy().await, Copied::Written);
    let copied = scene.record(&scene.to).await.unwrap();
    assert_eq!(copied.on_lost_answer, OnLostAnswer::Uncertain);
    // One that is found without its mark gets it.
    let scene = Scene::with(reserved(MINE), Some(reserved(MINE))).await;
    scene.mark(&scene.from, MINE).await;
    assert_eq!(scene.copy().await, Copied::Written);
    assert_eq!(scene.new_state().await, Some((MINE, StateKind::Uncertain)));
}

/// A reconciliation frees a key only if the provider's account covers the time since it was asked for.
#[tokio::test]
async fn a_copy_is_as_old_as_its_original() {
    let scene = Scene::with(completed(MINE, "done"), None).await;
    let old = scene.old().await;
    scene.clock.advance(Duration::from_secs(90));
    assert_eq!(scene.copy().await, Copied::Written);
    assert_eq!(scene.record(&scene.to).await.unwrap().created_at, old.created_at);

    let scene = Scene::with(reserved(MINE), None).await;
    scene.clock.advance(Duration::from_secs(10));
    scene.mark(&scene.from, MINE).await;
    let old = scene.old().await;
    scene.clock.advance(Duration::from_hours(10));
    assert_eq!(scene.copy().await, Copied::Written);
    let new = scene.record(&scene.to).await.unwrap();
    assert_eq!(new.created_at, old.created_at);
    assert_eq!(new.state, old.state, "since when it is uncertain");

    // Also in the place of an answer that is over.
    let scene = Scene::with(completed(MINE, "done"), None).await;
    let mut short = completed(THEIRS, "other");
    short.retention.replay_for = Duration::from_secs(1);
    scene.to.insert(&short).await.unwrap();
    let old = scene.old().await;
    scene.clock.advance(Duration::from_hours(1));
    assert_eq!(scene.copy().await, Copied::Written);
    assert_eq!(scene.record(&scene.to).await.unwrap().created_at, old.created_at);
}

/// Audit entries name who settled a record, when and why. They are copied once, however often the record is copied.
#[tokio::test]
async fn audit_entries_come_with_their_record() {
    let scene = Scene::with(reserved(MINE), None).await;
    scene.mark(&scene.from, MINE).await;
    for reason in ["first", "the same", "the same"] {
        let (change, entry) = (Change::Note { ago: Duration::ZERO }, sample::audit(reason));
        let guard = Guard::Owner(MINE);
        scene.from.swap(request().id, guard, change, Some(&entry)).await.unwrap();
        scene.clock.advance(Duration::from_hours(1));
    }
    assert_eq!(scene.copy().await, Copied::Written);
    scene.assert_same_audits(3).await;
    scene.settle(sample::outcome(201, "it did")).await;
    scene.clock.advance(Duration::from_hours(1));
    assert_eq!(scene.copy().await, Copied::Written);
    assert_eq!(scene.copy().await, Copied::There);
    scene.assert_same_audits(4).await;
    // At once, where the record was settled before it was copied; and after a copy that was broken off.
    for stands in [None, Some(reserved(MINE))] {
        let to: Arc<dyn Store> = Arc::new(MemoryStore::new(scene.clock.reader()));
        if let Some(draft) = stands {
            to.insert(&draft).await.unwrap();
        }
        let scene = Scene { to, from: scene.from.clone(), clock: scene.clock.clone() };
        assert_eq!(scene.copy().await, Copied::Written);
        scene.assert_same_audits(4).await;
    }
}

#[tokio::test]
async fn what_is_settled_while_it_is_copied_is_looked_at_again() {
    let scene = Scene::with(reserved(MINE), None).await;
    scene.mark(&scene.from, MINE).await;
    let seen = scene.old().await;
    scene.settle(sample::outcome(201, "it did")).await;
    assert_eq!(scene.copy_of(seen).await, Copied::UnderWay);
    assert_eq!(scene.new_state().await, None, "an uncertain copy of what is known");
    assert_eq!(scene.copy().await, Copied::Written);
}

#[test]
fn what_is_left_of_a_retention_is_rounded_up_and_never_down() {
    let (second, hour) = (Duration::from_secs(1), Duration::from_hours(1));
    for (left, expected) in [
        (Duration::ZERO, Duration::ZERO),
        (Duration::from_nanos(1), 60 * second),
        (60 * second, 60 * second),
        (61 * second, 120 * second),
        (2 * hour, 2 * hour),
        (2 * hour + second, 3 * hour),
        (23 * hour + second, 24 * hour),
        (24 * hour, 24 * hour),
    ] {
        assert_eq!(rounded(left), expected, "{left:?}");
    }
}

/// By lengths: clocks that differ must not cut what is left.
#[tokio::test]
async fn what_is_left_of_a_retention_is_left_in_the_new_store_too() {
    let scene = Scene::with(completed(MINE, "done"), None).await;
    scene.clock.advance(Duration::from_secs(90));
    assert_eq!(scene.copy().await, Copied::Written);
    let (old, new) = (scene.old().await, scene.record(&scene.to).await.unwrap());
    let untils = |record: &Record| match record.state {
        State::Completed { retained_until, kept_until, .. } => (retained_until, kept_until),
        State::Reserved(_) | State::Uncertain { .. } => panic!("{record:?}"),
    };
    let ((retained, kept), (retained_there, kept_there)) = (untils(&old), untils(&new));
    let more = Duration::from_hours(1);
    assert!(retained_there >= retained && retained_there <= retained.plus(more));
    assert!(kept_there >= kept && kept_there <= kept.plus(2 * more));
}
