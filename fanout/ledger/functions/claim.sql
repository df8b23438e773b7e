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
CREATE FUNCTION {schema}.claim(ids bigint[], dispatches int[], claimer text, margin_seconds float8)
RETURNS TABLE (id bigint, token int, destination_id int, version_no bigint, attempt int, budget_used int, unauthorized_streak int,
               age_seconds float8, config_version int, timeout_seconds float8, wait_seconds float8, lease_seconds float8, permits_left int)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
BEGIN
    PERFORM FROM destination
    WHERE id IN (SELECT y.destination_id FROM delivery y WHERE y.id = ANY (ids))
    ORDER BY id FOR NO KEY UPDATE;
    moment := clock_timestamp();

    RETURN QUERY
    WITH asked AS (
        SELECT y.id, y.destination_id, row_number() OVER (PARTITION BY y.destination_id ORDER BY y.eligible_at, y.id) AS place
        FROM delivery y JOIN unnest(ids, dispatches) AS a(id, dispatch) ON a.id = y.id AND a.dispatch = y.dispatch
        WHERE y.id = ANY (ids) AND y.state = 'queued'
    ), judged AS MATERIALIZED (
        SELECT a.id, a.destination_id, d.timeout_seconds::float8 AS timeout_seconds, d.config_version, d.in_flight,
               p.permits, a.place <= p.permits AS granted,
               CASE WHEN d.rate_per_second IS NULL THEN 0::float8
                    ELSE greatest(0, coalesce(extract(epoch FROM d.rate_next_at - moment), 0))::float8
                         + (a.place - 1) / d.rate_per_second::float8 END AS wait_seconds
        FROM asked a JOIN destination d ON d.id = a.destination_id
        CROSS JOIN LATERAL (SELECT gate_permits(d.send_window, d.concurrency, d.hold_until, d.rate_per_second, d.rate_next_at,
                                                d.paused_at, d.disabled_at, d.in_flight, moment)) AS p(permits)
    ), leased AS (
        UPDATE delivery y SET state = 'leased', queued_at = NULL, worker = claimer, attempts = y.attempts + 1, leased_at = moment,
               lease_until = moment + make_interval(secs => j.wait_seconds + j.timeout_seconds + margin_seconds)
        FROM judged j WHERE y.id = j.id AND y.id = ANY (ids) AND j.granted
        RETURNING y.id, y.dispatch, y.destination_id, y.version_no, y.attempts, y.budget_used, y.unauthorized_streak, y.aged_from
    ), refused AS (
        UPDATE delivery y SET state = 'waiting', queued_at = NULL
        FROM judged j WHERE y.id = j.id AND y.id = ANY (ids) AND NOT j.granted
        RETURNING y.destination_id
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
              FROM judged GROUP BY destination_id) AS t
        WHERE d.id = t.destination_id
    )
    SELECT l.id, l.dispatch, l.destination_id, l.version_no, l.attempts, l.budget_used, l.unauthorized_streak::int,
           extract(epoch FROM moment - l.aged_from)::float8, j.config_version, j.timeout_seconds, j.wait_seconds,
           j.wait_seconds + j.timeout_seconds + margin_seconds,
           (j.permits - count(*) OVER (PARTITION BY l.destination_id))::int
    FROM leased l JOIN judged j ON j.id = l.id;
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
