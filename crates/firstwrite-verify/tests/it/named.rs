//! The checker against the bed: every planted defect is named, nothing else is, and a correct server
//! passes whatever the seed.

use std::collections::BTreeSet;
use std::time::Duration;

use firstwrite_verify::{
    EffectsBy, Finding, Grade, Hint, Hook, Plan, Profile, Report, Tenants, Verdict, verify,
};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::Method;

use crate::bed::{Bed, Defect};

/// What must fail with each defect: the check that names it first, then what follows from it.
const NAMED: &[(Defect, &[&str])] = &[
    (Defect::CheckThenInsert, &["race-effects", "race-answers", "race-bodies"]),
    (Defect::NoBodyComparison, &["other-body"]),
    (Defect::RunsOtherBody, &["other-body", "race-bodies", "flight-body"]),
    (Defect::GlobalKeys, &["tenant-independence", "tenant-existence"]),
    (Defect::TenantExistence, &["tenant-existence"]),
    (Defect::TenantTiming, &["tenant-timing"]),
    (Defect::Cached500, &["failure-retry"]),
    (Defect::ReplayedCookie, &["replay-cookies"]),
    (Defect::ReplayedHopByHop, &["replay-hop-by-hop"]),
    (Defect::LostLocation, &["replay-location"]),
    (Defect::LostContentType, &["replay-headers"]),
    (Defect::OtherStatus, &["replay-status"]),
    (Defect::NewBodyOnReplay, &["replay-body"]),
    (Defect::NoMarker, &["replay-marker"]),
    (Defect::NoExpiryHeader, &["replay-expiry"]),
    (Defect::OneLifetimeShort, &["flight-repeats", "cut-after-send"]),
    (Defect::OneLifetimeLong, &["restart-in-flight"]),
    (Defect::MemoryOnly, &["restart-replay"]),
    (Defect::ReplyBeforeRecord, &["replay-effects"]),
    (Defect::BodyOnlyFingerprint, &["other-path", "other-method", "other-query"]),
    (Defect::FloatFingerprint, &["json-big-numbers"]),
    (Defect::LastWinsDuplicates, &["json-duplicates"]),
    (Defect::InFlightMismatchWaits, &["flight-body", "flight-request", "race-bodies"]),
    (Defect::NoRetryAfter, &["race-retry-after"]),
    (Defect::Conflict500, &["race-answers"]),
    (Defect::MissingKeyRuns, &["key-missing"]),
    (Defect::MissingKey500, &["key-missing"]),
    (Defect::EmptyKeyAccepted, &["key-empty"]),
    (Defect::FirstHeaderWins, &["key-two-headers"]),
    (Defect::ControlCharacters500, &["key-characters"]),
    (Defect::TruncatedKeys, &["key-truncated", "key-256"]),
    (Defect::QuotedDiffers, &["key-quoted"]),
    (Defect::Refused255, &["key-255"]),
    (Defect::AuthAfterReplay, &["credentials-missing", "credentials-revoked"]),
    (Defect::FailsOpen, &["store-away"]),
    (Defect::ReservesBeforeBody, &["cut-in-body"]),
    (Defect::CutRunsAgain, &["cut-after-send"]),
    (Defect::IgnoresExpect, &["expect-continue"]),
    (Defect::UnreadBody, &["pipelined", "smuggled"]),
    (Defect::ExpiredEarly, &["replay-later"]),
];

