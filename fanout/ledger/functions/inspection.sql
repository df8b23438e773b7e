-- find_deliveries: the newest deliveries that pass a filter, below a cursor. A null argument filters nothing.
-- Reading only. Each branch walks the one index that has its rows in order or has few of them; none reads the whole table.
-- older_than_seconds counts as maximum age does: from the later of acceptance, first eligibility and last redrive.
CREATE FUNCTION {schema}.find_deliveries(
    for_subscriber text, for_shipment text, in_state text, with_reason text, older_than_seconds float8, before_id bigint, most int)
RETURNS SETOF bigint
LANGUAGE plpgsql STABLE ROWS 50 SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wanted_state delivery_state := CASE WHEN with_reason IS NULL THEN in_state ELSE 'dead' END;
    wanted_reason death_reason := with_reason;
    below bigint := coalesce(before_id, 9223372036854775807);
    born_before timestamptz := coalesce(now() - make_interval(secs => older_than_seconds), 'infinity');
    place int;
BEGIN
    IF with_reason IS NOT NULL AND in_state <> 'dead' THEN
        RETURN;     -- only what is dead has a reason
    END IF;
    IF for_subscriber IS NOT NULL THEN
        SELECT s.id INTO place FROM subscriber s WHERE s.subscriber_id = for_subscriber;
        IF place IS NULL THEN
            RETURN;
        END IF;
    END IF;

    IF for_shipment IS NOT NULL THEN
        -- All of the shipment first: a limit in here tempts the planner to walk the whole table from its newest row.
        RETURN QUERY
        WITH found AS MATERIALIZED (
            SELECT y.id FROM version v JOIN delivery y ON y.version_no = v.version_no
            WHERE v.shipment_id = for_shipment AND (place IS NULL OR y.destination_id = place)
              AND (wanted_state IS NULL OR y.state = wanted_state) AND (wanted_reason IS NULL OR y.reason = wanted_reason)
              AND y.id < below AND y.aged_from < born_before)
        SELECT f.id FROM found f ORDER BY f.id DESC LIMIT most;
    ELSIF wanted_state = 'dead' THEN
        IF place IS NULL THEN
            RETURN QUERY
            SELECT y.id FROM delivery y
            WHERE y.state = 'dead' AND (wanted_reason IS NULL OR y.reason = wanted_reason) AND y.id < below AND y.aged_from < born_before
            ORDER BY y.id DESC LIMIT most;
        ELSE
            RETURN QUERY
            SELECT y.id FROM delivery y
            WHERE y.destination_id = place AND y.state = 'dead' AND (wanted_reason IS NULL OR y.reason = wanted_reason)
              AND y.id < below AND y.aged_from < born_before
            ORDER BY y.id DESC LIMIT most;
        END IF;
    ELSIF wanted_state = 'queued' THEN
        -- What is queued or leased is bounded by the gates, and so never many.
        RETURN QUERY
        WITH found AS MATERIALIZED (
            SELECT y.id FROM delivery y
            WHERE y.state = 'queued' AND (place IS NULL OR y.destination_id = place) AND y.id < below AND y.aged_from < born_before)
        SELECT f.id FROM found f ORDER BY f.id DESC LIMIT most;
    ELSIF wanted_state = 'leased' THEN
        RETURN QUERY
        WITH found AS MATERIALIZED (
            SELECT y.id FROM delivery y
            WHERE y.state = 'leased' AND (place IS NULL OR y.destination_id = place) AND y.id < below AND y.aged_from < born_before)
        SELECT f.id FROM found f ORDER BY f.id DESC LIMIT most;
    ELSIF wanted_state = 'waiting' THEN
        -- Destination by destination: what waits is found in the index that promotion uses, and, behind others, in the chains.
        RETURN QUERY
        SELECT w.id FROM destination d CROSS JOIN LATERAL (
            (SELECT y.id FROM delivery y
             WHERE y.destination_id = d.id AND y.state = 'waiting' AND NOT y.blocked AND y.id < below AND y.aged_from < born_before
             ORDER BY y.id DESC LIMIT most)
            UNION ALL
            (SELECT y.id FROM delivery y
             WHERE y.destination_id = d.id AND y.state = 'waiting' AND y.blocked AND y.ordered
               AND y.id < below AND y.aged_from < born_before
             ORDER BY y.id DESC LIMIT most)) AS w
        WHERE d.waiting > 0 AND (place IS NULL OR d.id = place)
        ORDER BY w.id DESC LIMIT most;
    ELSIF place IS NOT NULL THEN
        RETURN QUERY
        SELECT f.id FROM (
            (SELECT y.id FROM delivery y
             WHERE y.destination_id = place AND y.state IN ('delivered', 'dead') AND (wanted_state IS NULL OR y.state = wanted_state)
               AND y.id < below AND y.aged_from < born_before
             ORDER BY y.id DESC LIMIT most)
            UNION ALL
            (SELECT o.id FROM unnest('{waiting,queued,leased}'::text[]) AS open(state)
             CROSS JOIN LATERAL find_deliveries(for_subscriber, NULL, open.state, NULL, older_than_seconds, before_id, most) AS o(id)
             WHERE wanted_state IS NULL)) AS f
        ORDER BY f.id DESC LIMIT most;
    ELSE
        RETURN QUERY
        SELECT y.id FROM delivery y
        WHERE (wanted_state IS NULL OR y.state = wanted_state) AND y.id < below AND y.aged_from < born_before
        ORDER BY y.id DESC LIMIT most;
    END IF;
END $$;

