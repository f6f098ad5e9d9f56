//! Processes with the stores in opposite directions, on the same keys at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_core::protocol::{self, Reserved};
use firstwrite_core::{OnLostAnswer, Policy, Store, Verdict};
use firstwrite_testkit::{Subject, sample};
use firstwrite_wrappers::MovingStore;

use super::request;
use crate::sqlite::SqliteSubject;

const KEYS: usize = 150;
const TASKS_EACH: usize = 3;
/// Callers come back until they are answered; what takes longer than this is stuck.
const PATIENCE: Duration = Duration::from_mins(1);

/// Who ran each key.
type Runs = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

async fn call(store: Arc<dyn Store>, name: String, policy: Policy, runs: Runs) -> usize {
    let mut met = 0;
    for number in 0..KEYS {
        let key = format!("key-{number}");
        loop {
            let reserved =
                protocol::reserve(&*store, &request(&key), &policy, fastrand::u64(..)).await;
            match reserved {
                Ok(Reserved::Granted(reservation)) => {
                    runs.lock().unwrap().entry(key.clone()).or_default().push(name.clone());
                    tokio::task::yield_now().await;
                    let outcome = sample::outcome(201, &name);
                    protocol::complete(&*store, reservation, outcome).await.unwrap();
                }
                Ok(Reserved::Refused(Verdict::Replay { outcome, .. }, ..)) => {
                    let ran = runs.lock().unwrap()[&key].clone();
                    assert_eq!(outcome, sample::outcome(201, &ran[0]), "{key}");
                    break;
                }
                Ok(Reserved::Refused(Verdict::InProgress { .. }, ..)) => met += 1,
                // Both withdrew, again and again.
                Err(unreserved) if unreserved.error.is_retryable() => met += 1,
                Ok(Reserved::Refused(verdict, ..)) => panic!("{key}: {verdict:?}"),
                Err(unreserved) => panic!("{key}: {}", unreserved.error),
            }
            tokio::task::yield_now().await;
        }
    }
    met
}

/// Lets both directions loose on the same keys; returns how often they met.
async fn race(old: Arc<dyn Store>, new: Arc<dyn Store>) -> usize {
    let policy = sample::policy(OnLostAnswer::Uncertain);
    let runs = Runs::default();
    let mut tasks = Vec::new();
    for number in 0..TASKS_EACH {
        for (way, store, other) in [("before", &old, &new), ("after", &new, &old)] {
            let moving = MovingStore::new(Arc::clone(store), Arc::clone(other));
            let name = format!("{way}-{number}");
            let called = call(Arc::new(moving), name, policy.clone(), Arc::clone(&runs));
            tasks.push(tokio::spawn(tokio::time::timeout(PATIENCE, called)));
        }
    }
    let mut met = 0;
    for task in tasks {
        met += task.await.unwrap().expect("everybody is answered in the end");
    }
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), KEYS);
    for (key, ran) in runs.iter() {
        assert_eq!(ran.len(), 1, "{key} was run by {ran:?}");
    }
    met
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_opposite_directions_every_key_runs_once() {
    let (old, new) = (SqliteSubject::new().await, SqliteSubject::new().await);
    let met = race(old.store(), new.store()).await;
    println!("met {met} times");
    assert!(met > 0, "nobody met anybody: this was no race");
}

/// The same with keys whose first life is over, in one store or in both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_opposite_directions_every_spent_key_runs_once_more() {
    let (old, new) = (SqliteSubject::new().await, SqliteSubject::new().await);
    let policy = sample::policy(OnLostAnswer::Uncertain);
    for number in 0..KEYS {
        let request = request(&format!("key-{number}"));
        let fence = firstwrite_core::Fence::first(7);
        let draft = sample::completed(&request, &policy, fence, sample::outcome(201, "first life"));
        if number % 3 != 0 {
            old.store().insert(&draft).await.unwrap();
        }
        if number % 3 != 1 {
            new.store().insert(&draft).await.unwrap();
        }
    }
    for subject in [&old, &new] {
        subject.advance(policy.record_retention().replay_for).await;
    }
    let met = race(old.store(), new.store()).await;
    println!("met {met} times");
    assert!(met > 0, "nobody met anybody: this was no race");
}
