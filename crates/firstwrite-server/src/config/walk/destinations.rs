//! Destinations of every kind.

use super::{Section, Setting, USUAL, WORKER};

/// The settings of every kind.
const COMMON: &[Setting] = &[
    ("timeout", "'7s'"),
    ("dedupe_for", "'7m'"),
    ("answers_refusals_by_key", "!true"),
    ("delivery_count_max", "7"),
    ("pause_first", "'7s'"),
    ("pause_max", "'7s'"),
    ("concurrency_max", "7"),
];
/// Redis recognises keys by itself.
const COMMON_REDIS: &[Setting] = &[
    ("timeout", "'7s'"),
    ("dedupe_for", "'7m'"),
    ("answers_refusals_by_key", "true"),
    ("delivery_count_max", "7"),
    ("pause_first", "'7s'"),
    ("pause_max", "'7s'"),
    ("concurrency_max", "7"),
];

pub(super) const SECTIONS: &[Section] = &[
    Section {
        title: "`[destinations.NAME]`, `kind = \"http\"`",
        header: "[destinations.d]\nkind = 'http'",
        needs: "url = 'http://h/'\n",
        followed_by: &[WORKER],
        settings: &[
            ("url", "'http://seven/'"),
            ("method", "'PUT'"),
            ("headers", "{ x-seven = '7' }"),
            ("key_header", "'x-seven'"),
            ("quoted_key", "true"),
            ("success_statuses", "'207'"),
            ("refusal_statuses", "'407'"),
            ("retry_statuses", "'507'"),
            ("provider_id", "'/seven'"),
            ("signing_secrets", "['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw']"),
            ("allow_networks", "['127.0.0.7/32']"),
            ("root_certificates", "!'none.pem'"),
            ("probe", "{ url = 'http://h/{key}', id = '/id', made = 'all' }"),
        ],
        more: COMMON,
        ..USUAL
    },
    Section {
        title: "`[destinations.NAME.probe]`",
        header: "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\n[destinations.d.probe]",
        needs: "url = 'http://h/{key}'\nlist = '/data'\nkey = '/key'\nmade = 'all'\nat = 'none'\n\
                id = '/id'\n",
        followed_by: &[WORKER],
        settings: &[
            ("url", "!'http://h/'"),
            ("list", "'/seven'"),
            ("key", "'/seven'"),
            ("made", "{ status = '/status', is = ['seven'], not = [] }"),
            ("at", "'/seven'"),
            ("harmless", "['/seven']"),
            ("absent_statuses", "![404]"),
            ("empty_is_absent", "true"),
            ("id", "'/seven'"),
        ],
        ..USUAL
    },
    Section {
        title: "`[destinations.NAME.probe]`",
        header: "[destinations.d]\nkind = 'http'\nurl = 'http://h/'\n[destinations.d.probe]",
        needs: "url = 'http://h/{key}'\nmade = 'all'\nat = '/at'\nid = '/id'\n",
        followed_by: &[WORKER],
        settings: &[
            ("times", "'unix_seconds'"),
            ("harmless", "!['/seven']"),
            ("absent_statuses", "[404]"),
            ("empty_is_absent", "!true"),
        ],
        ..USUAL
    },
    Section {
        title: "`[destinations.NAME]`, `kind = \"nats\"`",
        header: "[destinations.d]\nkind = 'nats'",
        needs: "url = 'nats://h'\nsubject = 'a'\n",
        followed_by: &[WORKER],
        settings: &[
            ("url", "'nats://seven'"),
            ("subject", "'seven'"),
            ("stream", "'seven'"),
            ("credentials", "!'seven'"),
        ],
        more: COMMON,
        ..USUAL
    },
    Section {
        title: "`[destinations.NAME]`, `kind = \"rabbitmq\"`",
        header: "[destinations.d]\nkind = 'rabbitmq'",
        needs: "url = 'amqp://h'\nqueue = 'a'\n",
        followed_by: &[WORKER],
        settings: &[
            ("url", "'amqp://seven'"),
            ("queue", "'seven'"),
            ("exchange", "!'seven'"),
            ("reaches_one_queue", "false"),
            ("channel_max", "7"),
        ],
        more: COMMON,
        ..USUAL
    },
    Section {
        title: "`[destinations.NAME]`, `kind = \"rabbitmq\"`",
        header: "[destinations.d]\nkind = 'rabbitmq'",
        needs: "url = 'amqp://h'\nexchange = 'a'\n",
        followed_by: &[WORKER],
        settings: &[
            ("exchange", "'seven'"),
            ("routing_key", "'seven'"),
            ("reaches_one_queue", "true"),
        ],
        ..USUAL
    },
    Section {
        title: "`[destinations.NAME]`, `kind = \"kafka\"`",
        header: "[destinations.d]\nkind = 'kafka'",
        needs: "servers = 'h:9'\ntopic = 'a'\n",
        followed_by: &[WORKER],
        settings: &[
            ("servers", "'seven:9'"),
            ("topic", "'seven'"),
            ("options", "{ 'client.id' = 'seven' }"),
        ],
        more: COMMON,
        ..USUAL
    },
    Section {
        title: "`[destinations.NAME]`, `kind = \"redis\"`",
        header: "[destinations.d]\nkind = 'redis'",
        needs: "url = 'redis://h'\nstream = 'a'\n",
        followed_by: &[WORKER],
        settings: &[
            ("url", "'redis://seven'"),
            ("stream", "'seven'"),
            ("creates_stream", "true"),
            ("length_max", "7"),
        ],
        more: COMMON_REDIS,
        ..USUAL
    },
];
