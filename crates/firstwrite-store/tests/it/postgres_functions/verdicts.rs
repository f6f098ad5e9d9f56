//! `firstwrite.reserve` decides as `judge` does, over every state, deadline, policy and fingerprint.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{
    BodyForm, Fence, Fingerprint, Found, KeptHeaders, Key, Lease, OnLostAnswer, Outcome,
    PartDigests, Policy, Record, RecordId, Request, State, Tenant, Timestamp, Verdict, judge,
};
use http::StatusCode;

use super::{BEGINNING, Session, in_schema};

/// How far a deadline is from now, in milliseconds.
const DEADLINES: [i64; 4] = [-60_000, -1, 0, 1];
const FENCE: u64 = (3 << 40) | 0x4d;

/// What stands, as rows and as `judge` sees it.
struct Standing {
    name: String,
    sql: String,
    state: State,
    on_lost_answer: OnLostAnswer,
    version: u8,
}

fn outcome() -> Outcome {
    Outcome::new(StatusCode::CREATED, KeptHeaders::default(), Bytes::from_static(b"first"))
}

fn at(from_now: i64) -> Timestamp {
    Timestamp::from_millis(BEGINNING + from_now)
}

fn completed(from_now: i64) -> State {
    State::Completed {
        outcome: outcome(),
        retained_until: at(from_now),
        kept_until: at(from_now + 500),
    }
}

fn record_sql(version: u8, lost: u8, times: (&str, &str), outcome: &str) -> String {
    let (created_at, lease_until) = times;
    format!(
        "INSERT INTO firstwrite.profiles (operation, on_lost_answer, fingerprint_version,
                                          fingerprint_form, replay_for, linger_for,
                                          refuses_spent)
             VALUES ('POST /orders', {lost}, {version}, 2, 1000, 500, false)
                 ON CONFLICT DO NOTHING;
         INSERT INTO firstwrite.records (id, fence, created_at, lease_until, profile, tenant, key,
                                         fingerprint, outcome)
         SELECT firstwrite.record_id('acme', 'k'), {FENCE}, {created_at}, {lease_until}, profile,
                'acme', firstwrite.key_bytes('k'), sha256('a') || '\\x01020304', '\\x{outcome}'
           FROM firstwrite.profiles
          WHERE on_lost_answer = {lost} AND fingerprint_version = {version};"
    )
}

fn moment(from_now: i64) -> String {
    format!("to_timestamp({} / 1000.0)", BEGINNING + from_now)
}

/// Everything that can stand under a key.
fn standings() -> Vec<Standing> {
    let mut standings = Vec::new();
    // 0x10: whole; 0x02: 201; no headers.
    let outcome_hex = format!("100200{}", "6669727374");
    for version in [0, 1] {
        for (lost, on_lost_answer) in [(0, OnLostAnswer::Uncertain), (1, OnLostAnswer::Resend)] {
            let mut add = |name: String, sql: String, state: State| {
                let name = format!("{name}, version {version}, {on_lost_answer:?}");
                standings.push(Standing { name, sql, state, on_lost_answer, version });
            };
            let reserved = |lease_until: &str| {
                record_sql(version, lost, ("firstwrite.now()", lease_until), "")
            };
            let uncertain = format!("firstwrite.uncertain({})", moment(-5));
            add("uncertain".into(), reserved(&uncertain), State::Uncertain { since: at(-5) });
            for from_now in DEADLINES {
                let deadline = moment(from_now);
                let lease = State::Reserved(Lease { until: at(from_now) });
                add(format!("reserved {from_now}"), reserved(&deadline), lease);
                let whole = record_sql(
                    version,
                    lost,
                    (&moment(from_now - 1000), "'-infinity'"),
                    &outcome_hex,
                );
                add(format!("written completed {from_now}"), whole, completed(from_now));
                for lease_until in [moment(-5), uncertain.clone()] {
                    let ended = format!(
                        "{} INSERT INTO firstwrite.endings
                            SELECT id, fence, created_at, {deadline},
                                   {deadline} + interval '500 milliseconds', '\\x{outcome_hex}'
                              FROM firstwrite.records",
                        reserved(&lease_until)
                    );
                    add(format!("completed beside {from_now}"), ended, completed(from_now));
                }
            }
        }
    }
    standings
}

