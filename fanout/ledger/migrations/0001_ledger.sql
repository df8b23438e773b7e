-- The ledger of one region. Every table lives in the region's own schema; {schema} is replaced when the file is applied.
--
-- One order of locks everywhere: expansions by version_no, then destinations by id, then deliveries by id.
-- Every statement that changes a delivery's state holds the lock of its destination, and changes the counters on that row
-- in the same transaction. That is what makes limits exact and the books cheap.

CREATE TYPE {schema}.delivery_state AS ENUM ('waiting', 'queued', 'leased', 'delivered', 'dead');

CREATE TYPE {schema}.attempt_outcome AS ENUM (
    'delivered', 'throttled', 'failed', 'unreachable', 'unknown', 'redirected', 'gone', 'unauthorized', 'rejected', 'forbidden');

CREATE TYPE {schema}.death_reason AS ENUM (
    'rejected', 'gone', 'unauthorized', 'redirected', 'forbidden_destination', 'exhausted', 'expired', 'superseded',
    'cancelled', 'disabled', 'residency', 'payload_gone');

CREATE TYPE {schema}.ordering AS ENUM ('any', 'per_shipment', 'latest');

-- ------------------------------------------------------------------------------------------------ who wants updates

-- What people configure, read by expansion (filters) and by consumers (endpoint, headers), cached by config_version.
CREATE TABLE {schema}.subscriber (
    id               int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscriber_id    text NOT NULL UNIQUE,
    endpoint         text NOT NULL,
    event_types      text[] NOT NULL,
    labels           jsonb NOT NULL DEFAULT '{}',
    headers          jsonb NOT NULL DEFAULT '{}',
    timeout_seconds  real NOT NULL CHECK (timeout_seconds > 0),
    retry_statuses   int[],
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    deleted_at       timestamptz    -- a deleted subscriber keeps its number: keys name a delivery for ever
);

-- One row per event type pattern. Expansion looks up every prefix of an event type here: no scan over subscribers.
CREATE TABLE {schema}.subscription (
    pattern     text NOT NULL,
    subscriber  int NOT NULL REFERENCES {schema}.subscriber ON DELETE CASCADE,
    PRIMARY KEY (pattern, subscriber)
);
CREATE INDEX subscription_subscriber ON {schema}.subscription (subscriber);

-- The newest signs first. A replaced secret signs beside it until retires_at.
CREATE TABLE {schema}.secret (
    subscriber  int NOT NULL REFERENCES {schema}.subscriber ON DELETE CASCADE,
    secret      text NOT NULL,
    place       int NOT NULL,           -- 0 is the newest
    added_at    timestamptz NOT NULL DEFAULT now(),
    retires_at  timestamptz,            -- null: current
    PRIMARY KEY (subscriber, secret)
);

-- Every change of configuration: who, when, what. Values of headers and secrets never stand here.
CREATE TABLE {schema}.config_change (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscriber      int NOT NULL REFERENCES {schema}.subscriber ON DELETE CASCADE,
    config_version  int NOT NULL,
    changed_at      timestamptz NOT NULL DEFAULT now(),
    changed_by      text NOT NULL,
    change          jsonb NOT NULL
);
CREATE INDEX config_change_subscriber ON {schema}.config_change (subscriber, id DESC);

-- ------------------------------------------------------------------------------------------------ gate and counters

