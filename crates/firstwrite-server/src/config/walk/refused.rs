//! Values that no file may have: each is refused, by `check` and by the start, with the same words.

use super::{CHECK, Command, DOCTOR, GATEWAY, RECONCILE, WHOLE, WORKER, planned};

/// The command that would start with it, the lines behind a whole file, and a word of the refusal.
const REFUSED: &[(Command, &str, &str)] = &[
    (GATEWAY, "[gateway.limits]\nnew_keys_per_second = 0", "new_keys_per_second"),
    (GATEWAY, "[gateway.limits]\nnew_keys_per_second = -1", "new_keys_per_second"),
    (GATEWAY, "[gateway.limits]\nrequests_per_second = -1", "requests_per_second"),
    (GATEWAY, "[gateway.limits]\nin_flight_max = 0", "nonzero"),
    (GATEWAY, "[gateway.limits]\nactive_keys_max = 1\ncount_every = '1ms'", "at least 1s"),
    (GATEWAY, "[gateway.limits.tenants.acme]\nrequests_per_second = 0", "requests_per_second"),
    (GATEWAY, "service_name = ''", "service_name"),
    (GATEWAY, "fingerprint_secrets = ['short']", "at least 16 bytes"),
    (
        GATEWAY,
        "fingerprint_secrets = ['seven-of-sixteen-bytes', 'seven-of-sixteen-bytes']",
        "twice",
    ),
    (GATEWAY, "default.fingerprint.ignore = ['']", "ignores the whole body"),
    (GATEWAY, "[sealing]\nkeys = []", "at least one key"),
    (GATEWAY, "[sealing]\ndropped_tenants = []", "keys"),
    (
        GATEWAY,
        "default.age = { header = 'x-at', max = '1m', signature = { header = 'x-s', secret = '' } }",
        "16 bytes",
    ),
    (GATEWAY, "operations = [{ operation = 'POST /a' }, { operation = 'POST /a' }]", "twice"),
    (
        GATEWAY,
        "operations = [{ operation = 'POST /a/{x}' }, { operation = 'POST /a/{y}' }]",
        "twice",
    ),
    (GATEWAY, "attempts_max = 0", "nonzero"),
    (GATEWAY, "held_bytes_max = 0", "nonzero"),
    (GATEWAY, "held_bytes_max = 2097151", "twice the request_bytes_max"),
    (
        GATEWAY,
        "held_bytes_max = 4194304\noperations = [{ operation = 'POST /a', request_bytes_max = 2097153 }]",
        "twice the request_bytes_max",
    ),
    (GATEWAY, "upgrades = ['h2c-14']", "gateway.upgrades"),
    (GATEWAY, "upgrades = ['H2']", "gateway.upgrades"),
    (GATEWAY, "upgrades = ['TLS/1.0']", "gateway.upgrades"),
    (GATEWAY, "upgrades = ['HTTP/2.0']", "gateway.upgrades"),
    (GATEWAY, "service_name = \"a\\u0007b\"", "service_name"),
    (
        GATEWAY,
        "default.age = { header = 'x-at', max = '1m', signature = { header = 'X-At', secret = 'seven-of-sixteen-bytes' } }",
        "age.signature",
    ),
    (GATEWAY, "tenant_share = 0.0", "more than 0"),
    (GATEWAY, "tenant_share = 1.5", "at most 1"),
    (GATEWAY, "tenant_share = nan", "at most 1"),
    (GATEWAY, "tunnel_idle_for_max = '0s'", "gateway.tunnel_idle_for_max"),
    (GATEWAY, "limits = { unverified_new_keys_per_second = 0.0 }", "more than 0"),
    (
        GATEWAY,
        "limits.tenants.acme = { unverified_new_keys_per_second = 7 }",
        "for all tenants together",
    ),
    (GATEWAY, "default.response_within = '0s'", "response_within"),
    (GATEWAY, "connect_within = '0s'", "gateway.connect_within"),
    (GATEWAY, "answer_within = '0s'", "gateway.answer_within"),
    (GATEWAY, "idle_for_max = '0s'", "gateway.idle_for_max"),
    (GATEWAY, "cache = 'redis://127.0.0.1'", "for PostgreSQL"),
    (GATEWAY, "moving_to = 'sqlite:a.db'", "into itself"),
    (GATEWAY, "[gateway.health]\npath = 'healthz'", "health.path"),
    (GATEWAY, "[gateway.health]\npath = '/a b'", "health.path"),
    (GATEWAY, "[gateway.health]\npath = \"/a\\r\\nx: y\"", "health.path"),
    (GATEWAY, "[gateway.health]\npath = '/h'\nevery = '1ms'", "at least 100ms"),
    (
        GATEWAY,
        "default.on_lost_answer.probe = { url = '/a b/{key}', made = 'all' }",
        "a probe has a path",
    ),
    (
        GATEWAY,
        "default.on_lost_answer.probe = { url = \"/{key}\\r\\nx: y\", made = 'all' }",
        "a probe has a path",
    ),
    (
        GATEWAY,
        "default.on_lost_answer.probe = { url = '/a#{key}', made = 'all' }",
        "a probe has a path",
    ),
    (
        GATEWAY,
        "default.on_lost_answer.probe = { url = 'http://{key}/a', made = 'all' }",
        "scheme, a host",
    ),
    (
        GATEWAY,
        "default.on_lost_answer.probe = { url = 'http://h:99999/{key}', made = 'all' }",
        "a port",
    ),
    (GATEWAY, "default.released_statuses = [201]", "2xx"),
    (GATEWAY, "[worker]\nsweep_every = '0s'", "worker.sweep_every"),
    (
        WORKER,
        "[worker]\nreconcile_every = '0s'\n[reconcile.s]\ndestination = 'd'\nhttp = { url = 'http://h/', \
         list = '/l', id = '/i', at = '/t', made = 'all', single_page = true }",
        "worker.reconcile_every",
    ),
    (WORKER, "[destinations.d]\nkind = 'http'\nurl = 'http://h:99999/'", "a port"),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h:0/{key}', id = '/id', made = 'all' }",
        "a port",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h/a b/{key}', id = '/id', made = 'all' }",
        "is no URL",
    ),
    (WORKER, "[worker]\nreconcile_every = '7s'", "no source is compared by schedule"),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\ndedupe_for = '7s'",
        "longer than timeout",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nsuccess_statuses = '100-199'",
        "from 200 to 499",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nsuccess_statuses = '200,503'",
        "from 200 to 499",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nconcurrency_max = 257",
        "at most 256",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nallow_networks = ['8.8.8.8']",
        "is public",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nallow_networks = ['2600::/12']",
        "is public",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h/{key}', id = '/id', made = 'all', times = 'unix_millis' }",
        "probe.times",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h/{key}', id = '/id', made = 'all', harmless = ['/a'] }",
        "harmless",
    ),
    (
        GATEWAY,
        "default.on_lost_answer.probe = { url = '/{key}', made = 'all', times = 'unix_millis' }",
        "probe.times",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h/{key}', id = '/id' }",
        "made",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h/{key}', id = '/id', made = 'all', list = '/data', key = '/key' }",
        "probe.at: a list needs",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h/{key}', id = '/id', made = 'all', absent_statuses = [401] }",
        "absent_statuses",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h/{key}', id = '/id', made = 'all', empty_is_absent = true }",
        "empty_is_absent is about a list",
    ),
    (GATEWAY, "default.on_lost_answer.probe = { url = '/{key}' }", "made"),
    (
        GATEWAY,
        "default.on_lost_answer.probe = { url = '/{key}', made = 'all', list = '/data', key = '/key' }",
        "probe.at: a list needs",
    ),
    // A destination that remembers a key for longer than it lives here.
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\ndedupe_for = '48h'",
        "dedupe_for is 2days",
    ),
    (
        WORKER,
        "default.retention = '1h'\n[destinations.d]\nkind = 'http'\nurl = 'http://h/'\ndedupe_for = '2h'",
        "free again after 1h",
    ),
    (DOCTOR, "[doctor]\nexpect_standby = 'two'", "standby"),
];

