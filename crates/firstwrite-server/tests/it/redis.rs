//! The commands on Redis, which has no transactions, no messages and no tables.

use crate::http::{get, post};
use crate::process::{Folder, stderr, stdout};

const ORDER: &str = r#"{"amount":4990,"currency":"EUR","customer":"cus_1"}"#;

/// The demo keeps its books in a file beside it, and its records in Redis.
#[test]
fn the_demo_runs_by_its_address_alone() {
    let Some(folder) = Folder::on_redis() else { return };
    let request = post("/payments", ORDER).acme().key("order-1");
    let made = {
        let demo = folder.demo(&[]);
        let made = demo.answer(&request);
        assert_eq!((made.status, made.is_replay()), (202, false), "{made:?}");
        let again = demo.answer(&request);
        assert_eq!(
            (again.status, again.is_replay(), &again.body),
            (202, true, &made.body),
            "{again:?}"
        );
        let other = r#"{"amount":9990,"currency":"EUR","customer":"cus_1"}"#;
        let reused = demo.answer(&post("/payments", other).acme().key("order-1"));
        assert_eq!((reused.status, reused.problem()), (422, "key-reused".to_owned()));
        // The message goes out, and the provider's webhook comes.
        let settled = demo.settled(made.json()["id"].as_str().unwrap());
        assert_eq!(settled["amount"], 4990);
        made
    };
    let demo = folder.demo(&[]);
    let again = demo.answer(&request);
    assert_eq!(
        (again.status, again.is_replay(), &again.body),
        (202, true, &made.body),
        "after a crash: {again:?}"
    );
    assert_eq!(demo.answer(&get("/payments").acme()).json()["count"], 1);
    let listed = folder.run(&["keys", "list", "--store", folder.store()]);
    assert!(stdout(&listed).contains("completed"), "{}", stdout(&listed));
}

#[test]
fn operators_are_told_what_there_is_and_what_there_is_not() {
    let Some(folder) = Folder::on_redis() else { return };
    let store = folder.store();
    let migrated = folder.run(&["migrate", "--store", store]);
    assert!(
        migrated.status.success() && stdout(&migrated).contains("nothing to do"),
        "{}",
        stdout(&migrated)
    );
    let refused = folder.run(&["migrate", "--store", store, "--schema", "other"]);
    assert!(
        !refused.status.success() && stderr(&refused).contains("prefix=NAME"),
        "{}",
        stderr(&refused)
    );
    let outbox = folder.run(&["outbox", "status", "--store", store]);
    assert!(!outbox.status.success(), "{}", stdout(&outbox));
    assert!(stderr(&outbox).contains("postgres"), "the next step is named: {}", stderr(&outbox));
    assert_eq!(stderr(&outbox).trim_end().lines().count(), 1, "{}", stderr(&outbox));
    let doctor = folder.run(&["doctor", "--store", store]);
    assert!(doctor.status.success(), "{}{}", stdout(&doctor), stderr(&doctor));
    assert!(stdout(&doctor).contains("server-version"), "{}", stdout(&doctor));
    let cleared = folder.run(&["doctor", "--store", store, "--clear-doubt", "--reason", "looked"]);
    assert!(
        stdout(&cleared).contains("doubts cleared: 0"),
        "{}{}",
        stdout(&cleared),
        stderr(&cleared)
    );
    let standby = folder.run(&["doctor", "--store", store, "--expect-standby", "a"]);
    assert!(stderr(&standby).contains("PostgreSQL"), "{}", stderr(&standby));
}
