-- Home: the authoritative versions, the outbox, and of each subscriber only its id, region and state.
-- {schema} is replaced when the file is applied.

CREATE TABLE {schema}.region (
    region  text PRIMARY KEY          -- as configured; a version gets one outbox row for each
);

-- Gives every shipment a short number, and every publisher of one shipment something to wait for.
CREATE TABLE {schema}.shipment (
    shipment_no  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shipment_id  text NOT NULL UNIQUE
);

-- One immutable state of one shipment. The first times and trace context stay; everything else must be equal (P2).
CREATE TABLE {schema}.version (
    version_no    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shipment_no   bigint NOT NULL REFERENCES {schema}.shipment,
    version       bigint NOT NULL CHECK (version >= 0),
    event_type    text NOT NULL,
    content_type  text NOT NULL,
    labels        jsonb NOT NULL DEFAULT '{}',
    residency     text,
    payload       bytea NOT NULL,
    sha256        bytea NOT NULL,
    occurred_at   timestamptz,
    eligible_at   timestamptz,           -- null: at once
    accepted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    traceparent   text NOT NULL,
    tracestate    text,
    UNIQUE (shipment_no, version)
);
ALTER TABLE {schema}.version ALTER COLUMN payload SET STORAGE EXTERNAL;

-- What has still to be expanded, region by region. P1, home's book: created is what the region reported when it was done.
CREATE TABLE {schema}.outbox (
    region       text NOT NULL REFERENCES {schema}.region,
    version_no   bigint NOT NULL REFERENCES {schema}.version,
    shipment_no  bigint NOT NULL,
    version      bigint NOT NULL,
    done         boolean NOT NULL DEFAULT false,
    created      int,                    -- null until done
    taken_until  timestamptz,            -- a publisher works on it; every step is repeatable, so this only avoids double work
    done_at      timestamptz,
    PRIMARY KEY (region, version_no),
    CHECK (done = (created IS NOT NULL)),
    CHECK (done = (done_at IS NOT NULL))
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);

-- By state, never by "number above the last seen": a transaction that commits late is not lost.
CREATE INDEX outbox_pending ON {schema}.outbox (region, version_no) WHERE NOT done;
-- Is a lower version of the same shipment still pending in this region?
CREATE INDEX outbox_chain ON {schema}.outbox (region, shipment_no, version) WHERE NOT done;

CREATE TABLE {schema}.subscriber (
    subscriber_id  text PRIMARY KEY,
    region         text NOT NULL REFERENCES {schema}.region,   -- for life
    state          text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'deleted')),
    created_at     timestamptz NOT NULL DEFAULT now()
);

-- P1, what retention removed.
CREATE TABLE {schema}.removed (
    region   text PRIMARY KEY REFERENCES {schema}.region,
    created  bigint NOT NULL DEFAULT 0
);
