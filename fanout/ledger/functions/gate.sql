-- The gate decides how many requests a destination may have in flight now: a window like TCP's, a hold, and a rate.
-- Every rule of its arithmetic stands in this file, and nowhere else.
--
--   window     starts at the limit; 1 after a hold, + 1 for each 2xx up to the limit, halved by throttling, 1 after three
--              failures in a row.
--   hold       what Retry-After asked for (or 1 s to 1 min, doubling); from five failures in a row on, 5 s to 5 min, doubling.
--              When it ends the window is 1: one probe goes first.
--   rate       slots, one every 1 / rate seconds, none saved up. A lease is given up to a second before its slot and waits for it in
--              the worker, so that the pace is not bound by the round trips of a claim.
--   probation  the window was cut to 1 and nothing has been answered 2xx since.
--   streak     failures in a row. However many fail at once, they are one episode: they lift the streak to 3 at most, and from there
--              each failed probe adds 1. A lease that expired says something about our worker, and nothing about the destination.
--   episode    results of attempts leased before the last cut neither cut again nor grow the window, and no result shortens a hold.
--   giving up  a destination that has failed for five days without a success is disabled.

-- STABLE, all of them, because adding an interval to a time is: declared IMMUTABLE, they would be called and not inlined. Nor are they
-- inlined where an argument that is an expression stands twice in the body, and a call costs more than the rest of a row.

-- How many requests may begin within the next second, by the rate alone.
CREATE FUNCTION {schema}.gate_slots(rate_per_second real, rate_next_at timestamptz, moment timestamptz)
RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN rate_per_second IS NULL THEN 1000000
                ELSE greatest(0, 1 + floor(rate_per_second * (1 - greatest(0, coalesce(extract(epoch FROM rate_next_at - moment), 0)))))::int
           END
$$;

-- From when on something may be leased again, as far as hold and rate are concerned.
CREATE FUNCTION {schema}.gate_opens_at(hold_until timestamptz, rate_next_at timestamptz, moment timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT greatest(moment, hold_until, rate_next_at - interval '1 second')
$$;

-- Has it failed for so long that it is not tried any more?
CREATE FUNCTION {schema}.gate_gives_up(failing_since timestamptz, moment timestamptz)
RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(failing_since <= moment - interval '5 days', false)
$$;

-- What may be queued or leased at once. Beyond the window as much again is queued, so that a permit that becomes free finds its next
-- delivery already there; on probation nothing is.
CREATE FUNCTION {schema}.gate_capacity(send_window int, concurrency int, probation boolean)
RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN probation THEN 1 ELSE 2 * least(send_window, concurrency) END
$$;

-- How many more deliveries may be queued now.
CREATE FUNCTION {schema}.gate_room(
    capacity int, hold_until timestamptz, rate_per_second real, rate_next_at timestamptz, in_flight int, queued int, moment timestamptz)
RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN hold_until > moment THEN 0
                ELSE greatest(0, least(capacity - in_flight - queued,
                                       {schema}.gate_slots(rate_per_second, rate_next_at, moment) - queued)) END
$$;

-- Is it time to look for more? Not for each place that becomes free: when a quarter of them is, which is half a window. Then deliveries to
-- one destination travel together, and the row of their destination is written once for all of them. (TCP's cure for silly windows.)
-- There is always a next time: what is queued or leased meanwhile ends, and the last of it finds everything free.
CREATE FUNCTION {schema}.gate_wants_more(capacity int, in_flight int, queued int)
RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT 4 * (in_flight + queued) <= 3 * capacity
$$;

-- How many more deliveries may be leased now: the exact limit of P6.
CREATE FUNCTION {schema}.gate_permits(
    send_window int, concurrency int, hold_until timestamptz, rate_per_second real, rate_next_at timestamptz, paused_at timestamptz,
    disabled_at timestamptz, in_flight int, moment timestamptz)
RETURNS int LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN hold_until > moment OR paused_at IS NOT NULL OR disabled_at IS NOT NULL THEN 0
                ELSE greatest(0, least(least(send_window, concurrency) - in_flight,
                                       {schema}.gate_slots(rate_per_second, rate_next_at, moment))) END
$$;

-- The gate after a batch of results. successes, answers (other final responses) and failures count results of attempts leased
-- after the last cut, throttles likewise; hold_seconds is the longest Retry-After of any throttled result, jitter included, and
-- throttled_plainly says that one came without. Such a pause starts at 1 s and doubles up to 1 min.
CREATE FUNCTION {schema}.gate_after(
    send_window int, concurrency int, probation boolean, hold_until timestamptz, hold_why text, cut_at timestamptz,
    fail_streak int, throttle_streak int, successes int, answers int, failures int, throttles int, hold_seconds float8,
    throttled_plainly boolean, moment timestamptz, jitter float8)
RETURNS TABLE (next_window int, next_probation boolean, next_hold_until timestamptz, next_hold_why text, next_cut_at timestamptz,
               next_fail_streak int, next_throttle_streak int)
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN pause.extends OR broken.yes THEN 1
                WHEN throttles > 0 THEN greatest(1, send_window / 2)
                ELSE greatest(1, least(concurrency, send_window + successes)) END,
           CASE WHEN pause.extends OR broken.yes THEN true
                WHEN successes > 0 THEN false
                ELSE probation END,
           CASE WHEN pause.extends THEN pause.ends_at ELSE hold_until END,
           CASE WHEN pause.extends THEN pause.why ELSE hold_why END,
           CASE WHEN pause.extends OR broken.yes OR throttles > 0 THEN moment ELSE cut_at END,
           streak.failing, streak.throttled
    FROM (SELECT CASE WHEN successes + answers > 0 THEN 0
                      WHEN failures = 0 THEN fail_streak
                      WHEN fail_streak >= 3 THEN fail_streak + 1
                      ELSE least(3, fail_streak + failures) END,
                 CASE WHEN successes + answers > 0 THEN 0 ELSE throttle_streak END + (throttles > 0)::int) AS streak(failing, throttled)
    CROSS JOIN LATERAL (SELECT failures > 0 AND streak.failing >= 3) AS broken(yes)
    CROSS JOIN LATERAL (
        SELECT greatest(hold_seconds, CASE WHEN throttled_plainly AND throttles > 0
                                           THEN least(60, 2 ^ least(streak.throttled - 1, 6)) * (1 + 0.1 * jitter) END),
               CASE WHEN failures > 0 AND streak.failing >= 5
                    THEN least(300, 5 * 2 ^ least(streak.failing - 5, 6)) * (1 + 0.1 * jitter) END) AS asked(throttled, failing)
    CROSS JOIN LATERAL (SELECT moment + make_interval(secs => greatest(asked.throttled, asked.failing))) AS rest(ends_at)
    CROSS JOIN LATERAL (
        SELECT rest.ends_at,
               coalesce(rest.ends_at > greatest(hold_until, moment), false),
               CASE WHEN asked.throttled >= coalesce(asked.failing, 0) THEN 'throttled' ELSE 'failing' END
    ) AS pause(ends_at, extends, why)
$$;
