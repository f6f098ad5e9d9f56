-- Version 1, after schema.sql: firstwrite for applications in any language. `firstwrite.` stands for
-- the schema, whatever its name; in a message, a name is a literal of its own. What the functions promise
-- is in docs/sql.md.
--
-- Errors of our own are of class FW: FW001 the attempt no longer owns the key, FW002 another transaction
-- completed the key, FW003 an argument, FW004 lost history, FW005 stored bytes, FW006 a step that was
-- enqueued before. No error names a whole key.
--
-- Nothing here depends on the search path: bodies are parsed when they are created, or fix it.

-- Arguments ---------------------------------------------------------------------------------------

-- Internal. The id of the record, once tenant and key are what every store accepts.
CREATE FUNCTION firstwrite.checked_id(tenant text, key text) RETURNS uuid
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF tenant IS NULL OR octet_length(convert_to(tenant, 'UTF8')) NOT BETWEEN 1 AND 255
        OR tenant ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'a tenant is 1 to 255 bytes without control characters'
            USING ERRCODE = 'FW003', HINT = 'Derive it from verified credentials.';
    END IF;
    IF key IS NULL OR key COLLATE "C" !~ '^[!-~]{1,255}$' THEN
        RAISE EXCEPTION 'a key is 1 to 255 visible ASCII characters'
            USING ERRCODE = 'FW003',
                  HINT = 'Pass what the Idempotency-Key header says, without its quotes.';
    END IF;
    RETURN firstwrite.record_id(tenant, key);
END $$;

-- Internal. A length of time in whole milliseconds. Days and months count as 24 hours and 30 days:
-- a deadline must not depend on the session's time zone.
CREATE FUNCTION firstwrite.checked_span(name text, span interval, at_least interval) RETURNS interval
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF span IS NULL OR span NOT BETWEEN at_least AND interval '36500 days' THEN
        RAISE EXCEPTION '% is at least % and at most 100 years', name, at_least
            USING ERRCODE = 'FW003';
    END IF;
    RETURN trunc(extract(epoch FROM span) * 1000)::bigint * interval '1 millisecond';
END $$;

