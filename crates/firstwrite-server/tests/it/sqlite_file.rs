//! The SQLite file of a real process: a clock that jumped, and a file that is deleted meanwhile.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::Store as _;
use firstwrite_store::{SqliteOptions, SqliteStore};

use crate::open_records::{keys, leave_open_records};
use crate::process::{Folder, firstwrite, stderr, stdout};
use crate::scene::{Scene, pay};
use crate::upstream::Moment;

const FILE: &str = "demo.db";

pub(crate) fn doctor(folder: &Folder, more: &[&str]) -> (Option<i32>, String) {
    let command = &mut firstwrite(folder);
    command.args(["doctor", "--store", folder.store()]).args(more);
    let output = command.output().unwrap();
    (output.status.code(), stdout(&output))
}

/// A life of the store in which the clock shows two hours more. Time does not go back from there.
pub(crate) fn open_with_the_clock_ahead(folder: &Folder) {
    let path = folder.path().join(FILE);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let now = SqliteStore::open_read_only(&path).unwrap().now().await.unwrap();
        let mut options = SqliteOptions::default();
        options.clock = Some(Arc::new(move || now.plus(Duration::from_hours(2))));
        SqliteStore::open_with(&path, options).unwrap().close().await;
    });
}

#[test]
fn the_key_of_a_killed_gateway_is_settled_at_once_however_long_its_lease() {
    let folder = Folder::new();
    let scene = Scene::new(&folder, "[gateway.default]\nlease = '2h'\n");
    let gateway = scene.gateway();
    scene.upstream.hold(Moment::Done);
    let started = pay("order-1").start(gateway.address);
    scene.upstream.wait_held();
    gateway.kill();
    assert!(started.finish().is_none());
    scene.upstream.release();
    scene.upstream.wait_alone();
    let unknown = scene.gateway().answer(&pay("order-1"));
    assert_eq!((unknown.status, &*unknown.problem()), (409, "outcome-unknown"), "{unknown:?}");
}

#[test]
fn a_clock_that_is_ahead_at_a_restart_runs_no_key_again() {
    let folder = Folder::new();
    let scene = Scene::new(&folder, "[gateway.default]\nretention = '1h'\n");
    let gateway = scene.gateway();
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
    gateway.kill();
    open_with_the_clock_ahead(&folder);
    let gateway = scene.gateway();
    let again = gateway.answer(&pay("order-1"));
    assert_eq!((again.status, again.is_replay()), (201, true), "{again:?}");
    assert_eq!(scene.upstream.effects().len(), 1);
    let (code, text) = doctor(&folder, &[]);
    assert!(code == Some(0) && text.contains("warning: clock-jumped"), "{text}");
    gateway.kill();
    let confirm = ["--confirm-clock", "--reason", "it was off for two hours"];
    let (_, text) = doctor(&folder, &confirm);
    assert!(text.contains("jumps of the clock confirmed: 1"), "{text}");
    // Now its hour is over, and the key is free.
    let fresh = scene.gateway().answer(&pay("order-1"));
    assert_eq!((fresh.status, fresh.is_replay()), (201, false), "{fresh:?}");
}

#[test]
fn a_clock_that_is_ahead_at_a_restart_lets_no_doubt_be_released() {
    let folder = Folder::new();
    leave_open_records(&folder);
    open_with_the_clock_ahead(&folder);
    let release = ["release", "acme", "lost", "--reason", "the API knows nothing", "--yes"];
    let too_soon = keys(&folder, &release);
    assert_eq!(too_soon.status.code(), Some(5), "{}", stderr(&too_soon));
    doctor(&folder, &["--confirm-clock", "--reason", "it was off for two hours"]);
    let released = keys(&folder, &release);
    assert_eq!(released.status.code(), Some(0), "{}", stderr(&released));
}

#[test]
fn a_file_that_is_deleted_under_a_gateway_lets_no_new_key_run() {
    let folder = Folder::new();
    let scene = Scene::new(&folder, "");
    let gateway = scene.gateway();
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
    fs::remove_file(folder.path().join(FILE)).unwrap();
    let refused = gateway.answer(&pay("order-2"));
    assert_eq!(&*refused.problem(), "outcome-unknown", "{refused:?}");
    assert_eq!(refused.json()["safe_new_key"], false, "{refused:?}");
    let known = gateway.answer(&pay("order-1"));
    assert_eq!((known.status, known.is_replay()), (201, true), "{known:?}");
    gateway.kill();

    // A new file knows no key, and the next process knows that it does not.
    fs::write(folder.path().join(FILE), b"").unwrap();
    let gateway = scene.gateway();
    for key in ["order-1", "order-2"] {
        assert_eq!(&*gateway.answer(&pay(key)).problem(), "outcome-unknown", "{key}");
    }
    assert_eq!(scene.upstream.effects().len(), 1);
    let (code, text) = doctor(&folder, &[]);
    assert!(code == Some(6) && text.contains("unsafe: history-lost"), "{text}");
    gateway.kill();
    // The new store would not know what is missing.
    let to = "sqlite:new.db";
    assert!(
        firstwrite(&folder).args(["migrate", "--store", to]).output().unwrap().status.success()
    );
    let from = ["keys", "migrate", "--from", folder.store(), "--to", to];
    let moved = firstwrite(&folder).args(from).output().unwrap();
    assert!(!moved.status.success() && stderr(&moved).contains("lost history"), "{moved:?}");
    let (_, text) = doctor(&folder, &["--clear-history-loss", "--reason", "compared with the API"]);
    assert!(text.contains("history losses cleared: 1"), "{text}");
    assert_eq!(scene.gateway().answer(&pay("order-3")).status, 201);
}
