//! `firstwrite keys migrate` by itself: what it says and how it ends when not everything could be copied.

use std::process::{Child, Output, Stdio};
use std::sync::Arc;

use firstwrite_core::protocol::{self, Force, Reserved, Settled, Settlement};
use firstwrite_core::{
    Fence, Inserted, OnLostAnswer, Query, RecordId, Request, StateKind, Store, Verdict,
};
use firstwrite_store::Access;
use firstwrite_testkit::sample;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::process::{Folder, firstwrite, stderr, stdout};

/// Two stores, opened beside the command, and what drives them.
pub(super) struct Houses {
    pub(super) folder: Folder,
    /// Dropped with the houses: a database of the folder's own may be one of them.
    _others: Vec<Folder>,
    pub(super) runtime: Runtime,
    old_url: String,
    pub(super) new_url: String,
    pub(super) old: Arc<dyn Store>,
}

/// Longer than anything takes on a loaded machine.
const LOOKS_MAX: usize = 30_000;

pub(super) fn request(key: &str) -> Request {
    sample::request(&sample::tenant("acme"), &sample::key(key), 1)
}

impl Houses {
    pub(super) fn files() -> Self {
        Self::between(Folder::new(), "sqlite:old.db".into(), "sqlite:new.db".into(), Vec::new())
    }

