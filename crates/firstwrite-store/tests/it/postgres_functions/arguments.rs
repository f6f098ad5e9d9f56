//! What the functions refuse, and that they say it without repeating a key.

use firstwrite_core::HeaderPolicy;
use http::HeaderName;

use super::{Session, in_schema};

/// Every call must be refused with `FW003` and without the key in its texts.
async fn all_refused(session: &Session, calls: &[String]) {
    for call in calls {
        let error = session.ask(call).await.map(|rows| format!("{rows:?}")).unwrap_err();
        let refusal = error.as_db_error().unwrap_or_else(|| panic!("{call}: {error}"));
        assert_eq!(refusal.code().code(), "FW003", "{call}: {refusal:?}");
        let said = format!("{} {:?} {:?}", refusal.message(), refusal.detail(), refusal.hint());
        assert!(!said.contains("secret-key"), "{said}");
    }
}

#[tokio::test]
async fn tenants_and_keys_that_no_store_accepts_are_refused_everywhere() {
    let long = "k".repeat(256);
    let bad = [
        ("''".to_owned(), "'secret-key'".to_owned()),
        (format!("'{long}'"), "'secret-key'".into()),
        ("E'a\\nb'".into(), "'secret-key'".into()),
        ("U&'a\\0085b'".into(), "'secret-key'".into()),
        ("null".into(), "'secret-key'".into()),
        ("'acme'".into(), "''".into()),
        ("'acme'".into(), format!("'{long}'")),
        ("'acme'".into(), "'secret-key with space'".into()),
        ("'acme'".into(), "E'secret-key\\n'".into()),
        ("'acme'".into(), "'secret-keyü'".into()),
        ("'acme'".into(), "null".into()),
    ];
    in_schema(async |schema| {
        let session = schema.connect().await;
        for (tenant, key) in &bad {
            let calls = [
                format!("reserve({tenant}, {key}, sha256('a'))"),
                format!("complete({tenant}, {key}, 1, 200)"),
                format!("release({tenant}, {key}, 1)"),
                format!("mark_uncertain({tenant}, {key}, 1)"),
                format!("renew({tenant}, {key}, 1)"),
                format!("enqueue({tenant}, {key}, 1, 's', 'd', '')"),
                format!("status({tenant}, {key})"),
            ];
            let calls = calls.map(|call| format!("SELECT firstwrite.{call}"));
            all_refused(&session, &calls).await;
        }
        session.run("SELECT firstwrite.reserve('org:müller', '!~', sha256('a'))").await;
    })
    .await;
}

#[tokio::test]
async fn reservations_and_renewals_are_bounded() {
    let long = "o".repeat(256);
    let reserves = [
        "'\\x00'".to_owned(),
        "null".into(),
        format!("sha256('a'), '{long}'"),
        "sha256('a'), null".into(),
        "sha256('a'), '', '999 milliseconds'".into(),
        "sha256('a'), '', '36501 days'".into(),
        "sha256('a'), '', null".into(),
        "sha256('a'), '', '30 s', 'again'".into(),
        "sha256('a'), '', '30 s', null".into(),
    ];
    in_schema(async |schema| {
        let session = schema.connect().await;
        let calls =
            reserves.map(|rest| format!("SELECT firstwrite.reserve('acme', 'secret-key', {rest})"));
        all_refused(&session, &calls).await;
        let renew = "SELECT firstwrite.renew('acme', 'secret-key', 1, '0 s')".to_owned();
        all_refused(&session, &[renew]).await;
        assert_eq!(session.value("SELECT count(*) FROM firstwrite.keys").await, "0");
    })
    .await;
}

