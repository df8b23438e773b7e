-- region_figures: a region's book, in one statement and so in one snapshot (P1). accepted is what expansions created; the other
-- sums are the counters of the destinations. What retention or forgetting removed counts on both sides.
-- oldest_due: the longest that anything unblocked which may be sent has been due. Held and paused destinations count, because
-- their customers wait; closed ones do not, because nothing will be sent there. One look into an index per destination.
CREATE FUNCTION {schema}.region_figures()
RETURNS TABLE (accepted bigint, delivered bigint, dead bigint, waiting bigint, queued bigint, leased bigint, unknown_attempts bigint,
               late_results bigint, held_destinations bigint, paused_destinations bigint, closed_destinations bigint,
               expanding_versions bigint, oldest_due_age_seconds float8, queue_age_seconds float8)
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT e.created + r.accepted, d.delivered + r.delivered, d.dead + r.dead, d.waiting, d.queued, d.leased, d.unknown_attempts,
           d.late_results, d.held, d.paused, d.closed, e.unfinished,
           coalesce(greatest(0, extract(epoch FROM clock_timestamp() - least(w.since, q.due, l.due))), 0)::float8,
           coalesce(greatest(0, extract(epoch FROM clock_timestamp() - q.since)), 0)::float8
    FROM removed r
    CROSS JOIN (SELECT coalesce(sum(created), 0)::bigint AS created, count(*) FILTER (WHERE NOT done) AS unfinished FROM expansion) AS e
    CROSS JOIN (
        SELECT coalesce(sum(delivered), 0)::bigint AS delivered, coalesce(sum(dead), 0)::bigint AS dead,
               coalesce(sum(waiting), 0)::bigint AS waiting, coalesce(sum(queued), 0)::bigint AS queued,
               coalesce(sum(in_flight), 0)::bigint AS leased, coalesce(sum(unknown_attempts), 0)::bigint AS unknown_attempts,
               coalesce(sum(late_results), 0)::bigint AS late_results,
               count(*) FILTER (WHERE hold_until > now() AND disabled_at IS NULL) AS held,
               count(*) FILTER (WHERE paused_at IS NOT NULL AND disabled_at IS NULL) AS paused,
               count(*) FILTER (WHERE disabled_why IN ('gone', 'disabled')) AS closed
        FROM destination) AS d
    CROSS JOIN (
        SELECT min(head.eligible_at) AS since FROM destination o
        CROSS JOIN LATERAL (SELECT y.eligible_at FROM delivery y
                            WHERE y.destination_id = o.id AND y.state = 'waiting' AND NOT y.blocked
                            ORDER BY y.eligible_at, y.id LIMIT 1) AS head
        WHERE o.waiting > 0 AND o.disabled_at IS NULL) AS w
    CROSS JOIN (SELECT min(y.eligible_at) AS due, min(y.queued_at) AS since FROM delivery y WHERE y.state = 'queued') AS q
    CROSS JOIN (SELECT min(y.eligible_at) AS due FROM delivery y WHERE y.state = 'leased') AS l
$$;

-- disagreements: finished rows of home's book that this region's book does not confirm. Where nobody wanted a version there is no
-- page for it here, and home says 0.
CREATE FUNCTION {schema}.disagreements(numbers bigint[], counts int[])
RETURNS TABLE (version_no bigint, home_created int, region_created int, region_done boolean)
LANGUAGE sql STABLE SET search_path = {schema}, pg_temp AS $$
    SELECT h.version_no, h.created, x.created, x.done
    FROM unnest(numbers, counts) AS h(version_no, created) LEFT JOIN expansion x ON x.version_no = h.version_no
    WHERE CASE WHEN x.version_no IS NULL THEN h.created <> 0 ELSE NOT x.done OR x.created <> h.created END
    ORDER BY h.version_no
$$;