    /// Every pair that the environment has servers for.
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![Self::files()];
        for (old, new) in [
            (Folder::on_redis(), Folder::on_postgres()),
            (Folder::on_postgres(), Folder::on_mariadb()),
            (Folder::on_mariadb(), Folder::on_redis()),
            (Folder::on_redis(), Folder::on_dynamodb()),
        ] {
            if let (Some(old), Some(new)) = (old, new) {
                let (old_url, new_url) = (old.store().to_owned(), new.store().to_owned());
                all.push(Self::between(Folder::new(), old_url, new_url, vec![old, new]));
            }
        }
        all
    }

    fn between(folder: Folder, old: String, new: String, others: Vec<Folder>) -> Self {
        for url in [&old, &new] {
            super::create(&folder, url);
        }
        let runtime = Runtime::new().unwrap();
        let url = in_folder(&folder, &old);
        let store = runtime.block_on(firstwrite_store::open(&url, Access::Write)).unwrap();
        let houses =
            Self { folder, _others: others, runtime, old_url: old, new_url: new, old: store };
        // So that it can be looked at from the beginning.
        houses.in_new(async |_made| {});
        houses
    }

    /// The new store, to be looked at beside the command.
    pub(super) fn new_store(&self) -> Arc<dyn Store> {
        let url = in_folder(&self.folder, &self.new_url);
        self.runtime.block_on(firstwrite_store::open(&url, Access::ReadOnly)).unwrap()
    }

    /// The new store, to be written to while the command does not run.
    fn in_new(&self, work: impl AsyncFnOnce(&dyn Store)) {
        let url = in_folder(&self.folder, &self.new_url);
        self.runtime.block_on(async {
            let store = firstwrite_store::open(&url, Access::Write).await.unwrap();
            work(&*store).await;
        });
    }

    fn complete(&self, key: &str) {
        self.runtime.block_on(put(&*self.old, key, Fence::first(1), "old"));
    }

    fn reserve(&self, key: &str) -> protocol::Reservation {
        let policy = sample::policy(OnLostAnswer::Uncertain);
        let request = request(key);
        let reserved = protocol::reserve(&*self.old, &request, &policy, fastrand::u64(..));
        match self.runtime.block_on(reserved).unwrap() {
            Reserved::Granted(reservation) => reservation,
            Reserved::Refused(verdict, ..) => panic!("{key}: {verdict:?}"),
        }
    }

    fn end(&self, reservation: protocol::Reservation) {
        let outcome = sample::outcome(201, "ended");
        self.runtime.block_on(protocol::complete(&*self.old, reservation, outcome)).unwrap();
    }

    fn command(&self, more: &[&str]) -> std::process::Command {
        let mut command = firstwrite(&self.folder);
        command.args(["keys", "migrate", "--from", &self.old_url, "--to", &self.new_url]);
        command.args(["--format", "json"]).args(more);
        command
    }

    pub(super) fn migrate(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    fn begin(&self, more: &[&str]) -> Child {
        self.command(more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until so many keys stand in the new store.
    fn wait_copied(&self, count: usize) {
        let new = self.new_store();
        for _ in 0..LOOKS_MAX {
            let query = Query { tenant: None, state: None, after: None, limit: Query::LIMIT_MAX };
            if self.runtime.block_on(new.list(&query)).unwrap().records.len() == count {
                return;
            }
        }
        panic!("{count} keys never arrived");
    }

    /// What the new store alone would do with a request.
    fn verdict(&self, key: &str) -> Verdict {
        let mut verdict = None;
        self.in_new(async |store| {
            let policy = sample::policy(OnLostAnswer::Resend);
            let reserved =
                protocol::reserve(store, &request(key), &policy, fastrand::u64(..)).await;
            match reserved.unwrap() {
                Reserved::Granted(_) => panic!("{key} would run"),
                Reserved::Refused(refused, ..) => verdict = Some(refused),
            }
        });
        verdict.unwrap()
    }
}

fn in_folder(folder: &Folder, url: &str) -> String {
    match url.strip_prefix("sqlite:") {
        Some(file) => format!("sqlite:{}", folder.path().join(file).display()),
        None => url.to_owned(),
    }
}

async fn put(store: &dyn Store, key: &str, fence: Fence, text: &str) {
    let policy = sample::policy(OnLostAnswer::Uncertain);
    let draft = sample::completed(&request(key), &policy, fence, sample::outcome(201, text));
    assert!(matches!(store.insert(&draft).await.unwrap(), Inserted::Done(_)), "{key}");
}

/// What it printed and how it ended.
pub(super) fn ended(output: &Output) -> (Option<i32>, Value) {
    let text = stdout(output);
    let summary = serde_json::from_str(&text);
    (output.status.code(), summary.unwrap_or_else(|_| panic!("{text}{}", stderr(output))))
}

#[test]
fn an_uncertain_key_is_uncertain_in_the_new_store_and_settled_once() {
    for houses in Houses::all() {
        let reservation = houses.reserve("lost");
        houses
            .runtime
            .block_on(protocol::mark_uncertain(&*houses.old, reservation, "no answer"))
            .unwrap();
        houses.complete("done");
        let (code, summary) = ended(&houses.migrate(&[]));
        assert_eq!((code, &summary["copied"]), (Some(0), &2.into()), "{summary}");
        assert_eq!(houses.verdict("lost"), Verdict::Uncertain, "{}", houses.new_url);
        let (code, summary) = ended(&houses.migrate(&[]));
        assert_eq!((code, &summary["there"]), (Some(0), &2.into()), "{summary}");
        // Settled in the old store since: what it says then is copied too.
        let outcome = sample::outcome(201, "it did");
        let settlement = Settlement::Happened { outcome: outcome.clone() };
        let audit = sample::audit("asked the provider");
        houses.runtime.block_on(async {
            let seen = houses.old.get(request("lost").id).await.unwrap().unwrap().record;
            let settled = protocol::settle(&*houses.old, &seen, settlement, Force::No, &audit);
            assert_eq!(settled.await.unwrap(), Settled::Done);
        });
        let (code, summary) = ended(&houses.migrate(&[]));
        assert_eq!((code, &summary["copied"]), (Some(0), &1.into()), "{summary}");
        let Verdict::Replay { outcome: kept, .. } = houses.verdict("lost") else {
            panic!("what is settled is not replayed");
        };
        assert_eq!(kept, outcome);
    }
}

/// Ctrl-C while an attempt is waited for: going on from where it says leaves nothing out.
#[test]
fn a_copy_that_was_stopped_goes_on_before_the_first_that_was_left() {
    let houses = Houses::files();
    let keys: Vec<String> = (0..50).map(|number| format!("key-{number}")).collect();
    for key in &keys {
        houses.complete(key);
    }
    let id = |key: &str| RecordId::of(&sample::tenant("acme"), &sample::key(key));
    let mut under_way = ["one", "other"];
    under_way.sort_by_key(|key| id(key));
    let [first, second] = under_way;
    let (held, ending) = (houses.reserve(first), houses.reserve(second));
    let child = houses.begin(&["--wait", "1h"]);
    houses.wait_copied(keys.len());
    // It was under way when it was listed: if it arrives, the walk is over and the waiting has begun.
    houses.end(ending);
    houses.wait_copied(keys.len() + 1);
    interrupt(&child);
    let stopped = child.wait_with_output().unwrap();
    let (code, summary) = ended(&stopped);
    assert_eq!((code, &summary["stopped"]), (Some(1), &Value::Bool(true)), "{summary}");
    let next = summary["next"].as_str().unwrap().to_owned();
    assert!(stderr(&stopped).contains(&format!("go on with --after {next}")), "{stopped:?}");
    houses.end(held);
    let (code, summary) = ended(&houses.migrate(&["--after", &next]));
    let behind = keys.iter().filter(|key| id(key) > id(first)).count() + 1;
    assert_eq!((code, &summary["copied"]), (Some(0), &1.into()), "{summary}");
    assert_eq!(summary["there"], behind, "from there, and not from the start: {summary}");
    assert!(matches!(houses.verdict(first), Verdict::Replay { .. }));
}

fn interrupt(child: &Child) {
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn keys_that_are_under_way_when_the_waiting_ends_are_counted() {
    let houses = Houses::files();
    houses.complete("done");
    let _held = houses.reserve("held");
    let left = houses.migrate(&["--wait", "0s"]);
    let (code, summary) = ended(&left);
    assert_eq!((code, &summary["copied"], &summary["left"]), (Some(1), &1.into(), &1.into()));
    assert_eq!((&summary["stopped"], &summary["next"]), (&Value::Bool(false), &Value::Null));
    assert!(stderr(&left).contains("1 keys are still under way"), "{}", stderr(&left));
}

#[test]
fn an_attempt_that_ends_is_waited_for() {
    let houses = Houses::files();
    houses.complete("done");
    let held = houses.reserve("held");
    let child = houses.begin(&["--wait", "1h"]);
    houses.wait_copied(1);
    houses.end(held);
    let (code, summary) = ended(&child.wait_with_output().unwrap());
    assert_eq!((code, &summary["copied"], &summary["left"]), (Some(0), &2.into(), &0.into()));
}

#[test]
fn two_answers_for_one_key_are_told_and_neither_is_touched() {
    let houses = Houses::files();
    houses.complete("twice");
    houses.in_new(async |store| put(store, "twice", Fence::first(2), "new").await);
    let differing = houses.migrate(&[]);
    let (code, summary) = ended(&differing);
    assert_eq!((code, &summary["differing"]), (Some(1), &1.into()), "{summary}");
    assert!(stderr(&differing).contains("different answers"), "{}", stderr(&differing));
    let Verdict::Replay { outcome, .. } = houses.verdict("twice") else { panic!("not replayed") };
    assert_eq!(outcome, sample::outcome(201, "new"));
}

/// Somebody still has the old store as their own: found wherever in the order of ids the key comes.
#[test]
fn keys_that_are_written_into_the_old_store_meanwhile_are_told() {
    let houses = Houses::files();
    houses.complete("before");
    let held = houses.reserve("held");
    let child = houses.begin(&["--wait", "1h"]);
    houses.wait_copied(1);
    let keys: Vec<String> = (0..20).map(|number| format!("meanwhile-{number}")).collect();
    for key in &keys {
        houses.complete(key);
    }
    houses.end(held);
    let output = child.wait_with_output().unwrap();
    let (code, summary) = ended(&output);
    assert_eq!((code, &summary["new_in_old"]), (Some(1), &20.into()), "{summary}");
    assert!(stderr(&output).contains("20 keys were written into the old store meanwhile"));
    // They are copied all the same.
    assert_eq!((&summary["copied"], &summary["left"]), (&22.into(), &0.into()), "{summary}");
    for key in &keys {
        let found = houses.runtime.block_on(houses.new_store().get(request(key).id)).unwrap();
        assert_eq!(found.unwrap().record.state.kind(), StateKind::Completed, "{key}");
    }
}