/// Settings of a destination by HTTP that contradict each other or mean nothing, and a word of the refusal.
const DESTINATION: &[(&str, &str)] = &[
    ("success_statuses = '200-299,402'\nrefusal_statuses = '402'", "two meanings"),
    ("retry_statuses = '409'\nrefusal_statuses = '409'", "two meanings"),
    ("refusal_statuses = '200'", "two meanings"),
    ("retry_statuses = '202,429'", "two meanings"),
    ("refusal_statuses = '100-199'", "1xx"),
    ("retry_statuses = '102'", "1xx"),
    ("success_statuses = ''", "success_statuses"),
    ("PROBE at = '/key'", "place of its own"),
    ("PROBE at = '/id'", "place of its own"),
    ("PROBE id = '/key'", "place of its own"),
    ("PROBE made = { status = '/key', is = ['a'], not = ['b'] }", "place of its own"),
    ("PROBE harmless = ['/data']", "harmless"),
    ("PROBE list = '/a/data', harmless = ['/a']", "harmless"),
];

/// Fine settings of one.
const FINE_DESTINATION: &[&str] = &[
    "success_statuses = '200'\nrefusal_statuses = '202'",
    "retry_statuses = '400'",
    "refusal_statuses = ''",
    "PROBE harmless = ['/datum', '/a/b']",
];