#[tokio::test]
async fn no_answer_that_must_not_be_replayed_can_be_kept() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let fence = session.reserve("secret-key").await;
        let bodies = ["repeat('x', 1048577)::bytea"];
        let statuses = [0, 100, 199, 401, 407, 408, 421, 425, 429, 431, 500, 599, 1000];
        let headers = [
            "{}",
            "[1]",
            "[[\"a\"]]",
            "[[\"a\", 1]]",
            "[[\"a b\", \"1\"]]",
            "[[\"\", \"1\"]]",
            "[[\"a\", \"1\\n\"]]",
            "[[\"Set-Cookie\", \"session=1\"]]",
        ];
        let rests = statuses
            .iter()
            .map(|status| format!("{fence}, {status}"))
            .chain(headers.iter().map(|headers| format!("{fence}, 200, '{headers}'")))
            .chain(bodies.iter().map(|body| format!("{fence}, 200, '[]', {body}")))
            .chain([format!("{fence}, null"), "null, 200".to_owned()]);
        let many = format!(
            "{fence}, 200, (SELECT jsonb_agg('[\"a\", \"\"]'::jsonb) FROM generate_series(1, 65))"
        );
        let large =
            format!("{fence}, 200, jsonb_build_array(jsonb_build_array('a', repeat('x', 16385)))");
        let calls: Vec<String> = rests
            .chain([many, large])
            .map(|rest| format!("SELECT firstwrite.complete('acme', 'secret-key', {rest})"))
            .collect();
        all_refused(&session, &calls).await;
        assert_eq!(session.value("SELECT state FROM firstwrite.keys").await, "reserved");
    })
    .await;
}

#[tokio::test]
async fn the_headers_that_are_never_kept_are_those_of_the_library() {
    in_schema(async |schema| {
        let session = schema.connect().await;
        let never = session.ask("SELECT unnest(firstwrite.never_kept())").await.unwrap();
        assert_eq!(never.len(), 19);
        for row in never {
            let name = row[0].clone().unwrap();
            let header = HeaderName::from_bytes(name.as_bytes()).unwrap();
            assert!(!HeaderPolicy::default().add(header), "{name}");
            let kept = format!(
                "SELECT firstwrite.complete('acme', 'k', 1, 200, '[[\"x-a\", \"\"], [\"{}\", \"\"]]')",
                name.to_uppercase()
            );
            assert_eq!(session.code(&kept).await, "FW003", "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_message_keeps_to_the_limits_of_the_library() {
    let name = "n".repeat(65);
    let rests = [
        "null, 's', 'd', ''".to_owned(),
        "1, '', 'd', ''".into(),
        "1, 'a:b', 'd', ''".into(),
        "1, 'a b', 'd', ''".into(),
        format!("1, '{name}', 'd', ''"),
        "1, 's', '', ''".into(),
        "1, 's', 'a:b', ''".into(),
        format!("1, 's', '{name}', ''"),
        "1, 's', 'd', null".into(),
        "1, 's', 'd', repeat('x', 1048577)::bytea".into(),
        "1, 's', 'd', '', ''".into(),
        "1, 's', 'd', '', 'text/plain', repeat('x', 256)".into(),
        "1, 's', 'd', '', 'text/plain', null, '-1 s'".into(),
    ];
    in_schema(async |schema| {
        let session = schema.connect().await;
        let calls =
            rests.map(|rest| format!("SELECT firstwrite.enqueue('acme', 'secret-key', {rest})"));
        all_refused(&session, &calls).await;
        let fence = session.reserve("k").await;
        session
            .run(&format!(
                "SELECT firstwrite.enqueue('acme', 'k', {fence}, repeat('s', 64), 'd',
                     repeat('x', 1048576)::bytea, delay => '90 s', ordering_key => 'o')"
            ))
            .await;
        let row = session
            .row(
                "SELECT derived_key = 'k:' || repeat('s', 64), not_before - created_at, content_type,
                        ordering_key, id = firstwrite.record_id('acme', 'k'), tenant
                   FROM firstwrite.messages",
            )
            .await;
        let expected = ["t", "00:01:30", "application/json", "o", "t", "acme"];
        assert_eq!(row, expected.map(|value| Some(value.to_owned())));
    })
    .await;
}
