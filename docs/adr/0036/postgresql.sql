-- What the spike of decision 0036 ran on PostgreSQL 15, on top of migrations 1 to 5. Not a migration: nothing of it is
-- built. Besides, insert_jobs, settle_runs, apply and load add a turn for each (lane, rank, group) of what they add.

-- 0: no group. Else a hash of the tenant and the group. A plain lane has the one range grp = 0, as today.
ALTER TABLE gantline.ready ADD COLUMN grp bigint NOT NULL DEFAULT 0;
ALTER TABLE gantline.ready DROP CONSTRAINT ready_pkey, ADD PRIMARY KEY (lane, rank, grp, run_at, job_id);
ALTER TABLE gantline.lease ADD COLUMN grp bigint NOT NULL DEFAULT 0;
-- Only runs of limited types are in this index. Its columns never change, so a renewal stays HOT.
ALTER TABLE gantline.lease ADD COLUMN limited boolean NOT NULL DEFAULT false;
CREATE INDEX lease_limited ON gantline.lease (lane, grp) WHERE limited;

-- "Jobs of this group may be due from `at` on." One row or more for every group of which anything is Queued: written
-- with the jobs, in their transaction, and never updated; so no writer waits, and nothing can wait without a turn.
-- A turn too many costs one look. `is_new`: no claim has seen it.
CREATE TABLE gantline.turn (
    lane   bigint NOT NULL,
    tenant bigint NOT NULL,         -- a hash too: where groups are not tenants, tenants rotate first
    grp    bigint NOT NULL CHECK (grp <> 0),
    at     bigint NOT NULL,
    rank   smallint NOT NULL,
    is_new boolean NOT NULL DEFAULT true
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX turn_new ON gantline.turn (lane, rank, at) WHERE is_new;
-- By which processes read on from the last tenant they had, and groups are folded.
CREATE INDEX turn_of_group ON gantline.turn (lane, rank, tenant, grp);

-- GCRA: `tat` is when the next start would be due at the even rate. `closed_until`: by Throttled.
CREATE TABLE gantline.gate (
    name         text PRIMARY KEY,
    tat          bigint NOT NULL DEFAULT 0,
    closed_until bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Makes the turns of groups agree with what is Queued. First it locks them, then, in the next statement, it looks at
-- ready: whatever was committed with a turn that is locked here is seen there. So each turn that goes is replaced by
-- one that covers the rest, or nothing is left. Turns that others have locked, or that come later, stay.
CREATE FUNCTION gantline.fold_turns(
    p_now bigint, p_lane bigint[], p_rank integer[], p_tenant bigint[], p_grp bigint[], p_floor bigint[],
    p_floor_id uuid[])
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_spot tid[];
    v_place integer[];
    v_new boolean[];
BEGIN
    SELECT array_agg(held.spot), array_agg(g.place), array_agg(held.is_new) INTO v_spot, v_place, v_new
    FROM unnest(p_lane, p_rank, p_tenant, p_grp) WITH ORDINALITY AS g (lane, rank, tenant, grp, place)
    CROSS JOIN LATERAL (
        SELECT turn.ctid AS spot, turn.is_new FROM gantline.turn
        WHERE turn.lane = g.lane AND turn.rank = g.rank AND turn.tenant = g.tenant AND turn.grp = g.grp
        FOR UPDATE SKIP LOCKED) AS held;
    WITH held AS (
        SELECT place, count(*) AS turns, bool_or(is_new) AS has_new
        FROM unnest(v_place, v_new) AS one (place, is_new) GROUP BY place
    ), seen AS (
        SELECT held.*, least(after_floor.run_at, first.run_at) AS head
        FROM held
        LEFT JOIN LATERAL (
            SELECT ready.run_at FROM gantline.ready
            WHERE ready.lane = p_lane[place] AND ready.rank = p_rank[place] AND ready.grp = p_grp[place]
              AND (ready.run_at, ready.job_id) >= (p_floor[place], p_floor_id[place])
            ORDER BY ready.run_at, ready.job_id LIMIT 1) AS after_floor ON true
        -- Before a group counts as empty, or as not due: a row that was committed late may be below the floor.
        LEFT JOIN LATERAL (
            SELECT ready.run_at FROM gantline.ready
            WHERE (after_floor.run_at IS NULL OR after_floor.run_at > p_now)
              AND ready.lane = p_lane[place] AND ready.rank = p_rank[place] AND ready.grp = p_grp[place]
            ORDER BY ready.run_at, ready.job_id LIMIT 1) AS first ON true
    ), wrong AS (
        SELECT * FROM seen WHERE head IS NULL OR head > p_now OR turns > 1 OR has_new
    ), gone AS (
        DELETE FROM gantline.turn WHERE ctid = ANY (ARRAY(
            SELECT one.spot FROM unnest(v_spot, v_place) AS one (spot, place)
            JOIN wrong ON wrong.place = one.place))
    )
    -- A group that has only later jobs is new again when they are due.
    INSERT INTO gantline.turn (lane, rank, tenant, grp, at, is_new)
    SELECT p_lane[place], p_rank[place], p_tenant[place], p_grp[place], head, head > p_now FROM wrong WHERE head IS NOT NULL;
END
$$;

-- Starts runs in lanes that have groups or limits. `p_lane` are the lanes; beside each its type, how many runs a group and
-- the type may have, its gate with the span between two starts and the burst; NULL for none. The ranges come in the order of
-- this process: its rotation. At most p_new new groups go before them. `r_each` is how
-- many each range may give (leases are counted here in p_lane: that must be all lanes of a limited type, in whatever queue).
-- The process deals out the slots, for each rank to tenants, and of a tenant's to its groups.
CREATE FUNCTION gantline.claim_groups(
    p_now bigint, p_session text, p_claim uuid, p_lease bigint, p_token uuid[], p_limit integer,
    p_lane bigint[], p_type text[], p_running integer[], p_total integer[], p_gate text[], p_gap bigint[], p_burst integer[],
    p_new_since bigint, p_new integer, r_lane bigint[], r_rank integer[], r_tenant bigint[], r_grp bigint[], r_floor bigint[], r_floor_id uuid[],
    r_each integer[])
RETURNS TABLE (
    token uuid, version bigint, attempt integer, priority smallint, started_at bigint, run_at bigint, lane bigint, id uuid,
    grp bigint, has_more boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET jit = off SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.instant());
    v_until bigint := gantline.later(v_now, p_lease);
    v_limited boolean := array_remove(p_running, NULL) <> '{}' OR array_remove(p_total, NULL) <> '{}' OR array_remove(p_gate, NULL) <> '{}';
    v_gates text[]; v_tat bigint[]; v_gate_room integer[];      -- those that are locked
    v_types text[]; v_type_room integer[];
    v_locked integer[]; v_room integer[];                       -- of the ranges
    v_of integer[];                                             -- the place of each range's lane in p_lane
    v_further integer := 0; v_share integer[]; v_more boolean[]; v_taken integer; v_cut integer; v_before boolean; v_new bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_claim::text, 0));
    -- (the repeated claim, as in claim_jobs)
    IF v_limited THEN
        -- Nothing here waits. A gate, type or group that another claim has is left to that claim.
        SELECT array_agg(gate.name), array_agg(greatest(gate.tat, v_now)),
               array_agg(CASE WHEN gate.closed_until > v_now THEN 0
                   ELSE greatest(0, (v_now + g.burst * g.gap - greatest(gate.tat, v_now)) / g.gap) END)
        INTO v_gates, v_tat, v_gate_room
        FROM (SELECT DISTINCT ON (name) * FROM unnest(p_gate, p_gap, p_burst) AS one (name, gap, burst)
              WHERE name IS NOT NULL ORDER BY name, gap DESC) AS g
        CROSS JOIN LATERAL (SELECT * FROM gantline.gate WHERE gate.name = g.name FOR UPDATE SKIP LOCKED) AS gate;
        SELECT array_agg(one.type) INTO v_types
        FROM (SELECT DISTINCT t.type FROM unnest(p_type, p_total) AS t (type, total) WHERE t.total IS NOT NULL) AS one
        WHERE pg_try_advisory_xact_lock(hashtextextended('type ' || one.type, 0));
        v_type_room := ARRAY(
            SELECT greatest(0, max(l.total) - (
                    SELECT count(*) FROM unnest(p_lane, p_type) AS a (lane, type)
                    CROSS JOIN LATERAL (SELECT FROM gantline.lease WHERE lease.limited AND lease.lane = a.lane OFFSET 0) AS held
                    WHERE a.type = t.type))
            FROM unnest(v_types) WITH ORDINALITY AS t (type, place)
            JOIN unnest(p_type, p_total) AS l (type, total) ON l.type = t.type GROUP BY t.type, t.place ORDER BY t.place);
    END IF;
    SELECT array_agg(t.lane) || r_lane, array_agg(t.rank) || r_rank, array_agg(t.tenant) || r_tenant,
           array_agg(t.grp) || r_grp, array_agg(0::bigint) || r_floor,
           array_agg('00000000-0000-0000-0000-000000000000'::uuid) || r_floor_id,
           array_agg(greatest(1, p_new / t.groups)::integer) || r_each, array_agg(t.grp)
    INTO r_lane, r_rank, r_tenant, r_grp, r_floor, r_floor_id, r_each, v_new
    FROM (
        SELECT first.*, count(*) OVER () AS groups FROM (
            SELECT one.lane, rank.rank, due.tenant, due.grp, min(due.at) AS at
            FROM unnest(p_lane) AS one (lane) CROSS JOIN generate_series(0, 3) AS rank (rank)
            CROSS JOIN LATERAL (
                SELECT turn.at, turn.tenant, turn.grp FROM gantline.turn
                WHERE turn.lane = one.lane AND turn.rank = rank.rank AND turn.is_new
                  AND turn.at > p_new_since AND turn.at <= v_now
                ORDER BY turn.at LIMIT p_limit) AS due
            WHERE NOT EXISTS (SELECT FROM unnest(r_lane, r_rank, r_grp) AS k (lane, rank, grp)
                              WHERE (k.lane, k.rank, k.grp) = (one.lane, rank.rank, due.grp))
            GROUP BY one.lane, rank.rank, due.tenant, due.grp) AS first
        ORDER BY first.rank, row_number() OVER (PARTITION BY first.rank, first.tenant ORDER BY first.at), first.at
        LIMIT p_new) AS t;
    IF v_limited THEN
        v_of := ARRAY(SELECT array_position(p_lane, o.lane) FROM unnest(r_lane) WITH ORDINALITY AS o (lane, place) ORDER BY o.place);
        -- The groups are locked in the order of the rotation, no more of them than could be needed.
        SELECT array_agg(o.place) INTO v_locked FROM (
            SELECT o.place::integer AS place FROM unnest(r_grp, v_of) WITH ORDINALITY AS o (grp, lane_at, place)
            WHERE p_running[o.lane_at] IS NOT NULL
              AND pg_try_advisory_xact_lock(hashtextextended(p_type[o.lane_at], o.grp)) LIMIT p_limit) AS o;
        -- Counted in the statement after the locks: so by a snapshot that shows all that was started under them.
        v_room := ARRAY(
            SELECT CASE WHEN p_running[v_of[o.place]] IS NULL THEN p_limit
                        WHEN o.place = ANY (coalesce(v_locked, '{}')) THEN
                            greatest(0, p_running[v_of[o.place]] - (
                                SELECT count(*) FROM unnest(p_lane, p_type) AS a (lane, type)
                                CROSS JOIN LATERAL (SELECT FROM gantline.lease
                                    WHERE lease.limited AND lease.lane = a.lane AND lease.grp = r_grp[o.place] OFFSET 0) AS held
                                WHERE a.type = p_type[v_of[o.place]]))
                        ELSE 0 END
            FROM generate_series(1, cardinality(r_grp)) AS o (place) ORDER BY o.place);
    END IF;
    LOOP
        WITH seen AS (
            SELECT w.place, w.rank, due.jobs, least(due.jobs, w.each + v_further, v_room[w.place]) AS may, w.each + v_further AS each
            FROM unnest(r_lane, r_rank, r_grp, r_floor, r_floor_id, r_each)
                 WITH ORDINALITY AS w (lane, rank, grp, floor, floor_id, each, place)
            CROSS JOIN LATERAL (
                SELECT count(*) AS jobs FROM (
                    SELECT FROM gantline.ready
                    WHERE ready.lane = w.lane AND ready.rank = w.rank AND ready.grp = w.grp
                      AND (ready.run_at, ready.job_id) >= (w.floor, w.floor_id) AND ready.run_at <= v_now
                    ORDER BY ready.run_at, ready.job_id LIMIT least(w.each + v_further, v_room[w.place]) + 1) AS first) AS due
            WHERE due.jobs > 0
        ), allowed AS (
            -- Ranges of one group, type or gate share one room. What those before it might take is not there for it.
            SELECT place, rank, jobs, each, CASE WHEN v_room IS NULL THEN may ELSE greatest(0, least(may,
                v_room[place] + may - sum(may) OVER (PARTITION BY p_type[v_of[place]], r_grp[place] ORDER BY rank, place),
                CASE WHEN p_total[v_of[place]] IS NOT NULL THEN coalesce(v_type_room[array_position(v_types, p_type[v_of[place]])], 0)
                    + may - sum(may) OVER (PARTITION BY p_type[v_of[place]] ORDER BY rank, place) END,
                CASE WHEN p_gate[v_of[place]] IS NOT NULL THEN coalesce(v_gate_room[array_position(v_gates, p_gate[v_of[place]])], 0)
                    + may - sum(may) OVER (PARTITION BY p_gate[v_of[place]] ORDER BY rank, place) END)) END AS may
            FROM seen
        ), counted AS (
            SELECT place, rank, jobs, jobs > each AS is_cut,
                   greatest(0, least(may, p_limit + may - sum(may) OVER (ORDER BY rank, place))) AS share
            FROM allowed
        )
        SELECT array_agg(coalesce(c.share, 0)::integer ORDER BY w.place),
               array_agg(coalesce(c.jobs > c.share, false) ORDER BY w.place), sum(c.share), count(*) FILTER (WHERE c.is_cut),
               min(c.rank) FILTER (WHERE c.is_cut) < max(c.rank) FILTER (WHERE c.share > 0)
        INTO v_share, v_more, v_taken, v_cut, v_before
        FROM generate_series(1, cardinality(r_lane)) AS w (place) LEFT JOIN counted AS c ON c.place = w.place;
        -- Once more, further into those that have more, if that did not fill the claim, or left a higher priority behind.
        EXIT WHEN v_further >= p_limit OR v_cut = 0 OR v_taken >= p_limit AND NOT coalesce(v_before, false);
        v_further := CASE WHEN v_further > 0 OR v_before THEN p_limit
                          ELSE 1 + (p_limit - coalesce(v_taken, 0)) / v_cut END;
    END LOOP;
    RETURN QUERY
    WITH next AS (
        SELECT * FROM unnest(r_lane, r_rank, r_grp, r_floor, r_floor_id, v_share)
             AS n (lane, rank, grp, floor, floor_id, share) WHERE n.share > 0
    ), picked AS (
        SELECT due.spot
        FROM next CROSS JOIN LATERAL (
            SELECT ready.ctid AS spot FROM gantline.ready
            WHERE ready.lane = next.lane AND ready.rank = next.rank AND ready.grp = next.grp
              AND (ready.run_at, ready.job_id) >= (next.floor, next.floor_id) AND ready.run_at <= v_now
            ORDER BY ready.run_at, ready.job_id LIMIT next.share
            FOR UPDATE SKIP LOCKED) AS due
    ), taken AS (
        DELETE FROM gantline.ready WHERE ctid = ANY (ARRAY(SELECT spot FROM picked)) RETURNING *
    ), leased AS (
        INSERT INTO gantline.lease (
            lane, version, fence, created_at, due_at, started_at, until, length, attempt, crashes, snoozes, priority,
            keyed, job_id, token, claim_id, session, tenant, grp, limited)
        SELECT lane, version + 1, fence + 1, created_at, run_at, v_now, v_until, p_lease, attempt + 1, crashes, snoozes,
               priority, keyed, job_id, p_token[row_number() OVER ()], p_claim, p_session, tenant, grp,
               p_running[array_position(p_lane, lane)] IS NOT NULL OR p_total[array_position(p_lane, lane)] IS NOT NULL
        FROM taken RETURNING *
    )
    SELECT leased.token, leased.version, leased.attempt, leased.priority, leased.started_at, leased.due_at, leased.lane,
           leased.job_id, leased.grp, (SELECT bool_or(m.more) FROM unnest(r_lane, r_rank, r_grp, v_more) AS m (lane, rank, grp, more)
               WHERE (m.lane, m.rank, m.grp) = (leased.lane, leased.priority, leased.grp))
    FROM leased;  -- (with the job, as in claim_jobs)
    IF v_gates IS NOT NULL AND v_taken > 0 THEN
        UPDATE gantline.gate SET tat = v_tat[g.place] + g.gap * g.starts
        FROM (
            SELECT array_position(v_gates, l.gate) AS place, max(l.gap) AS gap, count(*) AS starts
            FROM gantline.lease JOIN unnest(p_lane, p_gate, p_gap) AS l (lane, gate, gap) ON l.lane = lease.lane
            WHERE lease.claim_id = p_claim AND l.gate = ANY (v_gates) GROUP BY l.gate) AS g
        WHERE gate.name = v_gates[g.place];
    END IF;
    -- Groups in which nothing more is due, and new ones that had their turn or have no room.
    SELECT array_agg(f.lane), array_agg(f.rank), array_agg(f.tenant), array_agg(f.grp), array_agg(f.floor),
           array_agg(f.floor_id)
    INTO r_lane, r_rank, r_tenant, r_grp, r_floor, r_floor_id
    FROM unnest(r_lane, r_rank, r_tenant, r_grp, r_floor, r_floor_id, v_more, v_share)
         WITH ORDINALITY AS f (lane, rank, tenant, grp, floor, floor_id, more, share, place)
    WHERE f.grp <> 0 AND (NOT f.more AND (v_room IS NULL OR v_room[f.place] > 0 OR f.share > 0)
                          OR f.place <= cardinality(v_new) AND (f.share > 0 OR v_room[f.place] = 0));
    IF r_lane IS NOT NULL THEN
        PERFORM gantline.fold_turns(v_now, r_lane, r_rank, r_tenant, r_grp, r_floor, r_floor_id);
    END IF;
