//! The demo on stores that keep no messages: its books are in a file beside it, its records where it is told.

use crate::database::on_redis;
use crate::http::{get, post};
use crate::process::{Folder, stdout};

on_redis! {
    the_demo_runs_by_its_address_alone,
}

const ORDER: &str = r#"{"amount":4990,"currency":"EUR","customer":"cus_1"}"#;

fn the_demo_runs_by_its_address_alone(folder: &Folder) {
    let request = post("/payments", ORDER).acme().key("order-1");
    let made = {
        let demo = folder.demo(&[]);
        let made = demo.answer(&request);
        assert_eq!((made.status, made.is_replay()), (202, false), "{made:?}");
        // Without an outbox nothing replaces it.
        assert_eq!(made.header("idempotency-interim"), None, "{made:?}");
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
