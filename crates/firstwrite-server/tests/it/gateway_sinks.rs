//! What becomes of what clients send: in the store, where it must not be readable or believed if it was
//! altered, and in the log, where it must not look like anything but itself.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::{
    Body, Change, Draft, DraftState, Guard, Key, Outcome, Policy, Query, Record, RecordId, State,
    Store, Tenant,
};
use firstwrite_store::Access;
use serde_json::Value;

use crate::database::on_every_store;
use crate::gateway_telemetry::{ANYBODY, Api, CANARIES, every_answer, gateway, metrics, pay};
use crate::http::{Request, post};
use crate::process::{Demo, Folder};

on_every_store! {
    an_outcome_that_was_altered_or_copied_is_an_alarm_and_answers_nobody,
    what_is_not_sealed_is_read_where_that_is_allowed_and_what_is_altered_never,
    what_is_sealed_is_not_readable_in_the_store,
    escapes_and_line_feeds_stay_inside_their_log_line,
    a_reload_replaces_the_keys_and_drops_tenants_at_once,
}

/// What seals every outcome.
pub(crate) const SEALING: &str = "[sealing]\nkeys = [{ id = 'one', key = '0123456789abcdef0123456789abcdef\
                       0123456789abcdef0123456789abcdef' }]\n";

/// A gateway with these settings, and its log in `gateway.log`.
fn started(folder: &Folder, api: &Api, more: &str, arguments: &[&str]) -> (Demo, SocketAddr) {
    let file = format!(
        "{more}[gateway]\n{ANYBODY}\noperator = '127.0.0.1:0'\nupstreams = ['http://{}']\n",
        api.address
    );
    fs::write(folder.path().join("sinks.toml"), file).unwrap();
    gateway(folder, &[&["--config", "sinks.toml"], arguments].concat())
}

/// Ends the gateway, and returns what it logged.
fn ended(folder: &Folder, gateway: Demo) -> String {
    gateway.terminate();
    assert!(gateway.end().success());
    String::from_utf8(fs::read(folder.path().join("gateway.log")).unwrap()).unwrap()
}

/// Works with the bare store, while no gateway has it.
fn in_store<T>(folder: &Folder, work: impl AsyncFnOnce(Arc<dyn Store>) -> T) -> T {
    let file = format!("sqlite:{}", folder.path().join("demo.db").display());
    let url = if folder.store().starts_with("sqlite") { &file } else { folder.store() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = firstwrite_store::open(url, Access::Write).await.unwrap();
        work(store).await
    })
}

async fn records(store: &dyn Store) -> Vec<Record> {
    let query = Query { tenant: None, state: None, after: None, limit: Query::LIMIT_MAX };
    store.list(&query).await.unwrap().records
}

fn outcome(record: &Record) -> Outcome {
    match &record.state {
        State::Completed { outcome, .. } => outcome.clone(),
        State::Reserved(_) | State::Uncertain { .. } => panic!("a completed record"),
    }
}

/// Puts `outcome` under a tenant and key, as whoever has the database can, in the place of what stands there.
async fn plant(store: &dyn Store, like: &Record, tenant: &Tenant, key: &Key, outcome: Outcome) {
    let id = RecordId::of(tenant, key);
    if let Some(found) = store.get(id).await.unwrap() {
        let guard = Guard::Seen(found.record.seen());
        store.swap(id, guard, Change::Remove, None).await.unwrap();
    }
    let draft = Draft {
        id,
        tenant: tenant.clone(),
        key: key.clone(),
        operation: like.operation.clone(),
        fingerprint: like.fingerprint.clone(),
        fence: like.fence,
        on_lost_answer: like.on_lost_answer,
        retention: Policy::default().record_retention(),
        state: DraftState::Completed { outcome },
    };
    store.insert(&draft).await.unwrap();
}

/// One bit of what is sealed is another one.
fn altered(outcome: &Outcome) -> Outcome {
    let Body::Sealed(bytes) = &outcome.body else { panic!("a sealed outcome") };
    let mut bytes = bytes.to_vec();
    let last = bytes.last_mut().unwrap();
    *last ^= 1;
    Outcome { body: Body::Sealed(bytes.into()), ..outcome.clone() }
}

