-- Version 1. Every statement may be run again: there is no transaction around them, and a run that was
-- cut off is taken up by the next.

-- What time it is, in milliseconds since 1970, by the server's clock and whatever its time zone is.
-- Every deadline is reckoned from it; tests put another in its place.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW firstwrite_clock AS
    SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS SIGNED) AS now;

-- One row for each tenant and key, in both modes; `id` is the digest of the two, and its uniqueness is the
-- arbiter. `state` is 0: reserved, 1: uncertain, 2: completed. `due_at` is until when the lease holds, or
-- the outcome is kept, or since when the record is uncertain. `replay_for`, `linger_for` and
-- `refuses_spent` stand with the reservation and hold however it is completed. `outcome_bytes` is beside the outcome because the
-- server fetches all of a value to tell its length.
CREATE TABLE IF NOT EXISTS firstwrite_records (
    id                  BINARY(16)       NOT NULL PRIMARY KEY,
    tenant              VARCHAR(255)     NOT NULL,
    `key`               VARCHAR(255)     NOT NULL,
    operation           VARCHAR(1000)    NOT NULL,
    on_lost_answer      INT              NOT NULL,
    fingerprint_version TINYINT UNSIGNED NOT NULL,
    fingerprint_form    TINYINT UNSIGNED NOT NULL,
    fingerprint         BLOB             NOT NULL,
    fence               BIGINT           NOT NULL,
    created_at          BIGINT           NOT NULL,
    state               TINYINT          NOT NULL,
    due_at              BIGINT           NOT NULL,
    retained_until      BIGINT,
    replay_for          BIGINT           NOT NULL,
    linger_for          BIGINT           NOT NULL,
    refuses_spent       TINYINT          NOT NULL,
    outcome             LONGBLOB,
    outcome_bytes       INT UNSIGNED GENERATED ALWAYS AS (OCTET_LENGTH(outcome)) STORED,
    KEY firstwrite_due (state, due_at)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Who works on a record in atomic mode: inserted when a handler's transaction begins and deleted when it
-- ends, so nobody ever sees a row. It is the row's lock that rivals meet.
CREATE TABLE IF NOT EXISTS firstwrite_locks (
    id BINARY(16) NOT NULL PRIMARY KEY
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What operators did to a record and its messages, or, under a destination's name, to that.
CREATE TABLE IF NOT EXISTS firstwrite_audit (
    entry  BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id     VARBINARY(64) NOT NULL,
    at     BIGINT        NOT NULL,
    actor  TEXT          NOT NULL,
    action TEXT          NOT NULL,
    reason TEXT          NOT NULL,
    KEY firstwrite_audit_of (id, entry)
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Times at which acknowledged history was found to be missing. While one is not cleared, keys that are not known are
-- refused.
CREATE TABLE IF NOT EXISTS firstwrite_history_losses (
    loss       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    noticed_at BIGINT NOT NULL,
    detail     TEXT   NOT NULL,
    cleared_at BIGINT,
    cleared_by TEXT,
    reason     TEXT
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How many commits each connection of each store that was opened has seen acknowledged: see `history.rs`. A dump is
-- put back in the order of names: this table comes before the records and behind the history losses, so that no key can
-- run on restored records before that is noticed.
CREATE TABLE IF NOT EXISTS firstwrite_history (
    writer  BIGINT NOT NULL,
    slot    INT    NOT NULL,
    commits BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (writer, slot)
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Which server, or which cluster, was written to last: one row.
CREATE TABLE IF NOT EXISTS firstwrite_mark (
    mark  TINYINT      NOT NULL PRIMARY KEY,
    epoch VARCHAR(100) NOT NULL
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages to be delivered, written in the commit of the effect they follow from and never updated.
-- `id` is the record's; `answers` replace its interim outcome, if the message decides that.
CREATE TABLE IF NOT EXISTS firstwrite_messages (
    message      BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id           BINARY(16)     NOT NULL,
    tenant       VARCHAR(255)   NOT NULL,
    derived_key  VARCHAR(400)   NOT NULL,
    destination  VARCHAR(64)    NOT NULL,
    content_type TEXT           NOT NULL,
    payload      LONGBLOB       NOT NULL,
    ordering_key VARBINARY(512),
    not_before   BIGINT         NOT NULL,
    created_at   BIGINT         NOT NULL,
    answers      LONGBLOB
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What changes of a message, as long as it is neither delivered nor dropped. `state` is 0: waiting,
-- 1: sending, 2: unknown, 3: dead. `due_at` is when it can be claimed: when it is due, or when its claim
-- runs out; null while it is unknown or dead, or was found to wait for another under its ordering key.
-- `fence` is that of the last claim, 0 before the first.
CREATE TABLE IF NOT EXISTS firstwrite_pending (
    message        BIGINT      NOT NULL PRIMARY KEY,
    id             BINARY(16)  NOT NULL,
    destination    VARCHAR(64) NOT NULL,
    ordering_key   VARBINARY(512),
    state          TINYINT     NOT NULL,
    due_at         BIGINT,
    fence          BIGINT      NOT NULL,
    claimed_at     BIGINT,
    delivery_count INT         NOT NULL,
    lapse_count    INT         NOT NULL,
    maybe_sent_at  BIGINT,
    status         INT,
    problem        TEXT,
    KEY firstwrite_pending_due (destination, due_at, message),
    KEY firstwrite_pending_order (destination, ordering_key, message),
    KEY firstwrite_pending_held (state, message),
    KEY firstwrite_pending_of (id)
) ENGINE = InnoDB, ROW_FORMAT = DYNAMIC, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Every handing-over of a message, and its end where an operator said so. `ending` is delivered, refused,
-- retry, unknown or dropped; the last one of a message that is not pending is delivered, refused or dropped.
CREATE TABLE IF NOT EXISTS firstwrite_deliveries (
    message     BIGINT      NOT NULL,
    fence       BIGINT      NOT NULL,
    at          BIGINT      NOT NULL,
    ending      VARCHAR(16) NOT NULL,
    status      INT,
    detail      TEXT        NOT NULL,
    provider_id TEXT,
    PRIMARY KEY (message, fence)
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Destinations that were ever asked for. Claims on one destination take turns by locking its row.
-- `is_listed` says that it was paused or left alone once.
CREATE TABLE IF NOT EXISTS firstwrite_destinations (
    destination   VARCHAR(64) NOT NULL PRIMARY KEY,
    paused_at     BIGINT,
    paused_by     TEXT,
    paused_action TEXT,
    paused_reason TEXT,
    open_until    BIGINT,
    open_cause    TEXT,
    opening_count INT         NOT NULL DEFAULT 0,
    is_listed     TINYINT     NOT NULL DEFAULT 0
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- How many messages of a destination are open (waiting or sending), unknown, dead, or were ever delivered,
-- as differences: their sum counts. Now and then they are folded into one row each.
CREATE TABLE IF NOT EXISTS firstwrite_tallies (
    entry       BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
    destination VARCHAR(64) NOT NULL,
    kind        VARCHAR(16) NOT NULL,
    delta       BIGINT      NOT NULL
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Messages of others that were consumed here. `id` is the digest of the source and the message's id.
CREATE TABLE IF NOT EXISTS firstwrite_inbox (
    id          BINARY(16) NOT NULL PRIMARY KEY,
    consumed_at BIGINT     NOT NULL,
    kept_until  BIGINT     NOT NULL,
    KEY firstwrite_inbox_kept (kept_until)
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Documents, such as findings of reconciliations: lines of text that firstwrite-core writes and reads. A
-- document is replaced where its version is the one that was read; one that expires may be removed then.
CREATE TABLE IF NOT EXISTS firstwrite_documents (
    number     BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
    kind       VARCHAR(32) NOT NULL,
    name       BINARY(32)  NOT NULL,
    version    BIGINT      NOT NULL,
    expires_at BIGINT,
    content    MEDIUMBLOB  NOT NULL,
    UNIQUE KEY firstwrite_document (kind, name),
    KEY firstwrite_documents_expiring (kind, expires_at, number)
) ENGINE = InnoDB, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