/// Returns the section with these lines; `PROBE` begins a probe with these settings instead of the usual ones.
fn destination(lines: &str) -> String {
    let lines = match lines.strip_prefix("PROBE ") {
        None => lines.to_owned(),
        Some(given) => {
            let usual = [
                ("list", "'/data'"),
                ("key", "'/key'"),
                ("id", "'/id'"),
                ("at", "'/at'"),
                ("made", "'all'"),
            ];
            let is_given = |name: &str| {
                given.starts_with(&format!("{name} =")) || given.contains(&format!(", {name} ="))
            };
            let unset = usual.iter().filter(|(name, _)| !is_given(name));
            let unset: Vec<_> = unset.map(|(name, value)| format!("{name} = {value}, ")).collect();
            let unset = unset.concat();
            format!("probe = {{ url = 'http://h/{{key}}', {unset}{given} }}")
        }
    };
    format!("[destinations.d]\nkind = 'http'\nurl = 'http://h/'\n{lines}")
}

#[test]
fn a_destination_that_contradicts_itself_is_refused() {
    for (lines, word) in DESTINATION {
        assert_refused(WORKER, &destination(lines), word);
    }
    for fine in FINE_DESTINATION {
        let planned = planned(WORKER, &format!("{WHOLE}{}\n", destination(fine)));
        assert!(planned.is_ok(), "{fine}: {planned:?}");
    }
}

/// Operations that no request can belong to, each with the fix.
const UNMATCHED: &[(&str, &str)] = &[
    ("put /accounts/{id}", "write PUT"),
    ("Post /a", "write POST"),
    ("CONNECT /a", "CONNECT"),
    ("PUT /enc%2ded", "write the character itself"),
    ("PUT /a/b%2Fc", "{name}"),
    ("POST /.firstwrite/operations/{key}", "/.firstwrite/ is the gateway's own"),
    ("POST /.firstwrite", "/.firstwrite/ is the gateway's own"),
    ("POST /a/../b", "without . and .. segments"),
    ("POST /a/.", "without . and .. segments"),
    ("POST /a\\\\b", "write / instead"),
    ("POST /a?b=c", "leave it out from the ? on"),
    ("POST /a#b", "leave it out from the # on"),
    ("POST /a/{*rest}/b", "only at the end"),
    ("POST /a/{id", "a whole segment"),
    ("POST /a/x{id}", "a whole segment"),
    ("POST /a/{id}.json", "a whole segment"),
    ("POST /a/:id", "write {id}"),
    ("POST /a/*", "write {*rest}"),
    ("POST /a b", "{name}"),
    ("POST  /a", "such as"),
    ("POST a", "such as"),
];

/// Settings that could never take effect.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("operations = [{ operation = 'POST /a', unprotected = 'r', lease = '7s' }]", "lease"),
    (
        "operations = [{ operation = 'POST /a', unprotected = 'r', age = { header = 'x-at', max = '7s' } }]",
        "age",
    ),
    ("operations = [{ operation = 'POST /a', unprotected = 'r', key = 'required' }]", "key"),
    (
        "operations = [{ operation = 'POST /a', unprotected = 'r', on_lost_answer = 'resend' }]",
        "on_lost_answer",
    ),
    ("default.released_statuses = [502]", "always a lost answer"),
    ("default.released_statuses = [408]", "always a lost answer"),
    ("default.released_statuses = [100]", "300 to 499"),
    ("default.released_statuses = [500]", "on_server_error"),
    ("default.released_statuses = [409, 503]", "on_server_error"),
    ("default.released_statuses = [600]", "on_server_error"),
    ("default.age = { header = 'x-at', max = '0s' }", "age.max"),
    (
        "default.on_lost_answer.probe = { url = '/{key}', made = 'all', status = 500 }",
        "probe.status: no retry is answered",
    ),
    (
        "default.on_lost_answer.probe = { url = '/{key}', made = 'all', status = 600 }",
        "probe.status: a status is a number from 200 to 499",
    ),
    ("default.fingerprint = { body = 'bytes', ignore = ['/a'] }", "\"exact_json\""),
    ("default.fingerprint = { body = 'bytes', select = ['/a'] }", "\"exact_json\""),
    ("optional_keys = true\ndefault.key = 'required'", "optional_keys"),
    ("limits = { count_every = '7s' }", "active_keys_max"),
    ("cors.origins = ['https://*.shop.example']", "name each origin"),
    ("cors.origins = ['https://shop.example:099']", "is no origin"),
    ("cors.origins = ['https://shop.example:99999']", "is no origin"),
    ("cors.origins = ['https://shop,example']", "is no origin"),
    (
        "cors = { origins = ['https://shop.example'], credentials = true, expose = ['*'] }",
        "with credentials, headers are named",
    ),
];