-- One narrow, hot row per subscriber: its limits, its gate, and the counters of its deliveries.
CREATE TABLE {schema}.destination (
    id               int PRIMARY KEY REFERENCES {schema}.subscriber ON DELETE CASCADE,
    config_version   int NOT NULL DEFAULT 1,
    ordering         {schema}.ordering NOT NULL DEFAULT 'any',
    concurrency      int NOT NULL CHECK (concurrency BETWEEN 1 AND 1000),
    rate_per_second  real CHECK (rate_per_second > 0),
    timeout_seconds  real NOT NULL,      -- copied from the subscriber: the claim computes the lease from it

    -- the gate
    send_window      int NOT NULL CHECK (send_window >= 1),
    hold_until       timestamptz,
    hold_why         text,
    cut_at           timestamptz,        -- when the window was last cut: results of attempts leased before do not cut again
    probation        boolean NOT NULL DEFAULT false,   -- cut to 1 and no 2xx since
    fail_streak      int NOT NULL DEFAULT 0,
    throttle_streak  int NOT NULL DEFAULT 0,           -- cuts by throttling in a row
    failing_since    timestamptz,        -- first failure without a success since; null: the last result was a success
    last_success_at  timestamptz,
    rate_next_at     timestamptz,        -- GCRA: the earliest moment of the next request
    wake_at          timestamptz,        -- when the scheduler should look here; null: not until something arms it

    paused_at        timestamptz,
    paused_by        text,
    paused_why       text,
    disabled_at      timestamptz,
    disabled_why     {schema}.death_reason CHECK (disabled_why IN ('gone', 'disabled', 'cancelled')),
    disabled_by      text,

    -- counters of deliveries by state: changed only under this row's lock, in the transaction that changes the state
    waiting          bigint NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    queued           int NOT NULL DEFAULT 0 CHECK (queued >= 0),
    in_flight        int NOT NULL DEFAULT 0 CHECK (in_flight >= 0),
    delivered        bigint NOT NULL DEFAULT 0 CHECK (delivered >= 0),
    dead             bigint NOT NULL DEFAULT 0 CHECK (dead >= 0),
    unknown_attempts bigint NOT NULL DEFAULT 0,
    late_results     bigint NOT NULL DEFAULT 0,

    CHECK ((disabled_at IS NULL) = (disabled_why IS NULL)),
    CHECK ((paused_at IS NULL) = (paused_by IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The scheduler's only question: who should be looked at now?
CREATE INDEX destination_wake ON {schema}.destination (wake_at)
    WHERE wake_at IS NOT NULL AND paused_at IS NULL AND disabled_at IS NULL;
-- Whose open deliveries have to be ended?
CREATE INDEX destination_disabled ON {schema}.destination (id) WHERE disabled_at IS NOT NULL;

-- ------------------------------------------------------------------------------------------------ versions

-- The region's copy of a version. payload is null where the version may not come here (residency) or is gone (retention).
CREATE TABLE {schema}.version (
    version_no    bigint PRIMARY KEY,      -- home's number
    shipment_no   bigint NOT NULL,         -- home's number
    shipment_id   text NOT NULL,
    version       bigint NOT NULL CHECK (version >= 0),
    event_type    text,                    -- null where forbidden: key and reason, nothing else
    content_type  text,
    labels        jsonb,
    payload       bytea,
    forbidden     boolean NOT NULL DEFAULT false,
    traceparent   text,
    tracestate    text,
    occurred_at   timestamptz,
    accepted_at   timestamptz NOT NULL,    -- this database's clock: now() minus the age that home told
    eligible_at   timestamptz NOT NULL,    -- likewise
    UNIQUE (shipment_id, version)
);
ALTER TABLE {schema}.version ALTER COLUMN payload SET STORAGE EXTERNAL;   -- compressing costs more than it saves

-- P1, the region's book: how many deliveries the expansion of a version created.
CREATE TABLE {schema}.expansion (
    version_no  bigint PRIMARY KEY REFERENCES {schema}.version,
    cursor      int NOT NULL DEFAULT 0,    -- destinations up to this id are expanded
    created     int NOT NULL DEFAULT 0,
    done        boolean NOT NULL DEFAULT false
);

-- ------------------------------------------------------------------------------------------------ deliveries

CREATE TABLE {schema}.delivery (
    id                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version_no           bigint NOT NULL,
    shipment_no          bigint NOT NULL,
    version              bigint NOT NULL,
    eligible_at          timestamptz NOT NULL,
    aged_from            timestamptz NOT NULL,   -- the later of acceptance, first eligible_at, last redrive
    queued_at            timestamptz,
    taken_until          timestamptz,            -- ledger transport: another consumer has taken this reference
    leased_at            timestamptz,            -- start of the newest lease, kept after its end
    lease_until          timestamptz,
    finished_at          timestamptz,
    destination_id       int NOT NULL,
    dispatch             int NOT NULL DEFAULT 0, -- raised by promotion, required by the claim; so it is also the lease's token
    attempts             int NOT NULL DEFAULT 0,
    budget_used          int NOT NULL DEFAULT 0,
    unauthorized_streak  smallint NOT NULL DEFAULT 0,
    expired_streak       smallint NOT NULL DEFAULT 0,
    state                {schema}.delivery_state NOT NULL,
    reason               {schema}.death_reason,
    blocked              boolean NOT NULL DEFAULT false,   -- behind an earlier version of its shipment
    ordered              boolean NOT NULL DEFAULT false,   -- its destination asked for an order when it was expanded
    worker               text,                             -- who holds the lease

    UNIQUE (version_no, destination_id),                   -- P2: one delivery per version and subscriber, for ever
    CHECK ((state = 'queued') = (queued_at IS NOT NULL)),
    CHECK ((state = 'leased') = (lease_until IS NOT NULL)),
    CHECK ((state = 'leased') = (worker IS NOT NULL)),
    CHECK ((state IN ('delivered', 'dead')) = (finished_at IS NOT NULL)),
    CHECK ((state = 'dead') = (reason IS NOT NULL)),
    CHECK (NOT blocked OR state = 'waiting')
) WITH (fillfactor = 85,
        autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX delivery_waiting ON {schema}.delivery (destination_id, eligible_at, id) WHERE state = 'waiting' AND NOT blocked;
CREATE INDEX delivery_queued ON {schema}.delivery (queued_at, id) WHERE state = 'queued';
CREATE INDEX delivery_leased ON {schema}.delivery (lease_until) WHERE state = 'leased';
CREATE INDEX delivery_chain ON {schema}.delivery (destination_id, shipment_no, version)
    WHERE ordered AND state IN ('waiting', 'queued', 'leased');
-- Listings by subscriber. Entered once, when a delivery ends: an index over every state would be written at every step.
CREATE INDEX delivery_finished ON {schema}.delivery (destination_id, id) WHERE state IN ('delivered', 'dead');
CREATE INDEX delivery_dead ON {schema}.delivery (id) WHERE state = 'dead';

-- Attempts are written once, by the settlement that ended the lease, or by the sweep that found it expired.
CREATE TABLE {schema}.attempt (
    delivery_id          bigint NOT NULL,
    n                    int NOT NULL,
    token                int NOT NULL,
    outcome              {schema}.attempt_outcome NOT NULL,
    status               int,
    started_at           timestamptz NOT NULL,
    duration_ms          int NOT NULL,
    config_version       int,
    retry_after_seconds  real,
    expired              boolean NOT NULL DEFAULT false,   -- written by the sweep: the worker was not heard of
    worker               text,
    address              text,
    trace_id             text,
    error                text,
    response_excerpt     bytea,
    PRIMARY KEY (delivery_id, n)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2);

-- Results whose token was no longer current: information only, they changed nothing (P5).
CREATE TABLE {schema}.late_result (
    delivery_id       bigint NOT NULL,
    n                 int NOT NULL,
    token             int NOT NULL,
    outcome           {schema}.attempt_outcome NOT NULL,
    status            int,
    duration_ms       int NOT NULL,
    config_version    int,
    worker            text,
    address           text,
    trace_id          text,
    error             text,
    response_excerpt  bytea,
    recorded_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (delivery_id, token)
);

-- ------------------------------------------------------------------------------------------------ for people

-- What an operator should know: a destination disabled itself, a worker keeps dying on one delivery, counters drifted.
CREATE TABLE {schema}.operator_event (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    happened_at  timestamptz NOT NULL DEFAULT now(),
    kind         text NOT NULL,
    subscriber   int REFERENCES {schema}.subscriber ON DELETE CASCADE,
    delivery_id  bigint,
    detail       text NOT NULL
);

-- P1, what retention and forgetting removed: rows move into these counters in the transaction that deletes them.
CREATE TABLE {schema}.removed (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    accepted   bigint NOT NULL DEFAULT 0,
    delivered  bigint NOT NULL DEFAULT 0,
    dead       bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.removed DEFAULT VALUES;