/// Makes four outcomes that whoever has the database altered, copied or wrote, and one that is whole.
fn tamper(folder: &Folder, api: &Api) {
    let (first, _operator) = started(folder, api, SEALING, &[]);
    for key in ["altered", "forged", "whole"] {
        assert_eq!(first.answer(&pay("/pay", key).header("Host", "api")).status, 201);
    }
    ended(folder, first);
    assert_eq!(api.asked(), 3);
    in_store(folder, async |store| {
        let records = records(&*store).await;
        let of = |key: &str| records.iter().find(|record| record.key.as_str() == key).unwrap();
        let (mine, theirs, whole) = (of("altered"), of("forged"), of("whole"));
        plant(&*store, mine, &mine.tenant, &mine.key, altered(&outcome(mine))).await;
        // Never sealed at all.
        let body = Body::Bytes("{\"status\":\"refunded\"}".into());
        let forged = Outcome { body, ..outcome(theirs) };
        plant(&*store, theirs, &theirs.tenant, &theirs.key, forged).await;
        let copied = Key::new("copied").unwrap();
        plant(&*store, whole, &whole.tenant, &copied, outcome(whole)).await;
        let other = Tenant::new("anonymous").unwrap();
        plant(&*store, whole, &other, &whole.key, outcome(whole)).await;
    });
}

/// The same request is refused, and nobody's data is in the refusal.
fn refuses(gateway: &Demo, request: Request) {
    let answer = gateway.answer(&request.header("Host", "api"));
    assert_eq!((answer.status, answer.problem().as_str()), (503, "store-unavailable"));
    let text = String::from_utf8(answer.body).unwrap();
    assert!(CANARIES.iter().all(|canary| !text.contains(canary)), "{text}");
}

/// Lines of the log about outcomes that do not open, of this level.
fn alarms<'a>(log: &'a str, level: &str) -> Vec<&'a str> {
    let of_it = |line: &&str| line.contains("an outcome cannot be opened") && line.contains(level);
    log.lines().filter(of_it).collect()
}

fn unopened(operator: SocketAddr) -> [bool; 3] {
    let metrics = metrics(operator);
    let line = |(reason, count)| {
        let name = "firstwrite_unopened_outcomes_total";
        metrics.contains(&format!("{name}{{reason=\"{reason}\"}} {count}\n"))
    };
    [("altered", 3), ("no_key", 0), ("not_sealed", 1)].map(line)
}

fn an_outcome_that_was_altered_or_copied_is_an_alarm_and_answers_nobody(folder: &Folder) {
    let api = Api::start();
    tamper(folder, &api);
    let (gateway, operator) = started(folder, &api, SEALING, &["--log", "debug"]);
    let foreign = post("/pay", "{}").key("whole");
    for request in [pay("/pay", "altered"), pay("/pay", "copied"), pay("/pay", "forged"), foreign] {
        refuses(&gateway, request);
    }
    let whole = gateway.answer(&pay("/pay", "whole").header("Host", "api"));
    assert!(whole.is_replay(), "{whole:?}");
    assert_eq!(unopened(operator), [true; 3]);
    let log = ended(folder, gateway);
    // One at least of each reason, every ten seconds at the most, and each record at debug.
    let (loud, low) = (alarms(&log, "ERROR"), alarms(&log, "DEBUG"));
    assert_eq!((loud.len() >= 2, loud.len() + low.len()), (true, 4), "{log}");
    assert!(loud.iter().all(|line| line.contains("left_out") && line.contains("record_id")));
    for reason in ["it was altered, or belongs to another record", "it is not sealed"] {
        assert!(loud.iter().any(|line| line.contains(reason)), "{reason}: {log}");
    }
    assert_eq!(api.asked(), 0, "nothing was run again");
}

fn what_is_not_sealed_is_read_where_that_is_allowed_and_what_is_altered_never(folder: &Folder) {
    let api = Api::start();
    tamper(folder, &api);
    let lenient = format!("{SEALING}require = false\n");
    let (gateway, operator) = started(folder, &api, &lenient, &[]);
    for key in ["altered", "copied"] {
        refuses(&gateway, pay("/pay", key));
    }
    let planted = gateway.answer(&pay("/pay", "forged").header("Host", "api"));
    assert_eq!((planted.is_replay(), planted.json()["status"].as_str()), (true, Some("refunded")));
    let whole = gateway.answer(&pay("/pay", "whole").header("Host", "api"));
    assert!(whole.is_replay(), "{whole:?}");
    let metrics = metrics(operator);
    for count in ["altered\"} 2\n", "not_sealed\"} 0\n"] {
        assert!(metrics.contains(&format!("_outcomes_total{{reason=\"{count}")), "{metrics}");
    }
    let log = ended(folder, gateway);
    assert!(alarms(&log, "ERROR").iter().all(|line| line.contains("altered")), "{log}");
    assert_eq!((alarms(&log, "ERROR").is_empty(), api.asked()), (false, 0), "{log}");
}

