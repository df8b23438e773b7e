-- promote: waiting → queued, for destinations that are due to be looked at, at most what the gate of each allows.
-- The cost depends on the destinations looked at and the rows promoted, not on the backlog.
--
-- Safe under concurrency: the first statement locks destinations that nobody else is working on; the second, with a fresh snapshot,
-- sees everything that was committed before those locks were ours. In one statement, "nothing is due, go to sleep" would be
-- decided on an older snapshot, and lose the wake-up of an expansion that committed meanwhile.
--
-- Destinations on probation are taken only while fewer than most_probes of their deliveries are queued or leased, all together: the
-- others wait their turn where they cost nothing.
--
-- The last row has no id: it says in how many seconds the next destination should be looked at.
CREATE FUNCTION {schema}.promote(most_destinations int, most_probes int)
RETURNS TABLE (id bigint, dispatch int, destination_id int, probation boolean, next_seconds float8)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    picked int[];
    moment timestamptz;
    superseded int := 0;
BEGIN
    SELECT coalesce(array_agg(d.id), '{}') INTO picked FROM (
        SELECT id FROM destination
        WHERE wake_at <= clock_timestamp() AND paused_at IS NULL AND disabled_at IS NULL AND NOT probation
        ORDER BY wake_at LIMIT most_destinations FOR NO KEY UPDATE SKIP LOCKED) AS d;
    SELECT picked || coalesce(array_agg(d.id), '{}') INTO picked FROM (
        SELECT id FROM destination
        WHERE wake_at <= clock_timestamp() AND paused_at IS NULL AND disabled_at IS NULL AND probation
        ORDER BY wake_at LIMIT probes_left(most_probes) FOR NO KEY UPDATE SKIP LOCKED) AS d;
    IF picked = '{}' THEN
        RETURN QUERY SELECT NULL::bigint, NULL::int, NULL::int, NULL::boolean, seconds_to_next_wake(most_probes);
        RETURN;
    END IF;
    moment := clock_timestamp();

    -- What became due may supersede: before anything is chosen, the front of each line is put in order.
    IF EXISTS (SELECT FROM destination d WHERE d.id = ANY (picked) AND d.ordering = 'latest') THEN
        SELECT arrange(array_agg(w.destination_id), array_agg(w.shipment_no)) INTO superseded
        FROM destination d CROSS JOIN LATERAL (
            SELECT y.destination_id, y.shipment_no FROM delivery y
            WHERE y.destination_id = d.id AND y.state = 'waiting' AND NOT y.blocked AND y.eligible_at <= moment
            ORDER BY y.eligible_at, y.id LIMIT 2 * d.concurrency) AS w
        WHERE d.id = ANY (picked) AND d.ordering = 'latest';
    END IF;

    RETURN QUERY
    WITH gate AS MATERIALIZED (
        SELECT d.id, d.ordering, gate_room(gate_capacity(d.send_window, d.concurrency, d.probation), d.hold_until, d.rate_per_second,
                                           d.rate_next_at, d.in_flight, d.queued, moment) AS room
        FROM destination d WHERE d.id = ANY (picked)
    ), due AS MATERIALIZED (
        SELECT w.id, g.id AS destination_id
        FROM gate g CROSS JOIN LATERAL (
            SELECT y.id FROM delivery y
            WHERE y.destination_id = g.id AND y.state = 'waiting' AND NOT y.blocked AND y.eligible_at <= moment
              AND (g.ordering <> 'latest' OR NOT EXISTS (
                  SELECT FROM delivery o
                  WHERE o.destination_id = y.destination_id AND o.shipment_no = y.shipment_no AND o.id <> y.id
                    AND o.ordered AND NOT o.blocked AND o.state IN ('waiting', 'queued', 'leased')
                    AND (o.state <> 'waiting' OR o.version > y.version AND o.eligible_at <= moment)))
            ORDER BY y.eligible_at, y.id LIMIT g.room) AS w
    ), moved AS (
        UPDATE delivery y SET state = 'queued', dispatch = y.dispatch + 1, queued_at = moment, taken_until = NULL
        WHERE y.id = ANY (ARRAY(SELECT due.id FROM due))
        RETURNING y.id, y.dispatch, y.destination_id
    ), settled AS (
        UPDATE destination d SET
            waiting = d.waiting - m.n, queued = d.queued + m.n,
            -- Full: settling wakes it. No slot in sight and nothing on its way: the rate does. Else everything that was due is queued:
            -- sleep until the next one is.
            wake_at = CASE WHEN d.hold_until > moment THEN gate_opens_at(d.hold_until, d.rate_next_at, moment)
                           WHEN m.n = g.room AND m.n + d.in_flight + d.queued > 0 THEN NULL
                           WHEN m.n = g.room THEN gate_opens_at(d.hold_until, d.rate_next_at, moment)
                           WHEN g.ordering = 'latest' AND superseded > 0 THEN moment
                           ELSE (SELECT min(y.eligible_at) FROM delivery y
                                 WHERE y.destination_id = d.id AND y.state = 'waiting' AND NOT y.blocked AND y.eligible_at > moment) END
        FROM gate g LEFT JOIN LATERAL (SELECT count(*)::int AS n FROM due WHERE due.destination_id = g.id) AS m ON true
        WHERE d.id = g.id AND d.id = ANY (picked)
        RETURNING d.id, d.probation
    )
    SELECT m.id, m.dispatch, m.destination_id, s.probation, NULL::float8 FROM moved m JOIN settled s ON s.id = m.destination_id;
    RETURN QUERY SELECT NULL::bigint, NULL::int, NULL::int, NULL::boolean, seconds_to_next_wake(most_probes);
END $$;

-- How many more deliveries to destinations on probation may be queued or leased.
CREATE FUNCTION {schema}.probes_left(most_probes int) RETURNS int
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT greatest(0, most_probes - coalesce(sum(d.queued + d.in_flight), 0))::int FROM destination d WHERE d.probation
$$;

-- seconds_to_next_wake: until the next destination should be looked at; zero or less: now; null: none is armed.
CREATE FUNCTION {schema}.seconds_to_next_wake(most_probes int) RETURNS float8
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT extract(epoch FROM least(
        (SELECT min(d.wake_at) FROM destination d
         WHERE d.wake_at IS NOT NULL AND d.paused_at IS NULL AND d.disabled_at IS NULL AND NOT d.probation),
        (SELECT min(d.wake_at) FROM destination d
         WHERE d.wake_at IS NOT NULL AND d.paused_at IS NULL AND d.disabled_at IS NULL AND d.probation
           AND probes_left(most_probes) > 0)) - clock_timestamp())::float8
$$;

-- wake_missed: the floor under the wake-ups. Arms destinations that have something due and nothing to wake them.
-- Looks once at each destination with waiting work, never at the work itself.
CREATE FUNCTION {schema}.wake_missed() RETURNS int
LANGUAGE sql SET search_path = {schema}, pg_temp AS $$
    WITH asleep AS (
        SELECT d.id FROM destination d
        WHERE d.wake_at IS NULL AND d.waiting > 0 AND d.in_flight = 0 AND d.queued = 0 AND d.paused_at IS NULL AND d.disabled_at IS NULL
          AND EXISTS (SELECT FROM delivery y WHERE y.destination_id = d.id AND y.state = 'waiting' AND NOT y.blocked)
        ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED
    ), armed AS (
        UPDATE destination d SET wake_at = clock_timestamp() FROM asleep WHERE d.id = asleep.id AND d.wake_at IS NULL RETURNING 1
    )
    SELECT count(*)::int FROM armed
$$;
