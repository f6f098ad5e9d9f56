//! The worker as a victim, the records it finds, and what must have become of them.

use std::time::Duration;

use firstwrite::worker::{Turn, Worker};
use firstwrite::{OnLostAnswer, Policy};
use firstwrite_core::{Change, Fence, Guard, StateKind, Store};
use firstwrite_testkit::sample;

use crate::task::Flaw;
use crate::victim::TENANT;

/// How long after the records were written the worker comes.
pub(crate) const COMES_AFTER: Duration = Duration::from_hours(3);

/// A record that the worker finds.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) key: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its owner died; running again is safe.
    Resendable,
    /// Its owner died, and nobody knows how far it came.
    Lapsed,
    /// Known to be uncertain already.
    Uncertain,
    /// Its owner is alive.
    Live,
    /// Past its retention, written in one step.
    Expired,
    /// Past its retention, reserved first.
    ExpiredInTwoSteps,
    /// Still to be replayed.
    Retained,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Resendable, "resendable"),
    (Kind::Lapsed, "lapsed"),
    (Kind::Uncertain, "uncertain"),
    (Kind::Live, "live"),
    (Kind::Expired, "expired"),
    (Kind::ExpiredInTwoSteps, "expired-in-two-steps"),
    (Kind::Retained, "retained"),
];

/// Of each kind.
const COUNT: u64 = 2;

/// Turns after which there must be nothing left to do.
const TURNS_MAX: usize = 10;

/// All records there are before the worker comes.
pub(crate) fn records() -> Vec<Found> {
    let of_kind = |(kind, name)| {
        (0..COUNT).map(move |number| Found { key: format!("{name}-{number}"), kind })
    };
    KINDS.into_iter().flat_map(of_kind).collect()
}

impl Found {
    /// What must stand once the worker is through.
    pub(crate) fn in_the_end(&self) -> Option<StateKind> {
        match self.kind {
            Kind::Expired | Kind::ExpiredInTwoSteps => None,
            Kind::Lapsed | Kind::Uncertain => Some(StateKind::Uncertain),
            Kind::Live => Some(StateKind::Reserved),
            // A note of the release, for clients that poll.
            Kind::Resendable | Kind::Retained => Some(StateKind::Completed),
        }
    }

    /// What may stand while the worker has come only so far: how it was, or how it will be.
    pub(crate) fn may_be(&self, stands: Option<StateKind>) -> bool {
        let before = match self.kind {
            Kind::Resendable | Kind::Lapsed | Kind::Live => StateKind::Reserved,
            Kind::Uncertain => StateKind::Uncertain,
            Kind::Expired | Kind::ExpiredInTwoSteps | Kind::Retained => StateKind::Completed,
        };
        stands == Some(before) || stands == self.in_the_end()
    }

    /// Whether this is what opening an SQLite file makes of it: nobody else can be alive who owns a record.
    pub(crate) fn is_orphan(&self, stands: Option<StateKind>) -> bool {
        self.kind == Kind::Live && stands == Some(StateKind::Uncertain)
    }

    fn policy(&self) -> Policy {
        let is_resent = self.kind == Kind::Resendable;
        let on_lost_answer = if is_resent { OnLostAnswer::Resend } else { OnLostAnswer::Uncertain };
        let lease = if self.kind == Kind::Live { COMES_AFTER * 2 } else { Policy::LEASE_DEFAULT };
        let retention = if self.kind == Kind::Retained { COMES_AFTER * 2 } else { COMES_AFTER / 3 };
        let slack = COMES_AFTER / 3;
        Policy::default()
            .on_lost_answer(on_lost_answer)
            .lease(lease)
            .retention(retention)
            .slack(slack)
    }
}

/// Writes the records down.
pub(crate) async fn prepare(store: &dyn Store) {
    for (number, found) in (0..).zip(records()) {
        let policy = found.policy();
        let request = sample::request(&sample::tenant(TENANT), &sample::key(&found.key), 1);
        let (fence, outcome) = (Fence::first(number), sample::outcome(201, "paid"));
        let (draft, then) = match found.kind {
            Kind::Resendable | Kind::Lapsed | Kind::Live => {
                (sample::reserved(&request, &policy, fence), None)
            }
            Kind::Uncertain => {
                (sample::reserved(&request, &policy, fence), Some(Change::MARK_UNCERTAIN))
            }
            Kind::Expired | Kind::Retained => {
                (sample::completed(&request, &policy, fence, outcome), None)
            }
            Kind::ExpiredInTwoSteps => {
                let complete = Change::Complete { outcome, retention: policy.record_retention() };
                (sample::reserved(&request, &policy, fence), Some(complete))
            }
        };
        store.insert(&draft).await.unwrap();
        if let Some(change) = then {
            store.swap(draft.id, Guard::Owner(fence), change, None).await.unwrap();
        }
    }
}

/// Takes turns until one of them finds nothing to do.
pub(crate) async fn work(store: &dyn Store, flaw: Option<Flaw>) {
    if flaw == Some(Flaw::FreesUncertain) {
        free_uncertain(store).await;
    }
    for _ in 0..TURNS_MAX {
        if Worker::run_once(store).await.unwrap() == Turn::default() {
            return;
        }
    }
    panic!("there is still something to do after {TURNS_MAX} turns");
}

async fn free_uncertain(store: &dyn Store) {
    for found in records().iter().filter(|found| found.kind == Kind::Uncertain) {
        let request = sample::request(&sample::tenant(TENANT), &sample::key(&found.key), 1);
        let record = store.get(request.id).await.unwrap().unwrap().record;
        store.swap(record.id, Guard::Seen(record.seen()), Change::Remove, None).await.unwrap();
    }
}
