//! What survives when the process does not: exactly one payment, whenever it ended.

use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::database::{on_dynamodb, on_every_store};
use crate::http::{Response, get, post};
use crate::payments::ORDER;
use crate::process::{Folder, stderr};

on_every_store! {
    a_crash_before_the_commit_leaves_nothing_and_the_retry_runs,
    a_crash_after_the_commit_keeps_the_payment_and_its_answer,
    what_was_answered_survives_kill_nine,
    after_kills_at_random_moments_every_payment_is_settled,
    a_request_under_way_is_answered_before_a_shutdown_ends,
    control_c_ends_it_as_well,
    a_request_that_never_ends_does_not_hold_up_a_shutdown_for_ever,
}

on_dynamodb! {
    a_crash_before_the_commit_leaves_nothing_and_the_retry_runs,
    a_crash_after_the_commit_keeps_the_payment_and_its_answer,
    what_was_answered_survives_kill_nine,
}

fn a_crash_before_the_commit_leaves_nothing_and_the_retry_runs(folder: &Folder) {
    let demo = folder.demo(&["--faults"]);
    let request = || post("/payments", ORDER).acme().key("order-1");
    assert!(request().fault("crash-before-commit").send(demo.address).is_none());
    assert!(!demo.end().success());

    let demo = folder.demo(&[]);
    assert_eq!(demo.payment_count(), 0);
    // At once: a crash in atomic mode blocks no key.
    let retried = demo.answer(&request());
    assert_eq!((retried.status, retried.is_replay()), (201, false));
    assert_eq!(demo.payment_count(), 1);
}

fn a_crash_after_the_commit_keeps_the_payment_and_its_answer(folder: &Folder) {
    let demo = folder.demo(&["--faults"]);
    let request = || post("/payments", ORDER).acme().key("order-1");
    assert!(request().fault("crash-after-commit").send(demo.address).is_none());
    assert!(!demo.end().success());

    let demo = folder.demo(&[]);
    assert_eq!(demo.payment_count(), 1);
    // Whether the provider has answered by now is another matter.
    let retried = demo.answer(&request());
    assert!(matches!(retried.status, 201 | 202) && retried.is_replay(), "{retried:?}");
    assert_eq!(demo.payment_count(), 1);
}

fn what_was_answered_survives_kill_nine(folder: &Folder) {
    let demo = folder.demo(&[]);
    let keys: Vec<String> = (0..20).map(|number| format!("order-{number}")).collect();
    let request = |key: &String| post("/payments", ORDER).acme().key(key);
    let answered: Vec<_> = keys.iter().map(|key| demo.answer(&request(key))).collect();
    demo.kill();

    let demo = folder.demo(&[]);
    for (key, first) in keys.iter().zip(&answered) {
        let again = demo.answer(&request(key));
        assert_eq!((again.is_replay(), &again.body), (true, &first.body), "{key}");
    }
    assert_eq!(demo.payment_count(), 20);
}

/// The charge and the webhook that tells of it are at the provider in one write, so no moment parts them.
fn after_kills_at_random_moments_every_payment_is_settled(folder: &Folder) {
    const LIVES: usize = 5;
    const CLIENTS: usize = 4;
    let seed = firstwrite_testkit::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for life in 0..LIVES {
        let (demo, answered) = (folder.demo(&[]), AtomicUsize::new(0));
        let (address, enough) = (demo.address, random.usize(1..40));
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let answered = &answered;
                scope.spawn(move || {
                    let keys = (0..).map(|number| format!("order-{life}-{client}-{number}"));
                    let pay =
                        |key: String| post("/payments", ORDER).acme().key(&key).attempt(address);
                    for _answer in keys.map_while(pay) {
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while answered.load(Ordering::Relaxed) < enough {
                thread::yield_now();
            }
            demo.kill();
        });
    }
    let demo = folder.demo(&[]);
    let pending = |answer: &Response| {
        let page = answer.json();
        assert!(page["next"].is_null(), "one page holds all");
        let payments = page["payments"].as_array().unwrap().clone();
        assert!(payments.len() >= LIVES, "{page}");
        payments.iter().filter(|payment| payment["status"] != "settled").count()
    };
    let all = get("/payments?limit=1000").acme();
    demo.answer_when(&all, |answer| pending(answer) == 0);
}

#[test]
fn a_second_process_on_the_same_store_is_refused() {
    let folder = Folder::new();
    let demo = folder.demo(&[]);
    let second = folder.refuse(&["demo", "--listen", "127.0.0.1:0", "--store", "sqlite:demo.db"]);
    assert_eq!(second.status.code(), Some(1));
    let complaint = stderr(&second);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("another firstwrite process"), "{complaint}");
    assert_eq!(demo.answer(&post("/payments", ORDER).acme().key("k")).status, 201);
}

#[test]
fn a_taken_port_is_reported_and_leaves_no_file() {
    let folder = Folder::new();
    let demo = folder.demo(&[]);
    let address = demo.address.to_string();
    let other = ["demo", "--listen", &address, "--store", "sqlite:other.db"];
    let second = folder.refuse(&other);
    assert_eq!(second.status.code(), Some(1));
    let complaint = stderr(&second);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("--listen") && complaint.contains(&address), "{complaint}");
    assert!(!folder.path().join("other.db").exists());
}

fn a_request_under_way_is_answered_before_a_shutdown_ends(folder: &Folder) {
    let demo = folder.demo(&[]);
    let begun = post("/payments", ORDER).acme().key("order-1").begin(demo.address);
    demo.terminate();
    // Once nobody is let in any more, the shutdown has begun.
    while TcpStream::connect(demo.address).is_ok() {}
    assert_eq!(begun.finish().expect("an answer").status, 201);
    assert!(demo.end().success());
    assert_eq!(folder.demo(&[]).payment_count(), 1);
}

fn control_c_ends_it_as_well(folder: &Folder) {
    let demo = folder.demo(&[]);
    demo.signal("-INT");
    assert!(demo.end().success());
}

#[expect(clippy::disallowed_methods, reason = "the drain is a promise about real time")]
fn a_request_that_never_ends_does_not_hold_up_a_shutdown_for_ever(folder: &Folder) {
    fs::write(folder.path().join("firstwrite.toml"), "[demo]\ndrain = '100ms'\n").unwrap();
    let demo = folder.demo(&["--config", "firstwrite.toml"]);
    let begun = post("/payments", ORDER).acme().key("order-1").begin(demo.address);
    let told_at = Instant::now();
    demo.terminate();
    assert!(demo.end().success());
    // Well below the 10 s that are the default, well above what a loaded machine needs.
    assert!(told_at.elapsed() < Duration::from_secs(5), "it took {:?}", told_at.elapsed());
    drop(begun);
    assert_eq!(folder.demo(&[]).payment_count(), 0);
}
