-- Messages of others that were consumed here. `id` is a digest of source and message id: see
-- firstwrite.consume.
CREATE TABLE firstwrite.inbox (
    id          uuid        PRIMARY KEY,
    consumed_at timestamptz NOT NULL,
    kept_until  timestamptz NOT NULL
);
CREATE INDEX inbox_kept ON firstwrite.inbox (kept_until);

-- Notes that a message of `source` is consumed, in the caller's transaction. Null: it was not seen before,
-- and what follows from it is to be done in the same transaction. Else when it was consumed: nothing is to
-- be done. Another transaction that consumes the same message at the same time waits for this one to end.
-- `kept_for` is longer than the sender may deliver it again.
CREATE FUNCTION firstwrite.consume(source text, message_id text, kept_for interval DEFAULT '30 days')
    RETURNS timestamptz
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment  timestamptz := firstwrite.now();
    span    interval;
    this    uuid;
    earlier timestamptz;
BEGIN
    IF source IS NULL OR source COLLATE "C" !~ '^[!-~]{1,64}$' THEN
        RAISE EXCEPTION 'a source is 1 to 64 visible characters' USING ERRCODE = 'FW003';
    END IF;
    IF message_id IS NULL OR octet_length(convert_to(message_id, 'UTF8')) NOT BETWEEN 1 AND 512 THEN
        RAISE EXCEPTION 'a message''s id is 1 to 512 bytes' USING ERRCODE = 'FW003';
    END IF;
    IF kept_for IS NULL OR kept_for NOT BETWEEN interval '0' AND interval '36500 days' THEN
        RAISE EXCEPTION 'a message is kept for at most 100 years' USING ERRCODE = 'FW003';
    END IF;
    span := trunc(extract(epoch FROM kept_for) * 1000)::bigint * interval '1 millisecond';
    this := encode(substr(sha256(convert_to('firstwrite inbox', 'UTF8')
        || int8send(octet_length(convert_to(source, 'UTF8'))) || convert_to(source, 'UTF8')
        || int8send(octet_length(convert_to(message_id, 'UTF8'))) || convert_to(message_id, 'UTF8')),
        1, 16), 'hex')::uuid;
    INSERT INTO firstwrite.inbox (id, consumed_at, kept_until) VALUES (this, moment, moment + span)
        ON CONFLICT (id) DO NOTHING;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT i.consumed_at INTO earlier FROM firstwrite.inbox AS i WHERE i.id = this;
    -- One that was forgotten in this very moment was seen all the same.
    RETURN coalesce(earlier, moment);
END $$;