fn what_is_sealed_is_not_readable_in_the_store(folder: &Folder) {
    let api = Api::start();
    let (gateway, _operator) = started(folder, &api, SEALING, &[]);
    every_answer(&gateway, &api);
    ended(folder, gateway);
    let sealed = in_store(folder, async |store| {
        let records = records(&*store).await;
        let kept = records.iter().filter(|record| matches!(record.state, State::Completed { .. }));
        kept.map(outcome).collect::<Vec<Outcome>>()
    });
    assert!(sealed.len() >= 2, "{sealed:?}");
    for outcome in sealed {
        assert_eq!(outcome.headers.iter().len(), 0);
        let Body::Sealed(bytes) = &outcome.body else { panic!("not sealed: {outcome:?}") };
        assert!(!contains(bytes, "canary"), "a canary is in what is sealed");
    }
    // The key is readable, as it is meant to be; the card, the bearer and both bodies are not.
    for file in fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        for canary in CANARIES.iter().filter(|canary| **canary != "canary-key") {
            assert!(!contains(&bytes, canary), "{canary} is in {}", path.display());
        }
    }
}

/// An answer that must not be kept is not; of a request, only its fingerprint ever is.
#[test]
fn what_is_not_to_be_kept_is_in_no_byte_of_the_file() {
    let folder = Folder::new();
    let api = Api::start();
    let file = format!(
        "[gateway]\n{ANYBODY}\noperator = '127.0.0.1:0'\nupstreams = ['http://{}']\n\
         [[gateway.operations]]\noperation = 'POST /pay'\nresponse_bytes_max = 0\n",
        api.address
    );
    fs::write(folder.path().join("sinks.toml"), file).unwrap();
    let (gateway, _operator) = gateway(&folder, &["--config", "sinks.toml"]);
    let first = gateway.answer(&pay("/pay", "k").header("Host", "api"));
    assert!(first.status == 201 && contains(&first.body, "canary-body"), "it is passed on");
    let again = gateway.answer(&pay("/pay", "k").header("Host", "api"));
    assert_eq!((again.status, again.problem().as_str()), (409, "answer-not-kept"));
    assert_eq!(again.json()["first_status"], 201, "{again:?}");
    assert_eq!(api.asked(), 1);
    ended(&folder, gateway);
    for file in fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        for canary in ["canary-body", "4242424242424242", "canary-bearer"] {
            assert!(!contains(&bytes, canary), "{canary} is in {}", path.display());
        }
    }
}

/// Sends these bytes, and returns the status of what comes back.
fn send(address: SocketAddr, bytes: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let status = String::from_utf8_lossy(&answer);
    status.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {status}")).parse().unwrap()
}

