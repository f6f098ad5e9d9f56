//! Tests of accepted and refused sections.

use std::time::Duration;

use super::super::File;
use super::*;

fn built(text: &str) -> Result<Vec<Destination>, String> {
    let mut file = File::parse(text).map_err(|mistake| {
        format!("{}: {}", mistake.line(text).unwrap_or_default(), mistake.message)
    })?;
    file.destinations.locate(|offset| super::super::mistake::line(text, offset).to_string());
    file.destinations.build().map_err(|error| error.to_string())
}

const FULL: &str = r#"
[destinations.provider]
kind = "http"
url = "http://127.0.0.1:9/v1/payments"
method = "PUT"
timeout = "10s"
dedupe_for = "24h"
answers_refusals_by_key = true
delivery_count_max = 7
pause_first = "2s"
pause_max = "1m"
concurrency_max = 4
headers = { authorization = "Bearer tok-secret", "x-from" = "env:CARGO_PKG_NAME" }
key_header = "x-key"
quoted_key = true
success_statuses = "200-299,409"
refusal_statuses = "402"
retry_statuses = "429,503"
provider_id = "/id"
signing_secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
allow_networks = ["127.0.0.0/8"]
[destinations.provider.probe]
url = "http://127.0.0.1:9/v1/payments?idempotency_key={key}"
list = "/payments"
key = "/idempotency_key"
made = "all"
at = "/created_at"
id = "/id"

[destinations.audit]
kind = "http"
url = "https://audit.example.com/"
"#;

#[test]
fn every_setting_is_read() {
    let built = built(FULL).unwrap();
    let [audit, provider] = &built[..] else { panic!("{built:?}") };
    assert_eq!((audit.name(), provider.name()), ("audit", "provider"));
    assert_eq!(audit.terms(), &firstwrite_core::outbox::Terms::default());
    let terms = provider.terms();
    assert_eq!(terms.timeout, Duration::from_secs(10));
    assert_eq!(terms.dedupe_for, Duration::from_hours(24));
    assert!(terms.can_be_asked && terms.answers_refusals_by_key);
    assert_eq!((terms.delivery_count_max, terms.concurrency_max), (7, 4));
    assert_eq!(terms.pause_first, Duration::from_secs(2));
    assert_eq!(terms.pause_max, Duration::from_mins(1));
}

