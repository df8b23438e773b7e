-- take_outbox: versions that one region has still to expand, lowest number first; of a shipment the lowest pending version, and where
-- there is room in the batch the versions that follow it, which nobody else can take meanwhile. Taking only keeps other publishers away for a while: every later step is repeatable.
-- Only durations leave home (P12): age_seconds since acceptance, delay_seconds until eligible (0: now).
CREATE FUNCTION {schema}.take_outbox(for_region text, most int, keep_seconds float8)
RETURNS TABLE (version_no bigint, shipment_no bigint, shipment_id text, version bigint, event_type text, labels text,
               residency text, age_seconds float8, delay_seconds float8, bytes int)
LANGUAGE sql SET search_path = {schema}, pg_temp AS $$
    WITH head AS (
        SELECT o.region, o.version_no, o.shipment_no, o.version FROM outbox o
        WHERE o.region = for_region AND NOT o.done
          AND (o.taken_until IS NULL OR o.taken_until < clock_timestamp())
          AND NOT EXISTS (SELECT FROM outbox lower
                          WHERE lower.region = o.region AND lower.shipment_no = o.shipment_no
                            AND lower.version < o.version AND NOT lower.done)
        ORDER BY o.version_no LIMIT most
        FOR UPDATE SKIP LOCKED
    ), picked AS (
        (SELECT region, version_no FROM head)
        UNION ALL
        (SELECT f.region, f.version_no FROM head h CROSS JOIN LATERAL (
            SELECT o.region, o.version_no FROM outbox o
            WHERE o.region = h.region AND o.shipment_no = h.shipment_no AND o.version > h.version AND NOT o.done
            ORDER BY o.version LIMIT most) AS f)
        LIMIT most
    ), taken AS (
        UPDATE outbox o SET taken_until = clock_timestamp() + make_interval(secs => keep_seconds)
        FROM picked p WHERE o.region = p.region AND o.version_no = p.version_no
        RETURNING o.version_no
    )
    SELECT v.version_no, v.shipment_no, s.shipment_id, v.version, v.event_type, v.labels::text, v.residency,
           extract(epoch FROM clock_timestamp() - v.accepted_at)::float8,
           greatest(0, extract(epoch FROM v.eligible_at - clock_timestamp()))::float8,
           octet_length(v.payload)
    FROM taken t JOIN version v USING (version_no) JOIN shipment s USING (shipment_no)
    ORDER BY v.version_no
$$;

-- finish_outbox: the region has expanded these versions and created so many deliveries for each (P1, home's book).
CREATE FUNCTION {schema}.finish_outbox(for_region text, numbers bigint[], counts int[]) RETURNS int
LANGUAGE sql SET search_path = {schema}, pg_temp AS $$
    WITH finished AS (
        UPDATE outbox o SET done = true, created = f.created, done_at = clock_timestamp(), taken_until = NULL
        FROM unnest(numbers, counts) AS f(version_no, created)
        WHERE o.region = for_region AND o.version_no = ANY (numbers) AND o.version_no = f.version_no AND NOT o.done
        RETURNING 1
    )
    SELECT count(*)::int FROM finished
$$;
