//! The application's own refusals, word for word.

use std::fmt::Write as _;

use crate::database::on_every_store;
use crate::http::{get, post};
use crate::payments::ORDER;
use crate::process::Folder;

on_every_store! {
    every_refusal_is_as_reviewed,
}

fn every_refusal_is_as_reviewed(folder: &Folder) {
    let demo = folder.demo(&["--faults"]);
    let order = |body: &str, key| post("/payments", body).acme().key(key);
    let mut problems = String::new();
    for (what, request) in [
        ("no credentials", get("/payments")),
        ("amount", order(r#"{"amount":0}"#, "k1")),
        ("currency", order(r#"{"amount":1,"currency":"euro"}"#, "k2")),
        ("customer", order(r#"{"amount":1,"currency":"EUR","customer":""}"#, "k3")),
        ("not an object", order("[]", "k4")),
        ("not JSON", order("{", "k5")),
        ("no such payment", get("/payments/pay_unknown").acme()),
        ("refund of no payment", post("/payments/pay_unknown/refunds", "{}").acme().key("k6")),
        ("no such route", get("/elsewhere").acme()),
        ("wrong method", get("/payments").method("PUT").acme()),
        ("limit", get("/payments?limit=1001").acme()),
        ("cursor", get("/payments?after=pay_unknown").acme()),
        ("parameter", get("/payments?page=2").acme()),
        ("unknown fault", order(ORDER, "k7").fault("explode")),
        ("status fault", order(ORDER, "k8").fault("status=503")),
        ("no key", post("/payments", ORDER).acme()),
    ] {
        let answer = demo.answer(&request);
        let problem = serde_json::to_string_pretty(&answer.json()).unwrap();
        writeln!(problems, "{what}: {}\n{problem}\n", answer.status).unwrap();
    }
    insta::assert_snapshot!("problems", problems);
}
