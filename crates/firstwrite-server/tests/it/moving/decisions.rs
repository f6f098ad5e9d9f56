//! Decisions about a record after it was moved: they are the ones that the old store would have led to.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use firstwrite_core::outbox::wire_key_of;
use firstwrite_core::{
    Change, Draft, DraftState, Fence, Guard, OnLostAnswer, ProbeId, State, StateKind, Store,
    Swapped,
};
use firstwrite_testkit::sample;
use tokio::time::{Instant, interval};

use super::copying::{Houses, ended, request};
use crate::process::{firstwrite, stderr, stdout};
use crate::scene::Scene;

const HOUR: Duration = Duration::from_hours(1);
const OWNER: Guard = Guard::Owner(Fence::first(1));

/// Leaves a record that was asked for and given up as long ago as this, and that the gateway's probe may settle.
async fn leave_uncertain(store: &dyn Store, key: &str, asked_ago: Duration, ago: Duration) {
    let probe = ProbeId::of(&["payments", "/payments?key={key}"]);
    let policy = sample::policy(OnLostAnswer::Ask(probe));
    let draft = sample::reserved(&request(key), &policy, Fence::first(1));
    let state = DraftState::Reserved { lease_for: policy.lease, asked_ago };
    store.insert(&Draft { state, ..draft }).await.unwrap();
    let marked = store.swap(request(key).id, OWNER, Change::MarkUncertain { ago }, None).await;
    assert!(matches!(marked, Ok(Swapped::Done(_))), "{key}: {marked:?}");
}

/// Leaves a record that was settled when it was asked for, with a word about it.
async fn leave_completed(store: &dyn Store, key: &str, asked_ago: Duration) {
    leave_uncertain(store, key, asked_ago, asked_ago).await;
    let (note, entry) = (Change::Note { ago: asked_ago }, sample::audit("read the statement"));
    store.swap(request(key).id, OWNER, note, Some(&entry)).await.unwrap();
    let retention = sample::policy(OnLostAnswer::Uncertain).record_retention();
    let change = Change::Complete { outcome: sample::outcome(201, key), retention };
    store.swap(request(key).id, OWNER, change, None).await.unwrap();
}

/// The state of a record in the new store.
fn state(houses: &Houses, key: &str) -> Option<StateKind> {
    let found = houses.runtime.block_on(houses.new_store().get(request(key).id)).unwrap();
    found.map(|found| found.record.state.kind())
}

fn moved(houses: &Houses, count: usize) {
    let (code, summary) = ended(&houses.migrate(&[]));
    assert_eq!((code, &summary["copied"]), (Some(0), &count.into()), "{summary}");
}

/// A provider's account proves of a request what it says of the time of that request, not of its move.
#[test]
fn a_reconciliation_after_a_move_completes_what_was_paid_and_frees_what_was_not() {
    for houses in Houses::all() {
        if houses.new_store().documents().is_none() {
            continue;
        }
        let now = houses.runtime.block_on(async {
            let old = &*houses.old;
            leave_completed(old, "before", 12 * HOUR).await;
            leave_uncertain(old, "paid", 10 * HOUR, 9 * HOUR).await;
            leave_uncertain(old, "never", 8 * HOUR, 7 * HOUR).await;
            leave_completed(old, "after", HOUR).await;
            old.now().await.unwrap()
        });
        moved(&houses, 4);
        let mut export = "id,key,at\n".to_owned();
        for (key, ago) in [("before", 12), ("paid", 10), ("after", 1)] {
            let wire_key = wire_key_of(request(key).id, &request(key).key, "charge").unwrap();
            let at = now.minus(ago * HOUR).as_millis() + 1000;
            writeln!(export, "pay_{key},{wire_key},{at}").unwrap();
        }
        let folder = houses.folder.path();
        fs::write(folder.join("export.csv"), export).unwrap();
        let settings = "[reconcile.provider]\ngrace = '1m'\ntimes = 'unix_millis'\n\
            records = { step = 'charge', operations = ['POST /payments'], attempt_max = '1m' }\n\
            csv = { id = 'id', key = 'key', at = 'at', made = 'all' }\n";
        fs::write(folder.join("reconcile.toml"), settings).unwrap();
        let mut run = firstwrite(&houses.folder);
        run.args(["reconcile", "--config", "reconcile.toml", "--store", &houses.new_url]);
        let ran = run.args(["run", "provider", "--csv", "export.csv", "--apply"]).output().unwrap();
        let said = format!("{}: {}{}", houses.new_url, stdout(&ran), stderr(&ran));
        for key in ["before", "paid", "after"] {
            assert_eq!(state(&houses, key), Some(StateKind::Completed), "{key}, {said}");
        }
        let found = houses.runtime.block_on(houses.new_store().get(request("never").id)).unwrap();
        let note = found.unwrap().record.state;
        let State::Completed { outcome, .. } = note else { panic!("{note:?}, {said}") };
        assert!(outcome.is_release_note(), "{said}");
    }
}

