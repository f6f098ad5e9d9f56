//! The statements about findings.

use tokio_postgres::types::Type;

use crate::postgres::options::SchemaName;
use crate::postgres::sql::Statement;

/// Every statement about findings.
#[derive(Debug)]
pub(in crate::postgres) struct FindingsSql {
    pub(super) add: Statement,
    pub(super) same: Statement,
    pub(super) see_again: Statement,
    pub(super) one: Statement,
    pub(super) list: Statement,
    pub(super) audits: Statement,
    pub(super) assign: Statement,
    pub(super) close: Statement,
    pub(super) last_run: Statement,
    pub(super) ran: Statement,
}

/// As `rows::finding` reads it.
const SELECT: &str = "
    SELECT f.finding, f.source, f.kind, f.subject, f.detail, f.id, f.message, f.provider_id,
           f.first_seen, f.last_seen, f.reopened_count, f.owner, f.closed_at, f.closed_by, f.closing,
           f.resolution
    FROM firstwrite.findings f";

/// Adds what is not known, of `$1`, seen at `$8`.
const ADD: &str = "
    INSERT INTO firstwrite.findings
        (source, kind, subject, detail, id, message, provider_id, first_seen, last_seen)
    SELECT $1, n.kind, n.subject, n.detail, n.id, n.message, n.provider_id, $8, $8
    FROM unnest($2::text[], $3::text[], $4::text[], $5::uuid[], $6::int8[], $7::text[])
         AS n(kind, subject, detail, id, message, provider_id)
    ORDER BY n.kind, n.subject
    ON CONFLICT (source, kind, subject) DO NOTHING
    RETURNING finding";

/// Where several runs meet, all lock in one order.
const SAME: &str = "
    WHERE f.source = $1 AND (f.kind, f.subject) IN (SELECT * FROM unnest($2::text[], $3::text[]))
    ORDER BY f.finding FOR UPDATE";

/// `n.is_open` says whether it is open from now on.
const SEE_AGAIN: &str = "
    UPDATE firstwrite.findings f
    SET last_seen = greatest(f.last_seen, $7),
        reopened_count = f.reopened_count + (n.is_open AND f.closed_at IS NOT NULL)::int,
        detail = CASE WHEN n.is_open THEN n.detail ELSE f.detail END,
        id = CASE WHEN n.is_open THEN n.id ELSE f.id END,
        message = CASE WHEN n.is_open THEN n.message ELSE f.message END,
        provider_id = CASE WHEN n.is_open THEN n.provider_id ELSE f.provider_id END,
        closed_at = CASE WHEN NOT n.is_open THEN f.closed_at END,
        closed_by = CASE WHEN NOT n.is_open THEN f.closed_by END,
        closing = CASE WHEN NOT n.is_open THEN f.closing END,
        resolution = CASE WHEN NOT n.is_open THEN f.resolution END
    FROM unnest($1::int8[], $2::bool[], $3::text[], $4::uuid[], $5::int8[], $6::text[])
         AS n(finding, is_open, detail, id, message, provider_id)
    WHERE f.finding = n.finding";

const LIST: &str = "
    WHERE f.finding > $1 AND ($2::text IS NULL OR f.source = $2) AND ($3::text IS NULL OR f.kind = $3)
      AND ($4::bool IS NULL OR (f.closed_at IS NULL) = $4)
    ORDER BY f.finding LIMIT $5";

const ASSIGN: &str = "
    WITH given AS (
        UPDATE firstwrite.findings f SET owner = $2 WHERE f.finding = $1 RETURNING f.finding)
    INSERT INTO firstwrite.findings_audit (finding, at, actor, action, reason)
    SELECT g.finding, firstwrite.now(), $3, $4, $5 FROM given g RETURNING finding";

const CLOSE: &str = "
    WITH clock AS MATERIALIZED (SELECT firstwrite.now() AS now),
    closed AS (
        UPDATE firstwrite.findings f
        SET closed_at = c.now, closed_by = $4, closing = $2, resolution = $3
        FROM clock c WHERE f.finding = $1 AND f.closed_at IS NULL RETURNING f.finding, c.now)
    INSERT INTO firstwrite.findings_audit (finding, at, actor, action, reason)
    SELECT d.finding, d.now, $4, $5, $6 FROM closed d RETURNING finding";

/// Also forgets what was closed `$5` milliseconds ago, `$6` findings at most.
const RAN: &str = "
    WITH clock AS MATERIALIZED (SELECT firstwrite.now() - $5 * interval '1 millisecond' AS before),
    old AS MATERIALIZED (
        SELECT f.finding FROM clock c, firstwrite.findings f
        WHERE f.closed_at <= c.before ORDER BY f.closed_at LIMIT $6 FOR UPDATE OF f SKIP LOCKED),
    audits AS (DELETE FROM firstwrite.findings_audit a USING old o WHERE a.finding = o.finding),
    findings AS (DELETE FROM firstwrite.findings f USING old o WHERE f.finding = o.finding)
    INSERT INTO firstwrite.runs AS r (source, at, until, again_from) VALUES ($1, $2, $3, $4)
    ON CONFLICT (source) DO UPDATE
        SET at = excluded.at, until = excluded.until, again_from = excluded.again_from";

impl FindingsSql {
    pub(in crate::postgres) fn new(schema: &SchemaName) -> Self {
        let statement = |text: &str, types: &[Type]| Statement::new(schema, text, types);
        let select = |rest: &str, types: &[Type]| statement(&format!("{SELECT} {rest}"), types);
        Self {
            add: statement(
                ADD,
                &[
                    Type::TEXT,
                    Type::TEXT_ARRAY,
                    Type::TEXT_ARRAY,
                    Type::TEXT_ARRAY,
                    Type::UUID_ARRAY,
                    Type::INT8_ARRAY,
                    Type::TEXT_ARRAY,
                    Type::TIMESTAMPTZ,
                ],
            ),
            same: select(SAME, &[Type::TEXT, Type::TEXT_ARRAY, Type::TEXT_ARRAY]),
            see_again: statement(
                SEE_AGAIN,
                &[
                    Type::INT8_ARRAY,
                    Type::BOOL_ARRAY,
                    Type::TEXT_ARRAY,
                    Type::UUID_ARRAY,
                    Type::INT8_ARRAY,
                    Type::TEXT_ARRAY,
                    Type::TIMESTAMPTZ,
                ],
            ),
            one: select("WHERE f.finding = $1", &[Type::INT8]),
            list: select(LIST, &[Type::INT8, Type::TEXT, Type::TEXT, Type::BOOL, Type::INT8]),
            audits: statement(
                "SELECT a.at, a.actor, a.action, a.reason FROM firstwrite.findings_audit a
                 WHERE a.finding = $1 ORDER BY a.entry",
                &[Type::INT8],
            ),
            assign: statement(
                ASSIGN,
                &[Type::INT8, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT],
            ),
            close: statement(
                CLOSE,
                &[Type::INT8, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT],
            ),
            last_run: statement(
                "SELECT r.at, r.until, r.again_from FROM firstwrite.runs r WHERE r.source = $1",
                &[Type::TEXT],
            ),
            ran: statement(
                RAN,
                &[
                    Type::TEXT,
                    Type::TIMESTAMPTZ,
                    Type::TIMESTAMPTZ,
                    Type::TIMESTAMPTZ,
                    Type::INT8,
                    Type::INT8,
                ],
            ),
        }
    }
}
