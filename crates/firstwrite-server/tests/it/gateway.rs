//! The gateway as a process, in front of a payment provider that keeps no keys.

use std::fs;

use crate::database::{on_every_store, on_redis};
use crate::gateway_telemetry;
use crate::http::{Request, post};
use crate::process::{Demo, Folder, firstwrite, stderr, stdout};

on_every_store! {
    a_retry_through_the_gateway_pays_once,
    after_a_crash_nothing_is_paid_twice,
    what_was_kept_outlives_a_crash,
    an_answer_that_the_provider_lost_is_asked_for,
    rules_are_read_again_when_it_is_told_to,
    a_service_of_several_names_is_one_if_it_says_so,
    only_known_api_keys_are_let_in,
    what_is_sealed_is_read_with_its_key_alone,
}

on_redis! {
    a_retry_through_the_gateway_pays_once,
    after_a_crash_nothing_is_paid_twice,
    what_was_kept_outlives_a_crash,
    an_answer_that_the_provider_lost_is_asked_for,
    what_is_sealed_is_read_with_its_key_alone,
}

#[test]
fn a_cache_answers_and_a_dead_one_costs_nothing_but_speed() {
    let Some(folder) = Folder::on_postgres() else { return };
    let Ok(redis) = std::env::var("FIRSTWRITE_TEST_REDIS") else {
        let required = std::env::var("FIRSTWRITE_TEST_REQUIRE").is_ok_and(|value| value == "all");
        assert!(!required, "redis is required, and FIRSTWRITE_TEST_REDIS is not set");
        return;
    };
    let provider = provider(&folder);
    for (cache, helps) in [(&*redis, true), ("redis://127.0.0.1:9", false)] {
        write(&folder, &provider, &format!("operator = '127.0.0.1:0'\ncache = '{cache}'\n"));
        let arguments = ["--config", "gateway.toml", "--tenants", "authorization"];
        let (one, told) = gateway_telemetry::gateway(&folder, &arguments);
        let (two, _) = gateway_telemetry::gateway(&folder, &arguments);
        for gateway in [&two, &one, &one, &one] {
            assert_eq!(gateway.answer(&pay("order-1")).status, 201);
        }
        let metrics = gateway_telemetry::metrics(told);
        let count = |result: &str| -> u64 {
            let name = format!("firstwrite_cache_requests_total{{result=\"{result}\"}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
            line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
        };
        assert_eq!((count("hit") > 0, count("failure") > 0), (helps, !helps), "{metrics}");
    }
    assert_eq!(paid(&folder), 1);
    let arguments = ["gateway", "--tenants", "single", "--upstream", "http://127.0.0.1:9"];
    let refused = folder.run(&[&arguments[..], &["--cache", &redis]].concat());
    assert!(stderr(&refused).contains("for PostgreSQL"), "{}", stderr(&refused));
}

#[test]
fn two_gateways_share_one_database() {
    let Some(folder) = Folder::on_postgres() else { return };
    let provider = provider(&folder);
    let (one, two) = (gateway(&folder, &provider, ""), gateway(&folder, &provider, ""));
    for number in 0..10 {
        let request = pay(&format!("order-{number}"));
        let (first, again) = (one.answer(&request), two.answer(&request));
        assert_eq!((first.status, first.is_replay()), (201, false), "{first:?}");
        assert_eq!((again.status, again.is_replay()), (201, true), "{again:?}");
    }
    assert_eq!(paid(&folder), 10);
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_opened() {
    let folder = Folder::new();
    for (settings, word) in [
        ("[gateway]\nupstreams = ['127.0.0.1:3000']\n", "http://127.0.0.1:3000"),
        ("[gateway]\nupstrems = []\n", "upstrems"),
        ("[[gateway.operations]]\noperation = '/payments'\n", "POST /payments/{id}/refunds"),
        ("[[gateway.operations]]\nretention = '1h'\n", "operation"),
        ("[[gateway.operations]]\noperation = 'POST /a'\nlease = '1ms'\n", "POST /a: lease"),
        ("[[gateway.operations]]\noperation = 'POST /a'\nkept_headers = ['set-cookie']\n", "never"),
        ("[[gateway.operations]]\noperation = 'POST /a'\nreleased_statuses = [99]\n", "99"),
        ("[gateway.default]\non_lost_answer = { probe = { url = '/a', made = 'all' } }\n", "{key}"),
        (
            "[gateway.default]\non_lost_answer = { probe = { url = '/{key}', made = 'all', grace = '60s' } }\n",
            "grace longer than answer_within (1m)",
        ),
        ("[gateway.default]\non_server_error = 'maybe'\n", "release"),
        ("[gateway.limits]\nrequests_per_second = 0\n", "requests_per_second"),
        ("[gateway]\nservice_name = ''\n", "gateway.service_name"),
    ] {
        let settings = settings.replacen("[gateway]", "[gateway]\nlisten = '127.0.0.1:0'", 1);
        fs::write(folder.path().join("f.toml"), &settings).unwrap();
        let arguments = ["gateway", "--tenants", "single", "--config", "f.toml"];
        let upstream = ["--upstream", "http://127.0.0.1:9"];
        let is_upstream = settings.contains("upstreams");
        let upstream = if is_upstream { &[][..] } else { &upstream };
        let refused = folder.refuse(&[&arguments[..], upstream].concat());
        assert_eq!(refused.status.code(), Some(2), "{settings}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(word), "{settings}: {}", stderr(&refused));
        assert_eq!(stderr(&refused).lines().count(), 1);
    }
    let alone = folder.refuse(&["gateway", "--tenants", "single"]);
    assert!(stderr(&alone).contains("--upstream"), "{}", stderr(&alone));
    assert!(!folder.path().join("firstwrite.db").exists());
}

const PAYMENT: &str = r#"{"amount":4990,"currency":"EUR","reference":"order"}"#;

fn pay(key: &str) -> Request {
    post("/v1/payments", PAYMENT).acme().key(key).header("Host", "api.example")
}

/// Keys mean nothing to it: whatever it is asked for twice, it does twice.
fn provider(folder: &Folder) -> Demo {
    folder.provider(&["--keys", "ignore"])
}

fn paid(folder: &Folder) -> usize {
    folder.provider_payments("provider.jsonl").len()
}

fn gateway(folder: &Folder, provider: &Demo, settings: &str) -> Demo {
    gateway_at(folder, provider, settings, "127.0.0.1:0")
}

fn gateway_at(folder: &Folder, provider: &Demo, settings: &str, listen: &str) -> Demo {
    write(folder, provider, settings);
    let mut command = firstwrite(folder);
    command.args(["gateway", "--create", "--config", "gateway.toml", "--listen", listen]);
    if !settings.contains("gateway.tenants") {
        command.args(["--tenants", "authorization"]);
    }
    Demo::start(command.args(["--store", folder.store()]))
}

fn write(folder: &Folder, provider: &Demo, settings: &str) {
    let upstream = format!("[gateway]\nupstreams = ['http://{}']\n{settings}", provider.address);
    fs::write(folder.path().join("gateway.toml"), upstream).unwrap();
}

fn behave(provider: &Demo, behaviour: &str) {
    let told = post("/control", behaviour).method("PUT").send(provider.address).unwrap();
    assert_eq!(told.status, 200, "{told:?}");
}

fn a_retry_through_the_gateway_pays_once(folder: &Folder) {
    let provider = provider(folder);
    let gateway = gateway(folder, &provider, "");
    let first = gateway.answer(&pay("order-1"));
    let again = gateway.answer(&pay("\"order-1\""));
    assert_eq!((first.status, first.is_replay()), (201, false), "{first:?}");
    assert_eq!((again.status, again.is_replay(), &again.body), (201, true, &first.body));
    let other = gateway.answer(&post("/v1/payments", "{}").acme().key("order-1"));
    assert_eq!((other.status, other.problem()), (422, "key-reused".to_owned()));
    assert_eq!(paid(folder), 1);
    gateway.terminate();
    assert!(gateway.end().success());
}

fn after_a_crash_nothing_is_paid_twice(folder: &Folder) {
    let provider = provider(folder);
    let settings = "[gateway.default]\nlease = '2s'\n";
    let first = gateway(folder, &provider, settings);
    behave(&provider, r#"{"keys":"ignore","delay":{"before_effect":"0s","after_effect":"30s"}}"#);
    let started = pay("order-1").start(first.address);
    // Paid, and the answer is on its way for a long time.
    while paid(folder) == 0 {
        assert!(!started.is_answered());
    }
    first.kill();
    behave(&provider, r#"{"keys":"ignore"}"#);
    let second = gateway(folder, &provider, settings);
    let refused = second.answer_when(&pay("order-1"), |answer| {
        assert_eq!(answer.status, 409, "{answer:?}");
        answer.problem() == "outcome-unknown"
    });
    assert!(!refused.is_replay());
    assert_eq!(paid(folder), 1);
    let settle = ["keys", "settle", "--store", folder.store()];
    drop(second);
    let tenants = folder.run(&["keys", "list", "--store", folder.store(), "--format", "json"]);
    let page: serde_json::Value = serde_json::from_slice(&tenants.stdout).unwrap();
    let tenant = page["records"][0]["tenant"].as_str().unwrap().to_owned();
    let more = [&*tenant, "order-1", "--not-happened", "--reason", "r", "--force", "--yes"];
    assert!(folder.run(&[&settle[..], &more].concat()).status.success());
    let third = gateway(folder, &provider, settings);
    assert_eq!(third.answer(&pay("order-1")).status, 201);
    assert_eq!(paid(folder), 2, "on somebody's word");
}

fn what_was_kept_outlives_a_crash(folder: &Folder) {
    let provider = provider(folder);
    let first = gateway(folder, &provider, "");
    let made = first.answer(&pay("order-1"));
    first.kill();
    let second = gateway(folder, &provider, "");
    let again = second.answer(&pay("order-1"));
    assert_eq!((again.status, again.is_replay(), again.body), (201, true, made.body));
    assert_eq!(paid(folder), 1);
}

fn an_answer_that_the_provider_lost_is_asked_for(folder: &Folder) {
    let provider = folder.provider(&[]);
    let settings = "[[gateway.operations]]\noperation = 'POST /v1/payments'\n\
        on_lost_answer = { probe = { url = '/v1/payments?idempotency_key={key}', \
        list = '/data', key = '/idempotency_key', made = 'all', at = 'none', empty_is_absent = true, \
        status = 201 } }\n";
    let gateway = gateway(folder, &provider, settings);
    behave(&provider, r#"{"lose_answers":"always"}"#);
    let made = gateway.answer(&pay("order-1"));
    assert_eq!((made.status, &made.json()["amount"]), (201, &4990.into()), "{made:?}");
    let again = gateway.answer(&pay("order-1"));
    assert_eq!((again.is_replay(), again.body), (true, made.body));
    assert_eq!(paid(folder), 1);
}

fn rules_are_read_again_when_it_is_told_to(folder: &Folder) {
    let provider = provider(folder);
    let gateway = gateway(folder, &provider, "");
    let keyless = post("/v1/payments", PAYMENT).acme();
    assert_eq!(gateway.answer(&keyless).problem(), "key-missing");
    fs::write(folder.path().join("gateway.toml"), "[gateway]\nupstreams = 7\n").unwrap();
    gateway.signal("-HUP");
    assert_eq!(gateway.answer(&keyless).problem(), "key-missing", "a mistake changes nothing");
    write(folder, &provider, "optional_keys = true\n");
    gateway.signal("-HUP");
    let made = gateway.answer_when(&keyless, |answer| answer.status == 201);
    assert!(!made.is_replay());
}

fn a_service_of_several_names_is_one_if_it_says_so(folder: &Folder) {
    let provider = provider(folder);
    let at =
        |host: &str, key: &str| post("/v1/payments", PAYMENT).acme().key(key).header("Host", host);
    // By a secret, a refusal knows what differs.
    let secret = "fingerprint_secrets = ['0123456789abcdef-of-this-test']\n";
    let apart = gateway(folder, &provider, secret);
    assert_eq!(apart.answer(&at("api.example", "order-1")).status, 201);
    for host in ["eu.api.example", "api.example:8443"] {
        let refused = apart.answer(&at(host, "order-1"));
        assert_eq!((refused.status, &refused.json()["safe_new_key"]), (422, &false.into()));
        assert!(refused.json()["detail"].as_str().unwrap().contains("service_name"), "{refused:?}");
    }
    drop(apart);
    let one = gateway(folder, &provider, &format!("service_name = 'api.example'\n{secret}"));
    for (host, key) in [("eu.api.example", "order-1"), ("eu.api.example", "order-2")] {
        assert_eq!(one.answer(&at(host, key)).status, 201, "{host} {key}");
    }
    assert!(one.answer(&at("us.api.example", "order-2")).is_replay());
    assert_eq!(paid(folder), 2);
}

fn only_known_api_keys_are_let_in(folder: &Folder) {
    let provider = provider(folder);
    // The digest of `demo-acme`.
    let settings = "[[gateway.tenants.sources]]\nkind = 'api-keys'\nkeys = [{ sha256 = \
        '1b6a0f6b', tenant = 'acme' }]\n";
    write(folder, &provider, settings);
    let refused =
        folder.refuse(&["gateway", "--config", "gateway.toml", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let digest = "5a3cd2b2ee8a5b3b6b5b5d7b5b3f6b2c6b3b1b9c0f2d4e6f8a1b2c3d4e5f6a7b";
    let table = format!("{digest} nobody\n{} acme\n", sha256("demo-acme"));
    fs::write(folder.path().join("keys.txt"), table).unwrap();
    let settings =
        "[[gateway.tenants.sources]]\nkind = 'api-keys'\ntable = { file = 'keys.txt' }\n";
    let gateway = gateway(folder, &provider, settings);
    assert_eq!(gateway.answer(&pay("order-1")).status, 201);
    let stranger = post("/v1/payments", PAYMENT).globex().key("order-1");
    assert_eq!(gateway.answer(&stranger).problem(), "tenant-unknown");
    assert_eq!(paid(folder), 1);
    let shown = folder.run(&["keys", "list", "--store", folder.store(), "--format", "json"]);
    let page: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(page["records"][0]["tenant"], "acme");
}

fn sha256(text: &str) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(text.as_bytes());
    digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn what_is_sealed_is_read_with_its_key_alone(folder: &Folder) {
    let provider = provider(folder);
    let sealing =
        |key: &str| format!("[sealing]\nkeys = [{{ id = 'one', key = '{}' }}]\n", key.repeat(4));
    let first = gateway(folder, &provider, &sealing("0123456789abcdef"));
    let made = first.answer(&pay("order-1"));
    assert_eq!(made.status, 201);
    drop(first);
    let shown = folder.run(&["keys", "list", "--store", folder.store(), "--format", "json"]);
    let page: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let tenant = page["records"][0]["tenant"].as_str().unwrap().to_owned();
    let body = ["keys", "show", &tenant, "order-1", "--body", "--store", folder.store()];
    let body = folder.run(&body);
    assert!(!String::from_utf8_lossy(&body.stdout).contains("4990"), "{body:?}");
    let other = gateway(folder, &provider, &sealing("fedcba9876543210"));
    assert_eq!(other.answer(&pay("order-1")).status, 503);
    drop(other);
    let again = gateway(folder, &provider, &sealing("0123456789abcdef")).answer(&pay("order-1"));
    assert_eq!((again.status, again.is_replay(), again.body), (201, true, made.body));
    assert_eq!(paid(folder), 1);
}

#[test]
fn an_audit_finds_the_one_call_that_is_not_protected() {
    let folder = Folder::new();
    let document = "openapi: 3.1.0\nservers: [{url: /v1}]\npaths:\n  /orders:\n    post: {}\n  \
                    '/orders/{id}':\n    patch: {operationId: change}\n    delete: {}\n  \
                    /login:\n    post: {}\n";
    fs::write(folder.path().join("api.yaml"), document).unwrap();
    let operation =
        |name: &str, more: &str| format!("[[gateway.operations]]\noperation = '{name}'\n{more}\n");
    let login = operation("POST /v1/login", "unprotected = 'changes nothing'");
    fs::write(folder.path().join("f.toml"), &login).unwrap();
    let audit = ["audit", "api.yaml", "--config", "f.toml"];
    let found = folder.run(&audit);
    assert_eq!(found.status.code(), Some(1), "{}", stderr(&found));
    let text = stdout(&found);
    for line in [
        "POST /v1/orders        protected",
        "PATCH /v1/orders/{id}  gap",
        "DELETE /v1/orders/{id} repeatable",
        "POST /v1/login         unprotected  changes nothing",
        "1 gap",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed(&text).contains(&squeezed(line)), "{line}: {text}");
    }
    let patch = operation("PATCH /v1/orders/{id}", "key = 'optional'");
    fs::write(folder.path().join("f.toml"), format!("{login}{patch}")).unwrap();
    let report = folder.run(&[&audit[..], &["--format", "json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["gaps"], 1, "{report}");
    let patch = patch.replace("optional", "required");
    fs::write(folder.path().join("f.toml"), format!("{login}{patch}")).unwrap();
    assert!(folder.run(&audit).status.success());
    fs::write(folder.path().join("api.yaml"), "a: 1\n").unwrap();
    let none = folder.run(&audit);
    assert_eq!((none.status.code(), stderr(&none).lines().count()), (Some(1), 1));
}

#[test]
fn a_config_file_is_checked_without_opening_anything() {
    let folder = Folder::new();
    let settings = "store = 'sqlite:nowhere.db'\n[gateway]\nupstreams = ['http://127.0.0.1:9']\n\
                    tenants = { sources = [{ kind = 'single' }] }\n";
    fs::write(folder.path().join("f.toml"), settings).unwrap();
    let fine = folder.run(&["check", "--config", "f.toml"]);
    assert!(fine.status.success(), "{}", stderr(&fine));
    assert!(stdout(&fine).contains("f.toml: holds"), "{}", stdout(&fine));
    assert!(!folder.path().join("nowhere.db").exists());
    let tls = format!("{settings}tls = {{ certificate = 'none.pem', key = 'none.pem' }}\n");
    fs::write(folder.path().join("f.toml"), tls).unwrap();
    let refused = folder.run(&["check", "--config", "f.toml"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("none.pem"), "{}", stderr(&refused));
    assert_eq!(folder.run(&["check"]).status.code(), Some(2));
    let (without, _) = settings.split_once("tenants").unwrap();
    fs::write(folder.path().join("f.toml"), without).unwrap();
    let refused = folder.run(&["check", "--config", "f.toml"]);
    assert_eq!(refused.status.code(), Some(2), "a gateway does not start with it");
    assert!(stderr(&refused).contains("--tenants single"), "{}", stderr(&refused));
    let with_flag = folder.run(&["check", "--config", "f.toml", "--tenants", "single"]);
    assert!(with_flag.status.success(), "{}", stderr(&with_flag));
}

#[test]
fn a_destination_that_remembers_a_key_longer_than_it_lives_is_refused() {
    let folder = Folder::new();
    let destination = |span: &str| {
        format!("[destinations.bank]\nkind = 'http'\nurl = 'https://b/'\ndedupe_for = '{span}'\n")
    };
    let operation = |name: &str, more: &str| {
        format!("[[gateway.operations]]\noperation = 'POST /{name}'\n{more}\n")
    };
    let week = "[gateway.default]\nretention = '7days'\n";
    let spent = "after_retention = { refuse = '6days' }";
    for (settings, holds) in [
        (destination("24h"), true),
        (destination("25h"), false),
        (format!("{}{week}", destination("7days")), true),
        (format!("{}{week}{}", destination("7days"), operation("a", "retention = '1day'")), false),
        (
            format!(
                "{}{week}{}",
                destination("7days"),
                operation("a", &format!("retention = '1day'\n{spent}"))
            ),
            true,
        ),
        (format!("{}{week}", destination("8days")), false),
    ] {
        fs::write(folder.path().join("f.toml"), &settings).unwrap();
        let checked = folder.run(&["check", "--config", "f.toml"]);
        assert_eq!(checked.status.success(), holds, "{settings}{}", stderr(&checked));
        assert_eq!(stderr(&checked).contains("destination bank: dedupe_for"), !holds);
    }
}

/// The key that is forwarded is the same for ever.
#[test]
fn an_api_that_remembers_a_key_longer_than_it_lives_is_refused() {
    let folder = Folder::new();
    let default = |more: &str| format!("[gateway.default]\n{more}\n");
    let operation = |more: &str| format!("[[gateway.operations]]\noperation = 'POST /a'\n{more}\n");
    let week = default("retention = '7days'\ndedupe_for = '7days'");
    for (settings, refused) in [
        (operation("dedupe_for = '24h'"), None),
        (operation("dedupe_for = '25h'"), Some("POST /a")),
        (operation("dedupe_for = '25h'\nafter_retention = { refuse = '1h' }"), None),
        (default("dedupe_for = '25h'"), Some("gateway.default")),
        (week.clone(), None),
        (format!("{week}{}", operation("retention = '1day'")), Some("POST /a")),
        (format!("{week}{}", operation("retention = '1day'\ndedupe_for = '1h'")), None),
    ] {
        let text = format!("store = 'sqlite:a.db'\n{settings}");
        fs::write(folder.path().join("f.toml"), &text).unwrap();
        let gateway = ["gateway", "--upstream", "http://127.0.0.1:9", "--tenants", "single"];
        let checked = folder.run(&["check", "--config", "f.toml"]);
        assert_eq!(checked.status.success(), refused.is_none(), "{text}{}", stderr(&checked));
        let Some(name) = refused else { continue };
        let started = folder.run(&[&gateway[..], &["--config", "f.toml"]].concat());
        assert_eq!(started.status.code(), Some(2), "{text}");
        for said in [stderr(&checked), stderr(&started)] {
            assert!(said.contains(name) && said.contains("dedupe_for is"), "{said}");
        }
    }
}

/// With the token of another account every list is empty.
#[test]
fn a_probe_that_believes_empty_lists_is_named() {
    let folder = Folder::new();
    let listed = "list = '/data', key = '/key', made = 'all', at = 'none'";
    let settings = |more: &str| {
        format!(
            "[destinations.bank]\nkind = 'http'\nurl = 'https://b/'\n\
             probe = {{ url = 'https://b/{{key}}', id = '/id', {listed}{more} }}\n\
             [[gateway.operations]]\noperation = 'POST /a'\n\
             on_lost_answer = {{ probe = {{ url = '/{{key}}', {listed}{more} }} }}\n"
        )
    };
    for (more, is_named) in [("", false), (", empty_is_absent = true", true)] {
        fs::write(folder.path().join("f.toml"), settings(more)).unwrap();
        let checked = folder.run(&["check", "--config", "f.toml"]);
        assert!(checked.status.success(), "{}", stderr(&checked));
        let named = "probes        destination bank, POST /a: an empty list means";
        assert_eq!(stdout(&checked).contains(named), is_named, "{}", stdout(&checked));
    }
}

#[test]
fn a_gateway_does_not_start_without_being_told_whose_requests_they_are() {
    let folder = Folder::new();
    let refused = folder.refuse(&["gateway", "--upstream", "http://127.0.0.1:9"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    for choice in ["authorization", "single", "jwt=", "header="] {
        assert!(said.contains(&format!("--tenants {choice}")), "{said}");
    }
    assert!(said.contains("[gateway.tenants]"), "{said}");
    assert!(!folder.path().join("firstwrite.db").exists());
    let unknown = ["gateway", "--tenants", "anybody", "--upstream", "http://127.0.0.1:9"];
    let unknown = folder.refuse(&unknown);
    assert_eq!((unknown.status.code(), stderr(&unknown).lines().count()), (Some(2), 1));
}

/// Strangers shared a tenant: the second customer with the same key was told the first one's answer.
#[test]
fn by_authorization_nobody_is_served_who_does_not_say_who_they_are() {
    let folder = Folder::new();
    let provider = provider(&folder);
    let gateway = gateway(&folder, &provider, "");
    let nobody = post("/v1/payments", PAYMENT).key("order-1").header("Host", "api.example");
    assert_eq!(gateway.answer(&nobody).problem(), "tenant-unknown");
    let renewed = nobody.header("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30.");
    let refused = gateway.answer(&renewed);
    assert_eq!(refused.problem(), "tenant-unknown");
    assert!(String::from_utf8_lossy(&refused.body).contains("accept_changing"), "{refused:?}");
    assert_eq!(paid(&folder), 0);
}

#[test]
fn names_that_can_meet_are_said_by_check_and_in_the_banner() {
    let folder = Folder::new();
    let provider = provider(&folder);
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let settings = format!(
        "[gateway.tenants]\nsources = [\n{{ kind = 'header', tenant = 'x-tenant', peers = ['::1'] }},\n\
         {{ kind = 'api-keys', keys = [{{ sha256 = '{digest}', tenant = 'acme' }}] }}]\n"
    );
    let note = "header, api-keys: names without a namespace: equal ones are one customer";
    let mut gateway = gateway(&folder, &provider, &settings);
    let lines = gateway.lines_until(|line| line.starts_with("tenants:"));
    assert!(lines.last().unwrap().starts_with(&format!("tenants: {note}")), "{lines:?}");
    let checked = folder.run(&["check", "--config", "gateway.toml"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert!(stdout(&checked).contains(&format!("named; {note}")), "{}", stdout(&checked));
}

/// A start and a check say, each once, who shares what and which settings are not used.
#[test]
fn credentials_that_change_anonymous_callers_and_a_flag_over_the_file_are_said() {
    let folder = Folder::new();
    let provider = provider(&folder);
    let settings = "[gateway.tenants]\nanonymous = true\n\
                    sources = [{ kind = 'authorization', accept_changing = true }]\n";
    let mut gateway = gateway(&folder, &provider, settings);
    let notes = ["tenants: accept_changing: ", "tenants: anonymous: "];
    let lines = gateway.lines_until(|line| line.starts_with(notes[1]));
    assert_eq!(lines.iter().filter(|line| line.starts_with("tenants: ")).count(), 2, "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with(notes[0])), "{lines:?}");
    let checked = stdout(&folder.run(&["check", "--config", "gateway.toml"]));
    assert!(checked.contains("named; accept_changing: "), "{checked}");
    assert!(checked.contains("; anonymous: "), "{checked}");
    let flag = ["check", "--config", "gateway.toml", "--tenants", "authorization"];
    let checked = stdout(&folder.run(&flag));
    let replaced = "named; authorization, by --tenants or FIRSTWRITE_TENANTS; [gateway.tenants] of the file is \
                    not used\n";
    assert!(checked.contains(replaced), "{checked}");
    let command = &mut firstwrite(&folder);
    command.args(["gateway", "--config", "gateway.toml", "--listen", "127.0.0.1:0"]);
    command.args(["--store", "sqlite:other.db", "--create"]);
    let mut over = Demo::start(command.env("FIRSTWRITE_TENANTS", "single"));
    let lines = over.lines_until(|line| line.contains("is not used"));
    assert!(lines.last().unwrap().starts_with("tenants: single, by --tenants"), "{lines:?}");
}

#[test]
fn a_single_tenant_is_said_in_the_banner_and_shares_its_answers() {
    let folder = Folder::new();
    let provider = provider(&folder);
    let settings = "[gateway.tenants]\nsources = [{ kind = 'single' }]\n";
    let mut gateway = gateway(&folder, &provider, settings);
    let lines = gateway.lines_until(|line| line.starts_with("tenants:"));
    assert!(lines.last().unwrap().starts_with("tenants: single: everybody"), "{lines:?}");
    let nobody = post("/v1/payments", PAYMENT).key("order-1").header("Host", "api.example");
    assert_eq!(gateway.answer(&nobody).status, 201);
    assert!(gateway.answer(&pay("order-1")).is_replay());
    assert_eq!(paid(&folder), 1);
}