fn escapes_and_line_feeds_stay_inside_their_log_line(folder: &Folder) {
    const ESCAPE: &[u8] = b"\x1b[31mred\x1b[0m\n2026-01-01T00:00:00Z ERROR forged\r\n\x07\x9b2J";
    let api = Api::start();
    for format in ["text", "json"] {
        let arguments = ["--log", "trace", "--log-format", format];
        let (gateway, _operator) = started(folder, &api, "", &arguments);
        let of = |method: &str, path: &[u8], key: &[u8], agent: &[u8], body: &[u8]| {
            let length = format!("content-length: {}\r\n\r\n", body.len());
            let head: [&[u8]; 11] = [
                method.as_bytes(),
                b" ",
                path,
                b" HTTP/1.1\r\nhost: api\r\nconnection: close\r\nidempotency-key: ",
                key,
                b"\r\nuser-agent: ",
                agent,
                b"\r\n",
                length.as_bytes(),
                body,
                b"",
            ];
            head.concat()
        };
        // Escaped control characters are refused; these are what is left to try.
        let escaped = "/pay/%c2%9b%5b31mred%e2%80%a82026-01-01T00:00:00Z%20ERROR%20forged";
        let bright = "/pay/\u{9b}31m\u{202e}\u{2028}é".as_bytes();
        let plain = escaped.as_bytes();
        let mut statuses = Vec::new();
        for (method, path, key, agent, body) in [
            ("POST", plain, &b"k1"[..], &b"curl"[..], ESCAPE),
            ("PATCH", plain, b"k2", b"curl", ESCAPE),
            ("POST", bright, b"k3", b"curl", b"{}"),
            ("PATCH", bright, b"k4", b"curl", b"{}"),
            ("POST", b"/\x1b[31m", b"k5", b"curl", b"{}"),
            ("POST", b"/pay", ESCAPE, b"curl", b"{}"),
            ("POST", b"/pay", b"\xc2\x9b31m", b"curl", b"{}"),
            ("POST", b"/pay", b"k6", b"\x1b[31m", b"{}"),
            ("POST", b"/pay", b"k7", b"\xc2\x9b31m\t", b"{}"),
            ("POST", b"/hang-up", b"k8", b"\xc2\x9b31m", ESCAPE),
        ] {
            // Keys of the first round are used up in the second.
            let key = [key, format.as_bytes()].concat();
            statuses.push(send(gateway.address, &of(method, path, &key, agent, body)));
        }
        // What makes no sense as HTTP is refused; the rest is passed on as it came.
        assert_eq!(statuses[..2], [201, 201], "{statuses:?}");
        assert_eq!(statuses[4..8], [400, 400, 400, 400], "{statuses:?}");
        assert_eq!(statuses[8..], [201, 504], "{statuses:?}");
        let log = ended(folder, gateway);
        let said = if format == "text" { "PATCH" } else { "\"PATCH\"" };
        assert!(log.contains(said) && log.contains("/pay/%c2%9b"), "nothing was logged: {log}");
        for line in log.lines() {
            let is_whole = if format == "json" {
                serde_json::from_str::<Value>(line).is_ok_and(|line| line["level"].is_string())
            } else {
                is_event(line)
            };
            assert!(is_whole, "{format}: not an event: {line:?}");
            let odd = line.chars().find(|character| {
                character.is_control() || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202e}')
            });
            assert!(odd.is_none(), "{format}: {odd:?} in {line:?}");
            assert!(!line.starts_with("2026-01-01T00:00:00Z"), "{format}: forged: {line:?}");
        }
    }
}

/// Whether a line begins as the log's own lines do.
fn is_event(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let time = words.next().unwrap_or_default();
    let level = words.next().unwrap_or_default();
    time.starts_with("20")
        && time.ends_with('Z')
        && ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level)
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

fn a_reload_replaces_the_keys_and_drops_tenants_at_once(folder: &Folder) {
    let api = Api::start();
    let (gateway, _) = started(folder, &api, SEALING, &[]);
    let made = gateway.answer(&pay("/pay", "a"));
    assert_eq!(made.status, 201);
    let listed = folder.run(&["keys", "list", "--store", folder.store(), "--format", "json"]);
    let page: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let tenant = page["records"][0]["tenant"].as_str().unwrap();
    let path = folder.path().join("sinks.toml");
    let file = fs::read_to_string(&path).unwrap();
    let put = |file: &str| {
        fs::write(&path, file).unwrap();
        gateway.signal("-HUP");
    };
    put(&file.replace(SEALING, &format!("{SEALING}dropped_tenants = ['{tenant}']\n")));
    gateway.answer_when(&pay("/pay", "a"), |answer| answer.status == 503);
    put(&file);
    let again = gateway.answer_when(&pay("/pay", "a"), |answer| answer.status != 503);
    assert_eq!((again.is_replay(), again.body), (true, made.body));
    // In one line with the other rules: all of them change, or none.
    let unsealed = format!("{}optional_keys = true\n", file.replace(SEALING, ""));
    put(&unsealed);
    let log = folder.path().join("gateway.log");
    let refused = "switched on and off by a restart";
    gateway.answer_when(&pay("/pay", "a"), |answer| {
        assert_eq!(answer.status, 201);
        fs::read_to_string(&log).unwrap().contains(refused)
    });
    let keyless = post("/pay", "{}").send(gateway.address).unwrap();
    assert_eq!(keyless.problem(), "key-missing");
}
