-- settle_and_claim: what a consumer does at each turn, in one transaction: results first, so that a permit that they free can go to the
-- next delivery of the same destination at once. Between two transactions it would lie idle for as long as both of them take.
--
-- Rows of results come first, as settle gives them; then the leases, as claim gives them, whose `settled` is null.
CREATE FUNCTION {schema}.settle_and_claim(
    ids bigint[], tokens int[], destinations int[], attempts_n int[], outcomes text[], states text[], statuses int[], started_ms int[],
    durations_ms int[], config_versions int[], addresses text[], trace_ids text[], excerpts bytea[],
    odd_ids bigint[], sents boolean[], reasons text[], delays float8[], counts boolean[], holds float8[], expireds boolean[],
    retry_afters float8[], errors text[],
    asked_ids bigint[], asked_dispatches int[], asked_destinations int[], worker text, jitter float8, margin_seconds float8)
RETURNS TABLE (id bigint, destination_id int, permits_left int, settled boolean, more_waits boolean,
               token int, version_no bigint, attempt int, budget_used int, unauthorized_streak int, age_seconds float8,
               config_version int, timeout_seconds float8, wait_seconds float8, lease_seconds float8)
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    touched int[] := ARRAY(SELECT DISTINCT unnest(destinations || asked_destinations));
BEGIN
    IF cardinality(ids) > 0 AND cardinality(asked_ids) > 0 THEN    -- both lock again, in the same order: what they would wait for is ours
        PERFORM FROM destination d WHERE d.id = ANY (touched) ORDER BY d.id FOR NO KEY UPDATE;
    END IF;
    IF cardinality(ids) > 0 THEN
        RETURN QUERY
        SELECT s.id, s.destination_id, s.permits_left, s.settled, s.more_waits, NULL::int, NULL::bigint, NULL::int, NULL::int, NULL::int,
               NULL::float8, NULL::int, NULL::float8, NULL::float8, NULL::float8
        FROM settle(ids, tokens, destinations, attempts_n, outcomes, states, statuses, started_ms, durations_ms, config_versions, addresses,
                    trace_ids, excerpts, odd_ids, sents, reasons, delays, counts, holds, expireds, retry_afters, errors, worker, jitter) AS s;
    END IF;
    IF cardinality(asked_ids) > 0 THEN
        RETURN QUERY
        SELECT c.id, c.destination_id, c.permits_left, NULL::boolean, NULL::boolean, c.token, c.version_no, c.attempt, c.budget_used,
               c.unauthorized_streak, c.age_seconds, c.config_version, c.timeout_seconds, c.wait_seconds, c.lease_seconds
        FROM claim(asked_ids, asked_dispatches, asked_destinations, worker, margin_seconds) AS c;
    END IF;
END $$;
