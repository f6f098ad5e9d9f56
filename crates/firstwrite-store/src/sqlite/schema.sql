-- Version 1.

-- The unique arbiter of both modes: one row for each tenant and key. `id` is the digest of the two;
-- `record` names the row in firstwrite_records or firstwrite_reservations, never in both.
CREATE TABLE firstwrite_ids (
    id     BLOB PRIMARY KEY NOT NULL,
    record INTEGER NOT NULL
) WITHOUT ROWID;

-- Completed records, appended in the order of their creation and never updated. `tenant` is a number
-- of firstwrite_tenants or the name itself; `key` is text, or the 16 bytes of a UUID; `profile` is a
-- number of firstwrite_profiles or the same facts in a blob; times are milliseconds since 1970.
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

-- Reserved records, and uncertain ones, whose `lease_until` is null. They are few and short-lived,
-- so everything stands in plain columns.
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
    lease_until         INTEGER
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
    UNIQUE (operation, on_lost_answer, fingerprint_version, fingerprint_form, replay_for, linger_for)
);
CREATE TABLE firstwrite_tenants (
    tenant INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
);

-- Messages to be delivered, written in the commit of the effect they follow from.
CREATE TABLE firstwrite_messages (
    message      INTEGER PRIMARY KEY,
    tenant       NOT NULL,
    derived_key  TEXT NOT NULL,
    destination  TEXT NOT NULL,
    content_type TEXT NOT NULL,
    payload      BLOB NOT NULL,
    ordering_key TEXT,
    not_before   INTEGER NOT NULL,
    created_at   INTEGER NOT NULL
);

-- What operators did.
CREATE TABLE firstwrite_audit (
    entry  INTEGER PRIMARY KEY,
    id     BLOB NOT NULL,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX firstwrite_audit_of ON firstwrite_audit (id, entry);