/// So many servers at once: most of a run is waiting.
const AT_ONCE: usize = 20;
const SEEDS: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn every_defect_is_named_and_nothing_else() {
    let listed: Vec<&str> = NAMED.iter().map(|(defect, _)| defect.name()).collect();
    let planted: Vec<&str> = Defect::ALL.iter().map(|defect| defect.name()).collect();
    assert_eq!(listed, planted, "every defect has its line, in their order");
    let runs = NAMED.iter().enumerate().map(|(number, (defect, expected))| async move {
        let report = run(Some(*defect), u64::try_from(number).unwrap()).await;
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        let named: BTreeSet<&str> = report.failures().iter().map(|one| one.check.id).collect();
        (named != expected).then(|| mistake(defect.name(), &expected, &report))
    });
    let mistakes: Vec<String> =
        stream::iter(runs).buffer_unordered(AT_ONCE).filter_map(async |one| one).collect().await;
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correct_server_passes_whatever_the_seed() {
    let runs = (0..SEEDS).map(|seed| async move {
        let report = run(None, seed).await;
        let is_fine = report.grade == Grade::A && report.failures().is_empty();
        (!is_fine).then(|| mistake(&format!("seed {seed}"), &BTreeSet::new(), &report))
    });
    let mistakes: Vec<String> =
        stream::iter(runs).buffer_unordered(AT_ONCE).filter_map(async |one| one).collect().await;
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

/// Everything is asked that can be: of the checks, only those without means in the bed are left out.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_out_without_a_reason() {
    let report = run(None, 7).await;
    let left_out: BTreeSet<&str> = report
        .findings
        .iter()
        .filter(|finding| matches!(finding.verdict, Verdict::NotAsked | Verdict::DoesNotApply))
        .map(|finding| finding.check.id)
        .collect();
    let expected = ["operations-declared", "operations-protected", "retention-over"];
    assert_eq!(left_out, expected.into_iter().collect());
    assert!(report.requests < 400, "{} requests", report.requests);
}

async fn run(defect: Option<Defect>, seed: u64) -> Report {
    let bed = Bed::start(defect).await;
    verify(plan(&bed, seed), |_| {}).await.expect("the bed answers")
}

/// Everything that the bed can be put through.
pub(crate) fn plan(bed: &Bed, seed: u64) -> Plan {
    let mut plan = Plan::new(bed.url(), Method::POST, r#"{"amount":1250,"to":"shop-7"}"#);
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    plan.headers = vec![header("Authorization", "Bearer acme")];
    plan.other_tenant = Tenants::Other(vec![header("Authorization", "Bearer globex")]);
    plan.profile = Profile::Strict;
    plan.effects = EffectsBy::Url {
        url: bed.effects_url(),
        pointer: "/count".to_owned(),
        headers: Vec::new(),
    };
    plan.slow = Some(Hint::Header(header("X-Slow", "1300")));
    plan.fault = Some(Hint::Header(header("X-Fault", "500")));
    plan.seed = seed;
    // A blocked key should not take long to be found out.
    plan.limits.settle = Duration::from_secs(4);
    let restarted = bed.clone();
    plan.hooks.restart = Some(Hook::new(move || {
        let bed = restarted.clone();
        Box::pin(async move {
            bed.restart().await;
            Ok(())
        })
    }));
    let revoked = bed.clone();
    plan.hooks.revoke = Some(Hook::new(move || {
        revoked.revoke();
        Box::pin(async { Ok(()) })
    }));
    let (down, up) = (bed.clone(), bed.clone());
    plan.hooks.store_down = Some(Hook::new(move || {
        down.store_down();
        Box::pin(async { Ok(()) })
    }));
    plan.hooks.store_up = Some(Hook::new(move || {
        up.store_up();
        Box::pin(async { Ok(()) })
    }));
    plan
}

fn mistake(what: &str, expected: &BTreeSet<&str>, report: &Report) -> String {
    let told: Vec<String> = report.failures().iter().map(|one| line(one)).collect();
    let missed: Vec<String> = report
        .findings
        .iter()
        .filter(|finding| expected.contains(finding.check.id))
        .filter(|finding| !matches!(finding.verdict, Verdict::Failed(_)))
        .map(line)
        .collect();
    format!(
        "{what}: expected {expected:?}\n  failed: {}\n  missed: {}",
        told.join("\n          "),
        missed.join("\n          ")
    )
}

fn line(finding: &Finding) -> String {
    let Finding { check, verdict, sent, found, .. } = finding;
    format!("{} {verdict:?}: {found} [{sent}]", check.id)
}
