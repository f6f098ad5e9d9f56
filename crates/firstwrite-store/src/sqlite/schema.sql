-- Version 1.

-- The unique arbiter of both modes: one row for each tenant and key. `id` is the digest of the two;
-- `record` names the row in firstwrite_records or firstwrite_reservations, never in both.
CREATE TABLE firstwrite_ids (
    id     BLOB PRIMARY KEY NOT NULL,
    record INTEGER NOT NULL
) WITHOUT ROWID;

-- Completed records, appended in the order of their creation and never updated, but for an interim
-- outcome, which is replaced once: `completed_after` then says when. `tenant` is a number of
-- firstwrite_tenants or the name itself; `key` is text, or the 16 bytes of a UUID; `profile` is a number
-- of firstwrite_profiles or the same facts in a blob; times are milliseconds since 1970.
CREATE TABLE firstwrite_records (
    record          INTEGER PRIMARY KEY,
    tenant          NOT NULL,
    key             NOT NULL,
    profile         NOT NULL,
    fingerprint     BLOB NOT NULL,
    fence           INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    completed_after INTEGER NOT NULL,
    outcome         BLOB NOT NULL
);

-- Reserved records, and uncertain ones, whose `lease_until` is null and whose `uncertain_since` is not.
-- They are few and short-lived, so everything stands in plain columns.
CREATE TABLE firstwrite_reservations (
    record              INTEGER PRIMARY KEY,
    id                  BLOB NOT NULL,
    tenant              TEXT NOT NULL,
    key                 NOT NULL,
    operation           TEXT NOT NULL,
    on_lost_answer      INTEGER NOT NULL,
    fingerprint_version INTEGER NOT NULL,
    fingerprint_form    INTEGER NOT NULL,
    fingerprint         BLOB NOT NULL,
    fence               INTEGER NOT NULL,
    created_at          INTEGER NOT NULL,
    replay_for          INTEGER NOT NULL,
    linger_for          INTEGER NOT NULL,
    refuses_spent       INTEGER NOT NULL,
    lease_until         INTEGER,
    uncertain_since     INTEGER
);
CREATE INDEX firstwrite_leases ON firstwrite_reservations (lease_until)
    WHERE lease_until IS NOT NULL;

-- What many completed records have in common.
CREATE TABLE firstwrite_profiles (
    profile             INTEGER PRIMARY KEY,
    operation           TEXT NOT NULL,
    on_lost_answer      INTEGER NOT NULL,
    fingerprint_version INTEGER NOT NULL,
    fingerprint_form    INTEGER NOT NULL,
    replay_for          INTEGER NOT NULL,
    linger_for          INTEGER NOT NULL,
    refuses_spent       INTEGER NOT NULL,
    UNIQUE (operation, on_lost_answer, fingerprint_version, fingerprint_form, replay_for, linger_for,
            refuses_spent)
);
CREATE TABLE firstwrite_tenants (
    tenant INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
);

-- Messages to be delivered, written in the commit of the effect they follow from and never updated.
-- `id` is the record's; `answers` replace its interim outcome, if the message decides that. A number is
-- never given twice, even when the message is long gone: people and workers know messages by it.
CREATE TABLE firstwrite_messages (
    message      INTEGER PRIMARY KEY AUTOINCREMENT,
    id           BLOB NOT NULL,
    tenant       NOT NULL,
    derived_key  TEXT NOT NULL,
    destination  TEXT NOT NULL,
    content_type TEXT NOT NULL,
    payload      BLOB NOT NULL,
    ordering_key TEXT,
    not_before   INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    answers      BLOB
);

-- What changes of a message, as long as it is neither delivered nor dropped. `state` is 0: waiting,
-- 1: sending, 2: unknown, 3: dead. `due_at` is when it can be claimed: when it is due, or when its claim
-- runs out; null while it is unknown or dead, or waits for an older one under its ordering key. `fence`
-- is that of the last claim, 0 before the first.
CREATE TABLE firstwrite_pending (
    message        INTEGER PRIMARY KEY,
    id             BLOB NOT NULL,
    destination    TEXT NOT NULL,
    ordering_key   TEXT,
    state          INTEGER NOT NULL,
    due_at         INTEGER,
    fence          INTEGER NOT NULL,
    claimed_at     INTEGER,
    delivery_count INTEGER NOT NULL,
    lapse_count    INTEGER NOT NULL,
    maybe_sent_at  INTEGER,
    status         INTEGER,
    problem        TEXT
);
CREATE INDEX firstwrite_pending_due ON firstwrite_pending (destination, due_at, message)
    WHERE due_at IS NOT NULL;
