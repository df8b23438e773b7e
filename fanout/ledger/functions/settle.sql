-- settle: leased → delivered | dead | waiting, for a batch of results, with the attempts, the gates and the books, in one transaction.
--
-- One row of the arrays is one result. Most are plain deliveries; what others have beside stands in arrays of their own, by odd_ids.
-- `sents` false: nothing was sent (released, or no payload to send), so there is no attempt to record and the send is not counted.
-- `delays` null: eligible_at stays (throttled and released deliveries keep their place). `holds`: seconds that a throttled result stops
-- the destination; null where it did not say. `expireds`: found by the sweep, the worker was not heard of.
--
-- Safe under concurrency: a result counts only while its token is current (P5); what comes later is kept apart and changes nothing.
-- A repeat after a lost answer to COMMIT finds its own attempt, and does nothing.
--
-- Joined by hashing, as the claim is. permits_left is null where nothing of the destination was settled; more_waits: the
-- scheduler should look at it.
CREATE FUNCTION {schema}.settle(
    ids bigint[], tokens int[], destinations int[], attempts_n int[], outcomes text[], states text[], statuses int[], started_ms int[],
    durations_ms int[], config_versions int[], addresses text[], trace_ids text[], excerpts bytea[],
    odd_ids bigint[], sents boolean[], reasons text[], delays float8[], counts boolean[], holds float8[], expireds boolean[],
    retry_afters float8[], errors text[],
    settler text, jitter float8)
RETURNS TABLE (id bigint, settled boolean, destination_id int, permits_left int, more_waits boolean)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp SET enable_nestloop = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    touched int[] := ARRAY(SELECT DISTINCT unnest(destinations));   -- each row of a scan is compared with each of an array
    moment timestamptz;
    any_ordered boolean;
    settled_ids bigint[];
    settled_at int[];
    permits int[];
    more boolean[];
