-- expired_leases: leases whose deadline has passed. The caller settles them as `unknown` with their tokens, so a worker that
-- is not dead after all and settles first wins, and one that settles later is late. Reading only: nothing is locked here.
CREATE FUNCTION {schema}.expired_leases(most int)
RETURNS TABLE (id bigint, token int, destination_id int, attempt int, budget_used int, expired_streak int, age_seconds float8, worker text)
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT y.id, y.dispatch, y.destination_id, y.attempts, y.budget_used, y.expired_streak::int,
           extract(epoch FROM clock_timestamp() - y.aged_from)::float8, y.worker
    FROM delivery y WHERE y.state = 'leased' AND y.lease_until < clock_timestamp()
    ORDER BY y.lease_until LIMIT most
$$;

-- give_back: queued → waiting for references that reached nobody. eligible_at stays; the next promotion raises the dispatch number, so
-- a copy that turns up after all does nothing. References that are not current are left alone.
CREATE FUNCTION {schema}.give_back(ids bigint[], dispatches int[]) RETURNS int
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moved int;
BEGIN
    PERFORM FROM destination WHERE id IN (SELECT y.destination_id FROM delivery y WHERE y.id = ANY (ids))
    ORDER BY id FOR NO KEY UPDATE;

    WITH back AS (
        UPDATE delivery y SET state = 'waiting', queued_at = NULL
        FROM unnest(ids, dispatches) AS g(id, dispatch)
        WHERE y.id = ANY (ids) AND y.id = g.id AND y.dispatch = g.dispatch AND y.state = 'queued'
        RETURNING y.destination_id
    ), counted AS (
        UPDATE destination d SET queued = d.queued - b.n, waiting = d.waiting + b.n,
               wake_at = gate_opens_at(d.hold_until, d.rate_next_at, clock_timestamp())
        FROM (SELECT destination_id, count(*)::int AS n FROM back GROUP BY destination_id) AS b
        WHERE d.id = b.destination_id
        RETURNING b.n
    )
    SELECT coalesce(sum(n), 0)::int INTO moved FROM counted;
    RETURN moved;
END $$;

-- requeue_lost: the same for references that nobody has claimed for so long that they must be lost.
CREATE FUNCTION {schema}.requeue_lost(older_than_seconds float8, most int) RETURNS int
LANGUAGE sql SET search_path = {schema}, pg_temp AS $$
    SELECT give_back(coalesce(array_agg(q.id), '{}'), coalesce(array_agg(q.dispatch), '{}')) FROM (
        SELECT y.id, y.dispatch FROM delivery y
        WHERE y.state = 'queued' AND y.queued_at < clock_timestamp() - make_interval(secs => older_than_seconds)
        ORDER BY y.queued_at, y.id LIMIT most) AS q
$$;

-- close_out: waiting and queued → dead, a chunk at a time, for destinations that are disabled or deleted. What is leased finishes.
CREATE FUNCTION {schema}.close_out(most int) RETURNS int
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    target record;
    ended record;
BEGIN
    SELECT d.id, d.disabled_why INTO target FROM destination d
    WHERE d.disabled_at IS NOT NULL AND d.waiting + d.queued > 0
    ORDER BY d.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
    IF target.id IS NULL THEN
        RETURN 0;
    END IF;

    -- One branch per index. The destination's lock keeps every one of these rows in its state until we are done.
    WITH chosen AS (
        (SELECT y.id, y.state FROM delivery y
         WHERE y.destination_id = target.id AND y.state = 'waiting' AND NOT y.blocked ORDER BY y.eligible_at, y.id LIMIT most)
        UNION ALL
        (SELECT y.id, y.state FROM delivery y
         WHERE y.destination_id = target.id AND y.state = 'waiting' AND y.blocked AND y.ordered LIMIT most)
        UNION ALL
        (SELECT y.id, y.state FROM delivery y WHERE y.destination_id = target.id AND y.state = 'queued' LIMIT most)
    ), closed AS (
        UPDATE delivery y SET state = 'dead', reason = target.disabled_why, finished_at = clock_timestamp(), queued_at = NULL, blocked = false
        FROM chosen c WHERE y.id = c.id RETURNING c.state
    )
    SELECT count(*) FILTER (WHERE state = 'waiting') AS waiting, count(*) FILTER (WHERE state = 'queued')::int AS queued
    INTO ended FROM closed;

    UPDATE destination d SET waiting = d.waiting - ended.waiting, queued = d.queued - ended.queued,
           dead = d.dead + ended.waiting + ended.queued, wake_at = NULL
    WHERE d.id = target.id;
    RETURN ended.waiting + ended.queued;
END $$;

-- recount: what the counters of these destinations say beside what their rows say. One statement is one snapshot, and counters
-- change in the transaction that changes the rows: any difference is an error of ours, and no lock is needed to see it.
CREATE FUNCTION {schema}.recount(after_id int, most int)
RETURNS TABLE (id int, in_flight int, leased_rows bigint, queued int, queued_rows bigint, waiting bigint, waiting_rows bigint,
               delivered bigint, delivered_rows bigint, dead bigint, dead_rows bigint)
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT d.id, d.in_flight, count(*) FILTER (WHERE y.state = 'leased'), d.queued, count(*) FILTER (WHERE y.state = 'queued'),
           d.waiting, count(*) FILTER (WHERE y.state = 'waiting'), d.delivered, count(*) FILTER (WHERE y.state = 'delivered'),
           d.dead, count(*) FILTER (WHERE y.state = 'dead')
    FROM (SELECT * FROM destination WHERE id > after_id ORDER BY id LIMIT most) AS d
    LEFT JOIN delivery y ON y.destination_id = d.id
    GROUP BY d.id, d.in_flight, d.queued, d.waiting, d.delivered, d.dead ORDER BY d.id
$$;

-- recount_permits: the same for what is queued and leased only. Few rows, so it is cheap enough for every minute.
CREATE FUNCTION {schema}.recount_permits()
RETURNS TABLE (id int, in_flight int, leased_rows bigint, queued int, queued_rows bigint)
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    WITH rows AS (
        SELECT y.destination_id, 1 AS leased, 0 AS queued FROM delivery y WHERE y.state = 'leased'
        UNION ALL SELECT y.destination_id, 0, 1 FROM delivery y WHERE y.state = 'queued'
    ), counted AS (
        SELECT destination_id, sum(leased) AS leased, sum(queued) AS queued FROM rows GROUP BY destination_id
    )
    SELECT d.id, d.in_flight, coalesce(c.leased, 0), d.queued, coalesce(c.queued, 0)
    FROM destination d LEFT JOIN counted c ON c.destination_id = d.id
    WHERE d.in_flight <> coalesce(c.leased, 0) OR d.queued <> coalesce(c.queued, 0)
$$;