#[test]
fn what_is_wrong_is_refused_with_its_line_and_what_to_do() {
    let http = "\n[destinations.p]\nkind = 'http'\n";
    let sent = format!("{http}url = 'http://h/'\n");
    for (text, line, words) in [
        ("destinations = 3\n".to_owned(), 1, "[destinations.NAME]"),
        ("[destinations]\np = 'x'\n".to_owned(), 2, "[destinations.p]"),
        ("\n[destinations.p]\nurl = 'http://h/'\n".to_owned(), 2, "has no kind"),
        ("[destinations.p]\nkind = 'smtp'\n".to_owned(), 2, "`http`"),
        ("[destinations.'a:b']\nkind = 'http'\n".to_owned(), 1, "without a colon"),
        (http.to_owned(), 2, "missing field `url`"),
        (format!("{sent}ulr = 'x'\n"), 5, "unknown field `ulr`"),
        (format!("{sent}timeout = '10'\n"), 5, "unit"),
        (format!("{sent}timeout = '0s'\n"), 2, "longer than zero"),
        (format!("{sent}delivery_count_max = 0\n"), 2, "at least 1"),
        (format!("{sent}answers_refusals_by_key = true\n"), 2, "no key (dedupe_for is 0s)"),
        (format!("{sent}answers_refusals_by_key = 'yes'\n"), 5, "boolean"),
        (format!("{sent}pause_max = '1ms'\n"), 2, "pause_first"),
        (format!("{sent}method = 'GET'\n"), 2, "POST, PUT or PATCH"),
        (format!("{sent}success_statuses = '2xx'\n"), 2, "200-299,404"),
        (format!("{sent}provider_id = 'id'\n"), 2, "provider_id"),
        (format!("{sent}provider_id = ''\n"), 2, "\"/id\""),
        (format!("{sent}allow_networks = ['10.0.0.1/8']\n"), 2, "10.0.0.0/8"),
        (format!("{sent}root_certificates = '/no/such.pem'\n"), 2, "cannot open /no/such.pem"),
        (format!("{sent}probe = {{ url = 'http://h/', id = '/id', made = 'all' }}\n"), 2, "{key}"),
        (format!("{sent}headers = {{ a = 'env:FIRSTWRITE_NONE' }}\n"), 2, "FIRSTWRITE_NONE"),
        (format!("{sent}headers = {{ host = 'x' }}\n"), 2, "set by the carrier"),
        (format!("{http}url = 'ftp://h/'\n"), 2, "http:// or https://"),
    ] {
        let refused = built(&text).unwrap_err();
        assert!(refused.starts_with(&format!("{line}: ")), "{text}: {refused}");
        assert!(refused.contains(words), "{text}: {refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}

#[test]
fn nothing_secret_is_shown_or_told() {
    let file = File::parse(FULL).unwrap();
    let shown = format!("{file:?}{:?}", file.destinations.build().unwrap());
    for secret in ["tok-secret", "MfKQ9r8", "v1/payments"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let sent = "[destinations.p]\nkind = 'http'\nurl = 'http://h/'\n";
    for text in [
        format!("{sent}headers = 'tok-secret'\n"),
        format!("{sent}headers = {{ a = 'tok-secret\\u0001' }}\n").replace('\'', "\""),
        format!("{sent}signing_secrets = ['tok-secret']\n"),
        format!("{sent}signing_secrets = ['whsec_tok-secret']\n"),
        format!("{sent}signing_secrets = 'tok-secret'\n"),
        "[destinations.p]\nkind = 'http'\nurl = 'http://u:tok-secret@h/'\n".to_owned(),
        "[destinations.p]\nkind = 'http'\nurl = 'tok-secret'\n".to_owned(),
    ] {
        let refused = built(&text).unwrap_err();
        assert!(!refused.contains("tok-secret"), "{text}: {refused}");
    }
}

#[cfg(feature = "brokers")]
const BROKERS: &str = r#"
[destinations.nats]
kind = "nats"
url = "nats://shop:tok-secret@127.0.0.1:4222"
subject = "orders.paid"
stream = "ORDERS"
timeout = "3s"
dedupe_for = "2m"

[destinations.queue]
kind = "rabbitmq"
url = "amqp://shop:tok-secret@127.0.0.1:5672/%2f"
queue = "orders"
channel_max = 4

[destinations.exchange]
kind = "rabbitmq"
url = "amqp://127.0.0.1"
exchange = "orders"
routing_key = "paid"
reaches_one_queue = true

[destinations.redis]
kind = "redis"
url = "redis://:tok-secret@127.0.0.1:6379/0"
stream = "orders"
creates_stream = true
length_max = 1000
dedupe_for = "3h"
"#;

#[test]
#[cfg(feature = "brokers")]
fn every_kind_of_broker_is_read() {
    let built = built(BROKERS).unwrap();
    let terms = |name: &str| {
        built.iter().find(|destination| destination.name() == name).unwrap().terms().clone()
    };
    assert_eq!(terms("nats").timeout, Duration::from_secs(6));
    assert_eq!(terms("nats").dedupe_for, Duration::from_mins(2));
    assert_eq!(terms("queue").timeout, Duration::from_secs(20));
    assert!(!terms("exchange").can_be_asked);
    assert_eq!(terms("redis").dedupe_for, Duration::from_hours(3));
    assert!(terms("redis").can_be_asked);
    let shown = format!("{built:?}{:?}", File::parse(BROKERS).unwrap());
    assert!(!shown.contains("tok-secret"), "{shown}");
}

#[test]
#[cfg(feature = "kafka")]
fn kafka_is_read() {
    let text = "[destinations.k]\nkind = 'kafka'\nservers = '127.0.0.1:9092'\ntopic = 'orders'\n\
                timeout = '4s'\noptions = { 'sasl.password' = 'env:CARGO_PKG_NAME' }\n";
    assert_eq!(built(text).unwrap()[0].terms().timeout, Duration::from_secs(18));
    let fixed = text.replace("sasl.password", "acks");
    assert!(built(&fixed).unwrap_err().contains("`acks` cannot be set"));
}

#[test]
#[cfg(feature = "brokers")]
fn what_is_wrong_about_a_broker_is_refused() {
    for (text, words) in [
        ("kind = 'nats'\nurl = 'nats://h'\nsubject = 'a.>'\n", "wildcards"),
        ("kind = 'nats'\nurl = 'http://tok-secret@h'\nsubject = 'a'\n", "nats://HOST:PORT"),
        ("kind = 'nats'\nurl = 'nats://h'\n", "missing field `subject`"),
        ("kind = 'rabbitmq'\nurl = 'amqp://h'\n", "name a queue"),
        ("kind = 'rabbitmq'\nurl = 'amqp://h'\nqueue = 'q'\nexchange = 'e'\n", "name a queue"),
        ("kind = 'redis'\nurl = 'tok-secret'\nstream = 's'\n", "redis://HOST:PORT"),
        ("kind = 'redis'\nurl = 'redis://h'\nsubject = 's'\n", "unknown field `subject`"),
    ] {
        let refused = built(&format!("[destinations.b]\n{text}")).unwrap_err();
        assert!(refused.contains(words), "{text}: {refused}");
        assert!(!refused.contains("tok-secret"), "{refused}");
    }
}

/// A provider remembers a key from the delivery on.
#[test]
fn a_destination_without_room_for_a_wait_is_named() {
    let file = |dedupe_for: &str| {
        let destination = format!("kind = 'http'\nurl = 'https://b/'\ndedupe_for = '{dedupe_for}'");
        format!("[gateway.default]\nretention = '48h'\n[destinations.bank]\n{destination}\n")
    };
    for (dedupe_for, named) in [("48h", vec!["destination bank".to_owned()]), ("47h", vec![])] {
        let text = file(dedupe_for);
        let parsed = File::parse(&text).unwrap();
        let destinations = built(&text).unwrap();
        let said = parsed.without_room_to_wait(&destinations).unwrap();
        assert_eq!(said, named, "{dedupe_for}");
    }
}
