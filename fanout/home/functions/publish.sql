-- publish: write versions and their outbox rows inside the caller's own transaction. Costs the same whatever the fan-out.
--
-- Safe under concurrency: two publishers of one version meet on the unique key; the second waits for the first to commit and
-- then compares, in a later statement with a fresh snapshot. Rows are written in key order, so two batches cannot deadlock.
-- verdict: accepted | duplicate (equal content: bytes, content type, event type, labels, residency) | conflict.
CREATE FUNCTION {schema}.publish(
    shipment_ids text[], versions bigint[], event_types text[], content_types text[], label_texts text[], residencies text[],
    payloads bytea[], digests bytea[], occurred timestamptz[], eligible timestamptz[], traceparents text[], tracestates text[])
RETURNS TABLE (place bigint, verdict text, version_no bigint, accepted_at timestamptz)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    new_versions bigint[];
BEGIN
    INSERT INTO shipment (shipment_id)
    SELECT DISTINCT s FROM unnest(shipment_ids) AS s
    WHERE NOT EXISTS (SELECT FROM shipment WHERE shipment_id = s) ORDER BY s
    ON CONFLICT DO NOTHING;

    WITH given AS (
        SELECT DISTINCT ON (s.shipment_no, g.version) s.shipment_no, g.*
        FROM unnest(shipment_ids, versions, event_types, content_types, label_texts, residencies, payloads, digests,
                    occurred, eligible, traceparents, tracestates) WITH ORDINALITY
             AS g(shipment_id, version, event_type, content_type, labels, residency, payload, sha256,
                  occurred_at, eligible_at, traceparent, tracestate, place)
        JOIN shipment s USING (shipment_id)
        ORDER BY s.shipment_no, g.version, g.place
    ), inserted AS (
        INSERT INTO version (shipment_no, version, event_type, content_type, labels, residency, payload, sha256,
                             occurred_at, eligible_at, traceparent, tracestate)
        SELECT shipment_no, version, event_type, content_type, labels::jsonb, residency, payload, sha256,
               occurred_at, eligible_at, traceparent, tracestate
        FROM given ORDER BY shipment_no, version
        ON CONFLICT (shipment_no, version) DO NOTHING
        RETURNING version_no, shipment_no, version
    ), outboxed AS (
        INSERT INTO outbox (region, version_no, shipment_no, version)
        SELECT r.region, i.version_no, i.shipment_no, i.version FROM inserted i CROSS JOIN region r
    )
    SELECT coalesce(array_agg(i.version_no), '{}') INTO new_versions FROM inserted i;

    RETURN QUERY
    SELECT g.place,
           CASE WHEN v.sha256 <> g.sha256 OR octet_length(v.payload) <> octet_length(g.payload)
                     OR v.content_type <> g.content_type OR v.event_type <> g.event_type
                     OR v.labels <> g.labels::jsonb OR v.residency IS DISTINCT FROM g.residency THEN 'conflict'
                WHEN v.version_no = ANY (new_versions)
                     AND g.place = min(g.place) OVER (PARTITION BY v.version_no) THEN 'accepted'
                ELSE 'duplicate' END,
           v.version_no, v.accepted_at
    FROM unnest(shipment_ids, versions, event_types, content_types, label_texts, residencies, payloads, digests) WITH ORDINALITY
         AS g(shipment_id, version, event_type, content_type, labels, residency, payload, sha256, place)
    JOIN shipment s ON s.shipment_id = g.shipment_id
    JOIN version v ON v.shipment_no = s.shipment_no AND v.version = g.version
    ORDER BY g.place;
END $$;