fn fingerprint(version: u8, content: &[u8]) -> Fingerprint {
    // sha256('a') and sha256('b').
    let digest = match content {
        b"a" => "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
        _ => "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d",
    };
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digest[place * 2..place * 2 + 2], 16).unwrap();
    }
    Fingerprint::from_stored(version, BodyForm::Raw, bytes, PartDigests::default())
}

fn verdict_of(standing: Option<&Standing>, asked: &[u8]) -> Verdict {
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new("k").unwrap());
    let id = RecordId::of(&tenant, &key);
    let request = Request {
        id,
        tenant: tenant.clone(),
        key: key.clone(),
        operation: "POST /orders".into(),
        fingerprint: fingerprint(0, asked),
    };
    let found = standing.map(|standing| Found {
        record: Record {
            id,
            tenant,
            key,
            operation: "POST /orders".into(),
            fingerprint: fingerprint(standing.version, b"a"),
            fence: Fence::from_u64(FENCE),
            on_lost_answer: standing.on_lost_answer,
            retention: Policy::default().record_retention(),
            created_at: at(0),
            state: standing.state.clone(),
        },
        now: at(0),
    });
    judge(found.as_ref(), &request)
}

/// Reserves under `k` and checks that the answer is what `judge` said.
async fn compare(session: &Session, expected: &Verdict, asked: &str, policy: &str, name: &str) {
    let row = session
        .row(&format!(
            "SELECT verdict, fence, (extract(epoch FROM lease_until) * 1000)::bigint, status, headers,
                    convert_from(body, 'UTF8'), (extract(epoch FROM retained_until) * 1000)::bigint
               FROM firstwrite.reserve('acme', 'k', sha256('{asked}'), 'POST /orders', '7 s', '{policy}')"
        ))
        .await;
    let text = |text: &str| Some(text.to_owned());
    let lease = (BEGINNING + 7000).to_string();
    let rest = |rest: [Option<String>; 5]| rest.to_vec();
    let (verdict, facts) = match expected {
        Verdict::Fresh => ("fresh", rest([text(&lease), None, None, None, None])),
        Verdict::TakeOver { .. } => ("take over", rest([text(&lease), None, None, None, None])),
        Verdict::Replay { retained_until, .. } => {
            let until = retained_until.as_millis().to_string();
            ("replay", rest([None, text("201"), text("[]"), text("first"), Some(until)]))
        }
        Verdict::InProgress { remaining } => {
            let until = at(0).plus(*remaining).as_millis().to_string();
            ("in progress", rest([Some(until), None, None, None, None]))
        }
        Verdict::Mismatch => ("mismatch", vec![None; 5]),
        Verdict::Uncertain => ("uncertain", vec![None; 5]),
        Verdict::Unreadable => ("unreadable", vec![None; 5]),
        Verdict::Expired => panic!("the default policy forgets spent keys"),
    };
    assert_eq!(row[0].as_deref(), Some(verdict), "{name}");
    assert_eq!(row[2..], facts[..], "{name}");
    let count = row[1].as_ref().map(|fence| Fence::from_u64(fence.parse().unwrap()).count());
    let expected_count = match expected {
        Verdict::Fresh => Some(1),
        Verdict::TakeOver { from } => Some(from.count() + 1),
        Verdict::Replay { .. }
        | Verdict::InProgress { .. }
        | Verdict::Mismatch
        | Verdict::Uncertain
        | Verdict::Expired
        | Verdict::Unreadable => None,
    };
    assert_eq!(count, expected_count, "{name}");
    if count.is_some() {
        let stands = session
            .row("SELECT state, fence, operation, created_at = firstwrite.now(), status FROM firstwrite.keys")
            .await;
        assert_eq!(stands[..3], [text("reserved"), row[1].clone(), text("POST /orders")], "{name}");
        assert_eq!(stands[3..], [text("t"), None], "{name}");
    }
}

