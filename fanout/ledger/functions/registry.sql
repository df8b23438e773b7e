-- The registry of a region: who wants updates, where, and how fast.
--
-- One person at a time changes it: each function begins with the same table lock. It stops no reader, no expansion, no claim and no
-- settlement (the keys that they check need a weaker one). So what is compared cannot change before it is written, and only the
-- destinations that really change are locked, by id, as everywhere.

-- The documents of a save, as rows. secrets null: keep them. fresh_secret: for a subscriber that has none and brings none.
CREATE FUNCTION {schema}.asked_subscribers(specs jsonb)
RETURNS TABLE (subscriber_id text, endpoint text, event_types text[], labels jsonb, headers jsonb, timeout_seconds real,
               retry_statuses int[], concurrency int, rate_per_second real, ordering text, secrets text[], fresh_secret text)
LANGUAGE sql IMMUTABLE AS $$
    SELECT a.* FROM jsonb_to_recordset(specs)
        AS a(subscriber_id text, endpoint text, event_types text[], labels jsonb, headers jsonb, timeout_seconds real,
             retry_statuses int[], concurrency int, rate_per_second real, ordering text, secrets text[], fresh_secret text)
$$;

-- A subscriber's settings as one document, to be compared and to be changed in part.
CREATE FUNCTION {schema}.settings_document(
    endpoint text, event_types text[], labels jsonb, headers jsonb, timeout_seconds real, retry_statuses int[], concurrency int,
    rate_per_second real, ordering text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_build_object(
        'endpoint', endpoint, 'event_types', event_types, 'labels', labels, 'headers', headers, 'timeout_seconds', timeout_seconds,
        'retry_statuses', retry_statuses, 'concurrency', concurrency, 'rate_per_second', rate_per_second, 'ordering', ordering)
$$;

-- What is different, for the audit. No value of a header and no query of an endpoint: people put credentials into both.
CREATE FUNCTION {schema}.settings_changes(before jsonb, after jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(jsonb_object_agg(key, CASE key
        WHEN 'endpoint' THEN jsonb_build_object('from', split_part(b.value #>> '{}', '?', 1), 'to', split_part(a.value #>> '{}', '?', 1))
        WHEN 'headers' THEN jsonb_build_object('from', ARRAY(SELECT jsonb_object_keys(b.value) ORDER BY 1),
                                               'to', ARRAY(SELECT jsonb_object_keys(a.value) ORDER BY 1))
        ELSE jsonb_build_object('from', b.value, 'to', a.value) END), '{}')
    FROM jsonb_each(before) AS b JOIN jsonb_each(after) AS a USING (key) WHERE a.value <> b.value
$$;

-- The secrets that were configured, newest first; not the replaced ones that still sign for a while.
CREATE FUNCTION {schema}.current_secrets(whose int) RETURNS text[]
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT ARRAY(SELECT k.secret FROM secret k WHERE k.subscriber = whose AND k.retires_at IS NULL ORDER BY k.place)
$$;

-- The new list goes first. What it leaves out signs for another 24 hours, but never more than five sign at once.
CREATE FUNCTION {schema}.replace_secrets(whose int, wanted text[], moment timestamptz) RETURNS void
LANGUAGE sql SET search_path = {schema}, pg_temp AS $$
    DELETE FROM secret WHERE subscriber = whose AND retires_at <= moment;
    UPDATE secret SET place = place + cardinality(wanted), retires_at = coalesce(retires_at, moment + interval '24 hours')
    WHERE subscriber = whose AND secret <> ALL (wanted);
    INSERT INTO secret AS k (subscriber, secret, place, added_at)
    SELECT whose, w.secret, w.place - 1, moment FROM unnest(wanted) WITH ORDINALITY AS w(secret, place)
    ON CONFLICT (subscriber, secret) DO UPDATE SET place = excluded.place, retires_at = NULL;
    DELETE FROM secret WHERE subscriber = whose AND secret IN (
        SELECT k.secret FROM secret k WHERE k.subscriber = whose ORDER BY k.place OFFSET 5);
$$;

-- Deleting leaves the row, because keys name deliveries for ever, and nothing that was confidential. `cancelled` is what the
-- open deliveries will end with. The caller holds the locks of these destinations.
CREATE FUNCTION {schema}.bury_subscribers(doomed int[], by_whom text, moment timestamptz) RETURNS void
LANGUAGE sql SET search_path = {schema}, pg_temp AS $$
    UPDATE subscriber SET deleted_at = moment, updated_at = moment, endpoint = '', headers = '{}', labels = '{}', event_types = '{}',
                          retry_statuses = NULL
    WHERE id = ANY (doomed);
    DELETE FROM subscription WHERE subscriber = ANY (doomed);
    DELETE FROM secret WHERE subscriber = ANY (doomed);
    UPDATE destination SET config_version = config_version + 1, wake_at = NULL, paused_at = NULL, paused_by = NULL, paused_why = NULL,
                           disabled_at = moment, disabled_why = 'cancelled', disabled_by = by_whom
    WHERE id = ANY (doomed);
    INSERT INTO config_change (subscriber, config_version, changed_at, changed_by, change)
    SELECT d.id, d.config_version, moment, by_whom, '{"action": "deleted"}' FROM destination d WHERE d.id = ANY (doomed) ORDER BY d.id;
$$;

-- save_subscribers: create or replace all of them, or none. Verdicts: created | updated | unchanged | deleted, or, and then nothing
-- was done, unknown (it would have to be created, and create_missing is false), closing (it was deleted, and some of the
-- deliveries from before are still open: they must end before the id comes back to life) or crowded (its ordering would change, and
-- more than 10,000 deliveries are open: to arrange them all would hold up everyone who settles beside it).
-- prune deletes everyone who is not named.
CREATE FUNCTION {schema}.save_subscribers(specs jsonb, create_missing boolean, prune boolean, by_whom text)
RETURNS TABLE (subscriber_id text, verdict text, config_version int, generated boolean)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    moment timestamptz;
    added int[];
    revived int[];
    touched int[];      -- the revived ones and those with a difference
    resecreted int[];
    reordered int[];
    doomed int[] := '{}';
BEGIN
    LOCK TABLE subscriber IN SHARE ROW EXCLUSIVE MODE;

    RETURN QUERY
    SELECT a.subscriber_id, CASE WHEN create_missing THEN 'closing' ELSE 'unknown' END, 0, false
    FROM asked_subscribers(specs) a LEFT JOIN subscriber s USING (subscriber_id) LEFT JOIN destination d USING (id)
    WHERE CASE WHEN create_missing THEN s.deleted_at IS NOT NULL AND d.waiting + d.queued + d.in_flight > 0
               ELSE s.id IS NULL OR s.deleted_at IS NOT NULL END
    ORDER BY a.subscriber_id;
    IF FOUND THEN
        RETURN;
    END IF;

    SELECT coalesce(array_agg(c.id), '{}'), coalesce(array_agg(c.id) FILTER (WHERE c.revived), '{}'),
           coalesce(array_agg(c.id) FILTER (WHERE c.resecreted AND NOT c.revived), '{}'),
           coalesce(array_agg(c.id) FILTER (WHERE c.reordered), '{}')
    INTO touched, revived, resecreted, reordered
    FROM (
        SELECT s.id, s.deleted_at IS NOT NULL AS revived, d.ordering::text <> a.ordering AS reordered,
               a.secrets IS NOT NULL AND a.secrets <> current_secrets(s.id) AS resecreted,
               (a.endpoint, a.event_types, a.labels, a.headers, a.timeout_seconds, a.retry_statuses,
                a.concurrency, a.rate_per_second, a.ordering)
               IS DISTINCT FROM (s.endpoint, s.event_types, s.labels, s.headers, s.timeout_seconds, s.retry_statuses,
                                 d.concurrency, d.rate_per_second, d.ordering::text) AS changed
        FROM asked_subscribers(specs) a JOIN subscriber s USING (subscriber_id) JOIN destination d USING (id)) AS c
    WHERE c.revived OR c.resecreted OR c.changed;
    IF prune THEN
        SELECT coalesce(array_agg(s.id), '{}') INTO doomed FROM subscriber s
        WHERE s.deleted_at IS NULL AND s.subscriber_id NOT IN (SELECT a.subscriber_id FROM asked_subscribers(specs) a);
    END IF;
    PERFORM FROM destination WHERE id = ANY (touched || doomed) ORDER BY id FOR NO KEY UPDATE;
    moment := clock_timestamp();

    RETURN QUERY
    SELECT s.subscriber_id, 'crowded', d.config_version, false FROM destination d JOIN subscriber s USING (id)
    WHERE d.id = ANY (reordered) AND d.waiting + d.queued + d.in_flight > 10000 ORDER BY s.subscriber_id;
    IF FOUND THEN
        RETURN;
    END IF;

    WITH newcomer AS (
        INSERT INTO subscriber (subscriber_id, endpoint, event_types, labels, headers, timeout_seconds, retry_statuses,
                                created_at, updated_at)
        SELECT a.subscriber_id, a.endpoint, a.event_types, a.labels, a.headers, a.timeout_seconds, a.retry_statuses, moment, moment
        FROM asked_subscribers(specs) a
        WHERE NOT EXISTS (SELECT FROM subscriber s WHERE s.subscriber_id = a.subscriber_id) ORDER BY a.subscriber_id
        RETURNING id, subscriber_id
    ), placed AS (
        INSERT INTO destination (id, ordering, concurrency, rate_per_second, timeout_seconds, send_window)
        SELECT n.id, a.ordering::ordering, a.concurrency, a.rate_per_second, a.timeout_seconds, a.concurrency
        FROM newcomer n JOIN asked_subscribers(specs) a USING (subscriber_id)
    ), noted AS (
        INSERT INTO config_change (subscriber, config_version, changed_at, changed_by, change)
        SELECT n.id, 1, moment, by_whom, '{"action": "created"}' FROM newcomer n ORDER BY n.id
    )
    SELECT coalesce(array_agg(n.id), '{}') INTO added FROM newcomer n;

    -- A new endpoint starts with an open gate. cut_at moves to now: what was leased for the old one says nothing about the new one.
    WITH target AS MATERIALIZED (
        SELECT s.id, a.*, s.deleted_at IS NOT NULL AS revived, s.endpoint <> a.endpoint AS moved,
               settings_changes(
                   settings_document(s.endpoint, s.event_types, s.labels, s.headers, s.timeout_seconds, s.retry_statuses,
                                     d.concurrency, d.rate_per_second, d.ordering::text),
                   settings_document(a.endpoint, a.event_types, a.labels, a.headers, a.timeout_seconds, a.retry_statuses,
                                     a.concurrency, a.rate_per_second, a.ordering)) AS fields
        FROM asked_subscribers(specs) a JOIN subscriber s USING (subscriber_id) JOIN destination d USING (id)
        WHERE s.id = ANY (touched)
    ), saved AS (
        UPDATE subscriber s SET
            endpoint = t.endpoint, event_types = t.event_types, labels = t.labels, headers = t.headers,
            timeout_seconds = t.timeout_seconds, retry_statuses = t.retry_statuses, updated_at = moment, deleted_at = NULL,
            created_at = CASE WHEN t.revived THEN moment ELSE s.created_at END
        FROM target t WHERE s.id = t.id
    ), gated AS (
        UPDATE destination d SET
            config_version = d.config_version + 1, ordering = t.ordering::ordering, concurrency = t.concurrency,
            rate_per_second = t.rate_per_second, timeout_seconds = t.timeout_seconds,
            send_window = CASE WHEN t.moved THEN t.concurrency
                               WHEN t.concurrency < d.concurrency THEN least(d.send_window, t.concurrency)
                               WHEN d.send_window = d.concurrency AND NOT d.probation THEN t.concurrency
                               ELSE d.send_window END,
            hold_until = CASE WHEN NOT t.moved THEN d.hold_until END,
            hold_why = CASE WHEN NOT t.moved THEN d.hold_why END,
            probation = d.probation AND NOT t.moved,
            cut_at = CASE WHEN t.moved THEN moment ELSE d.cut_at END,
            fail_streak = CASE WHEN t.moved THEN 0 ELSE d.fail_streak END,
            failing_since = CASE WHEN NOT t.moved THEN d.failing_since END,
            last_success_at = CASE WHEN NOT t.revived THEN d.last_success_at END,
            -- A slow rate may have put the next slot far away: under a faster one it is never further than one interval.
            rate_next_at = CASE WHEN t.rate_per_second IS NOT NULL AND d.rate_next_at IS NOT NULL AND NOT t.revived
                                THEN least(d.rate_next_at, moment + make_interval(secs => 1 / t.rate_per_second)) END,
            wake_at = CASE WHEN d.waiting = 0 THEN d.wake_at
                           WHEN t.moved THEN moment
                           ELSE greatest(moment, d.hold_until) END,   -- not the rate: it may be another one now
            disabled_at = CASE WHEN NOT t.revived THEN d.disabled_at END,
            disabled_why = CASE WHEN NOT t.revived THEN d.disabled_why END,
            disabled_by = CASE WHEN NOT t.revived THEN d.disabled_by END
        FROM target t WHERE d.id = t.id
        RETURNING d.id, d.config_version
    )
    INSERT INTO config_change (subscriber, config_version, changed_at, changed_by, change)
    SELECT g.id, g.config_version, moment, by_whom,
           CASE WHEN t.revived THEN '{"action": "created again"}'
                ELSE jsonb_build_object('action', 'changed', 'fields', CASE WHEN t.id = ANY (resecreted)
                     THEN t.fields || '{"secrets": "replaced"}' ELSE t.fields END) END
    FROM gated g JOIN target t USING (id) ORDER BY g.id;

    PERFORM reorder(r.id) FROM unnest(reordered) AS r(id);

    DELETE FROM subscription p USING subscriber s
    WHERE p.subscriber = s.id AND s.id = ANY (touched) AND p.pattern <> ALL (s.event_types);
    INSERT INTO subscription (pattern, subscriber)
    SELECT DISTINCT e.pattern, s.id FROM subscriber s CROSS JOIN unnest(s.event_types) AS e(pattern)
    WHERE s.id = ANY (added || touched) ORDER BY 1, 2 ON CONFLICT DO NOTHING;

    INSERT INTO secret (subscriber, secret, place, added_at)
    SELECT s.id, k.secret, k.place - 1, moment
    FROM asked_subscribers(specs) a JOIN subscriber s USING (subscriber_id)
    CROSS JOIN unnest(coalesce(a.secrets, ARRAY[a.fresh_secret])) WITH ORDINALITY AS k(secret, place)
    WHERE s.id = ANY (added || revived);
    PERFORM replace_secrets(s.id, a.secrets, moment)
    FROM asked_subscribers(specs) a JOIN subscriber s USING (subscriber_id) WHERE s.id = ANY (resecreted);

    PERFORM bury_subscribers(doomed, by_whom, moment) WHERE cardinality(doomed) > 0;

    RETURN QUERY
    SELECT v.subscriber_id, v.verdict, v.config_version, v.verdict = 'created' AND v.secrets IS NULL
    FROM (SELECT a.subscriber_id, a.secrets, d.config_version,
                 CASE WHEN s.id IN (SELECT unnest(added || revived)) THEN 'created'
                      WHEN s.id IN (SELECT unnest(touched)) THEN 'updated' ELSE 'unchanged' END AS verdict
          FROM asked_subscribers(specs) a JOIN subscriber s USING (subscriber_id) JOIN destination d USING (id)
          UNION ALL
          SELECT s.subscriber_id, NULL, d.config_version, 'deleted'
          FROM subscriber s JOIN destination d USING (id) WHERE s.id = ANY (doomed)) AS v
    ORDER BY v.subscriber_id;
END $$;

-- replace_subscriber: the same for one that was read at config_version `seen`, and merged with a patch since. Verdict stale, and nothing
-- was done: somebody else has changed it meanwhile, and would be undone; read it again.
CREATE FUNCTION {schema}.replace_subscriber(spec jsonb, seen int, by_whom text)
RETURNS TABLE (subscriber_id text, verdict text, config_version int, generated boolean)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
BEGIN
    LOCK TABLE subscriber IN SHARE ROW EXCLUSIVE MODE;
    RETURN QUERY
    SELECT s.subscriber_id, 'stale', d.config_version, false FROM subscriber s JOIN destination d USING (id)
    WHERE s.subscriber_id = spec ->> 'subscriber_id' AND s.deleted_at IS NULL AND d.config_version <> seen;
    IF NOT FOUND THEN
        RETURN QUERY SELECT v.* FROM save_subscribers(jsonb_build_array(spec), false, false, by_whom) AS v;
    END IF;
END $$;

-- change_settings: replace some settings of one subscriber and leave the rest. The same rules as for a save, since it is one.
CREATE FUNCTION {schema}.change_settings(whose text, settings jsonb, by_whom text)
RETURNS TABLE (subscriber_id text, verdict text, config_version int, generated boolean)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
BEGIN
    LOCK TABLE subscriber IN SHARE ROW EXCLUSIVE MODE;
    RETURN QUERY
    SELECT v.* FROM subscriber s JOIN destination d USING (id)
    CROSS JOIN LATERAL save_subscribers(
        jsonb_build_array(
            settings_document(s.endpoint, s.event_types, s.labels, s.headers, s.timeout_seconds, s.retry_statuses,
                              d.concurrency, d.rate_per_second, d.ordering::text)
            || settings || jsonb_build_object('subscriber_id', s.subscriber_id)),
        false, false, by_whom) AS v
    WHERE s.subscriber_id = whose AND s.deleted_at IS NULL;
END $$;

-- delete_subscribers: returns those that were there.
CREATE FUNCTION {schema}.delete_subscribers(names text[], by_whom text) RETURNS SETOF text
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    doomed int[];
BEGIN
    LOCK TABLE subscriber IN SHARE ROW EXCLUSIVE MODE;
    SELECT coalesce(array_agg(s.id), '{}') INTO doomed FROM subscriber s WHERE s.subscriber_id = ANY (names) AND s.deleted_at IS NULL;
    PERFORM FROM destination WHERE id = ANY (doomed) ORDER BY id FOR NO KEY UPDATE;
    PERFORM bury_subscribers(doomed, by_whom, clock_timestamp());
    RETURN QUERY SELECT s.subscriber_id FROM subscriber s WHERE s.id = ANY (doomed) ORDER BY s.subscriber_id;
END $$;

-- rotate_secret: the new secret signs first at once. No row: there is no such subscriber.
CREATE FUNCTION {schema}.rotate_secret(whose text, new_secret text, by_whom text) RETURNS SETOF int
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    target int;
    reached int;
BEGIN
    LOCK TABLE subscriber IN SHARE ROW EXCLUSIVE MODE;
    SELECT s.id INTO target FROM subscriber s WHERE s.subscriber_id = whose AND s.deleted_at IS NULL;
    IF target IS NULL THEN
        RETURN;
    END IF;
    UPDATE destination SET config_version = config_version + 1 WHERE id = target RETURNING config_version INTO reached;
    PERFORM replace_secrets(target, ARRAY[new_secret], clock_timestamp());
    INSERT INTO config_change (subscriber, config_version, changed_at, changed_by, change)
    VALUES (target, reached, clock_timestamp(), by_whom, '{"action": "changed", "fields": {"secrets": "rotated"}}');
    RETURN NEXT reached;
END $$;

-- operate: pause, resume, disable or enable a destination. Repeating an order changes nothing. No row: no such subscriber.
CREATE FUNCTION {schema}.operate(whose text, verb text, by_whom text, wherefore text) RETURNS TABLE (changed boolean, config_version int)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    target int;
    moment timestamptz;
BEGIN
    LOCK TABLE subscriber IN SHARE ROW EXCLUSIVE MODE;
    SELECT s.id INTO target FROM subscriber s WHERE s.subscriber_id = whose AND s.deleted_at IS NULL;
    IF target IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM destination WHERE id = target FOR NO KEY UPDATE;
    moment := clock_timestamp();

    CASE verb
    WHEN 'pause' THEN
        UPDATE destination SET config_version = config_version + 1, paused_at = coalesce(paused_at, moment), paused_by = by_whom,
               paused_why = wherefore
        WHERE id = target AND (paused_at IS NULL OR (paused_by, paused_why) IS DISTINCT FROM (by_whom, wherefore));
    WHEN 'resume' THEN
        UPDATE destination SET config_version = config_version + 1, paused_at = NULL, paused_by = NULL, paused_why = NULL,
               wake_at = CASE WHEN waiting > 0 THEN gate_opens_at(hold_until, rate_next_at, moment) ELSE wake_at END
        WHERE id = target AND paused_at IS NOT NULL;
    WHEN 'disable' THEN
        UPDATE destination SET config_version = config_version + 1, wake_at = NULL, disabled_at = moment, disabled_why = 'disabled',
               disabled_by = by_whom
        WHERE id = target AND disabled_at IS NULL;
    WHEN 'enable' THEN
        UPDATE destination SET config_version = config_version + 1, disabled_at = NULL, disabled_why = NULL, disabled_by = NULL,
               send_window = concurrency, hold_until = NULL, hold_why = NULL, probation = false, cut_at = moment, fail_streak = 0,
               failing_since = NULL, wake_at = CASE WHEN waiting > 0 THEN moment END
        WHERE id = target AND disabled_at IS NOT NULL;
    END CASE;
    changed := FOUND;
    IF changed THEN
        INSERT INTO config_change (subscriber, config_version, changed_at, changed_by, change)
        SELECT target, d.config_version, moment, by_whom,
               jsonb_strip_nulls(jsonb_build_object('action', verb, 'why', wherefore)) FROM destination d WHERE d.id = target;
    END IF;
    RETURN QUERY SELECT changed, d.config_version FROM destination d WHERE d.id = target;
END $$;
