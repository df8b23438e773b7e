-- The order of versions, for subscribers that asked for one. Every rule of it stands in this file.
--
--   chain         the open deliveries of one shipment to one destination.
--   per_shipment  only the lowest version of a chain may move; the others are blocked until it has ended. A lower one that comes
--                 while nothing above it was ever leased goes first.
--   latest        a version that is due supersedes the lower ones that nobody is sending. One that is being sent is not cut: it is
--                 delivered, or superseded when it comes back. Nothing is ever blocked: promotion passes over what may not go yet.
--   both          at most one delivery of a chain is leased, and a version that comes after a higher one was leased comes too late.
--
-- Whoever creates, settles or promotes deliveries of such a destination calls `arrange` in the same transaction, under its lock.

-- Was a higher version leased already? Asked when a delivery is created, of every version and not only of chains: a destination may
-- have asked for an order only yesterday.
CREATE FUNCTION {schema}.comes_too_late(destination int, shipment text, its_version bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM version v JOIN delivery y ON y.version_no = v.version_no AND y.destination_id = destination
        WHERE v.shipment_id = shipment AND v.version > its_version AND y.leased_at IS NOT NULL)
$$;

-- arrange: put these chains in order; how many deliveries were superseded. The caller holds the locks of the destinations.
CREATE FUNCTION {schema}.arrange(destinations int[], shipments bigint[]) RETURNS int
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz := clock_timestamp();
    ended int;
BEGIN
    WITH chain AS MATERIALIZED (
        SELECT DISTINCT c.destination_id, c.shipment_no, d.ordering
        FROM unnest(destinations, shipments) AS c(destination_id, shipment_no) JOIN destination d ON d.id = c.destination_id
        WHERE d.ordering <> 'any'
    ), free AS MATERIALIZED (
        SELECT y.id, y.destination_id, y.shipment_no, y.version, y.state, y.eligible_at, c.ordering
        FROM chain c JOIN delivery y ON y.destination_id = c.destination_id AND y.shipment_no = c.shipment_no
        WHERE y.ordered AND NOT y.blocked AND y.state IN ('waiting', 'queued', 'leased')
    ), head AS MATERIALIZED (
        SELECT h.id, h.blocked, c.destination_id, c.shipment_no
        FROM chain c CROSS JOIN LATERAL (
            SELECT y.id, y.blocked FROM delivery y
            WHERE y.destination_id = c.destination_id AND y.shipment_no = c.shipment_no
              AND y.ordered AND y.state IN ('waiting', 'queued', 'leased')
            ORDER BY y.version LIMIT 1) AS h
        WHERE c.ordering = 'per_shipment'
    ), sending AS (
        SELECT DISTINCT f.destination_id, f.shipment_no FROM free f WHERE f.state = 'leased'
    ), verdict AS MATERIALIZED (
        SELECT f.id, f.state, 'blocked' AS fate
        FROM free f JOIN head h USING (destination_id, shipment_no) LEFT JOIN sending s USING (destination_id, shipment_no)
        WHERE f.state <> 'leased' AND (f.id <> h.id OR s.shipment_no IS NOT NULL)
        UNION ALL
        SELECT h.id, 'waiting', 'free' FROM head h LEFT JOIN sending s USING (destination_id, shipment_no)
        WHERE h.blocked AND s.shipment_no IS NULL
        UNION ALL
        SELECT f.id, f.state, 'superseded' FROM free f
        WHERE f.ordering = 'latest' AND f.state <> 'leased' AND EXISTS (
            SELECT FROM free h
            WHERE h.destination_id = f.destination_id AND h.shipment_no = f.shipment_no AND h.version > f.version
              AND (h.state = 'leased' OR h.eligible_at <= moment))
    ), moved AS (
        UPDATE delivery y SET
            state = CASE v.fate WHEN 'superseded' THEN 'dead' ELSE 'waiting' END::delivery_state,
            reason = CASE v.fate WHEN 'superseded' THEN 'superseded'::death_reason END,
            finished_at = CASE v.fate WHEN 'superseded' THEN moment END,
            blocked = v.fate = 'blocked', queued_at = NULL
        FROM verdict v WHERE y.id = v.id
        RETURNING y.destination_id, v.state AS state_before, v.fate
    ), counted AS (
        UPDATE destination d SET queued = d.queued - t.unqueued, waiting = d.waiting + t.unqueued - t.superseded, dead = d.dead + t.superseded,
               wake_at = CASE WHEN t.unqueued > 0 THEN gate_opens_at(d.hold_until, d.rate_next_at, moment) ELSE d.wake_at END
        FROM (SELECT destination_id, count(*) FILTER (WHERE state_before = 'queued')::int AS unqueued,
                     count(*) FILTER (WHERE fate = 'superseded')::int AS superseded
              FROM moved GROUP BY destination_id) AS t
        WHERE d.id = t.destination_id
        RETURNING t.superseded
    )
    SELECT coalesce(sum(superseded), 0)::int INTO ended FROM counted;
    RETURN ended;
END $$;

-- reorder: what is open for this destination gets the order that it asks for now. The caller holds its lock, and sees to it that
-- not too much is open.
CREATE FUNCTION {schema}.reorder(destination int) RETURNS void
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wish ordering := (SELECT d.ordering FROM destination d WHERE d.id = destination);
BEGIN
    UPDATE delivery y SET ordered = wish <> 'any', blocked = wish = 'per_shipment' AND y.state = 'waiting'
    WHERE y.id IN (
        SELECT w.id FROM delivery w WHERE w.destination_id = destination AND w.state = 'waiting' AND NOT w.blocked
        UNION ALL SELECT b.id FROM delivery b
            WHERE b.destination_id = destination AND b.state = 'waiting' AND b.blocked AND b.ordered
        UNION ALL SELECT q.id FROM delivery q WHERE q.destination_id = destination AND q.state = 'queued'
        UNION ALL SELECT l.id FROM delivery l WHERE l.destination_id = destination AND l.state = 'leased');
    PERFORM arrange(array_agg(y.destination_id), array_agg(y.shipment_no)) FROM delivery y
    WHERE y.destination_id = destination AND y.ordered AND y.state IN ('waiting', 'queued', 'leased');
END $$;
