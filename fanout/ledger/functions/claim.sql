-- claim: queued → leased for the references that are current and that their destination's gate lets through; the other current
-- ones go back to waiting with eligible_at unchanged. References that are not current (not queued, another dispatch number) are
-- left alone: copies do nothing. Returns the leases, and nothing for the rest.
--
-- Where a rate is set, each lease has a slot of its own, wait_seconds from now; no slot is given twice.
--
-- The dispatch number is the token of the lease: promotion raises it, a claim needs it, so no two leases of a delivery share one.
--
-- Safe under concurrency: destinations are locked first and read after, in a new statement. A single statement would count permits
-- on a snapshot that it took before it waited for the lock, and go over the limit.
--
-- Batches are joined by hashing: the planner does not know how long an array is, and would compare every row with every other.
CREATE FUNCTION {schema}.claim(ids bigint[], dispatches int[], destinations int[], claimer text, margin_seconds float8)
RETURNS TABLE (id bigint, token int, destination_id int, version_no bigint, attempt int, budget_used int, unauthorized_streak int,
               age_seconds float8, config_version int, timeout_seconds float8, wait_seconds float8, lease_seconds float8, permits_left int)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET enable_nestloop = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    touched int[] := ARRAY(SELECT DISTINCT unnest(destinations));   -- each row of a scan is compared with each of an array
    moment timestamptz;
BEGIN
    PERFORM FROM destination WHERE id = ANY (touched) ORDER BY id FOR NO KEY UPDATE;
    moment := clock_timestamp();

    RETURN QUERY
    WITH gate AS MATERIALIZED (
        SELECT d.id, d.config_version, d.timeout_seconds::float8 AS timeout_seconds, d.rate_per_second::float8 AS rate,
               CASE WHEN d.rate_per_second IS NULL THEN 0::float8
                    ELSE greatest(0, coalesce(extract(epoch FROM d.rate_next_at - moment), 0))::float8 END AS first_slot,
               gate_permits(d.send_window, d.concurrency, d.hold_until, d.rate_per_second, d.rate_next_at, d.paused_at, d.disabled_at,
                            d.in_flight, moment) AS permits
        FROM destination d WHERE d.id = ANY (touched)
    ), found AS MATERIALIZED (      -- by id alone: the state would lead the planner to an index of everything that is queued
        SELECT y.id, y.dispatch, y.destination_id, y.state, y.eligible_at FROM delivery y WHERE y.id = ANY (ids)
    ), asked AS MATERIALIZED (
        SELECT f.id, f.destination_id, row_number() OVER line AS place, count(*) OVER (PARTITION BY f.destination_id) AS asked
        FROM found f JOIN unnest(ids, dispatches, destinations) AS a(id, dispatch, destination_id) USING (id, dispatch, destination_id)
        WHERE f.state = 'queued'
        WINDOW line AS (PARTITION BY f.destination_id ORDER BY f.eligible_at, f.id)
    ), judged AS MATERIALIZED (
        SELECT a.id, a.place <= g.permits AS granted, g.config_version, g.timeout_seconds,
               g.first_slot + coalesce((a.place - 1) / g.rate, 0) AS wait_seconds,
               (g.permits - least(g.permits, a.asked))::int AS permits_left
        FROM asked a JOIN gate g ON g.id = a.destination_id
    ), moved AS (
        UPDATE delivery y SET
            state = (CASE WHEN j.granted THEN 'leased' ELSE 'waiting' END)::delivery_state, queued_at = NULL,
            worker = CASE WHEN j.granted THEN claimer END,
            attempts = y.attempts + j.granted::int,
            leased_at = CASE WHEN j.granted THEN moment ELSE y.leased_at END,
            lease_until = CASE WHEN j.granted
                               THEN moment + make_interval(secs => j.wait_seconds + j.timeout_seconds + margin_seconds) END
        FROM judged j WHERE y.id = j.id AND y.id = ANY (ids)
        RETURNING y.id, y.dispatch, y.destination_id, y.version_no, y.attempts, y.budget_used, y.unauthorized_streak, y.aged_from,
                  j.granted, j.config_version, j.timeout_seconds, j.wait_seconds, j.permits_left
    ), counted AS (
        UPDATE destination d SET
            queued = d.queued - t.granted - t.refused, in_flight = d.in_flight + t.granted, waiting = d.waiting + t.refused,
            rate_next_at = CASE WHEN d.rate_per_second IS NULL OR t.granted = 0 THEN d.rate_next_at
                                ELSE greatest(d.rate_next_at, moment) + make_interval(secs => t.granted / d.rate_per_second::float8) END,
            -- Refused because full: the settlement of what is in flight wakes it. Refused by a hold or for want of a slot: time does.
            wake_at = CASE WHEN t.refused = 0 THEN d.wake_at
                           WHEN d.in_flight + t.granted > 0 AND NOT coalesce(d.hold_until > moment, false) THEN d.wake_at
                           ELSE gate_opens_at(d.hold_until, d.rate_next_at, moment) END
        FROM (SELECT destination_id, count(*) FILTER (WHERE granted)::int AS granted,
                     count(*) FILTER (WHERE NOT granted)::int AS refused
              FROM moved GROUP BY destination_id) AS t
        WHERE d.id = t.destination_id AND d.id = ANY (touched)
    )
    SELECT m.id, m.dispatch, m.destination_id, m.version_no, m.attempts, m.budget_used, m.unauthorized_streak::int,
           extract(epoch FROM moment - m.aged_from)::float8, m.config_version, m.timeout_seconds, m.wait_seconds,
           m.wait_seconds + m.timeout_seconds + margin_seconds, m.permits_left
    FROM moved m WHERE m.granted;
END $$;

-- take_queued: references for a consumer on the ledger transport, oldest first. A taken reference is offered to others again after
-- keep_seconds if no claim has used it. Takes no lock beyond the rows it skips to, so it can stand in nobody's way.
CREATE FUNCTION {schema}.take_queued(most int, keep_seconds float8) RETURNS TABLE (id bigint, dispatch int, destination_id int)
LANGUAGE sql SET search_path = {schema}, pg_temp AS $$
    UPDATE delivery y SET taken_until = clock_timestamp() + make_interval(secs => keep_seconds)
    WHERE y.id = ANY (ARRAY(
        SELECT q.id FROM delivery q
        WHERE q.state = 'queued' AND (q.taken_until IS NULL OR q.taken_until < clock_timestamp())
        ORDER BY q.queued_at, q.id LIMIT most FOR UPDATE SKIP LOCKED))
      AND y.state = 'queued'
    RETURNING y.id, y.dispatch, y.destination_id
$$;