CREATE INDEX firstwrite_pending_order ON firstwrite_pending (destination, ordering_key, message)
    WHERE ordering_key IS NOT NULL;
CREATE INDEX firstwrite_pending_stuck ON firstwrite_pending (state, message) WHERE state >= 2;
CREATE INDEX firstwrite_pending_of ON firstwrite_pending (id);

-- Every handing-over of a message, and its end where an operator said so. `ending` is delivered, refused,
-- retry, unknown or dropped; the last one of a message that is not pending is delivered, refused or dropped.
CREATE TABLE firstwrite_deliveries (
    message     INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    ending      TEXT NOT NULL,
    status      INTEGER,
    detail      TEXT NOT NULL,
    provider_id TEXT,
    PRIMARY KEY (message, fence)
) WITHOUT ROWID;

-- Destinations that were ever paused or left alone.
CREATE TABLE firstwrite_destinations (
    destination   TEXT PRIMARY KEY NOT NULL,
    paused_at     INTEGER,
    paused_by     TEXT,
    paused_action TEXT,
    paused_reason TEXT,
    open_until    INTEGER,
    open_cause    TEXT,
    opening_count INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- How many messages of a destination are open (waiting or sending), unknown, dead, or were ever
-- delivered. Exact: there is one writer, so it keeps the sum itself.
CREATE TABLE firstwrite_tallies (
    destination TEXT NOT NULL,
    state       TEXT NOT NULL,
    count       INTEGER NOT NULL,
    PRIMARY KEY (destination, state)
) WITHOUT ROWID;

-- Messages of others that were consumed here. `id` is the digest of the source and the message's id.
CREATE TABLE firstwrite_inbox (
    id          BLOB PRIMARY KEY NOT NULL,
    consumed_at INTEGER NOT NULL,
    kept_until  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX firstwrite_inbox_kept ON firstwrite_inbox (kept_until);

-- The latest time that the file has seen, and what the host's clock showed then. Time never goes back from
-- there, whatever the clock shows at the next opening.
CREATE TABLE firstwrite_time (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    at   INTEGER NOT NULL,
    wall INTEGER NOT NULL
);

-- Gaps between two openings that a clock that was set ahead explains as well as a machine that was off.
-- `uncounted` milliseconds do not count for the retention of what was written before `at`, nor for how long
-- an earlier record is uncertain, until an operator confirms them.
CREATE TABLE firstwrite_jumps (
    at           INTEGER PRIMARY KEY,
    uncounted    INTEGER NOT NULL,
    confirmed_at INTEGER,
    confirmed_by TEXT,
    reason       TEXT
);

-- Times that the file was found deleted or replaced under a running process. While one is not cleared, keys that
-- are not known are refused.
CREATE TABLE firstwrite_history_losses (
    loss       INTEGER PRIMARY KEY,
    noticed_at INTEGER NOT NULL,
    detail     TEXT NOT NULL,
    cleared_at INTEGER,
    cleared_by TEXT,
    reason     TEXT
);

-- What operators did to a record and its messages, or, under a destination's name, to that.
CREATE TABLE firstwrite_audit (
    entry  INTEGER PRIMARY KEY,
    id     BLOB NOT NULL,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX firstwrite_audit_of ON firstwrite_audit (id, entry);

-- Documents, such as findings of reconciliations: lines of text that firstwrite-core writes and reads. A
-- document is replaced where its version is the one that was read; one that expires may be removed then.
CREATE TABLE firstwrite_documents (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    kind       TEXT NOT NULL,
    name       BLOB NOT NULL,
    version    INTEGER NOT NULL,
    expires_at INTEGER,
    content    BLOB NOT NULL,
    UNIQUE (kind, name)
);
CREATE INDEX firstwrite_documents_lasting ON firstwrite_documents (kind, number)
    WHERE expires_at IS NULL;
CREATE INDEX firstwrite_documents_expiring ON firstwrite_documents (kind, expires_at)
    WHERE expires_at IS NOT NULL;