-- version_counts: how far one version has come in this region. No row: no copy of it was ever needed here.
CREATE FUNCTION {schema}.version_counts(for_shipment text, for_version bigint)
RETURNS TABLE (expanded boolean, created int, waiting bigint, queued bigint, leased bigint, delivered bigint, dead bigint)
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT x.done, x.created, c.waiting, c.queued, c.leased, c.delivered, c.dead
    FROM version v JOIN expansion x USING (version_no)
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE y.state = 'waiting') AS waiting, count(*) FILTER (WHERE y.state = 'queued') AS queued,
               count(*) FILTER (WHERE y.state = 'leased') AS leased, count(*) FILTER (WHERE y.state = 'delivered') AS delivered,
               count(*) FILTER (WHERE y.state = 'dead') AS dead
        FROM delivery y WHERE y.version_no = v.version_no) AS c
    WHERE v.shipment_id = for_shipment AND v.version = for_version
$$;

-- delivery_facts: everything about these deliveries that people are shown and that "why does it wait" is decided from, in one snapshot.
-- Reals by way of their shortest text: 0.1 stays 0.1.
CREATE FUNCTION {schema}.delivery_facts(ids bigint[])
RETURNS TABLE (id bigint, subscriber_id text, shipment_id text, version bigint, event_type text, state text, reason text, attempts int,
               budget_used int, eligible_at timestamptz, accepted_at timestamptz, finished_at timestamptz, blocked boolean,
               behind_version bigint, worker text, traceparent text, concurrency int, send_window int, in_flight int, queued int,
               waiting bigint, probation boolean, hold_why text, rate_per_second float8, paused_by text, paused_why text,
               disabled_why text, disabled_by text, now timestamptz, due_in_seconds float8, queued_for_seconds float8,
               lease_ends_in_seconds float8, finished_for_seconds float8, hold_in_seconds float8, rate_in_seconds float8,
               wake_in_seconds float8, window_room int, room int, permits int, last_outcome text, last_status int, last_error text)
LANGUAGE sql STABLE ROWS 50 SET search_path = {schema}, pg_temp AS $$
    SELECT y.id, s.subscriber_id, v.shipment_id, v.version, v.event_type, y.state::text, y.reason::text, y.attempts,
           y.budget_used, y.eligible_at, v.accepted_at, y.finished_at, y.blocked,
           CASE WHEN y.blocked THEN (
               SELECT min(o.version) FROM delivery o
               WHERE o.destination_id = y.destination_id AND o.shipment_no = y.shipment_no AND o.version < y.version
                 AND o.ordered AND o.state IN ('waiting', 'queued', 'leased')) END,
           y.worker, v.traceparent, d.concurrency, d.send_window, d.in_flight, d.queued,
           d.waiting, d.probation, d.hold_why, d.rate_per_second::text::float8, d.paused_by, d.paused_why,
           d.disabled_why::text, d.disabled_by, m.now,
           extract(epoch FROM y.eligible_at - m.now)::float8, extract(epoch FROM m.now - y.queued_at)::float8,
           extract(epoch FROM y.lease_until - m.now)::float8, extract(epoch FROM m.now - y.finished_at)::float8,
           extract(epoch FROM d.hold_until - m.now)::float8, extract(epoch FROM d.rate_next_at - m.now)::float8,
           extract(epoch FROM d.wake_at - m.now)::float8,
           CASE WHEN d.wake_at <= m.now OR gate_wants_more(g.capacity, d.in_flight, d.queued)
                THEN gate_room(g.capacity, d.hold_until, NULL, NULL, d.in_flight, d.queued, m.now)
                ELSE 0 END,
           gate_room(g.capacity, d.hold_until, d.rate_per_second, d.rate_next_at, d.in_flight, d.queued, m.now),
           gate_permits(d.send_window, d.concurrency, d.hold_until, d.rate_per_second, d.rate_next_at, d.paused_at, d.disabled_at,
                        d.in_flight, m.now),
           a.outcome::text, a.status, a.error
    FROM delivery y
    JOIN version v USING (version_no)
    JOIN subscriber s ON s.id = y.destination_id
    JOIN destination d ON d.id = y.destination_id
    LEFT JOIN attempt a ON a.delivery_id = y.id AND a.n = y.attempts
    CROSS JOIN (SELECT clock_timestamp() AS now) AS m
    CROSS JOIN LATERAL (SELECT gate_capacity(d.send_window, d.concurrency, d.probation) AS capacity) AS g
    WHERE y.id = ANY (ids)
$$;

-- delivery_attempts: every send of a delivery, and results that came too late. A late result has no start: we know only when it
-- was recorded and how long it took.
CREATE FUNCTION {schema}.delivery_attempts(whose bigint)
RETURNS TABLE (n int, token int, late boolean, outcome text, status int, started_at timestamptz, duration_ms int, config_version int,
               error text, retry_after_seconds float8, response_excerpt bytea, expired boolean, attempted_by text, address text,
               trace_id text)
LANGUAGE sql STABLE ROWS 5 SET search_path = {schema}, pg_temp AS $$
    SELECT a.n, a.token, false, a.outcome::text, a.status, a.started_at, a.duration_ms, a.config_version,
           a.error, a.retry_after_seconds::text::float8, a.response_excerpt, a.expired, a.worker, a.address, a.trace_id
    FROM attempt a WHERE a.delivery_id = whose
    UNION ALL
    SELECT l.n, l.token, true, l.outcome::text, l.status, l.recorded_at - make_interval(secs => l.duration_ms / 1000.0), l.duration_ms,
           l.config_version, l.error, NULL, l.response_excerpt, false, l.worker, l.address, l.trace_id
    FROM late_result l WHERE l.delivery_id = whose
$$;
