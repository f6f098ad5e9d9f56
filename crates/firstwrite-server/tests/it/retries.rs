//! What a retry gets: the first answer, or a refusal that says what to do.

use crate::database::{on_dynamodb, on_every_store};
use crate::http::{get, post};
use crate::payments::ORDER;
use crate::process::Folder;

on_every_store! {
    a_retry_gets_the_first_answer_byte_for_byte,
    another_request_under_a_used_key_is_refused_and_does_not_run,
    a_request_without_a_usable_key_is_refused_and_does_not_run,
    an_answer_outlives_a_restart,
    duplicates_at_the_same_moment_make_one_payment,
    the_status_of_a_key_is_there_for_its_own_tenant_only,
}

on_dynamodb! {
    a_retry_gets_the_first_answer_byte_for_byte,
    another_request_under_a_used_key_is_refused_and_does_not_run,
    a_request_without_a_usable_key_is_refused_and_does_not_run,
    an_answer_outlives_a_restart,
    duplicates_at_the_same_moment_make_one_payment,
    the_status_of_a_key_is_there_for_its_own_tenant_only,
}

fn a_retry_gets_the_first_answer_byte_for_byte(folder: &Folder) {
    let demo = folder.demo(&[]);
    let first = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    // Quoted and bare spell the same key.
    for key in ["order-1", "\"order-1\""] {
        let again = demo.answer(&post("/payments", ORDER).acme().key(key));
        assert!(again.is_replay(), "{again:?}");
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        for kept in ["location", "content-type", "idempotency-expires"] {
            assert_eq!(again.header(kept), first.header(kept), "{kept}");
        }
    }
    assert_eq!(demo.payment_count(), 1);
}

fn another_request_under_a_used_key_is_refused_and_does_not_run(folder: &Folder) {
    let demo = folder.demo(&[]);
    demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    let other = ORDER.replace("4990", "9990");
    let refused = demo.answer(&post("/payments", &other).acme().key("order-1"));
    assert_eq!((refused.status, refused.problem()), (422, "key-reused".to_owned()));
    assert!(!refused.is_replay());
    assert_eq!(demo.payment_count(), 1);
}

fn a_request_without_a_usable_key_is_refused_and_does_not_run(folder: &Folder) {
    let demo = folder.demo(&[]);
    let missing = demo.answer(&post("/payments", ORDER).acme());
    assert_eq!((missing.status, missing.problem()), (400, "key-missing".to_owned()));
    for wrong in ["", "a b", "a,b", &"x".repeat(256)] {
        let invalid = demo.answer(&post("/payments", ORDER).acme().key(wrong));
        assert_eq!((invalid.status, invalid.problem()), (400, "key-invalid".to_owned()), "{wrong}");
    }
    assert_eq!(demo.payment_count(), 0);
}

fn an_answer_outlives_a_restart(folder: &Folder) {
    let demo = folder.demo(&[]);
    let first = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    demo.terminate();
    assert!(demo.end().success());
    let demo = folder.demo(&[]);
    let again = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    assert_eq!(demo.payment_count(), 1);
}

fn duplicates_at_the_same_moment_make_one_payment(folder: &Folder) {
    let demo = folder.demo(&[]);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let send = || demo.answer(&post("/payments", ORDER).acme().key("order-1"));
        let callers: Vec<_> = (0..8).map(|_| scope.spawn(send)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    // Whoever asks after the commit and before the provider's word gets the interim answer, replayed.
    let (taken, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| matches!(answer.status, 201 | 202));
    let first: Vec<_> = taken.iter().filter(|answer| !answer.is_replay()).collect();
    assert_eq!(first.iter().map(|answer| answer.status).collect::<Vec<_>>(), [201]);
    for again in &taken {
        match again.status {
            201 => assert_eq!(again.body, first[0].body),
            _ => assert_eq!(again.json()["id"], first[0].json()["id"]),
        }
    }
    for refused in refused {
        assert_eq!((refused.status, refused.problem()), (409, "in-progress".to_owned()));
    }
    assert_eq!(demo.payment_count(), 1);
}

fn the_status_of_a_key_is_there_for_its_own_tenant_only(folder: &Folder) {
    let demo = folder.demo(&[]);
    demo.answer(&post("/payments", ORDER).acme().key("order-1"));
    let status = || get("/.firstwrite/operations/order-1");
    let own = demo.answer(&status().acme());
    assert_eq!((own.status, &own.json()["state"]), (200, &"completed".into()), "{own:?}");
    assert_eq!(demo.answer(&status().globex()).status, 404);
}
