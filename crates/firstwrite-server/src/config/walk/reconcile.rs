//! Accounts of providers.

use super::{RECONCILE, Section, USUAL, WORKER};

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "`[reconcile.NAME]`",
        header: "[reconcile.s]",
        needs: "destination = 'd'\nhttp = { url = 'http://h/', list = '/l', id = '/i', at = '/t', \
                made = 'all', single_page = true }\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[
            ("destination", "'seven'"),
            ("steps", "['seven']"),
            ("amount", "!'/seven'"),
            ("currency", "!'/seven'"),
            ("records", "{ step = 'seven', operations = ['POST /seven'] }"),
            ("tenant", "'seven'"),
            ("grace", "'7s'"),
            ("tolerance", "'7s'"),
            ("amount_is_proof", "!true"),
            ("times", "'unix_millis'"),
            ("amount_power", "!2"),
            ("apply_first_run", "true"),
        ],
        ..USUAL
    },
    // Amounts are compared where both sides have them.
    Section {
        title: "`[reconcile.NAME]`",
        header: "[reconcile.s]",
        needs: "destination = 'd'\namount = '/a'\ncurrency = '/c'\n\
                http = { url = 'http://h/', list = '/l', id = '/i', at = '/t', made = 'all', \
                single_page = true, amount = '/a', currency = '/c' }\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[
            ("amount", "'/seven'"),
            ("currency", "'/seven'"),
            ("amount_is_proof", "true"),
            ("amount_power", "2"),
        ],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME.limits]`",
        header: "[reconcile.s]\ndestination = 'd'\nhttp = { url = 'http://h/', list = '/l', id = '/i', \
                 at = '/t', made = 'all', single_page = true }\n[reconcile.s.limits]",
        followed_by: &[WORKER, RECONCILE],
        settings: &[
            ("pages_max", "7"),
            ("entries_max", "7"),
            ("findings_max", "7"),
            ("tries_max", "7"),
            ("pause_first", "'7s'"),
            ("read_back", "'7s'"),
            ("reach_back_max", "'7s'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME.records]`",
        before: "store = 'sqlite:a.db'\n[gateway]\nupstreams = ['http://127.0.0.1:9']\n[reconcile.s]\n\
                 http = { url = 'http://h/', list = '/l', id = '/i', at = '/t', made = 'all', \
                 single_page = true }\n",
        header: "[reconcile.s.records]",
        needs: "step = 'charge'\noperations = ['POST /a']\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[
            ("step", "'seven'"),
            ("operations", "['POST /seven']"),
            ("attempt_max", "'7s'"),
            ("retention", "'7h'"),
            ("status", "207"),
            ("body", "'{}'"),
            ("content_type", "!'text/plain'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME.records]`",
        before: "store = 'sqlite:a.db'\n[gateway]\nupstreams = ['http://127.0.0.1:9']\n[reconcile.s]\n\
                 http = { url = 'http://h/', list = '/l', id = '/i', at = '/t', made = 'all', \
                 single_page = true }\n",
        header: "[reconcile.s.records]",
        needs: "step = 'charge'\noperations = ['POST /a']\nbody = '{provider_id}'\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[("content_type", "'text/plain'")],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME.http]`",
        header: "[reconcile.s]\ndestination = 'd'\n[reconcile.s.http]",
        needs: "url = 'http://h/'\nlist = '/l'\nid = '/i'\nat = '/t'\nmade = 'all'\nsingle_page = true\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[
            ("url", "!'ftp://h/'"),
            ("headers", "{ x-seven = '7' }"),
            ("list", "'/seven'"),
            ("id", "'/seven'"),
            ("key", "'/seven'"),
            ("amount", "!'/seven'"),
            ("currency", "!'/seven'"),
            ("at", "'/seven'"),
            ("made", "{ status = '/seven', is = ['paid'], not = [] }"),
            ("next", "!'/seven'"),
            ("empty_next_ends", "!true"),
            ("more", "!'/seven'"),
            ("single_page", "!false"),
            ("harmless", "['/seven']"),
            ("timeout", "'7s'"),
            ("page_bytes_max", "7"),
            ("allow_networks", "['127.0.0.7/32']"),
            ("root_certificates", "!'none.pem'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME.http]`",
        header: "[reconcile.s]\ndestination = 'd'\namount = '/a'\ncurrency = '/c'\n[reconcile.s.http]",
        needs: "url = 'http://h/'\nlist = '/l'\nid = '/i'\nat = '/t'\nmade = 'all'\nsingle_page = true\n\
                amount = '/a'\ncurrency = '/c'\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[("amount", "'/seven'"), ("currency", "'/seven'")],
        ..USUAL
    },
    // A list of several pages says in one way which of them is the last.
    Section {
        title: "`[reconcile.NAME.http]`",
        header: "[reconcile.s]\ndestination = 'd'\n[reconcile.s.http]",
        needs: "url = 'http://h/?c={cursor}'\nlist = '/l'\nid = '/i'\nat = '/t'\nmade = 'all'\nnext = '/n'\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[
            ("next", "'/seven'"),
            ("empty_next_ends", "true"),
            ("more", "!'/seven'"),
            ("single_page", "!true"),
        ],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME.http]`",
        header: "[reconcile.s]\ndestination = 'd'\n[reconcile.s.http]",
        needs: "url = 'http://h/?c={cursor}'\nlist = '/l'\nid = '/i'\nat = '/t'\nmade = 'all'\nmore = '/n'\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[("more", "'/seven'")],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME.http.made]`",
        header: "[reconcile.s]\ndestination = 'd'\n[reconcile.s.http]\nurl = 'http://h/'\nlist = '/l'\n\
                 id = '/i'\nat = '/t'\nsingle_page = true\n[reconcile.s.http.made]",
        needs: "status = '/s'\nis = ['paid']\nnot = ['failed']\n",
        followed_by: &[WORKER, RECONCILE],
        settings: &[("status", "'/seven'"), ("is", "['seven']"), ("not", "['seven']")],
        ..USUAL
    },
    // Only a run by hand reads an export.
    Section {
        title: "`[reconcile.NAME.csv]`",
        header: "[reconcile.s]\ndestination = 'd'\n[reconcile.s.csv]",
        needs: "file = 'a.csv'\nid = 'i'\nat = 't'\nmade = 'all'\n",
        followed_by: &[RECONCILE],
        settings: &[
            ("file", "'seven.csv'"),
            ("id", "'seven'"),
            ("key", "'seven'"),
            ("amount", "!'seven'"),
            ("currency", "!'seven'"),
            ("at", "'seven'"),
            ("made", "{ status = 'seven', is = ['paid'], not = [] }"),
            ("delimiter", "';'"),
            ("bytes_max", "7"),
        ],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME]`",
        header: "[reconcile.s]\ncsv = { file = 'a.csv', id = 'i', at = 't', made = 'all', amount = 'a' }",
        needs: "destination = 'd'\namount = '/a'\n",
        followed_by: &[RECONCILE],
        settings: &[("times", "'unix_seconds'"), ("amount_power", "2")],
        ..USUAL
    },
    Section {
        title: "`[reconcile.NAME.csv]`",
        header: "[reconcile.s]\ndestination = 'd'\namount = '/a'\ncurrency = '/c'\n[reconcile.s.csv]",
        needs: "file = 'a.csv'\nid = 'i'\nat = 't'\nmade = 'all'\namount = 'a'\ncurrency = 'c'\n",
        followed_by: &[RECONCILE],
        settings: &[("amount", "'seven'"), ("currency", "'seven'")],
        ..USUAL
    },
];
