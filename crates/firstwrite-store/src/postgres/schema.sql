-- Version 1. `firstwrite.` stands for the schema, whatever its name.

-- The store's clock, in whole milliseconds. Every deadline is made from it and compared with it.
CREATE FUNCTION firstwrite.now() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN date_trunc('milliseconds', clock_timestamp());

-- Another number after every start of the server, and on a standby that took over: then somebody must
-- ask whether acknowledged writes are still there.
CREATE FUNCTION firstwrite.incarnation() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint;

-- The line of history that the server writes: another one after a fail-over, and after a backup was put
-- back. Null on a standby, which writes none, and on hosted servers that keep it to themselves.
CREATE FUNCTION firstwrite.epoch() RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT system_identifier FROM pg_control_system()) || '/'
        || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
EXCEPTION
    WHEN insufficient_privilege OR feature_not_supported OR undefined_function
      OR object_not_in_prerequisite_state THEN
        RETURN NULL;
END $$;

-- Whether a commit is acknowledged only when a standby has it.
CREATE FUNCTION firstwrite.is_synchronous() RETURNS boolean LANGUAGE sql STABLE
    RETURN current_setting('synchronous_standby_names') <> ''
       AND current_setting('synchronous_commit') IN ('on', 'remote_apply');

-- The id of the record under a tenant and key: for people, and for applications in any language.
CREATE FUNCTION firstwrite.record_id(tenant text, key text) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN encode(substr(sha256(
               int8send(octet_length(tenant)) || convert_to(tenant, 'UTF8')
            || int8send(octet_length(key)) || convert_to(key, 'UTF8')), 1, 16), 'hex')::uuid;

-- What `lease_until` is while a record completed at once has an interim outcome: later than any lease,
-- earlier than the end of time.
CREATE FUNCTION firstwrite.interim() RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN timestamptz '294276-01-01 00:00:00+00';