/// Since when a record is uncertain moves with it. A gateway that starts there believes no "no" before it has
/// itself seen its grace pass: OLD may have had another clock.
#[test]
fn a_record_is_as_long_uncertain_after_a_move_and_a_probe_waits_for_its_grace() {
    let houses = Houses::files();
    let left = [("early", HOUR / 2), ("late", 2 * HOUR)];
    houses.runtime.block_on(async {
        for (key, ago) in left {
            leave_uncertain(&*houses.old, key, 5 * HOUR, ago).await;
        }
    });
    moved(&houses, 2);
    let store = houses.new_store();
    for (key, ago) in left {
        let found = houses.runtime.block_on(store.get(request(key).id)).unwrap().unwrap();
        let State::Uncertain { since } = found.record.state else { panic!("{:?}", found.record) };
        let uncertain_for = found.now.since(since);
        assert!((ago..ago + Duration::from_mins(1)).contains(&uncertain_for), "{uncertain_for:?}");
    }
    let probe = "service_name = 'payments'\nanswer_within = '3s'\n[gateway.default]\nlease = '2s'\n\
        on_lost_answer = { probe = { url = '/payments?key={key}', list = '/data', key = '/key', made = 'all', at = 'none', \
        empty_is_absent = true, status = 201, grace = '4s' } }\n";
    let scene = Scene::new(&houses.folder, probe);
    let grace = Duration::from_secs(4);
    houses.runtime.block_on(async {
        let began = Instant::now();
        let gateway = super::start(&scene, &houses.new_url, &[]);
        let mut tick = interval(Duration::from_millis(50));
        let state = async || store.get(request("late").id).await.unwrap().unwrap().record.state;
        while matches!(state().await, State::Uncertain { .. }) {
            assert!(began.elapsed() < Duration::from_mins(1), "a late no is not believed");
            tick.tick().await;
        }
        assert!(began.elapsed() >= grace, "believed after {:?}", began.elapsed());
        gateway.terminate();
        assert!(gateway.end().success());
    });
}

/// An operator who asks later who settled a record, and when, is told.
#[test]
fn who_settled_a_record_is_told_after_a_move() {
    for houses in Houses::all() {
        let id = request("settled").id;
        houses.runtime.block_on(async {
            leave_completed(&*houses.old, "settled", HOUR).await;
        });
        let audits = |store: &dyn Store| houses.runtime.block_on(store.audits(id)).unwrap();
        let old = audits(&*houses.old);
        moved(&houses, 1);
        let new = audits(&*houses.new_store());
        let entries = new.iter().map(|audited| &audited.entry);
        assert!(entries.eq(old.iter().map(|audited| &audited.entry)), "{old:?} {new:?}");
        let apart = new[0].at.since(old[0].at).max(old[0].at.since(new[0].at));
        assert!(apart < Duration::from_mins(1), "{}: {apart:?}", houses.new_url);
    }
}
