//! The sections of the gateway.

use super::{GATEWAY, STORE, Section, USUAL};

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "`[gateway]`",
        before: STORE,
        header: "[gateway]",
        needs: "upstreams = ['http://127.0.0.1:9']\noperator = '127.0.0.1:0'\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("listen", "'127.0.0.1:7'"),
            ("operator", "'127.0.0.1:7'"),
            ("metrics_tenants_max", "7"),
            ("otlp", "'http://127.0.0.1:7'"),
            ("upstreams", "['http://127.0.0.1:7']"),
            ("optional_keys", "true"),
            ("cache", "!'redis://127.0.0.1:7'"),
            ("moving_from", "'sqlite:b.db'"),
            ("moving_to", "'sqlite:b.db'"),
            ("drain", "'7s'"),
            ("forward_key", "'original'"),
            ("tell_record", "false"),
            ("upgrades", "['seven']"),
            ("trusted_proxies", "['10.7.0.0/16']"),
            ("problem_base", "'/seven/'"),
            ("cors", "{ origins = ['https://seven.example'] }"),
            ("service_name", "'seven'"),
            ("fingerprint_secrets", "['seven-of-sixteen-bytes']"),
            ("threads", "77"),
            ("connections_max", "7"),
            ("connect_within", "'7s'"),
            ("answer_within", "'7s'"),
            ("idle_for_max", "'7s'"),
            ("keep_alive", "'7s'"),
            ("held_bytes_max", "7000000"),
            ("attempts_max", "7"),
            ("upstream_connections_max", "7"),
            ("tenant_share", "0.7"),
            ("tunnel_idle_for_max", "'7s'"),
            ("http2", "true"),
            ("root_certificates", "!'none.pem'"),
            ("health", "{ path = '/h' }"),
            ("tenants", "{ sources = [{ kind = 'authorization' }] }"),
            ("tls", "!{ certificate = 'none.pem', key = 'none.pem' }"),
            ("limits", "{ in_flight_max = 7 }"),
            ("default", "{ retention = '7h' }"),
            ("operations", "[{ operation = 'POST /a' }]"),
        ],
        ..USUAL
    },
    Section {
        title: "`[gateway]`",
        before: "store = 'postgres://h/d'\n",
        header: "[gateway]",
        needs: "upstreams = ['http://127.0.0.1:9']\n",
        followed_by: &[GATEWAY],
        settings: &[("cache", "'redis://127.0.0.1:7'")],
        ..USUAL
    },
    Section {
        title: "`[gateway]`",
        before: STORE,
        header: "[gateway]",
        needs: "upstreams = ['http://127.0.0.1:9']\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("upgrades", "!['h2c']"),
            ("trusted_proxies", "!['0.0.0.0/0']"),
            ("problem_base", "!'seven'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[gateway.cors]`",
        header: "[gateway.cors]",
        needs: "origins = ['https://one.example']\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("origins", "['https://seven.example']"),
            ("credentials", "true"),
            ("expose", "['x-seven']"),
        ],
        ..USUAL
    },
    Section {
        title: "`[gateway.health]`",
        header: "[gateway.health]",
        needs: "path = '/h'\n",
        followed_by: &[GATEWAY],
        settings: &[("path", "'/7'"), ("every", "'7s'")],
        ..USUAL
    },
    // What keys and certificates hold, no command may show.
    Section {
        title: "`[gateway.tls]`",
        header: "[gateway.tls]",
        needs: "certificate = 'FOLDER/chain.pem'\nkey = 'FOLDER/key.pem'\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("certificate", "!'none.pem'"),
            ("key", "!'none.pem'"),
            ("client_roots", "!'none.pem'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[gateway.limits]`",
        header: "[gateway.limits]",
        needs: "active_keys_max = 1\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("new_keys_per_second", "7"),
            ("requests_per_second", "7"),
            ("in_flight_max", "7"),
            ("unverified_new_keys_per_second", "7"),
            ("active_keys_max", "7"),
            ("stored_bytes_max", "7"),
            ("count_every", "'7s'"),
            ("tenants", "{ acme = { in_flight_max = 7 } }"),
        ],
        ..USUAL
    },
    Section {
        title: "`[[gateway.operations]]`",
        header: "[[gateway.operations]]",
        needs: "operation = 'POST /a'\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("operation", "'POST /b'"),
            ("unprotected", "'changes nothing'"),
            ("key", "'optional'"),
            ("lease", "'7s'"),
            ("retention", "'7h'"),
            ("dedupe_for", "!'7days'"),
            ("slack", "'7s'"),
            ("request_bytes_max", "7"),
            ("response_bytes_max", "7"),
            ("response_within", "'7s'"),
            ("released_statuses", "[409]"),
            ("kept_headers", "['x-seven']"),
            ("conflict", "{ wait = '7s' }"),
            ("on_lost_answer", "'resend'"),
            ("on_server_error", "'lost'"),
            ("after_retention", "{ refuse = '7h' }"),
            ("retry_after", "'7s'"),
            ("respond_async", "false"),
            ("fingerprint", "{ body = 'bytes' }"),
            ("age", "{ header = 'x-at', max = '7s' }"),
            ("bind_to_principal", "true"),
        ],
        ..USUAL
    },
    Section {
        title: "`[gateway.operations.fingerprint]`",
        header: "[[gateway.operations]]\noperation = 'POST /a'\n[gateway.operations.fingerprint]",
        followed_by: &[GATEWAY],
        settings: &[
            ("body", "'bytes'"),
            ("headers", "['x-seven']"),
            ("select", "['/seven']"),
            ("ignore", "['/seven']"),
            ("explain", "true"),
        ],
        ..USUAL
    },
    Section {
        title: "`[gateway.operations.age]`",
        header: "[[gateway.operations]]\noperation = 'POST /a'\n[gateway.operations.age]",
        needs: "header = 'x-at'\nmax = '1m'\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("header", "'x-seven'"),
            ("max", "'7s'"),
            ("signature", "{ header = 'x-signature', secret = 'seven-of-sixteen-bytes' }"),
        ],
        ..USUAL
    },
    Section {
        title: "`[gateway.operations.age.signature]`",
        header: "[[gateway.operations]]\noperation = 'POST /a'\n[gateway.operations.age]\n\
                 header = 'x-at'\nmax = '1m'\n[gateway.operations.age.signature]",
        needs: "header = 'x-signature'\nsecret = 'one-of-sixteen-bytes'\n",
        followed_by: &[GATEWAY],
        settings: &[("header", "'x-seven'"), ("secret", "!'file:none'")],
        ..USUAL
    },
    Section {
        title: "`[gateway.operations.on_lost_answer.probe]`",
        header: "[[gateway.operations]]\noperation = 'POST /a'\n\
                 [gateway.operations.on_lost_answer.probe]",
        needs: "url = '/made?key={key}'\nmade = 'all'\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("url", "'/seven/{key}'"),
            ("headers", "{ x-seven = '7' }"),
            ("status", "207"),
            ("list", "!'/data'"),
            ("key", "'/key'"),
            ("made", "{ status = '/status', is = ['seven'], not = [] }"),
            ("at", "'/seven'"),
            ("harmless", "!['/seven']"),
            ("absent_statuses", "[410]"),
            ("empty_is_absent", "!true"),
            ("grace", "'7m'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[gateway.operations.on_lost_answer.probe]`",
        header: "[[gateway.operations]]\noperation = 'POST /a'\n\
                 [gateway.operations.on_lost_answer.probe]",
        needs: "url = '/made?key={key}'\nlist = '/data'\nkey = '/key'\nmade = 'all'\nat = '/at'\n",
        followed_by: &[GATEWAY],
        settings: &[
            ("times", "'unix_seconds'"),
            ("harmless", "['/seven']"),
            ("absent_statuses", "![404]"),
            ("empty_is_absent", "true"),
        ],
        ..USUAL
    },
];
