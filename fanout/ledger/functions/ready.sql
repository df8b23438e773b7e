-- oldest_ready_age: for how long something has been due that nothing hinders, and that nobody has sent. Reading only; one look into an
-- index per destination that has something waiting.
--
-- Nothing hinders: the gate gives a permit (no hold, no pause, room in the window, a slot of the rate), no earlier version is ahead, and
-- the destination is not on probation, whose probes share a few places. Since when: since it became due, and since the hold ended, the
-- window was cut or something got through, whatever was last. So a destination that drains its backlog at its own pace is not in it.
CREATE FUNCTION {schema}.oldest_ready_age() RETURNS float8
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    WITH queued AS (
        SELECT y.destination_id, min(y.eligible_at) AS due FROM delivery y WHERE y.state = 'queued' GROUP BY y.destination_id
    )
    SELECT coalesce(greatest(0, extract(epoch FROM clock_timestamp() - min(
               greatest(least(w.due, q.due), d.hold_until, d.cut_at, d.last_success_at)))), 0)::float8
    FROM destination d
    LEFT JOIN queued q ON q.destination_id = d.id
    LEFT JOIN LATERAL (SELECT y.eligible_at AS due FROM delivery y
                       WHERE d.waiting > 0 AND y.destination_id = d.id AND y.state = 'waiting' AND NOT y.blocked
                       ORDER BY y.eligible_at, y.id LIMIT 1) AS w ON true
    WHERE d.waiting + d.queued > 0 AND NOT d.probation AND least(w.due, q.due) IS NOT NULL
      AND gate_permits(d.send_window, d.concurrency, d.hold_until, d.rate_per_second, d.rate_next_at, d.paused_at, d.disabled_at,
                       d.in_flight, clock_timestamp()) > 0
$$;
