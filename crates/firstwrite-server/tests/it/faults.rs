//! Trouble on request: what a caller sees of it, and that it leaves nothing behind.

use std::time::{Duration, Instant};

use crate::database::{on_dynamodb, on_every_store};
use crate::http::{get, post};
use crate::payments::ORDER;
use crate::process::Folder;

on_every_store! {
    a_server_error_rolls_back_and_the_retry_runs,
    a_panic_rolls_back_and_the_service_goes_on,
    a_delayed_request_is_answered_after_the_delay,
    a_delayed_request_holds_up_nobody_else,
    an_unknown_fault_is_refused_and_nothing_runs,
    without_the_flag_the_header_is_ignored,
}

on_dynamodb! {
    a_server_error_rolls_back_and_the_retry_runs,
    a_panic_rolls_back_and_the_service_goes_on,
}

fn a_server_error_rolls_back_and_the_retry_runs(folder: &Folder) {
    let demo = folder.demo(&["--faults"]);
    let request = || post("/payments", ORDER).acme().key("order-1");
    for status in ["500", "503"] {
        let failed = demo.answer(&request().fault(&format!("status={status}")));
        assert_eq!(failed.status.to_string(), status);
        assert_eq!(demo.payment_count(), 0);
    }
    let retried = demo.answer(&request());
    assert_eq!((retried.status, retried.is_replay()), (201, false));
    assert_eq!(demo.payment_count(), 1);
}

fn a_panic_rolls_back_and_the_service_goes_on(folder: &Folder) {
    let demo = folder.demo(&["--faults"]);
    let request = || post("/payments", ORDER).acme().key("order-1");
    let failed = demo.answer(&request().fault("panic"));
    assert!(failed.status >= 500, "{failed:?}");
    assert_eq!(demo.payment_count(), 0);
    assert_eq!(demo.answer(&request()).status, 201);
    assert_eq!(demo.payment_count(), 1);
}

#[expect(clippy::disallowed_methods, reason = "the delay asked for is a promise about real time")]
fn a_delayed_request_is_answered_after_the_delay(folder: &Folder) {
    let demo = folder.demo(&["--faults"]);
    let slow = post("/payments", ORDER).acme().key("slow").fault("delay=300ms");
    let started = Instant::now();
    assert_eq!(demo.answer(&slow).status, 201);
    assert!(started.elapsed() >= Duration::from_millis(300));
}

fn a_delayed_request_holds_up_nobody_else(folder: &Folder) {
    let demo = folder.demo(&["--faults"]);
    let slow = post("/payments", ORDER).acme().key("slow").fault("delay=30s").start(demo.address);
    // One after the other, so that the slow one is under way long before the last of them.
    for number in 0..20 {
        let quick = post("/payments", ORDER).acme().key(&format!("quick-{number}"));
        assert_eq!(demo.answer(&quick).status, 201);
    }
    assert!(!slow.is_answered(), "the quick requests waited for the slow one");
    let other = post("/payments", &ORDER.replace("4990", "9990")).acme().key("slow");
    assert_eq!(demo.answer(&other).problem(), "key-reused", "the slow one is not under way");
}

fn an_unknown_fault_is_refused_and_nothing_runs(folder: &Folder) {
    let demo = folder.demo(&["--faults"]);
    for wrong in ["explode", "status=200", "delay=1"] {
        let refused = demo.answer(&post("/payments", ORDER).acme().key("k").fault(wrong));
        assert_eq!((refused.status, refused.problem()), (400, "fault-unknown".to_owned()));
    }
    assert_eq!(demo.payment_count(), 0);
}

fn without_the_flag_the_header_is_ignored(folder: &Folder) {
    let mut demo = folder.demo(&[]);
    let started = demo.lines_until(|line| line.starts_with("faults:"));
    assert!(started.last().unwrap().starts_with("faults: off"), "{started:?}");
    for (key, fault) in [("k1", "crash-before-commit"), ("k2", "status=500"), ("k3", "explode")] {
        let made = demo.answer(&post("/payments", ORDER).acme().key(key).fault(fault));
        assert_eq!(made.status, 201, "{fault}");
    }
    assert_eq!(demo.answer(&get("/healthz")).status, 200);
}
