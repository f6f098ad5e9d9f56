//! What the checker is given, and what it does with it: ways to count, short retentions, documents,
//! certificates, bounds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use firstwrite_verify::{
    EffectsBy, ErrorKind, Finding, Grade, Operations, Plan, Report, Tenants, Verdict, verify,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::bed::{Bed, Defect};
use crate::named;

fn found<'a>(report: &'a Report, id: &str) -> &'a Finding {
    report.findings.iter().find(|finding| finding.check.id == id).expect("a finding of that id")
}

fn verdict(report: &Report, id: &str) -> Verdict {
    found(report, id).verdict
}

/// A plan of a few checks.
fn only(bed: &Bed, ids: &[&str]) -> Plan {
    let mut plan = named::plan(bed, 1);
    plan.only = ids.iter().map(|&id| id.to_owned()).collect();
    plan
}

async fn asked(plan: Plan) -> Report {
    verify(plan, |_| {}).await.expect("the bed answers")
}

#[tokio::test]
async fn a_webhook_counts_what_answers_do_not_tell() {
    for (defect, expected) in [(None, false), (Some(Defect::CheckThenInsert), true)] {
        let bed = Bed::start(defect).await;
        let mut plan = only(&bed, &["race-effects", "replay-effects"]);
        plan.effects = EffectsBy::Webhook("127.0.0.1:0".to_owned());
        plan.headers.push(("X-Notify".to_owned(), "{webhook}".to_owned()));
        let report = asked(plan).await;
        assert_eq!(verdict(&report, "replay-effects"), Verdict::Passed);
        let has_failed = matches!(verdict(&report, "race-effects"), Verdict::Failed(_));
        assert_eq!(has_failed, expected, "{:?}", found(&report, "race-effects"));
    }
}

#[tokio::test]
async fn ids_in_answers_count_and_without_them_nothing_is_said() {
    let bed = Bed::start(Some(Defect::CheckThenInsert)).await;
    let mut plan = only(&bed, &["race"]);
    plan.effects = EffectsBy::Ids("/id".to_owned());
    let report = asked(plan).await;
    assert!(matches!(verdict(&report, "race-effects"), Verdict::Failed(_)));
    let bed = Bed::start(None).await;
    let mut plan = only(&bed, &["race"]);
    plan.effects = EffectsBy::Ids("/number".to_owned());
    let report = asked(plan).await;
    assert_eq!(verdict(&report, "race-effects"), Verdict::NotAsked);
    assert!(found(&report, "race-effects").found.contains("--effects-url"));
    assert_eq!(report.grade, Grade::B, "what was not counted is no A");
}

#[tokio::test]
async fn past_a_short_retention_a_key_is_free_again() {
    let bed = Bed::with_retention(None, Duration::from_secs(1)).await;
    let mut plan = only(&bed, &["retention-over", "replay-later"]);
    plan.retention = Some(Duration::from_secs(1));
    let report = asked(plan.clone()).await;
    assert_eq!(verdict(&report, "retention-over"), Verdict::Passed);
    assert_eq!(verdict(&report, "replay-later"), Verdict::DoesNotApply);
    // One that keeps its keys for longer than it says.
    let bed = Bed::start(None).await;
    plan.url = bed.url();
    plan.effects = EffectsBy::Ids("/id".to_owned());
    assert!(matches!(verdict(&asked(plan).await, "retention-over"), Verdict::Failed(_)));
}

#[tokio::test]
async fn operations_that_were_forgotten_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let document = |text: &str| -> PathBuf {
        let path = folder.path().join("api.yaml");
        std::fs::write(&path, text).unwrap();
        path
    };
    let key = "parameters: [{in: header, name: Idempotency-Key}]";
    let whole = format!("openapi: 3.1.0\npaths:\n  /orders:\n    post: {{{key}}}\n");
    let lacking = format!("{whole}  '/orders/{{id}}/refunds':\n    post: {{}}\n    put: {{}}\n");
    let bed = Bed::start(None).await;
    for (text, is_whole) in [(&whole, true), (&lacking, false)] {
        let mut operations = Operations::new(document(text));
        operations.are_asked = true;
        let mut plan = only(&bed, &["operations"]);
        plan.operations = Some(operations);
        let report = asked(plan).await;
        for id in ["operations-declared", "operations-protected"] {
            let finding = found(&report, id);
            assert_eq!(finding.verdict == Verdict::Passed, is_whole, "{finding:?}");
            assert_eq!(finding.found.contains("POST /orders/{id}/refunds"), !is_whole);
            assert!(!finding.found.contains("PUT"), "it can be repeated: {finding:?}");
        }
    }
    let mut plan = only(&bed, &["operations"]);
    plan.operations = Some(Operations::new(document("a: 1\n")));
    let report = asked(plan).await;
    assert!(found(&report, "operations-declared").found.contains("no OpenAPI document"));
}