-- What `lease_until` is while a record is uncertain since an instant: that much later than any lease, so
-- that the record that is uncertain for longest comes first in the index of leases.
CREATE FUNCTION firstwrite.uncertain(since timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN since + interval '6000000000000 seconds';
CREATE FUNCTION firstwrite.is_uncertain(lease_until timestamptz) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN lease_until >= timestamptz '192102-06-07 10:40:00+00' AND lease_until < firstwrite.interim();

-- Whether an outcome stands in for an answer that is not yet known.
CREATE FUNCTION firstwrite.is_interim(outcome bytea) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN length(outcome) > 0 AND get_byte(outcome, 0) & 2 = 2;

-- What many records have in common. Never updated or deleted. Times are milliseconds. The retention
-- stands with the reservation and holds however it is completed.
CREATE TABLE firstwrite.profiles (
    profile             smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation           text     NOT NULL,
    on_lost_answer      integer NOT NULL,   -- 0: uncertain, 1: resend, else uncertain and the id of its probe
    fingerprint_version smallint NOT NULL,
    fingerprint_form    smallint NOT NULL,  -- 1: canonical JSON, 2: raw bytes
    replay_for          bigint   NOT NULL,
    linger_for          bigint   NOT NULL,
    refuses_spent       boolean  NOT NULL,  -- whether the key is refused while it lingers
    UNIQUE (operation, on_lost_answer, fingerprint_version, fingerprint_form, replay_for, linger_for,
            refuses_spent)
);

-- One row for each tenant and key: its primary key arbitrates both modes.
--
-- Completed in the write that made it (the atomic mode): `outcome` is there, `lease_until` is
-- -infinity, and the deadlines follow from `created_at` and the profile. Reserved: `outcome` is empty
-- and `lease_until` says until when; the row of the same id and fence in firstwrite.endings, once
-- there is one, says how the attempt ended. Uncertain: reserved, `lease_until` is
-- firstwrite.uncertain(since), and no ending. Completed in the write that made it, with an interim outcome: `lease_until` is
-- firstwrite.interim(), and the final outcome is the ending, once there is one. There are no nulls,
-- because a bitmap of them would cost eight bytes in every row.
--
-- `key` is the bytes of the key's text, or, for a UUID in its canonical spelling, a zero byte and the
-- UUID's 16: see firstwrite.key_text. `fingerprint` is the digest of 32 bytes, the
-- id of 5 bytes of the secret that keyed it if one did, then the part digests of 2 bytes each. `outcome` is status, kept headers and body in the encoding that
-- firstwrite.outcome_* read.
CREATE TABLE firstwrite.records (
    id          uuid        PRIMARY KEY,
    fence       bigint      NOT NULL,
    created_at  timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    profile     smallint    NOT NULL,
    tenant      text        NOT NULL,
    key         bytea       NOT NULL,
    fingerprint bytea       NOT NULL,
    outcome     bytea       NOT NULL
);

-- For sweeps, and to find what is uncertain: the deadlines of reservations, ended ones included; a sweep
-- goes forward from where the last one stopped. One index for both, since each costs every insert.
CREATE INDEX records_lease_until ON firstwrite.records (lease_until)
    WHERE lease_until > '-infinity';

-- How the attempts of reserved records ended. An attempt (`id`, `fence`) ends once, so whoever inserts
-- first decides: an owner that completes needs no lock on the record. `outcome` is null if the attempt
-- was superseded or released and can complete no more. An interim outcome stands whatever its deadlines
-- say; they only tell how long the final one will be kept. `written_in` is the application's transaction
-- where firstwrite.complete wrote the outcome.
CREATE TABLE firstwrite.endings (
    id             uuid        NOT NULL,
    fence          bigint      NOT NULL,
    ended_at       timestamptz NOT NULL,
    retained_until timestamptz NOT NULL,
    kept_until     timestamptz NOT NULL,
    outcome        bytea,
    written_in     xid8,
    PRIMARY KEY (id, fence)
);

-- Messages to be delivered, written in the commit of the effect they follow from, and not changed any
-- more. `id` is the record's. `answers` is what the record's interim outcome is replaced with, if this
-- message decides that. `fence` is the attempt's where firstwrite.enqueue wrote the message.
CREATE TABLE firstwrite.messages (
    message      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           uuid        NOT NULL,
    tenant       text        NOT NULL,
    derived_key  text        NOT NULL,
    destination  text        NOT NULL,
    content_type text        NOT NULL,
    payload      bytea       NOT NULL,
    ordering_key text,
    created_at   timestamptz NOT NULL,
    not_before   timestamptz NOT NULL,
    answers      bytea,
    fence        bigint
);

-- An attempt enqueues a step once. The library's handlers check that in memory and write their messages
-- with the record, whose primary key arbitrates: they leave `fence` null and pay for no index entry.
CREATE UNIQUE INDEX messages_step ON firstwrite.messages (id, fence, derived_key)
    WHERE fence IS NOT NULL;

-- What operators did.
CREATE TABLE firstwrite.audit (
    entry  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id     uuid        NOT NULL,
    at     timestamptz NOT NULL,
    actor  text        NOT NULL,
    action text        NOT NULL,
    reason text        NOT NULL
);
CREATE INDEX audit_of ON firstwrite.audit (id, entry);

-- The line of history that was written last, and whether a standby was sure to have all of it. Changes
-- with a fail-over or the settings, so hardly ever.
CREATE TABLE firstwrite.mark (
    only_one       boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    epoch          text    NOT NULL,
    is_synchronous boolean NOT NULL
);
INSERT INTO firstwrite.mark (epoch, is_synchronous)
VALUES (coalesce(firstwrite.epoch(), 'unknown'), firstwrite.is_synchronous());

-- How often each process has swept: see src/postgres/history_loss.rs. A process raises its own row alone; rows of
-- processes that are gone are deleted after a week.
CREATE TABLE firstwrite.history (
    writer bigint      PRIMARY KEY,
    sweeps bigint      NOT NULL,
    at     timestamptz NOT NULL
);

-- When acknowledged history was found to be missing. While a row is not cleared, keys that are not
-- known are refused: they may have been used in what was lost.
CREATE TABLE firstwrite.history_losses (
    loss       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    noticed_at timestamptz NOT NULL,
    detail     text        NOT NULL,
    cleared_at timestamptz,
    cleared_by text,
    reason     text
);
