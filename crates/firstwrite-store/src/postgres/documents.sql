-- Documents, such as findings of reconciliations: lines of text that firstwrite-core writes and reads. A
-- document is replaced where its version is the one that was read; one that expires may be removed then.
CREATE TABLE firstwrite.documents (
    number     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text        NOT NULL,
    name       bytea       NOT NULL,
    version    bigint      NOT NULL,
    expires_at timestamptz,
    content    bytea       NOT NULL,
    UNIQUE (kind, name)
);
CREATE INDEX documents_lasting ON firstwrite.documents (kind, number) WHERE expires_at IS NULL;
CREATE INDEX documents_expiring ON firstwrite.documents (kind, expires_at) WHERE expires_at IS NOT NULL;