#[tokio::test]
async fn a_run_ends_within_its_bounds() {
    let bed = Bed::start(None).await;
    let mut plan = named::plan(&bed, 1);
    plan.limits.requests = 40;
    let report = asked(plan).await;
    assert!(report.requests <= 40, "{} requests", report.requests);
    assert!(report.failures().is_empty(), "what was not asked has not failed");
    let spent = report.findings.iter().filter(|one| one.found.contains("--requests-max")).count();
    assert!(spent > 10, "{spent} checks were left out for want of requests");
}

#[tokio::test]
async fn a_request_that_does_not_work_is_told_at_once() {
    let bed = Bed::start(None).await;
    let complaint = async |change: fn(&mut Plan)| {
        let mut plan = named::plan(&bed, 1);
        change(&mut plan);
        verify(plan, |_| {}).await.expect_err("it cannot be asked")
    };
    for (change, kind, word) in [
        ((|plan| plan.headers.clear()) as fn(&mut Plan), ErrorKind::Failed, "--header"),
        (|plan| plan.body = b"{}".to_vec(), ErrorKind::Failed, "--body"),
        (|plan| plan.url = plan.url.replace("/orders", "/none"), ErrorKind::Failed, "right URL"),
        (|plan| plan.only = vec!["nothing".to_owned()], ErrorKind::Usage, "--list"),
        (|plan| plan.vary = Some("/none".to_owned()), ErrorKind::Usage, "--vary"),
        (
            |plan| {
                plan.effects = EffectsBy::Url {
                    url: plan.url.clone(),
                    pointer: "/count".to_owned(),
                    headers: Vec::new(),
                };
            },
            ErrorKind::Failed,
            "cannot count effects",
        ),
    ] {
        let error = complaint(change).await;
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(bed.effects(), 0, "nothing was changed");
}

#[tokio::test]
async fn what_is_skipped_is_not_reported() {
    let bed = Bed::start(None).await;
    let mut plan = only(&bed, &["key"]);
    plan.skip = vec!["key-255".to_owned(), "key-256".to_owned()];
    plan.other_tenant = Tenants::One;
    let report = asked(plan).await;
    let ids: Vec<&str> = report.findings.iter().map(|finding| finding.check.id).collect();
    assert!(ids.iter().all(|id| id.starts_with("key-")), "{ids:?}");
    assert!(!ids.contains(&"key-255") && ids.contains(&"key-missing"), "{ids:?}");
}

/// HTTPS is verified: a certificate that nobody vouches for is refused, one of the user's is taken.
#[tokio::test]
async fn https_is_spoken_to_those_who_can_prove_who_they_are() {
    let bed = Bed::start(None).await;
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let behind = bed.url().replace("http://", "").replace("/orders", "");
    let serving = tokio::spawn(terminate(listener, TlsAcceptor::from(Arc::new(config)), behind));

    let mut plan = only(&bed, &["replay", "race-effects"]);
    plan.url = format!("https://localhost:{port}/orders");
    let refused = verify(plan.clone(), |_| {}).await.expect_err("nobody vouches for it");
    assert!(refused.to_string().contains("certificate"), "{refused}");
    plan.ca_file = Some(ca_file);
    let report = asked(plan).await;
    assert!(report.failures().is_empty(), "{:?}", report.failures());
    assert_eq!(verdict(&report, "race-effects"), Verdict::Passed);
    serving.abort();
}

/// Takes TLS off and passes everything on.
async fn terminate(listener: TcpListener, acceptor: TlsAcceptor, behind: String) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, behind) = (acceptor.clone(), behind.clone());
        tokio::spawn(async move {
            let Ok(mut near) = acceptor.accept(stream).await else { return };
            let Ok(mut far) = TcpStream::connect(behind).await else { return };
            // Either side may end it as it likes.
            drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
        });
    }
}
