-- The outbox: what becomes of the messages in firstwrite.messages. A worker takes each message in by a
-- row in firstwrite.pending; when it has arrived, that row goes and one in firstwrite.deliveries stays.

-- Where messages go, by number, and how each stands. Changes rarely.
CREATE TABLE firstwrite.destinations (
    destination   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          text    NOT NULL UNIQUE,
    paused_at     timestamptz,
    paused_by     text,
    paused_action text,
    paused_reason text,
    open_until    timestamptz,  -- left alone until then; once that is past, due for a trial
    opening_count integer NOT NULL DEFAULT 0,
    open_cause    text
);

-- One row for each message that was taken in and is not yet delivered or dropped. `id` is the record's.
-- `state`: 0 waiting, 1 sending, 2 unknown, 3 dead, 4 blocked (waiting for its predecessor under its
-- ordering key). `fence` is that of the last claim; 0 if there was none.
--
-- As a rule a row is written already claimed and deleted soon after: so there is room in the pages, and
-- the dead are cleared away early.
CREATE TABLE firstwrite.pending (
    message        bigint      PRIMARY KEY,
    fence          bigint      NOT NULL,
    due_at         timestamptz NOT NULL,
    lease_until    timestamptz,
    claimed_at     timestamptz,
    maybe_sent_at  timestamptz,
    id             uuid        NOT NULL,
    destination    integer     NOT NULL,
    delivery_count integer     NOT NULL DEFAULT 0,
    lapse_count    integer     NOT NULL DEFAULT 0,
    status         integer,
    state          smallint    NOT NULL,
    ordering_key   text,
    problem        text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 50000,
        autovacuum_vacuum_cost_delay = 0);

-- The order in which messages are claimed; what is claimed, by the end of its lease; what waits for
-- people.
CREATE INDEX pending_due ON firstwrite.pending (destination, due_at, message) WHERE state = 0;
CREATE INDEX pending_lease ON firstwrite.pending (lease_until) WHERE state = 1;
CREATE INDEX pending_held ON firstwrite.pending (state, message) WHERE state IN (2, 3);
-- Orders, and the one message of each that is not blocked.
CREATE INDEX pending_order ON firstwrite.pending (destination, ordering_key, message)
    WHERE ordering_key IS NOT NULL;
CREATE INDEX pending_head ON firstwrite.pending (destination, ordering_key)
    WHERE ordering_key IS NOT NULL AND state <> 4;
-- Whether a record still has messages that wait, when it is to be reaped.
CREATE INDEX pending_of ON firstwrite.pending (id);

-- What was handed over, and how that ended. Only ever added to, and deleted with its message. `ending`:
-- 0 delivered, 1 refused, 2 retry, 3 unknown, 4 dropped by an operator.
CREATE TABLE firstwrite.deliveries (
    message     bigint      NOT NULL,
    fence       bigint      NOT NULL,
    at          timestamptz NOT NULL,
    status      integer,
    ending      smallint    NOT NULL,
    detail      text        NOT NULL,
    provider_id text,
    PRIMARY KEY (message, fence)
);

-- How many messages each destination has, as differences: their sum counts. Now and then they are folded
-- into one row each. `kind`: 0 open (waiting or sending), 1 unknown, 2 dead, 3 delivered.
CREATE TABLE firstwrite.tallies (
    destination integer  NOT NULL,
    kind        smallint NOT NULL,
    delta       bigint   NOT NULL
);

-- The numbers of messages that may not have been taken in yet, as ranges in rising order; the last one
-- has no end. As last written down: workers know better.
CREATE TABLE firstwrite.intake (
    only_one boolean  PRIMARY KEY DEFAULT true CHECK (only_one),
    starts   bigint[] NOT NULL,
    stops    bigint[] NOT NULL
);
INSERT INTO firstwrite.intake (starts, stops) VALUES ('{0}', '{9223372036854775807}');