/// A list that lacks only its place of the amount.
const LIST: &str = "http = { url = 'http://h/', list = '/l', id = '/i', at = '/t', made = 'all', \
                    single_page = true }";
const PAGED: &str =
    "http = { url = 'http://h/?c={cursor}', list = '/l', id = '/i', at = '/t', made = 'all' }";
const EXPORT: &str = "csv = { file = 'a.csv', id = 'i', at = 't', made = 'all' }";

/// Settings of an account that could never take effect: the lines of its section, and a word of the refusal.
const ACCOUNT_WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("destination = 'd'\namount = '/a'\nLIST", "set amount and http.amount"),
    ("destination = 'd'\namount = '/a'\nEXPORT", "set amount and csv.amount"),
    ("destination = 'd'\nLIST+amount = '/a'", "set amount and http.amount"),
    ("destination = 'd'\namount = '/a'\ncurrency = '/c'\nLIST+amount = '/a'", "http.currency"),
    ("destination = 'd'\ncurrency = '/c'\nLIST+currency = '/c'", "set amount"),
    ("destination = 'd'\namount_power = 2\nLIST", "set amount"),
    ("destination = 'd'\namount_is_proof = true\nLIST", "set amount"),
    (
        "destination = 'd'\namount = '/a'\namount_is_proof = true\nLIST+amount = '/a', key = '/k'",
        "leave out http.key",
    ),
    ("destination = 'd'\namount = '/a'\namount_power = 13\nLIST+amount = '/a'", "-12 to 12"),
    ("destination = 'd'\nsteps = []\nLIST", "leave steps out"),
    ("destination = 'd'\nsteps = ['a', 'a']\nLIST", "each step once"),
    ("destination = 'd'\ngrace = '0s'\nLIST", "more than 0s"),
    ("RECORDS\namount = '/a'\nLIST+amount = '/a'", "set destination"),
    ("RECORDS\nsteps = ['a']\nLIST", "set destination"),
    ("records = { step = 's', operations = ['POST /a', 'POST /a'] }\nLIST", "each operation once"),
    ("records = { step = 's', operations = ['POST /a'], status = 401 }\nLIST", "status"),
    ("records = { step = 's', operations = ['POST /a'], status = 503 }\nLIST", "status"),
    ("records = { step = 's', operations = ['POST /a'], status = 102 }\nLIST", "status"),
    ("records = { step = 's', operations = ['POST /a'], status = 700 }\nLIST", "status"),
    ("destination = 'd'\napply_first_run = true\nEXPORT", "leave it out"),
    ("destination = 'd'\nlimits = { tries_max = 7 }\nEXPORT", "leave them out"),
    ("destination = 'd'\nlimits = { pages_max = 7 }\nEXPORT", "leave them out"),
    ("destination = 'd'\nlimits = { reach_back_max = '7h' }\nEXPORT", "leave it out"),
    ("destination = 'd'\nEXPORT+key = 'i'", "a column of its own"),
    ("destination = 'd'\nLIST+allow_networks = ['8.8.8.0/24']", "is public"),
    ("destination = 'd'\nLIST+harmless = ['']", "/meta/took"),
    ("destination = 'd'\nLIST+harmless = ['/l']", "harmless"),
    ("destination = 'd'\nPAGED+next = '/n', harmless = ['/n']", "harmless"),
    ("destination = 'd'\nPAGED+next = '/m/n', harmless = ['/m']", "harmless"),
    ("destination = 'd'\nPAGED+next = '/l'", "paging"),
    ("destination = 'd'\nPAGED+next = '/l/0/id'", "paging"),
    ("destination = 'd'\nPAGED+more = '/l'", "paging"),
    ("records = { step = 's', operations = ['post /a'] }\nLIST", "write POST /a"),
    ("records = { step = 's', operations = ['POST  /a'] }\nLIST", "write POST /a"),
    ("records = { step = 's', operations = [' POST /a '] }\nLIST", "write POST /a"),
    ("records = { step = 's', operations = [''] }\nLIST", "records.operations"),
    // Overlapping sources: what one lacks may be in the other.
    ("destination = 'd'\nLIST\n[reconcile.t]\ndestination = 'd'\nLIST", "[reconcile.s]"),
    (
        "destination = 'd'\nLIST\n[reconcile.t]\ndestination = 'd'\nsteps = ['a']\nLIST",
        "[reconcile.s]",
    ),
    (
        "destination = 'd'\nLIST\n[reconcile.t]\ndestination = 'd'\ntenant = 'a'\nLIST",
        "[reconcile.s]",
    ),
    ("RECORDS\nLIST\n[reconcile.t]\nRECORDS\nLIST", "[reconcile.s]"),
    // A name that the file does not have.
    (
        "destination = 'provder'\nLIST\n[destinations.provider]\nkind = 'http'\nurl = 'http://h/'",
        "[destinations.provder]",
    ),
];

