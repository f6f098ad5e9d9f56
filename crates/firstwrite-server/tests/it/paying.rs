//! A payment from the caller to the provider and back, and what goes wrong on the way.

use crate::database::{on_dynamodb, on_every_store};
use crate::http::{Request, get, post};
use crate::payments::ORDER;
use crate::process::{Demo, Folder};

on_every_store! {
    a_payment_settles_by_webhook,
    a_declined_payment_is_refused_for_good,
    lost_answers_are_asked_about_and_nothing_is_paid_twice,
    while_the_provider_is_down_the_answer_is_interim,
    webhooks_that_come_again_change_nothing,
    only_the_provider_can_settle_a_payment,
    an_interim_answer_outlives_a_restart,
}

on_dynamodb! {
    a_payment_settles_by_webhook,
    a_declined_payment_is_refused_for_good,
    lost_answers_are_asked_about_and_nothing_is_paid_twice,
    while_the_provider_is_down_the_answer_is_interim,
    webhooks_that_come_again_change_nothing,
    only_the_provider_can_settle_a_payment,
    an_interim_answer_outlives_a_restart,
}

/// The ledger of the provider inside of a demo.
fn ledger(folder: &Folder) -> &'static str {
    if folder.store().starts_with("sqlite") {
        "demo.provider.jsonl"
    } else {
        "firstwrite-demo.provider.jsonl"
    }
}

fn pay(key: &str) -> Request {
    post("/payments", ORDER).acme().key(key)
}

/// The address of the provider inside of a demo.
fn provider_of(demo: &mut Demo) -> std::net::SocketAddr {
    let lines = demo.lines_until(|line| line.starts_with("provider: "));
    let (_, address) = lines.last().unwrap().split_once("http://").unwrap();
    address.split(',').next().unwrap().parse().unwrap()
}

/// A demo with a provider of its own process, which sends webhooks to it.
fn with_other_provider(folder: &Folder, more: &[&str]) -> (Demo, Demo) {
    let provider = folder.provider(&[]);
    let url = format!("http://{}", provider.address);
    let demo = folder.demo(&[&["--provider", &url], more].concat());
    (demo, provider)
}