#[tokio::test]
async fn reserve_decides_as_judge_does_over_everything_that_can_stand() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let mut seen = std::collections::HashSet::new();
        for standing in standings().iter().map(Some).chain([None]) {
            for asked in ["a", "b"] {
                for policy in ["uncertain", "resend"] {
                    let expected = verdict_of(standing, asked.as_bytes());
                    let place = standing.map_or("nothing", |standing| standing.name.as_str());
                    let name = format!("{place}, asked for {asked} under {policy}");
                    seen.insert(std::mem::discriminant(&expected));
                    session.run("BEGIN").await;
                    if let Some(standing) = standing {
                        session.run(&standing.sql).await;
                    }
                    compare(&session, &expected, asked, policy, &name).await;
                    session.run("ROLLBACK").await;
                }
            }
        }
        assert_eq!(seen.len(), 7, "every verdict but `expired` was met");
    })
    .await;
}

#[tokio::test]
async fn a_marker_of_a_former_life_does_not_free_a_key_nor_keep_it() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let first = session.reserve("k").await;
        session
            .run(
                "INSERT INTO firstwrite.endings
                     SELECT id, fence, now(), now(), now() FROM firstwrite.records",
            )
            .await;
        assert_eq!(session.value("SELECT state FROM firstwrite.keys").await, "reserved");
        assert_eq!(session.verdict("k").await, "in progress");
        session.pass(Duration::from_secs(30)).await;
        assert!(session.reserve("k").await > first);
    })
    .await;
}

#[tokio::test]
async fn what_is_kept_for_ever_has_the_end_of_time_for_a_deadline() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        session.run(&record_sql(0, 0, ("firstwrite.now()", "'-infinity'"), "10020041")).await;
        let max = i64::MAX;
        session
            .run(&format!("UPDATE firstwrite.profiles SET replay_for = {max}, linger_for = {max}"))
            .await;
        let sql = "SELECT extract(year FROM retained_until), extract(year FROM kept_until) FROM firstwrite.keys";
        assert_eq!(session.row(sql).await, vec![Some("294276".to_owned()); 2]);
        assert_eq!(session.verdict("k").await, "replay");
    })
    .await;
}

#[tokio::test]
async fn operations_are_names_and_there_is_an_end_to_them() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        session.reserve("k").await;
        session
            .run(
                "INSERT INTO firstwrite.profiles
                     (operation, on_lost_answer, fingerprint_version, fingerprint_form, replay_for,
                      linger_for, refuses_spent)
                 SELECT 'order ' || number, 0, 0, 2, 1000, 500, false FROM generate_series(1, 9999) AS number",
            )
            .await;
        let one_more = "SELECT firstwrite.reserve('acme', 'other', sha256('a'), 'order 10000')";
        assert_eq!(session.code(one_more).await, "FW003");
        assert_eq!(session.verdict("another").await, "fresh");
    })
    .await;
}

#[tokio::test]
async fn keys_that_are_not_known_are_refused_while_history_is_in_doubt() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let fence = session.reserve("known").await;
        session
            .run(
                "INSERT INTO firstwrite.history_losses (noticed_at, detail) VALUES (now(), 'lost')",
            )
            .await;
        assert_eq!(session.code(&super::reserving("unknown")).await, "FW004");
        session.run(&super::completing("known", fence, "first")).await;
        assert_eq!(session.verdict("known").await, "replay");
        // Past its time it says as little of what was lost as a key that is not known.
        session.pass(Duration::from_hours(25)).await;
        assert_eq!(session.code(&super::reserving("known")).await, "FW004");
        session.run("UPDATE firstwrite.history_losses SET cleared_at = now()").await;
        assert_eq!(session.verdict("known").await, "take over");
        assert_eq!(session.verdict("unknown").await, "fresh");
    })
    .await;
}
