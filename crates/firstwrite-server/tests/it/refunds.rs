//! Refunds as their callers see them.

use crate::database::{on_dynamodb, on_every_store};
use crate::http::{get, post};
use crate::payments::ORDER;
use crate::process::{Demo, Folder};

on_every_store! {
    a_payment_is_refunded_in_parts_and_never_over,
    only_a_payment_of_the_same_tenant_can_be_refunded,
    a_wrong_amount_is_refused,
}

on_dynamodb! {
    a_payment_is_refunded_in_parts_and_never_over,
    only_a_payment_of_the_same_tenant_can_be_refunded,
    a_wrong_amount_is_refused,
}

fn payment(demo: &Demo) -> String {
    let made = demo.answer(&post("/payments", ORDER).acme().key("payment"));
    format!("/payments/{}", made.json()["id"].as_str().unwrap())
}

fn a_payment_is_refunded_in_parts_and_never_over(folder: &Folder) {
    let demo = folder.demo(&[]);
    let payment = payment(&demo);
    let refund = |key: &str, body: &str| {
        demo.answer(&post(&format!("{payment}/refunds"), body).acme().key(key))
    };
    let part = refund("r1", r#"{"amount":990}"#);
    assert_eq!(part.status, 201, "{part:?}");
    assert!(part.json()["id"].as_str().unwrap().starts_with("re_"));
    assert_eq!(part.json()["amount"], 990);

    let over = refund("r2", r#"{"amount":4001}"#);
    assert_eq!((over.status, over.problem()), (422, "field-invalid".to_owned()));
    assert!(refund("r2", r#"{"amount":4001}"#).is_replay());

    let rest = refund("r3", "");
    assert_eq!((rest.status, &rest.json()["amount"]), (201, &4000.into()));
    assert_eq!(refund("r4", "{}").status, 422);
    let replayed = refund("r1", r#"{"amount":990}"#);
    assert_eq!((replayed.is_replay(), &replayed.body), (true, &part.body));
    assert_eq!(demo.answer(&get(&payment).acme()).json()["refunded"], 4990);
}

fn only_a_payment_of_the_same_tenant_can_be_refunded(folder: &Folder) {
    let demo = folder.demo(&[]);
    let path = format!("{}/refunds", payment(&demo));
    let foreign = demo.answer(&post(&path, "{}").globex().key("r"));
    assert_eq!((foreign.status, foreign.problem()), (404, "payment-unknown".to_owned()));
    assert!(demo.answer(&post(&path, "{}").globex().key("r")).is_replay());
    let own = demo.answer(&post(&path, "{}").acme().key("r"));
    assert_eq!(own.status, 201, "{own:?}");
}

fn a_wrong_amount_is_refused(folder: &Folder) {
    let demo = folder.demo(&[]);
    let path = format!("{}/refunds", payment(&demo));
    for (key, body) in [("r1", r#"{"amount":0}"#), ("r2", r#"{"amount":"1"}"#), ("r3", "[]")] {
        let refused = demo.answer(&post(&path, body).acme().key(key));
        assert_eq!((refused.status, refused.problem()), (422, "field-invalid".to_owned()));
    }
}