fn section(lines: &str) -> String {
    let mut text = String::new();
    for line in format!("[reconcile.s]\n{lines}").lines() {
        let (line, more) = line.split_once('+').unwrap_or((line, ""));
        let line = match line {
            "LIST" => LIST,
            "EXPORT" => EXPORT,
            "PAGED" => PAGED,
            "RECORDS" => "records = { step = 's', operations = ['POST /a'] }",
            line => line,
        };
        let line = if more.is_empty() {
            line.to_owned()
        } else {
            line.replace(" }", &format!(", {more} }}"))
        };
        text = format!("{text}{line}\n");
    }
    text
}

#[test]
fn a_setting_of_an_account_that_could_never_take_effect_is_refused() {
    for (lines, word) in ACCOUNT_WITHOUT_EFFECT {
        assert_refused(RECONCILE, &section(lines), word);
    }
    for fine in [
        "destination = 'd'\nLIST\n[reconcile.t]\ndestination = 'e'\nLIST",
        "destination = 'd'\nsteps = ['a']\nLIST\n[reconcile.t]\ndestination = 'd'\nsteps = ['b']\nLIST",
        "destination = 'd'\ntenant = 'a'\nLIST\n[reconcile.t]\ndestination = 'd'\ntenant = 'b'\nLIST",
        "destination = 'd'\nLIST\n[reconcile.t]\nRECORDS\nLIST+amount = '/a'",
        "destination = 'd'\nLIST\n[destinations.d]\nkind = 'http'\nurl = 'http://h/'",
        "destination = 'd'\namount = '/a'\namount_is_proof = true\namount_power = -12\nLIST+amount = '/a'",
        "destination = 'd'\nLIST+allow_networks = ['10.0.0.0/8', '0.0.0.0/0', 'fd00::/8']",
    ] {
        let planned = planned(RECONCILE, &format!("{WHOLE}{}", section(fine)));
        assert!(planned.is_ok(), "{fine}: {planned:?}");
    }
}

/// Asserts that `command` and `check` refuse a whole file with these lines, in words with `word` in them.
fn assert_refused(command: Command, lines: &str, word: &str) {
    let text = format!("{WHOLE}{lines}\n");
    let started = planned(command, &text).expect_err(lines);
    assert!(started.contains(word), "{lines}: {started}");
    assert_eq!(planned(CHECK, &text), Err(started), "{lines}");
}

#[test]
fn an_operation_that_no_request_belongs_to_is_refused_with_the_fix() {
    for (name, fix) in UNMATCHED {
        assert_refused(GATEWAY, &format!("operations = [{{ operation = \"{name}\" }}]"), fix);
    }
    for fine in [
        "PUT /accounts/{id}",
        "POST /",
        "POST /trail/",
        "POST /payments:capture",
        "POST /a/{*rest}",
        "POST /größe",
        "POST /100%",
        "POST /.well-known/x",
        "POST /a..b/...",
    ] {
        let text = format!("{WHOLE}operations = [{{ operation = '{fine}' }}]\n");
        let started = planned(GATEWAY, &text);
        assert!(started.is_ok(), "{fine}: {started:?}");
    }
}

#[test]
fn a_setting_that_could_never_take_effect_is_refused() {
    for (lines, word) in WITHOUT_EFFECT {
        assert_refused(GATEWAY, lines, word);
    }
    for fine in [
        "default = { unprotected = 'r', lease = '7s' }",
        "default.released_statuses = [409, 423]",
        "optional_keys = true\ndefault.key = 'optional'",
        "cors.origins = ['https://shop.example:8443', 'http://[::1]:5173', 'http://a_b.test']",
        "cors = { origins = ['https://shop.example'], expose = ['*'] }",
    ] {
        let started = planned(GATEWAY, &format!("{WHOLE}{fine}\n"));
        assert!(started.is_ok(), "{fine}: {started:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_check_and_start_alike() {
    for (command, lines, word) in REFUSED {
        assert_refused(command, lines, word);
    }
}
