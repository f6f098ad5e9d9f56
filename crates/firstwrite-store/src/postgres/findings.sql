-- What reconciliations found and could not settle. `source`, `kind` and `subject` are what a finding is
-- known by; `closing` is fixed or accepted, null while it is open. `id` is the record's.
CREATE TABLE firstwrite.findings (
    finding        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source         text        NOT NULL,
    kind           text        NOT NULL,
    subject        text        NOT NULL,
    detail         text        NOT NULL,
    id             uuid,
    message        bigint,
    provider_id    text,
    first_seen     timestamptz NOT NULL,
    last_seen      timestamptz NOT NULL,
    reopened_count integer     NOT NULL DEFAULT 0,
    owner          text,
    closed_at      timestamptz,
    closed_by      text,
    closing        text,
    resolution     text,
    UNIQUE (source, kind, subject)
);
CREATE INDEX findings_open ON firstwrite.findings (finding) WHERE closed_at IS NULL;
CREATE INDEX findings_closed ON firstwrite.findings (closed_at) WHERE closed_at IS NOT NULL;

-- What people did to findings.
CREATE TABLE firstwrite.findings_audit (
    entry   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    finding bigint      NOT NULL,
    at      timestamptz NOT NULL,
    actor   text        NOT NULL,
    action  text        NOT NULL,
    reason  text        NOT NULL
);
CREATE INDEX findings_audit_of ON firstwrite.findings_audit (finding, entry);

-- When each source was last compared completely, and from when on it must be looked at again.
CREATE TABLE firstwrite.runs (
    source     text        PRIMARY KEY,
    at         timestamptz NOT NULL,
    until      timestamptz NOT NULL,
    again_from timestamptz NOT NULL
);
