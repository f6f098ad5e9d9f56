//! The sections that belong to no single service.

use super::{
    DEMO, DOCTOR, FINDINGS, GATEWAY, LIST, MESSAGES, STORE, Section, UPSTREAM, USUAL, WORKER,
};

const KEYS: &str = "keys = [{ id = 'one', key = '0123456789abcdef0123456789abcdef\
                    0123456789abcdef0123456789abcdef' }]\n";
const KEY: &str =
    "id = 'one'\nkey = '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'\n";

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "Top of the file",
        before: "",
        needs: STORE,
        after: UPSTREAM,
        followed_by: &[GATEWAY, WORKER, LIST, MESSAGES, FINDINGS, DEMO, DOCTOR],
        settings: &[("store", "'sqlite:b.db'"), ("log", "'debug'"), ("log_format", "'json'")],
        ..USUAL
    },
    Section {
        title: "`[worker]`",
        header: "[worker]",
        followed_by: &[GATEWAY, WORKER],
        settings: &[("sweep_every", "'7s'"), ("reap_every", "'7s'"), ("upkeep_every", "'7s'")],
        ..USUAL
    },
    Section {
        title: "`[worker]`",
        header: "[worker]",
        followed_by: &[WORKER],
        settings: &[("reconcile_every", "'7s'")],
        after: "[reconcile.s]\ndestination = 'd'\nhttp = { url = 'http://h/', list = '/l', id = '/i', at = '/t', \
                made = 'all', single_page = true }\n",
        ..USUAL
    },
    Section {
        title: "`[doctor]`",
        header: "[doctor]",
        before: "store = 'postgres://h/d'\n",
        followed_by: &[DOCTOR],
        settings: &[("expect_standby", "'two'")],
        ..USUAL
    },
    Section {
        title: "`[demo]`",
        header: "[demo]",
        followed_by: &[DEMO],
        settings: &[
            ("listen", "'127.0.0.1:7'"),
            ("faults", "true"),
            ("retention", "'7days'"),
            ("drain", "'7s'"),
            ("wait_for", "'1s'"),
            ("provider", "'http://127.0.0.1:7'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[sealing]`",
        header: "[sealing]",
        needs: KEYS,
        followed_by: &[GATEWAY, WORKER, LIST, MESSAGES, FINDINGS],
        settings: &[("keys", "![]"), ("dropped_tenants", "['acme']"), ("require", "false")],
        ..USUAL
    },
    Section {
        title: "`[[sealing.keys]]`",
        header: "[[sealing.keys]]",
        needs: KEY,
        followed_by: &[GATEWAY, WORKER, LIST, MESSAGES, FINDINGS],
        settings: &[("id", "'two'"), ("key", "!'short'"), ("tenant", "!'acme'")],
        ..USUAL
    },
];