fn behave(provider: std::net::SocketAddr, demo: &Demo, behaviour: &str, webhooks: &str) {
    let url = format!("http://{}/webhooks/provider", demo.address);
    let secret = "whsec_Zmlyc3R3cml0ZS1kZW1vLXdlYmhvb2stc2VjcmV0ISE=";
    let body =
        format!(r#"{{{behaviour}"webhooks":{{"url":"{url}","secret":"{secret}"{webhooks}}}}}"#);
    let told = post("/control", &body).method("PUT").send(provider).unwrap();
    assert_eq!(told.status, 200, "{told:?}");
}

fn a_payment_settles_by_webhook(folder: &Folder) {
    let demo = folder.demo(&[]);
    let made = demo.answer(&pay("order-1"));
    assert_eq!((made.status, &made.json()["status"]), (201, &"pending".into()), "{made:?}");
    let settled = demo.settled(made.json()["id"].as_str().unwrap());
    assert_eq!(settled["provider_id"], made.json()["provider_id"]);
    assert!(settled["settled_at"].as_str().unwrap().ends_with('Z'));
    let payments = folder.provider_payments(ledger(folder));
    assert_eq!(payments.len(), 1);
    assert_eq!(payments[0].reference.as_deref(), made.json()["id"].as_str());
    assert!(payments[0].idempotency_key.as_deref().unwrap().starts_with("order-1:charge:"));
}

fn a_declined_payment_is_refused_for_good(folder: &Folder) {
    let demo = folder.demo(&[]);
    let request = || post("/payments", &ORDER.replace("4990", "666")).acme().key("order-1");
    let declined = demo.answer(&request());
    assert_eq!((declined.status, declined.problem()), (402, "payment-declined".to_owned()));
    let again = demo.answer(&request());
    assert_eq!((again.is_replay(), &again.body), (true, &declined.body));
    assert_eq!(folder.provider_payments(ledger(folder)).len(), 0);
}

fn lost_answers_are_asked_about_and_nothing_is_paid_twice(folder: &Folder) {
    let mut demo = folder.demo(&[]);
    let provider = provider_of(&mut demo);
    let trouble = r#"{"keys":"ignore","lose_answers":{"every":2}}"#;
    post("/control", trouble).method("PUT").send(provider).unwrap();
    let keys: Vec<String> = (0..4).map(|number| format!("order-{number}")).collect();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let callers: Vec<_> =
            keys.iter().map(|key| scope.spawn(|| demo.answer(&pay(key)))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    assert_eq!(folder.provider_payments(ledger(folder)).len(), 4);
}

fn while_the_provider_is_down_the_answer_is_interim(folder: &Folder) {
    let (demo, provider) = with_other_provider(folder, &["--wait-for", "0s"]);
    let listen = provider.address.to_string();
    provider.kill();
    let interim = demo.answer(&pay("order-1"));
    assert_eq!(interim.status, 202, "{interim:?}");
    assert_eq!(interim.header("idempotency-interim"), Some("true"), "{interim:?}");
    let id = interim.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(interim.header("location"), Some(format!("/payments/{id}").as_str()));
    assert_eq!(demo.answer(&get(&format!("/payments/{id}")).acme()).json()["status"], "pending");

    // The worker may find it before the first line after this one: it knows from its start whom to tell.
    let webhook = format!("http://{}/webhooks/provider", demo.address);
    let _provider = folder.provider_at(&listen, &["--webhook-url", &webhook]);
    let made = demo.answer_when(&pay("order-1"), |answer| answer.status != 202);
    assert_eq!((made.status, made.is_replay()), (201, true));
    assert_eq!(made.header("idempotency-interim"), None, "{made:?}");
    assert_eq!(made.json()["id"], id);
    assert_eq!(demo.settled(&id)["provider_id"], made.json()["provider_id"]);
    assert_eq!(folder.provider_payments("provider.jsonl").len(), 1);
}

fn webhooks_that_come_again_change_nothing(folder: &Folder) {
    let (demo, provider) = with_other_provider(folder, &[]);
    behave(provider.address, &demo, "", r#","duplicates":3,"out_of_order":2,"hold_for":"10s""#);
    let made: Vec<_> = ["order-1", "order-2"]
        .map(|key| demo.answer(&pay(key)).json()["id"].as_str().unwrap().to_owned())
        .into();
    // The last to be sent is the first that was made.
    let last = demo.settled(&made[0]);
    let first = demo.settled(&made[1]);
    let all_came = |answer: &crate::http::Response| answer.json()["webhooks"]["delivered"] == 6;
    provider.answer_when(&get("/control/requests"), all_came);
    assert_eq!(demo.settled(&made[0]), last);
    assert_eq!(demo.settled(&made[1]), first);
}

fn only_the_provider_can_settle_a_payment(folder: &Folder) {
    let (demo, _provider) = with_other_provider(folder, &[]);
    let id = demo.answer(&pay("order-1")).json()["id"].as_str().unwrap().to_owned();
    let notice = format!(
        r#"{{"id":"evt_1","type":"payment.settled","data":{{"id":"pay_1","reference":"{id}"}}}}"#
    );
    let unsigned = demo.answer(&post("/webhooks/provider", &notice));
    assert_eq!((unsigned.status, unsigned.problem()), (401, "signature-invalid".to_owned()));
    let forged = post("/webhooks/provider", &notice)
        .header("webhook-id", "evt_1")
        .header("webhook-timestamp", "1614265330")
        .header("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    assert_eq!(demo.answer(&forged).status, 401);
    assert_eq!(demo.answer(&get(&format!("/payments/{id}")).acme()).json()["status"], "pending");
}

fn an_interim_answer_outlives_a_restart(folder: &Folder) {
    let away = ["--provider", "http://127.0.0.1:9", "--wait-for", "0s"];
    let demo = folder.demo(&away);
    let interim = demo.answer(&pay("order-1"));
    assert_eq!(interim.status, 202);
    demo.terminate();
    assert!(demo.end().success());
    // The next one has a provider that is there.
    let demo = folder.demo(&[]);
    let made = demo.answer_when(&pay("order-1"), |answer| answer.status != 202);
    assert_eq!((made.status, made.is_replay()), (201, true));
    assert_eq!(made.json()["id"], interim.json()["id"]);
}