-- Internal. What atomic attempts on a record lock while they work. Two schemas in one database do not
-- meet.
CREATE FUNCTION firstwrite.lock_number(id uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN uuid_hash_extended(id, 'firstwrite.records'::regclass::oid::bigint);

-- Internal. A deadline so many milliseconds after an instant; from 285 years on it is the end of time.
CREATE FUNCTION firstwrite.deadline(at timestamptz, millis numeric) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN CASE WHEN millis >= 9000000000000 THEN timestamptz '294276-12-31 23:59:59.999+00'
                ELSE at + millis::bigint * interval '1 millisecond' END;

-- Internal. The fence of the attempt after `previous` (0: the first): a count that grows above 40 bits
-- drawn at random, so that no two lives of a key share a fence.
CREATE FUNCTION firstwrite.next_fence(previous bigint) RETURNS bigint
    LANGUAGE sql VOLATILE STRICT PARALLEL SAFE
    RETURN (((previous >> 40) + 1) << 40)
         | ('x' || right(gen_random_uuid()::text, 10))::bit(40)::bigint;

-- Keys and outcomes as bytes ----------------------------------------------------------------------

-- As firstwrite.records keeps a key: a UUID in its canonical spelling is a zero byte and its 16 bytes,
-- any other key is its text.
CREATE FUNCTION firstwrite.key_bytes(key text) RETURNS bytea
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN CASE
        WHEN key COLLATE "C" ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
            THEN '\x00'::bytea || decode(replace(key, '-', ''), 'hex')
        ELSE convert_to(key, 'UTF8')
    END;

CREATE FUNCTION firstwrite.key_text(key bytea) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN CASE
        WHEN length(key) = 17 AND get_byte(key, 0) = 0
            THEN (encode(substr(key, 2), 'hex')::uuid)::text
        ELSE convert_from(key, 'UTF8')
    END;

-- Internal. The short codes of an outcome's encoding, counted from 1. Only ever appended to.
CREATE FUNCTION firstwrite.short_statuses() RETURNS int[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY[200, 201, 202, 204, 301, 302, 303, 307, 400, 401, 402, 403, 404, 409, 410, 422];
CREATE FUNCTION firstwrite.short_names() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['content-type', 'content-language', 'location', 'etag', 'link'];
-- Content types that are one byte together with their name, counted from 64.
CREATE FUNCTION firstwrite.short_types() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['application/json', 'application/json; charset=utf-8', 'application/problem+json',
                 'text/plain; charset=utf-8', 'text/html; charset=utf-8'];

-- Internal. Never kept, whoever asks: credentials, framing, and facts about one exchange.
CREATE FUNCTION firstwrite.never_kept() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY['set-cookie', 'set-cookie2', 'www-authenticate', 'authentication-info',
                 'proxy-authenticate', 'proxy-authentication-info', 'proxy-connection', 'connection',
                 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'content-length',
                 'date', 'age', 'traceparent', 'tracestate', 'x-request-id'];

-- Internal. A length, seven bits in each byte, lowest first; the eighth says that another follows.
CREATE FUNCTION firstwrite.length_bytes(length int) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bytes bytea := '';
    rest  int := length_bytes.length;
BEGIN
    WHILE rest >= 128 LOOP
        bytes := bytes || set_byte('\x00'::bytea, 0, (rest & 127) | 128);
        rest := rest >> 7;
    END LOOP;
    RETURN bytes || set_byte('\x00'::bytea, 0, rest);
END $$;

-- An outcome as firstwrite keeps it. `headers` is an array of [name, value], in order. A null body is a
-- tombstone: the key is spent and the answer was not kept.
CREATE FUNCTION firstwrite.outcome_bytes(status int, headers jsonb, body bytea) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bytes bytea;
    code  int;
    line  jsonb;
    name  text;
    value text;
    size  int := 0;
BEGIN
    IF status IS NULL OR status NOT BETWEEN 100 AND 999 THEN
        RAISE EXCEPTION 'a status is a number from 100 to 999' USING ERRCODE = 'FW003';
    END IF;
    IF headers IS NULL OR jsonb_typeof(headers) <> 'array' THEN
        RAISE EXCEPTION 'headers are an array of [name, value]'
            USING ERRCODE = 'FW003', HINT = 'For example ''[["location", "/orders/7"]]''.';
    END IF;
    IF jsonb_array_length(headers) > 64 THEN
        RAISE EXCEPTION 'an outcome keeps at most 64 headers' USING ERRCODE = 'FW003';
    END IF;
    bytes := CASE WHEN body IS NULL THEN '\x11'::bytea ELSE '\x10'::bytea END;
    code := array_position(firstwrite.short_statuses(), status);
    bytes := bytes || CASE
        WHEN code IS NULL THEN '\x00'::bytea || int2send(status::int2)
        ELSE set_byte('\x00'::bytea, 0, code)
    END;
    bytes := bytes || firstwrite.length_bytes(jsonb_array_length(headers));
    FOR line IN SELECT entry.value FROM jsonb_array_elements(headers) AS entry(value) LOOP
        IF jsonb_typeof(line) <> 'array' OR jsonb_array_length(line) <> 2
            OR jsonb_typeof(line -> 0) <> 'string' OR jsonb_typeof(line -> 1) <> 'string' THEN
            RAISE EXCEPTION 'headers are an array of [name, value]'
                USING ERRCODE = 'FW003', HINT = 'For example ''[["location", "/orders/7"]]''.';
        END IF;
        name := lower((line ->> 0) COLLATE "C");
        value := line ->> 1;
        size := size + length(name) + octet_length(convert_to(value, 'UTF8'));
        IF name COLLATE "C" !~ '^[-!#$%&''*+.^_`|~0-9a-z]+$'
            OR value ~ '[\u0001-\u0008\u000a-\u001f\u007f]' THEN
            RAISE EXCEPTION 'a header''s name or value has a character that no header may have'
                USING ERRCODE = 'FW003';
        END IF;
        IF size > 16384 THEN
            RAISE EXCEPTION 'an outcome keeps at most 16 KiB of headers' USING ERRCODE = 'FW003';
        END IF;
        code := CASE WHEN name = 'content-type'
            THEN array_position(firstwrite.short_types(), value) END;
        IF code IS NOT NULL THEN
            bytes := bytes || set_byte('\x00'::bytea, 0, 63 + code);
            CONTINUE;
        END IF;
        code := array_position(firstwrite.short_names(), name);
        bytes := bytes || CASE
            WHEN code IS NULL THEN '\x00'::bytea || firstwrite.length_bytes(length(name))
                || convert_to(name, 'UTF8')
            ELSE set_byte('\x00'::bytea, 0, code)
        END;
        bytes := bytes || firstwrite.length_bytes(octet_length(convert_to(value, 'UTF8')))
            || convert_to(value, 'UTF8');
    END LOOP;
    RETURN bytes || coalesce(body, ''::bytea);
END $$;

-- Internal. A header's value as text; where it is not UTF-8, each byte is a character. Not parallel
-- safe, like all that calls it: catching an error takes a subtransaction.
CREATE FUNCTION firstwrite.value_text(value bytea) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN convert_from(value, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire THEN
    RETURN convert_from(value, 'LATIN1');
END $$;

-- Internal. One byte of an outcome, counted from 0.
CREATE FUNCTION firstwrite.byte_at(bytes bytea, place int) RETURNS int
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF place >= length(bytes) THEN
        RAISE EXCEPTION 'an outcome ends too early' USING ERRCODE = 'FW005';
    END IF;
    RETURN get_byte(bytes, place);
END $$;

-- Internal. A length as firstwrite.length_bytes wrote it, and the place behind it.
CREATE FUNCTION firstwrite.length_at(bytes bytea, INOUT place int, OUT length int)
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    byte  int;
    shift int;
BEGIN
    length_at.length := 0;
    FOREACH shift IN ARRAY ARRAY[0, 7, 14, 21] LOOP
        byte := firstwrite.byte_at(bytes, place);
        place := place + 1;
        length_at.length := length_at.length | ((byte & 127) << shift);
        IF byte < 128 THEN
            RETURN;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'a length is too long' USING ERRCODE = 'FW005';
END $$;

-- Internal. Bytes behind their length, and the place behind them.
CREATE FUNCTION firstwrite.bytes_at(bytes bytea, INOUT place int, OUT content bytea)
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    size int;
BEGIN
    SELECT l.length, l.place INTO STRICT size, place FROM firstwrite.length_at(bytes, place) AS l;
    IF place + size > length(bytes) THEN
        RAISE EXCEPTION 'an outcome ends too early' USING ERRCODE = 'FW005';
    END IF;
    content := substr(bytes, place + 1, size);
    place := place + size;
END $$;

CREATE FUNCTION firstwrite.outcome_status(outcome bytea) RETURNS int
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    status int;
BEGIN
    -- 20 and 22 are sealed: their status can be read, and nothing else. 24 notes a release.
    IF firstwrite.byte_at(outcome, 0) NOT IN (16, 17, 18, 19, 20, 22, 24) THEN
        RAISE EXCEPTION 'an outcome was written by another version'
            USING ERRCODE = 'FW005', HINT = 'Migrate the schema to the version that wrote it.';
    END IF;
    status := CASE firstwrite.byte_at(outcome, 1)
        WHEN 0 THEN firstwrite.byte_at(outcome, 2) << 8 | firstwrite.byte_at(outcome, 3)
        ELSE (firstwrite.short_statuses())[get_byte(outcome, 1)]
    END;
    IF status IS NULL THEN
        RAISE EXCEPTION 'an outcome has an unknown short code' USING ERRCODE = 'FW005';
    END IF;
    RETURN status;
END $$;

-- Internal. Reads an outcome: its status, its headers, and its body (null for a tombstone).
CREATE FUNCTION firstwrite.outcome_parts(
    outcome bytea, OUT status int, OUT headers jsonb, OUT body bytea
)
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place   int;
    count   int;
    code    int;
    name    text;
    value   text;
    content bytea;
BEGIN
    status := firstwrite.outcome_status(outcome);
    IF get_byte(outcome, 0) & 4 = 4 THEN
        RAISE EXCEPTION 'an outcome is sealed'
            USING ERRCODE = 'FW005', HINT = 'Ask the service that has the keys.';
    END IF;
    place := CASE get_byte(outcome, 1) WHEN 0 THEN 4 ELSE 2 END;
    SELECT l.length, l.place INTO STRICT count, place FROM firstwrite.length_at(outcome, place) AS l;
    headers := '[]';
    FOR _header IN 1..count LOOP
        code := firstwrite.byte_at(outcome, place);
        place := place + 1;
        IF code >= 64 THEN
            name := 'content-type';
            value := (firstwrite.short_types())[code - 63];
        ELSE
            name := (firstwrite.short_names())[code];
            IF code = 0 THEN
                SELECT b.content, b.place INTO STRICT content, place
                    FROM firstwrite.bytes_at(outcome, place) AS b;
                name := firstwrite.value_text(content);
            END IF;
            SELECT b.content, b.place INTO STRICT content, place
                FROM firstwrite.bytes_at(outcome, place) AS b;
            value := firstwrite.value_text(content);
        END IF;
        IF name IS NULL OR value IS NULL THEN
            RAISE EXCEPTION 'an outcome has an unknown short code' USING ERRCODE = 'FW005';
        END IF;
        headers := headers || jsonb_build_array(jsonb_build_array(name, value));
    END LOOP;
    body := CASE get_byte(outcome, 0) & 1 WHEN 0 THEN substr(outcome, place + 1) END;
END $$;

-- Internal. The note of an attempt that ended with this status and was released. It answers no request.
CREATE FUNCTION firstwrite.release_note(status int) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '\x18'::bytea || substr(firstwrite.outcome_bytes(status, '[]', NULL), 2);
-- True also for the ending of an attempt that was superseded, which has no outcome.
CREATE FUNCTION firstwrite.is_freed(outcome bytea) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN outcome IS NULL OR get_byte(outcome, 0) = 24;

-- An array of [name, value]: a header may be there more than once, and their order is kept.
CREATE FUNCTION firstwrite.outcome_headers(outcome bytea) RETURNS jsonb
    LANGUAGE sql IMMUTABLE STRICT
    RETURN (firstwrite.outcome_parts(outcome)).headers;

-- Null for a tombstone.
CREATE FUNCTION firstwrite.outcome_body(outcome bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE STRICT
    RETURN (firstwrite.outcome_parts(outcome)).body;

-- What stands ---------------------------------------------------------------------------------------

-- Internal. Records with what their endings and profiles say about them. An ending without an outcome
-- stands in the way of a late owner and says nothing about the record. An interim outcome stands until
-- the final one is there.
CREATE VIEW firstwrite.standing AS
SELECT s.id, s.tenant, s.key, s.fence, s.created_at, s.lease_until, s.fingerprint,
       s.operation, s.on_lost_answer, s.fingerprint_version, s.state, s.outcome,
       s.replay_for, s.linger_for, s.refuses_spent,
       CASE WHEN s.state = 'uncertain' THEN s.lease_until - interval '6000000000000 seconds'
            END AS uncertain_since,
       CASE WHEN firstwrite.is_interim(s.outcome) THEN 'infinity'
            ELSE s.retained_until END AS retained_until,
       CASE WHEN firstwrite.is_interim(s.outcome) THEN 'infinity'
            ELSE s.kept_until END AS kept_until
  FROM (SELECT r.id, r.tenant, r.key, r.fence, r.created_at, r.lease_until, r.fingerprint,
               p.operation, p.on_lost_answer, p.fingerprint_version, p.replay_for, p.linger_for,
               p.refuses_spent,
               CASE WHEN e.outcome IS NOT NULL AND get_byte(e.outcome, 0) = 24 THEN 'released'
                    WHEN r.outcome <> '' OR e.outcome IS NOT NULL THEN 'completed'
                    WHEN firstwrite.is_uncertain(r.lease_until) THEN 'uncertain'
                    ELSE 'reserved' END AS state,
               coalesce(e.outcome, nullif(r.outcome, '')) AS outcome,
               CASE WHEN e.outcome IS NOT NULL THEN e.retained_until
                    WHEN r.outcome <> '' THEN firstwrite.deadline(r.created_at, p.replay_for)
                    END AS retained_until,
               CASE WHEN e.outcome IS NOT NULL THEN e.kept_until
                    WHEN r.outcome <> ''
                        THEN firstwrite.deadline(r.created_at, p.replay_for::numeric + p.linger_for)
                    END AS kept_until
          FROM firstwrite.records AS r
          JOIN firstwrite.profiles AS p ON p.profile = r.profile
          LEFT JOIN firstwrite.endings AS e
            ON e.id = r.id AND e.fence = r.fence AND r.lease_until > '-infinity') AS s;

-- For people: one row for each key, as firstwrite understands it.
CREATE VIEW firstwrite.keys AS
SELECT s.tenant, firstwrite.key_text(s.key) AS key, s.state, s.operation, s.fence, s.created_at,
       CASE WHEN s.state = 'reserved' THEN s.lease_until END AS lease_until, s.uncertain_since,
       firstwrite.outcome_status(s.outcome) AS status, s.retained_until, s.kept_until, s.id
  FROM firstwrite.standing AS s;

-- What stands under a key: one row, or none. Status, headers and body only once it is completed.
CREATE FUNCTION firstwrite.status(tenant text, key text)
    RETURNS TABLE (state text, fence bigint, operation text, created_at timestamptz,
                   lease_until timestamptz, status int, headers jsonb, body bytea,
                   retained_until timestamptz)
    LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.state, s.fence, s.operation, s.created_at,
           CASE WHEN s.state = 'reserved' THEN s.lease_until END,
           o.status, o.headers, o.body, s.retained_until
      FROM firstwrite.standing AS s
      LEFT JOIN LATERAL firstwrite.outcome_parts(s.outcome) AS o ON true
     WHERE s.id = firstwrite.checked_id($1, $2);
END;

-- Attempts ------------------------------------------------------------------------------------------

-- Internal. The number of a profile, which is written if there is none; null if there are `count_max`.
-- Looked for before and after: an insert that meets a rival's still uses up a number.
CREATE FUNCTION firstwrite.profile_number(
    operation text, on_lost_answer int, fingerprint_version smallint, fingerprint_form smallint,
    replay_for bigint, linger_for bigint, refuses_spent boolean, count_max bigint
) RETURNS smallint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this_profile smallint;
BEGIN
    FOR _look IN 1..2 LOOP
        SELECT p.profile INTO this_profile FROM firstwrite.profiles AS p
         WHERE p.operation = profile_number.operation
           AND p.on_lost_answer = profile_number.on_lost_answer
           AND p.fingerprint_version = profile_number.fingerprint_version
           AND p.fingerprint_form = profile_number.fingerprint_form
           AND p.replay_for = profile_number.replay_for
           AND p.linger_for = profile_number.linger_for
           AND p.refuses_spent = profile_number.refuses_spent;
        IF FOUND OR (SELECT count(*) FROM firstwrite.profiles) >= count_max THEN
            RETURN this_profile;
        END IF;
        INSERT INTO firstwrite.profiles AS p
            (operation, on_lost_answer, fingerprint_version, fingerprint_form, replay_for, linger_for,
             refuses_spent)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING
        RETURNING p.profile INTO this_profile;
        IF FOUND THEN
            RETURN this_profile;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'a profile is contended' USING ERRCODE = 'serialization_failure';
END $$;

-- Internal. Ends an attempt so that it can complete no more; false if it has completed. The caller has
-- locked the record. The marker outlives every transaction that may still believe the attempt alive.
CREATE FUNCTION firstwrite.end_attempt(this_id uuid, this_fence bigint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := firstwrite.now();
BEGIN
    INSERT INTO firstwrite.endings (id, fence, ended_at, retained_until, kept_until)
        VALUES (this_id, this_fence, moment, moment, moment + interval '1 hour')
        ON CONFLICT DO NOTHING;
    RETURN FOUND OR NOT EXISTS (
        SELECT FROM firstwrite.endings AS e
         WHERE e.id = this_id AND e.fence = this_fence AND e.outcome IS NOT NULL);
END $$;

-- Reserves a key, or says why not. Verdicts `fresh` and `take over`: run; the key is yours under
-- `fence` until `lease_until`. `replay`: answer with status, headers and body. `in progress`, `mismatch`,
-- `uncertain`, `expired`, `unreadable`: do not run.
--
-- `retention` and `refuse_spent_for` stand with the reservation and hold however it is completed: the
-- outcome is replayed for `retention`; then the key is free, or refused as `expired` for so much longer.
--
-- The rules are those of `judge` in firstwrite-core, in their order; a test compares the two.
CREATE FUNCTION firstwrite.reserve(
    tenant text, key text, fingerprint bytea, operation text DEFAULT '',
    lease interval DEFAULT '30 seconds', on_lost_answer text DEFAULT 'uncertain',
    retention interval DEFAULT '24 hours', refuse_spent_for interval DEFAULT NULL,
    OUT verdict text, OUT fence bigint, OUT lease_until timestamptz, OUT status int,
    OUT headers jsonb, OUT body bytea, OUT retained_until timestamptz
)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this_id      uuid := firstwrite.checked_id(tenant, key);
    lease_for    interval := firstwrite.checked_span('a lease', lease, interval '1 second');
    lost_means   int := CASE on_lost_answer WHEN 'uncertain' THEN 0 WHEN 'resend' THEN 1 END;
    replay_for   interval := firstwrite.checked_span('retention', retention, interval '1 second');
    linger_for   interval := greatest(interval '1 hour', firstwrite.checked_span(
        'refuse_spent_for', coalesce(refuse_spent_for, interval '0'), interval '0'));
    this_profile smallint;
    stands       record;
BEGIN
    IF lost_means IS NULL THEN
        RAISE EXCEPTION 'on_lost_answer is ''uncertain'' or ''resend''' USING ERRCODE = 'FW003';
    END IF;
    IF operation IS NULL OR octet_length(convert_to(operation, 'UTF8')) > 255 THEN
        RAISE EXCEPTION 'an operation is at most 255 bytes' USING ERRCODE = 'FW003',
            HINT = 'Name the route, such as POST /orders, never the order.';
    END IF;
    IF fingerprint IS NULL OR length(fingerprint) <> 32 THEN
        RAISE EXCEPTION 'a fingerprint is 32 bytes'
            USING ERRCODE = 'FW003', HINT = 'Take sha256 over everything that makes two requests the same.';
    END IF;
    -- Each round means that somebody else moved the same record in between.
    FOR _round IN 1..8 LOOP
        SELECT s.fence, s.state, s.lease_until, s.fingerprint, s.fingerprint_version,
               s.on_lost_answer, s.refuses_spent, s.outcome, s.retained_until,
               firstwrite.now() AS now
          INTO stands FROM firstwrite.standing AS s WHERE s.id = this_id;
        verdict := CASE
            WHEN NOT FOUND THEN 'fresh'
            WHEN stands.state = 'released' THEN 'take over'
            WHEN stands.state = 'completed' AND stands.retained_until <= stands.now
                THEN CASE WHEN stands.refuses_spent THEN 'expired' ELSE 'take over' END
            WHEN stands.fingerprint_version <> 0 THEN 'unreadable'
            WHEN substr(stands.fingerprint, 1, 32) <> reserve.fingerprint THEN 'mismatch'
            WHEN stands.state = 'completed' THEN 'replay'
            WHEN stands.state = 'uncertain' THEN 'uncertain'
            WHEN stands.now < stands.lease_until THEN 'in progress'
            WHEN stands.on_lost_answer = 1 THEN 'take over'
            ELSE 'uncertain'
        END;
        IF verdict = 'replay' THEN
            SELECT o.status, o.headers, o.body INTO status, headers, body
              FROM firstwrite.outcome_parts(stands.outcome) AS o;
            retained_until := stands.retained_until;
            RETURN;
        ELSIF verdict = 'in progress' THEN
            lease_until := stands.lease_until;
            RETURN;
        ELSIF verdict NOT IN ('fresh', 'take over') THEN
            RETURN;
        END IF;
        -- A note of a release, or an outcome past its time, says as little of what was lost as no record.
        IF stands.state IS DISTINCT FROM 'reserved' AND EXISTS (SELECT FROM firstwrite.history_losses AS d WHERE d.cleared_at IS NULL) THEN
            RAISE EXCEPTION 'acknowledged history was lost: a key that is not known may have been used'
                USING ERRCODE = 'FW004', DETAIL = format('record %s', this_id),
                      HINT = 'Nothing was run. An operator must look at ' || 'firstwrite.history_losses' || ' and clear them.';
        END IF;
        -- An attempt that holds the record's lock is at work in a transaction of its own; what it will
        -- write is not there yet.
        IF NOT pg_try_advisory_xact_lock(firstwrite.lock_number(this_id)) THEN
            verdict := 'in progress';
            RETURN;
        END IF;
        -- Fingerprints made here are the application's own: version 0, which never equals a version that
        -- firstwrite takes itself.
        this_profile := firstwrite.profile_number(
            operation, lost_means, 0::smallint, 2::smallint, (extract(epoch FROM replay_for) * 1000)::bigint,
            (extract(epoch FROM linger_for) * 1000)::bigint, refuse_spent_for IS NOT NULL, 10000);
        IF this_profile IS NULL THEN
            RAISE EXCEPTION 'there are too many different operations' USING ERRCODE = 'FW003',
                HINT = 'Name the route, such as POST /orders, never the order.';
        END IF;
        IF verdict = 'fresh' THEN
            INSERT INTO firstwrite.records AS r
                (id, fence, created_at, lease_until, profile, tenant, key, fingerprint, outcome)
            SELECT this_id, firstwrite.next_fence(0), n.now, n.now + lease_for, this_profile,
                   reserve.tenant, firstwrite.key_bytes(reserve.key), reserve.fingerprint, ''
              FROM firstwrite.now() AS n(now)
                ON CONFLICT DO NOTHING
            RETURNING r.fence, r.lease_until INTO fence, lease_until;
            IF FOUND THEN
                RETURN;
            END IF;
        ELSE
            -- The record first, as everybody does who replaces or removes it. Then the marker: whoever
            -- ends the attempt first decides between its late owner, who needs no lock, and us.
            PERFORM FROM firstwrite.records AS r
              WHERE r.id = this_id AND r.fence = stands.fence AND r.lease_until = stands.lease_until
                FOR UPDATE;
            CONTINUE WHEN NOT FOUND;
            IF stands.state = 'reserved' THEN
                CONTINUE WHEN NOT firstwrite.end_attempt(this_id, stands.fence);
            END IF;
            UPDATE firstwrite.records AS r
               SET fence = firstwrite.next_fence(stands.fence), created_at = n.now,
                   lease_until = n.now + lease_for, profile = this_profile,
                   fingerprint = reserve.fingerprint, outcome = ''
              FROM firstwrite.now() AS n(now)
             WHERE r.id = this_id
            RETURNING r.fence, r.lease_until INTO fence, lease_until;
            RETURN;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'the key is contended'
        USING ERRCODE = 'serialization_failure', DETAIL = format('record %s', this_id),
              HINT = 'Nothing was written. Roll back and reserve again, in a transaction of its own.';
END $$;

-- Internal. Refuses a write of an attempt that no longer owns its key.
CREATE FUNCTION firstwrite.refuse_late(this_id uuid, this_fence bigint) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the attempt no longer owns the key'
        USING ERRCODE = 'FW001', DETAIL = format('record %s, fence %s', this_id, this_fence),
              HINT = 'Roll back, and ask ' || 'firstwrite.status' || ' what stands: another attempt has taken over '
                  || 'or the key was released.';
END $$;

-- Internal. Refuses a write of an attempt that another transaction completed. Success would tell the
-- caller to commit its rows, and those of the other transaction are committed already.
CREATE FUNCTION firstwrite.refuse_completed(this_id uuid, this_fence bigint) RETURNS void
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'another transaction has completed the key'
        USING ERRCODE = 'FW002', DETAIL = format('record %s, fence %s', this_id, this_fence),
              HINT = 'Roll back, and answer with what ' || 'firstwrite.status' || ' says. A transaction that is '
                  || 'repeated because its COMMIT was not acknowledged was committed the first time.';
END $$;

-- Writes the outcome in the caller's transaction, so that it is kept if and only if the caller's own
-- rows are. Returns until when it is replayed. Succeeds only if this transaction writes the outcome:
-- calling it again in the same transaction with the same outcome does nothing.
CREATE FUNCTION firstwrite.complete(
    tenant text, key text, fence bigint, status int, headers jsonb DEFAULT '[]', body bytea DEFAULT ''
) RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this_id  uuid := firstwrite.checked_id(tenant, key);
    this_outcome bytea := firstwrite.outcome_bytes(status, headers, body);
    never    text;
    moment   timestamptz;
    kept     record;
    ending   record;
BEGIN
    IF fence IS NULL THEN
        RAISE EXCEPTION 'a fence is missing'
            USING ERRCODE = 'FW003', HINT = 'Pass the fence that ' || 'firstwrite.reserve' || ' gave to this attempt.';
    END IF;
    IF status NOT BETWEEN 200 AND 499 OR status IN (401, 407, 408, 421, 425, 429, 431) THEN
        RAISE EXCEPTION 'an answer with status % does not end a key', status
            USING ERRCODE = 'FW003',
                  HINT = 'Roll back your rows and call ' || 'firstwrite.release' || ' if nothing happened, or '
                      || 'firstwrite.mark_uncertain' || ' if something may have.';
    END IF;
    SELECT lower(line.value ->> 0) INTO never FROM jsonb_array_elements(headers) AS line(value)
     WHERE lower(line.value ->> 0) = ANY (firstwrite.never_kept()) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the header % is never kept', never
            USING ERRCODE = 'FW003', HINT = 'It belongs to one exchange; leave it out.';
    END IF;
    IF length(body) > 1048576 THEN
        RAISE EXCEPTION 'a kept body is at most 1 MiB'
            USING ERRCODE = 'FW003', HINT = 'Pass null: the key is spent and a retry is told so.';
    END IF;
    -- The second look is for an ending that was not committed when the first was taken.
    FOR _look IN 1..2 LOOP
        SELECT e.outcome, e.retained_until, e.written_in = pg_current_xact_id_if_assigned() AS is_ours
          INTO ending FROM firstwrite.endings AS e
         WHERE e.id = this_id AND e.fence = complete.fence;
        IF FOUND THEN
            IF firstwrite.is_freed(ending.outcome) THEN
                PERFORM firstwrite.refuse_late(this_id, fence);
            ELSIF ending.is_ours IS NOT TRUE THEN
                PERFORM firstwrite.refuse_completed(this_id, fence);
            ELSIF ending.outcome <> this_outcome THEN
                RAISE EXCEPTION 'this transaction has completed the key with another outcome'
                    USING ERRCODE = 'FW003', HINT = 'Complete a key once.';
            END IF;
            RETURN ending.retained_until;
        END IF;
        SELECT p.replay_for, p.linger_for INTO kept
          FROM firstwrite.records AS r JOIN firstwrite.profiles AS p ON p.profile = r.profile
         WHERE r.id = this_id AND r.fence = complete.fence AND r.lease_until > '-infinity'
           AND r.lease_until <> firstwrite.interim();
        IF NOT FOUND THEN
            PERFORM firstwrite.refuse_late(this_id, fence);
        END IF;
        -- Whoever inserts the ending of an attempt first decides: no lock on the record is needed.
        moment := firstwrite.now();
        INSERT INTO firstwrite.endings AS e
            (id, fence, ended_at, retained_until, kept_until, outcome, written_in)
            VALUES (this_id, complete.fence, moment, firstwrite.deadline(moment, kept.replay_for),
                    firstwrite.deadline(moment, kept.replay_for::numeric + kept.linger_for),
                    this_outcome, pg_current_xact_id())
            ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN firstwrite.deadline(moment, kept.replay_for);
        END IF;
    END LOOP;
    RAISE EXCEPTION 'the key is contended'
        USING ERRCODE = 'serialization_failure', DETAIL = format('record %s, fence %s', this_id, fence),
              HINT = 'Roll back and run the transaction again.';
END $$;

-- Frees the key: nothing happened, and a retry runs afresh. A note of `status`, with which the attempt
-- ended, stays for an hour, or until the key is used again: whether its client was told to poll stands in
-- no record. False if the attempt no longer owned the key.
CREATE FUNCTION firstwrite.release(tenant text, key text, fence bigint, status int DEFAULT 500)
    RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this_id uuid := firstwrite.checked_id(tenant, key);
    note    bytea := firstwrite.release_note(status);
    moment  timestamptz;
BEGIN
    PERFORM FROM firstwrite.records AS r
      WHERE r.id = this_id AND r.fence = release.fence AND r.lease_until > '-infinity'
        AND r.lease_until <> firstwrite.interim()
        FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    moment := firstwrite.now();
    INSERT INTO firstwrite.endings (id, fence, ended_at, retained_until, kept_until, outcome)
        VALUES (this_id, release.fence, moment, moment, moment + interval '1 hour', note)
        ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF NOT firstwrite.end_attempt(this_id, fence) THEN
        RETURN false;
    END IF;
    -- An operator took its completion back: the ending that blocks it has no room for a note.
    DELETE FROM firstwrite.records AS r WHERE r.id = this_id AND r.fence = release.fence;
    RETURN true;
END $$;

-- Says that the attempt ended and nobody knows how: the key answers `uncertain` until somebody proves
-- what happened. False if the attempt no longer owned the key.
CREATE FUNCTION firstwrite.mark_uncertain(tenant text, key text, fence bigint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this_id uuid := firstwrite.checked_id(tenant, key);
BEGIN
    UPDATE firstwrite.records AS r SET lease_until = firstwrite.uncertain(firstwrite.now())
     WHERE r.id = this_id AND r.fence = mark_uncertain.fence AND r.lease_until > '-infinity'
       AND NOT firstwrite.is_uncertain(r.lease_until) AND r.lease_until <> firstwrite.interim()
       AND NOT EXISTS (SELECT FROM firstwrite.endings AS e WHERE e.id = r.id AND e.fence = r.fence);
    RETURN FOUND;
END $$;

-- Extends the lease, counted from now. Null if the attempt no longer owns the key.
CREATE FUNCTION firstwrite.renew(
    tenant text, key text, fence bigint, lease interval DEFAULT '30 seconds'
) RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this_id   uuid := firstwrite.checked_id(tenant, key);
    lease_for interval := firstwrite.checked_span('a lease', lease, interval '1 second');
    renewed   timestamptz;
BEGIN
    UPDATE firstwrite.records AS r SET lease_until = firstwrite.now() + lease_for
     WHERE r.id = this_id AND r.fence = renew.fence
       AND r.lease_until > '-infinity' AND NOT firstwrite.is_uncertain(r.lease_until)
       AND r.lease_until < firstwrite.interim()
       AND NOT EXISTS (SELECT FROM firstwrite.endings AS e WHERE e.id = r.id AND e.fence = r.fence)
    RETURNING r.lease_until INTO renewed;
    RETURN renewed;
END $$;

-- Messages ------------------------------------------------------------------------------------------

-- Writes a message in the caller's transaction, to be delivered if and only if it commits. The
-- destination will know it by `<key>:<step>`, over all deliveries; an attempt enqueues a step once. An
-- attempt that no longer owns the key, or that another transaction completed, is refused.
CREATE FUNCTION firstwrite.enqueue(
    tenant text, key text, fence bigint, step text, destination text, payload bytea,
    content_type text DEFAULT 'application/json', ordering_key text DEFAULT NULL,
    delay interval DEFAULT '0'
) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    this_id   uuid := firstwrite.checked_id(tenant, key);
    delay_for interval := firstwrite.checked_span('a delay', delay, interval '0');
    name_form text := '^[!-9;-~]{1,64}$';
    moment    timestamptz := firstwrite.now();
    ending    record;
    number    bigint;
BEGIN
    IF step IS NULL OR step COLLATE "C" !~ name_form THEN
        RAISE EXCEPTION 'a step is 1 to 64 visible characters without a colon' USING ERRCODE = 'FW003';
    END IF;
    IF destination IS NULL OR destination COLLATE "C" !~ name_form THEN
        RAISE EXCEPTION 'a destination is 1 to 64 visible characters without a colon'
            USING ERRCODE = 'FW003';
    END IF;
    IF payload IS NULL OR length(payload) > 1048576 THEN
        RAISE EXCEPTION 'a payload is at most 1 MiB'
            USING ERRCODE = 'FW003', HINT = 'A message is a notice: send where to find the rest.';
    END IF;
    IF content_type IS NULL OR content_type COLLATE "C" !~ '^[ -~]{1,255}$'
        OR octet_length(convert_to(ordering_key, 'UTF8')) > 255 THEN
        RAISE EXCEPTION 'content_type is 1 to 255 printable characters, ordering_key at most 255 bytes'
            USING ERRCODE = 'FW003';
    END IF;
    IF fence IS NULL THEN
        RAISE EXCEPTION 'a fence is missing'
            USING ERRCODE = 'FW003', HINT = 'Pass the fence that ' || 'firstwrite.reserve' || ' gave to this attempt.';
    END IF;
    -- The second look is for what was committed while the insert waited for a rival.
    FOR look IN 1..2 LOOP
        SELECT firstwrite.is_freed(e.outcome) AS is_late INTO ending FROM firstwrite.endings AS e
         WHERE e.id = this_id AND e.fence = enqueue.fence
           AND (e.written_in = pg_current_xact_id_if_assigned()) IS NOT TRUE;
        IF FOUND AND NOT ending.is_late THEN
            PERFORM firstwrite.refuse_completed(this_id, fence);
        END IF;
        PERFORM FROM firstwrite.records AS r WHERE r.id = this_id AND r.fence = enqueue.fence;
        IF NOT FOUND OR ending.is_late THEN
            PERFORM firstwrite.refuse_late(this_id, fence);
        END IF;
        EXIT WHEN look = 2;
        INSERT INTO firstwrite.messages (id, tenant, derived_key, destination, content_type, payload,
                                         ordering_key, created_at, not_before, fence)
            VALUES (this_id, enqueue.tenant, enqueue.key || ':' || step, enqueue.destination,
                    enqueue.content_type, enqueue.payload, enqueue.ordering_key, moment,
                    moment + delay_for, enqueue.fence)
            ON CONFLICT DO NOTHING
            RETURNING message INTO number;
        IF FOUND THEN
            RETURN number;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'the attempt has enqueued this step before'
        USING ERRCODE = 'FW006', DETAIL = format('record %s, fence %s', this_id, fence),
              HINT = 'Name each message''s step apart. Roll back a transaction that is repeated because '
                  || 'its COMMIT was not acknowledged: it was committed the first time, and '
                  || 'firstwrite.status' || ' says how the key stands.';
END $$;
