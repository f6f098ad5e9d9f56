//! Values that no file may have: each is refused, by `check` and by the start, with the same words.

use super::{CHECK, Command, DOCTOR, GATEWAY, WHOLE, WORKER, planned};

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
    (GATEWAY, "connect_within = '0s'", "gateway.connect_within"),
    (GATEWAY, "answer_within = '0s'", "gateway.answer_within"),
    (GATEWAY, "idle_for_max = '0s'", "gateway.idle_for_max"),
    (GATEWAY, "cache = 'redis://127.0.0.1'", "for PostgreSQL"),
    (GATEWAY, "moving_to = 'sqlite:a.db'", "into itself"),
    (GATEWAY, "[gateway.health]\npath = 'healthz'", "health.path"),
    (GATEWAY, "[gateway.health]\npath = '/a b'", "health.path"),
    (GATEWAY, "[gateway.health]\npath = \"/a\\r\\nx: y\"", "health.path"),
    (GATEWAY, "[gateway.health]\npath = '/h'\nevery = '1ms'", "at least 100ms"),
    (GATEWAY, "default.on_lost_answer.probe.url = '/a b/{key}'", "a probe has a path"),
    (GATEWAY, "default.on_lost_answer.probe.url = \"/{key}\\r\\nx: y\"", "a probe has a path"),
    (GATEWAY, "default.on_lost_answer.probe.url = '/a#{key}'", "a probe has a path"),
    (GATEWAY, "default.on_lost_answer.probe.url = 'http://{key}/a'", "scheme, a host"),
    (GATEWAY, "default.on_lost_answer.probe.url = 'http://h:99999/{key}'", "a port"),
    (GATEWAY, "default.released_statuses = [201]", "2xx"),
    (GATEWAY, "[worker]\nsweep_every = '0s'", "worker.sweep_every"),
    (WORKER, "[worker]\nreconcile_every = '0s'", "worker.reconcile_every"),
    (WORKER, "[destinations.d]\nkind = 'http'\nurl = 'http://h:99999/'", "a port"),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h:0/{key}', id = '/id' }",
        "a port",
    ),
    (
        WORKER,
        "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\nprobe = { url = 'http://h/a b/{key}', id = '/id' }",
        "is no URL",
    ),
    (DOCTOR, "[doctor]\nexpect_standby = 'two'", "standby"),
];

#[test]
fn what_makes_no_sense_is_refused_by_check_and_start_alike() {
    for (command, lines, word) in REFUSED {
        let text = format!("{WHOLE}{lines}\n");
        let started = planned(command, &text).expect_err(lines);
        assert!(started.contains(word), "{lines}: {started}");
        assert_eq!(planned(CHECK, &text), Err(started), "{lines}");
    }
}