END
$$;

-- What a process reads for its rotation, at most once a second, or when the last page is used up: the next tenants after the
-- last it had, and up to eight groups of each. New ones are left to the claim.
PREPARE next_page (bigint[], bigint, integer) AS
WITH RECURSIVE next AS (
    SELECT level.rank, one.lane, first.tenant, 1 AS number
    FROM unnest($1) AS one (lane) CROSS JOIN generate_series(0, 3) AS level (rank)
    CROSS JOIN LATERAL (
        SELECT turn.tenant FROM gantline.turn
        WHERE turn.lane = one.lane AND turn.rank = level.rank AND turn.tenant > $2 ORDER BY turn.tenant LIMIT 1) AS first
    UNION ALL
    SELECT next.rank, next.lane, following.tenant, number + 1
    FROM next CROSS JOIN LATERAL (
        SELECT turn.tenant FROM gantline.turn
        WHERE turn.lane = next.lane AND turn.rank = next.rank AND turn.tenant > next.tenant
        ORDER BY turn.tenant LIMIT 1) AS following
    WHERE number < $3
)
SELECT DISTINCT next.lane, next.rank, next.tenant, one.grp
FROM next CROSS JOIN LATERAL (
    SELECT turn.grp FROM gantline.turn
    WHERE turn.lane = next.lane AND turn.rank = next.rank AND turn.tenant = next.tenant AND NOT is_new
    ORDER BY turn.grp LIMIT 8) AS one;
DEALLOCATE next_page;
