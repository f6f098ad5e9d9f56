//! The payments API as its callers see it.

use serde_json::json;

use crate::database::{on_dynamodb, on_every_store};
use crate::http::{get, post};
use crate::process::Folder;

on_every_store! {
    a_payment_is_made_found_and_listed,
    a_tenant_sees_only_its_own_payments,
    whoever_is_not_known_is_refused_on_every_route,
    pages_run_from_the_newest_to_the_oldest_without_gaps,
    a_refused_order_names_its_field_and_the_refusal_is_replayed,
    what_is_not_there_is_said_to_be_missing,
}

on_dynamodb! {
    a_payment_is_made_found_and_listed,
    a_tenant_sees_only_its_own_payments,
    whoever_is_not_known_is_refused_on_every_route,
    pages_run_from_the_newest_to_the_oldest_without_gaps,
    a_refused_order_names_its_field_and_the_refusal_is_replayed,
    what_is_not_there_is_said_to_be_missing,
}

pub(crate) const ORDER: &str = r#"{"amount":4990,"currency":"EUR","customer":"cus_1"}"#;

fn a_payment_is_made_found_and_listed(folder: &Folder) {
    let demo = folder.demo(&[]);
    let made = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    assert_eq!(made.status, 201, "{made:?}");
    let payment = made.json();
    let id = payment["id"].as_str().unwrap();
    assert!(id.starts_with("pay_") && id.len() > 12, "{id}");
    assert_eq!(made.header("location"), Some(format!("/payments/{id}").as_str()));
    assert_eq!(made.header("content-type"), Some("application/json"));
    assert!(made.header("idempotency-expires").is_some(), "{made:?}");
    assert_eq!(made.header("idempotent-replayed"), None);
    assert_eq!(payment["amount"], 4990);
    assert_eq!(payment["currency"], "EUR");
    assert_eq!(payment["customer"], "cus_1");
    assert_eq!(payment["status"], "pending");
    assert!(payment["provider_id"].as_str().unwrap().starts_with("pay_"));
    assert!(payment["created_at"].as_str().unwrap().ends_with('Z'));

    let settled = demo.settled(id);
    for member in ["id", "amount", "currency", "customer", "provider_id", "created_at"] {
        assert_eq!(settled[member], payment[member], "{member}");
    }
    let listed = demo.answer(&get("/payments").acme());
    assert_eq!(listed.json(), json!({"count": 1, "payments": [settled], "next": null}));
}

fn a_tenant_sees_only_its_own_payments(folder: &Folder) {
    let demo = folder.demo(&[]);
    let made = demo.answer(&post("/payments", ORDER).acme().key("shared")).json();
    let path = format!("/payments/{}", made["id"].as_str().unwrap());
    let foreign = demo.answer(&get(&path).globex());
    assert_eq!((foreign.status, foreign.problem()), (404, "payment-unknown".to_owned()));
    let none = demo.answer(&get("/payments").globex()).json();
    assert_eq!(none, json!({"count": 0, "payments": [], "next": null}));
    // The same key is another tenant's own: it runs, and is no replay.
    let own = demo.answer(&post("/payments", ORDER).globex().key("shared"));
    assert_eq!((own.status, own.is_replay()), (201, false));
    assert_ne!(own.json()["id"], made["id"]);
}

fn whoever_is_not_known_is_refused_on_every_route(folder: &Folder) {
    let demo = folder.demo(&[]);
    for request in [
        post("/payments", ORDER).key("k"),
        post("/payments/pay_1/refunds", "{}").key("k"),
        get("/payments"),
        get("/payments/pay_1"),
        get("/elsewhere"),
        get("/payments").header("Authorization", "Bearer demo-other"),
        post("/payments", ORDER).key("k").header("Authorization", "Basic ZGVtby1hY21l"),
    ] {
        let refused = demo.answer(&request);
        assert_eq!((refused.status, refused.problem()), (401, "tenant-unknown".to_owned()));
        assert!(refused.header("www-authenticate").is_some());
    }
    assert_eq!(demo.answer(&get("/healthz")).status, 200);
    assert_eq!(demo.payment_count(), 0);
}

fn pages_run_from_the_newest_to_the_oldest_without_gaps(folder: &Folder) {
    let demo = folder.demo(&[]);
    let mut made = Vec::new();
    for number in 0..5 {
        let key = format!("order-{number}");
        let payment = demo.answer(&post("/payments", ORDER).acme().key(&key)).json();
        made.insert(0, payment["id"].clone());
    }
    let (mut seen, mut path) = (Vec::new(), "/payments?limit=2".to_owned());
    let mut sizes = Vec::new();
    loop {
        let page = demo.answer(&get(&path).acme()).json();
        assert_eq!(page["count"], 5);
        let payments = page["payments"].as_array().unwrap();
        sizes.push(payments.len());
        seen.extend(payments.iter().map(|payment| payment["id"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/payments?limit=2&after={next}");
    }
    assert_eq!((seen, sizes), (made, vec![2, 2, 1]));
    for wrong in ["limit=0", "limit=1001", "after=pay_unknown"] {
        let refused = demo.answer(&get(&format!("/payments?{wrong}")).acme());
        assert_eq!((refused.status, refused.problem()), (400, "query-invalid".to_owned()));
    }
}

fn a_refused_order_names_its_field_and_the_refusal_is_replayed(folder: &Folder) {
    let demo = folder.demo(&[]);
    for (key, body, field) in [
        ("k1", r#"{"amount":0,"currency":"EUR","customer":"c"}"#, "amount"),
        ("k2", r#"{"amount":1,"currency":"eur","customer":"c"}"#, "currency"),
        ("k3", r#"{"amount":1,"currency":"EUR","customer":""}"#, "customer"),
        ("k4", "{not json", "body"),
    ] {
        let first = demo.answer(&post("/payments", body).acme().key(key));
        assert_eq!((first.status, first.problem()), (422, "field-invalid".to_owned()));
        assert_eq!(first.json()["field"], field);
        let again = demo.answer(&post("/payments", body).acme().key(key));
        assert!(again.is_replay(), "{again:?}");
        assert_eq!((again.status, &again.body), (422, &first.body));
    }
    assert_eq!(demo.payment_count(), 0);
}

fn what_is_not_there_is_said_to_be_missing(folder: &Folder) {
    let demo = folder.demo(&[]);
    let route = demo.answer(&get("/elsewhere").acme());
    assert_eq!((route.status, route.problem()), (404, "route-unknown".to_owned()));
    let payment = demo.answer(&get("/payments/pay_unknown").acme());
    assert_eq!((payment.status, payment.problem()), (404, "payment-unknown".to_owned()));
    let method = demo.answer(&get("/payments").method("DELETE").acme());
    assert_eq!((method.status, method.problem()), (405, "method-not-allowed".to_owned()));
    assert_eq!(method.header("allow"), Some("GET,HEAD,POST"));
}
