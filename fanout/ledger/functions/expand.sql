-- Which patterns could match an event type: the type itself, and each of its prefixes followed by a star.
CREATE FUNCTION {schema}.pattern_candidates(event_type text) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(candidate) FROM (
        SELECT event_type UNION ALL
        SELECT left(event_type, n) || '*' FROM generate_series(0, length(event_type)) AS n) AS c(candidate)
$$;

-- Does a version with these labels pass a subscriber's filter? Each named label must have one of the listed values.
CREATE FUNCTION {schema}.labels_match(filter jsonb, labels jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT NOT EXISTS (SELECT FROM jsonb_each(filter) AS f(key, allowed) WHERE NOT coalesce(f.allowed ? (labels ->> f.key), false))
$$;

-- wanted: does anyone here want such a version? Asked with metadata only, before any payload travels (P10).
CREATE FUNCTION {schema}.wanted(event_types text[], label_texts text[], ages_seconds float8[]) RETURNS boolean[]
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT array_agg(EXISTS (
        SELECT FROM subscription p JOIN subscriber s ON s.id = p.subscriber
        WHERE p.pattern = ANY (a.candidates) AND s.deleted_at IS NULL
          AND s.created_at <= clock_timestamp() - make_interval(secs => a.age)
          AND (s.labels = '{}' OR labels_match(s.labels, a.labels::jsonb))) ORDER BY a.place)
    FROM (SELECT pattern_candidates(g.event_type) AS candidates, g.labels, g.age, g.place
          FROM unnest(event_types, label_texts, ages_seconds) WITH ORDINALITY AS g(event_type, labels, age, place)
          OFFSET 0) AS a   -- OFFSET 0: the candidates are computed once for each version, not once for each subscription
$$;

-- Home and region disagree on what a number means: home was put back to an earlier state, or this is another home's region.
CREATE FUNCTION {schema}.same_version(number bigint, shipment_here text, version_here bigint, shipment_home text, version_home bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'version number % is version % of shipment % here, and version % of shipment % at home',
        number, version_here, shipment_here, version_home, shipment_home
        USING HINT = 'Was home restored from a backup, or does this region belong to another home?';
END $$;

-- copy_versions: the region's one copy of each version, and its page in the book. Repeatable.
-- A forbidden version comes without event type, labels and payload; who would have wanted it was asked by the same metadata,
-- which expand gets as an argument and does not keep.
CREATE FUNCTION {schema}.copy_versions(
    numbers bigint[], shipment_numbers bigint[], shipment_ids text[], versions bigint[], event_types text[], content_types text[],
    label_texts text[], payloads bytea[], forbiddens boolean[], ages_seconds float8[], delays_seconds float8[],
    occurred timestamptz[], traceparents text[], tracestates text[]) RETURNS void
LANGUAGE sql SET search_path = {schema}, pg_temp AS $$
    INSERT INTO version (version_no, shipment_no, shipment_id, version, event_type, content_type, labels, payload, forbidden,
                         accepted_at, eligible_at, occurred_at, traceparent, tracestate)
    SELECT g.version_no, g.shipment_no, g.shipment_id, g.version,
           CASE WHEN NOT g.forbidden THEN g.event_type END, CASE WHEN NOT g.forbidden THEN g.content_type END,
           CASE WHEN NOT g.forbidden THEN g.labels::jsonb END, CASE WHEN NOT g.forbidden THEN g.payload END, g.forbidden,
           now() - make_interval(secs => g.age), now() + make_interval(secs => g.delay),
           g.occurred_at, g.traceparent, g.tracestate
    FROM unnest(numbers, shipment_numbers, shipment_ids, versions, event_types, content_types, label_texts, payloads,
                forbiddens, ages_seconds, delays_seconds, occurred, traceparents, tracestates)
         AS g(version_no, shipment_no, shipment_id, version, event_type, content_type, labels, payload,
              forbidden, age, delay, occurred_at, traceparent, tracestate)
    ORDER BY g.version_no
    ON CONFLICT (version_no) DO NOTHING;

    INSERT INTO expansion (version_no) SELECT n FROM unnest(numbers) AS n ORDER BY n ON CONFLICT DO NOTHING;

    SELECT same_version(g.version_no, v.shipment_id, v.version, g.shipment_id, g.version)
    FROM unnest(numbers, shipment_ids, versions) AS g(version_no, shipment_id, version) JOIN version v USING (version_no)
    WHERE (v.shipment_id, v.version) <> (g.shipment_id, g.version);
$$;

-- expand: create deliveries for these versions, at most `budget` of them, going on where an earlier call stopped.
-- Returns where each version stands: how many deliveries it has created so far, and whether that is all.
--
-- Safe under concurrency: the expansion row is locked, so one version is expanded by one session at a time; its cursor moves
-- in the transaction that inserts. Destinations are locked, in order, before their state is read and before they are armed:
-- otherwise a promotion that runs meanwhile could find nothing due, put the destination to sleep, and lose the wake-up.
CREATE FUNCTION {schema}.expand(numbers bigint[], event_types text[], label_texts text[], budget int)
RETURNS TABLE (version_no bigint, created int, done boolean)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    page record;
    found int[];
    room int := budget;
    candidates text[];   -- computed once: inside the query it would be called for every subscription, whenever the plan is generic
    chosen_versions bigint[] := '{}';
    chosen_destinations int[] := '{}';
    moment timestamptz;
    any_ordered boolean;
BEGIN
    FOR page IN
        SELECT x.version_no, x.cursor, v.accepted_at, a.event_type, a.labels::jsonb AS labels
        FROM expansion x JOIN version v USING (version_no)
        JOIN unnest(numbers, event_types, label_texts) AS a(version_no, event_type, labels) USING (version_no)
        WHERE x.version_no = ANY (numbers) AND NOT x.done
        ORDER BY x.version_no FOR NO KEY UPDATE OF x
    LOOP
        EXIT WHEN room = 0;
        candidates := pattern_candidates(page.event_type);
        SELECT coalesce(array_agg(m.id), '{}') INTO found FROM (
            SELECT DISTINCT s.id FROM subscription p JOIN subscriber s ON s.id = p.subscriber
            WHERE p.pattern = ANY (candidates) AND s.id > page.cursor
              AND s.deleted_at IS NULL AND s.created_at <= page.accepted_at
              AND (s.labels = '{}' OR labels_match(s.labels, page.labels))
            ORDER BY s.id LIMIT room) AS m;
        chosen_versions := chosen_versions || array_fill(page.version_no, ARRAY[cardinality(found)]);
        chosen_destinations := chosen_destinations || found;
        UPDATE expansion x SET cursor = coalesce(found[cardinality(found)], x.cursor), done = cardinality(found) < room
        WHERE x.version_no = page.version_no;
        room := room - cardinality(found);
    END LOOP;

    SELECT bool_or(l.ordering <> 'any') INTO any_ordered
    FROM (SELECT ordering FROM destination WHERE id = ANY (chosen_destinations) ORDER BY id FOR NO KEY UPDATE) AS l;
    moment := clock_timestamp();

    WITH inserted AS (
        INSERT INTO delivery AS y (version_no, shipment_no, version, destination_id, state, reason, eligible_at, aged_from, finished_at,
                                   ordered, blocked)
        SELECT v.version_no, v.shipment_no, v.version, d.id,
               (CASE WHEN stop.reason IS NULL THEN 'waiting' ELSE 'dead' END)::delivery_state, stop.reason,
               v.eligible_at, greatest(v.accepted_at, v.eligible_at), CASE WHEN stop.reason IS NOT NULL THEN moment END,
               d.ordering <> 'any', d.ordering = 'per_shipment' AND stop.reason IS NULL
        FROM unnest(chosen_versions, chosen_destinations) AS c(version_no, destination_id)
        JOIN version v ON v.version_no = c.version_no
        JOIN destination d ON d.id = c.destination_id
        CROSS JOIN LATERAL (SELECT CASE WHEN v.forbidden THEN 'residency'::death_reason
                                        WHEN d.disabled_at IS NOT NULL THEN 'disabled'::death_reason
                                        WHEN d.ordering <> 'any' AND comes_too_late(d.id, v.shipment_id, v.version)
                                        THEN 'superseded'::death_reason END) AS stop(reason)
        RETURNING y.version_no, y.destination_id, y.state, y.eligible_at
    ), booked AS (
        UPDATE expansion x SET created = x.created + i.n
        FROM (SELECT version_no, count(*)::int AS n FROM inserted GROUP BY version_no) AS i
        WHERE x.version_no = i.version_no
    )
    UPDATE destination d SET
        waiting = d.waiting + i.waiting, dead = d.dead + i.dead,
        wake_at = CASE WHEN i.waiting = 0 THEN d.wake_at
                       ELSE least(d.wake_at, gate_opens_at(d.hold_until, d.rate_next_at, i.due)) END
    FROM (SELECT destination_id, count(*) FILTER (WHERE state = 'waiting') AS waiting, count(*) FILTER (WHERE state = 'dead') AS dead,
                 min(eligible_at) AS due
          FROM inserted GROUP BY destination_id) AS i
    WHERE d.id = i.destination_id;

    IF any_ordered THEN
        PERFORM arrange(array_agg(d.id), array_agg(v.shipment_no))
        FROM unnest(chosen_versions, chosen_destinations) AS c(version_no, destination_id)
        JOIN version v ON v.version_no = c.version_no JOIN destination d ON d.id = c.destination_id AND d.ordering <> 'any';
    END IF;

    RETURN QUERY SELECT x.version_no, x.created, x.done FROM expansion x WHERE x.version_no = ANY (numbers) ORDER BY x.version_no;
END $$;