BEGIN
    SELECT bool_or(l.ordering <> 'any') INTO any_ordered
    FROM (SELECT ordering FROM destination WHERE id = ANY (touched) ORDER BY id FOR NO KEY UPDATE) AS l;
    moment := clock_timestamp();

    WITH result AS MATERIALIZED (
        SELECT r.id, r.token, 'leased'::delivery_state AS held, r.n, coalesce(o.sent, true) AS sent, r.outcome::attempt_outcome AS outcome,
               r.state::delivery_state AS state, o.reason::death_reason AS reason, o.delay, coalesce(o.counts, true) AS counts, o.hold,
               coalesce(o.expired, false) AS expired, r.status, r.started_ms, r.duration_ms, r.config_version, o.retry_after, o.error,
               r.excerpt, r.address, r.trace_id
        FROM unnest(ids, tokens, attempts_n, outcomes, states, statuses, started_ms, durations_ms, config_versions, addresses,
                    trace_ids, excerpts)
             AS r(id, token, n, outcome, state, status, started_ms, duration_ms, config_version, address, trace_id, excerpt)
        LEFT JOIN unnest(odd_ids, sents, reasons, delays, counts, holds, expireds, retry_afters, errors)
             AS o(id, sent, reason, delay, counts, hold, expired, retry_after, error) ON o.id = r.id
    ), done AS (
        UPDATE delivery y SET
            state = r.state, reason = r.reason, lease_until = NULL, worker = NULL,
            finished_at = CASE WHEN r.state IN ('delivered', 'dead') THEN moment END,
            eligible_at = CASE WHEN r.delay IS NULL THEN y.eligible_at ELSE moment + make_interval(secs => r.delay) END,
            attempts = y.attempts - (NOT r.sent)::int,
            budget_used = y.budget_used + r.counts::int,
            unauthorized_streak = CASE WHEN r.outcome = 'unauthorized' THEN y.unauthorized_streak + 1
                                       WHEN NOT r.sent OR r.outcome = 'throttled' THEN y.unauthorized_streak ELSE 0 END,
            expired_streak = CASE WHEN r.expired THEN y.expired_streak + 1
                                  WHEN NOT r.sent OR r.outcome = 'throttled' THEN y.expired_streak ELSE 0 END
        FROM result r
        -- by id alone: a state that the planner can see would lead it to the index of everything that is leased
        WHERE y.id = ANY (ids) AND y.id = r.id AND y.state = r.held AND y.dispatch = r.token
        RETURNING y.destination_id, y.leased_at, r.*
    ), recorded AS (
        INSERT INTO attempt (delivery_id, n, token, outcome, status, started_at, duration_ms, config_version, retry_after_seconds,
                             expired, worker, address, trace_id, error, response_excerpt)
        SELECT r.id, r.n, r.token, r.outcome, r.status, r.leased_at + make_interval(secs => coalesce(r.started_ms, 0) / 1000.0),
               coalesce(r.duration_ms, (extract(epoch FROM moment - r.leased_at) * 1000)::int), r.config_version, r.retry_after,
               r.expired, settler, r.address, r.trace_id, r.error, r.excerpt
        FROM done r WHERE r.sent ORDER BY r.id
    ), gate AS MATERIALIZED (
        SELECT * FROM destination WHERE id = ANY (touched)
    ), told_of AS (
        SELECT r.*, r.sent AND (d.cut_at IS NULL OR r.leased_at > d.cut_at) AS fresh,
               r.sent AND NOT r.expired AND r.outcome NOT IN ('delivered', 'throttled') AS failure,
               gate_gives_up(d.failing_since, moment) AS gives_up
        FROM done r JOIN gate d ON d.id = r.destination_id
    ), tally AS MATERIALIZED (
        SELECT t.destination_id, count(*)::int AS n,
               count(*) FILTER (WHERE t.state = 'delivered') AS delivered,
               count(*) FILTER (WHERE t.state = 'dead') AS dead,
               count(*) FILTER (WHERE t.state = 'waiting') AS waiting,
               count(*) FILTER (WHERE t.sent AND t.outcome = 'unknown') AS unknowns,
               count(*) FILTER (WHERE t.fresh AND t.outcome = 'delivered')::int AS successes,
               count(*) FILTER (WHERE t.fresh AND t.outcome IN ('redirected', 'gone', 'unauthorized', 'rejected'))::int AS answers,
               count(*) FILTER (WHERE t.fresh AND NOT t.expired
                                      AND t.outcome IN ('failed', 'unreachable', 'unknown', 'forbidden'))::int AS failures,
               count(*) FILTER (WHERE t.fresh AND t.outcome = 'throttled')::int AS throttles,
               max(t.hold) FILTER (WHERE t.outcome = 'throttled') AS hold_seconds,
               coalesce(bool_or(t.outcome = 'throttled' AND t.hold IS NULL), false) AS throttled_plainly,
               coalesce(bool_or(t.sent AND t.outcome = 'delivered'), false) AS any_success,
               coalesce(bool_or(t.failure), false) AS any_failure,
               CASE WHEN bool_or(t.sent AND t.outcome = 'gone') THEN 'gone'
                    WHEN bool_or(t.gives_up AND t.failure) AND NOT bool_or(t.sent AND t.outcome = 'delivered') THEN 'disabled'
               END::death_reason AS closes
        FROM told_of t GROUP BY t.destination_id
    ), gated AS (
        UPDATE destination d SET
            in_flight = d.in_flight - t.n, delivered = d.delivered + t.delivered, dead = d.dead + t.dead,
            waiting = d.waiting + t.waiting, unknown_attempts = d.unknown_attempts + t.unknowns,
            send_window = g.next_window, probation = g.next_probation, hold_until = g.next_hold_until, hold_why = g.next_hold_why,
            cut_at = g.next_cut_at, fail_streak = g.next_fail_streak, throttle_streak = g.next_throttle_streak,
            last_success_at = CASE WHEN t.any_success THEN moment ELSE d.last_success_at END,
            failing_since = CASE WHEN t.any_success THEN NULL WHEN t.any_failure THEN coalesce(d.failing_since, moment)
                                 ELSE d.failing_since END,
            disabled_at = CASE WHEN t.closes IS NULL THEN d.disabled_at ELSE coalesce(d.disabled_at, moment) END,
            disabled_why = coalesce(d.disabled_why, t.closes),
            disabled_by = CASE WHEN t.closes IS NULL OR d.disabled_at IS NOT NULL THEN d.disabled_by
                               WHEN t.closes = 'gone' THEN 'the subscriber answered 410'
                               ELSE 'five days of failures without a success' END,
            wake_at = CASE WHEN d.waiting + t.waiting = 0 THEN NULL
                           WHEN g.next_hold_until > moment
                                OR gate_wants_more(gate_capacity(g.next_window, b.concurrency, g.next_probation), d.in_flight - t.n, d.queued)
                           THEN gate_opens_at(g.next_hold_until, d.rate_next_at, moment)
                           ELSE d.wake_at END
        FROM tally t JOIN gate b ON b.id = t.destination_id
        CROSS JOIN LATERAL gate_after(b.send_window, b.concurrency, b.probation, b.hold_until, b.hold_why, b.cut_at, b.fail_streak,
                                      b.throttle_streak, t.successes, t.answers, t.failures, t.throttles, t.hold_seconds,
                                      t.throttled_plainly, moment, jitter) AS g
        WHERE d.id = t.destination_id AND d.id = ANY (touched)
        RETURNING d.id, gate_permits(d.send_window, d.concurrency, d.hold_until, d.rate_per_second, d.rate_next_at, d.paused_at,
                                     d.disabled_at, d.in_flight, moment) AS permits, d.wake_at IS NOT NULL AS more
    ), told AS (
        INSERT INTO operator_event (kind, subscriber, detail)
        SELECT 'destination_disabled', d.id,
               CASE t.closes WHEN 'gone' THEN 'answered 410 Gone: disabled, its open deliveries end as dead (gone)'
                             ELSE 'failed for five days without a success: disabled, its open deliveries end as dead (disabled)' END
        FROM tally t JOIN gate d ON d.id = t.destination_id WHERE t.closes IS NOT NULL AND d.disabled_at IS NULL
    )
    SELECT (SELECT coalesce(array_agg(d.id), '{}') FROM done d), array_agg(g.id), array_agg(g.permits), array_agg(g.more)
    INTO settled_ids, settled_at, permits, more FROM gated g;

    IF cardinality(settled_ids) < cardinality(ids) THEN
        WITH late AS (
            INSERT INTO late_result (delivery_id, n, token, outcome, status, duration_ms, config_version, worker, address, trace_id,
                                     error, response_excerpt)
            SELECT r.id, r.n, r.token, r.outcome::attempt_outcome, r.status, coalesce(r.duration_ms, 0), r.config_version, settler,
                   r.address, r.trace_id, o.error, r.excerpt
            FROM unnest(ids, tokens, attempts_n, outcomes, statuses, durations_ms, config_versions, addresses, trace_ids, excerpts)
                 AS r(id, token, n, outcome, status, duration_ms, config_version, address, trace_id, excerpt)
            LEFT JOIN unnest(odd_ids, sents, expireds, errors) AS o(id, sent, expired, error) ON o.id = r.id
            WHERE coalesce(o.sent, true) AND NOT coalesce(o.expired, false) AND r.id <> ALL (settled_ids)
              AND NOT EXISTS (SELECT FROM attempt a WHERE a.delivery_id = ANY (ids) AND a.delivery_id = r.id
                                                      AND a.n = r.n AND a.token = r.token AND NOT a.expired)
            ON CONFLICT DO NOTHING
            RETURNING delivery_id
        )
        UPDATE destination d SET late_results = d.late_results + l.n
        FROM (SELECT a.destination_id, count(*) AS n
              FROM late JOIN unnest(ids, destinations) AS a(id, destination_id) ON a.id = late.delivery_id
              GROUP BY a.destination_id) AS l
        WHERE d.id = l.destination_id AND d.id = ANY (touched);
    END IF;
    IF any_ordered THEN
        PERFORM arrange(array_agg(y.destination_id), array_agg(y.shipment_no)) FROM delivery y WHERE y.id = ANY (ids) AND y.ordered;
    END IF;

    RETURN QUERY
    SELECT r.id, s.id IS NOT NULL, r.destination_id, g.permits, coalesce(g.more, false)
    FROM unnest(ids, destinations) AS r(id, destination_id)
    LEFT JOIN unnest(settled_ids) AS s(id) ON s.id = r.id
    LEFT JOIN unnest(settled_at, permits, more) AS g(destination_id, permits, more) ON g.destination_id = r.destination_id;
END $$;
