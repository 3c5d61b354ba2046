-- Works with code of migration 1.
-- Submitting from SQL keeps the caps of each tenant, the queues of Gantline itself and the longest delay.

DROP FUNCTION gantline.why_refused(text, text);

-- Why a job may not be submitted now, by the switches and the depth caps of its queue; NULL where it may.
-- The declared caps of a type, and what a tenant may have in all, are known only to an application.
-- Jobs that are not due yet do not wait, so they are not counted.
CREATE FUNCTION gantline.why_refused(p_job_type text, p_queue text, p_tenant text, p_now bigint)
RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_cap bigint;
    v_of_tenant boolean;
    v_waiting bigint;
BEGIN
    IF EXISTS (SELECT FROM gantline.record WHERE namespace = 'switches' AND key = 'closed') THEN
        RETURN 'STORE_CLOSED: The store is closed.';
    ELSIF EXISTS (SELECT FROM gantline.record
                  WHERE namespace = 'switches' AND key = 'disabled-type/' || p_job_type) THEN
        RETURN format('JOB_TYPE_DISABLED: The job type %L is switched off.', p_job_type);
    END IF;
    FOR v_cap, v_of_tenant IN
        SELECT convert_from(value, 'UTF8')::bigint, key LIKE 'tenant-%' FROM gantline.record
        WHERE namespace = 'switches'
          AND key IN ('depth-cap/' || p_queue, 'tenant-depth-cap/' || p_queue)
        ORDER BY key
    LOOP
        -- What others have waiting is read only for a tenant with as many jobs, due or not.
        CONTINUE WHEN v_of_tenant AND v_cap > (
            SELECT coalesce(sum(live), 0) FROM (
                SELECT lane, live FROM gantline.tally WHERE tenant = p_tenant
                UNION ALL
                SELECT lane, live FROM gantline.tally_delta WHERE tenant = p_tenant
            ) AS part JOIN gantline.lane ON lane.id = part.lane WHERE lane.queue = p_queue);
        -- No more than the cap are counted, in each range of (lane, rank) from its oldest on.
        SELECT count(*) INTO v_waiting FROM (
            SELECT FROM gantline.lane CROSS JOIN generate_series(0, 35) AS level (rank)
            CROSS JOIN LATERAL (
                SELECT FROM gantline.ready
                WHERE ready.lane = lane.id AND ready.rank = level.rank AND ready.run_at <= p_now
                  AND (NOT v_of_tenant OR ready.tenant = p_tenant)
                LIMIT v_cap
            ) AS due
            WHERE lane.queue = p_queue LIMIT v_cap) AS waiting;
        IF v_waiting >= v_cap THEN
            RETURN format('QUEUE_FULL: %s%s may wait in the queue %L, and no more.',
                CASE v_cap WHEN 1 THEN '1 job' ELSE v_cap || ' jobs' END,
                CASE WHEN v_of_tenant THEN ' of a tenant' ELSE '' END, p_queue);
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- The queues of Gantline's own jobs are for these alone, and nothing waits for more than ten years.
CREATE FUNCTION gantline.check_queue_and_time(
    p_job jsonb, p_place bigint, p_queue text, p_now bigint)
RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_most_seconds numeric := 3650 * 86400;
    v_field text;
BEGIN
    IF p_queue = 'webhooks' OR p_queue ~ '^gantline[.]' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('queue of job %s is one of Gantline''s own', p_place),
            HINT = 'Name another one.';
    END IF;
    v_field := CASE
        WHEN (p_job ->> 'delaySeconds')::numeric > v_most_seconds THEN 'delaySeconds'
        WHEN gantline.micros_of(p_job ->> 'scheduledAt')
            - least(gantline.micros_of(p_job ->> 'createdAt'), p_now) > v_most_seconds * 1000000
            THEN 'scheduledAt' END;
    IF v_field IS NOT NULL THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('%s of job %s is more than 3650 days ahead', v_field, p_place);
    END IF;
END
$$;

-- `p_max_payload_bytes` NULL leaves the size of a payload to the caller, `p_admitted` the
-- admission: an application has checked it already.
CREATE OR REPLACE FUNCTION gantline.submit(
    p_jobs jsonb, p_now bigint DEFAULT NULL, p_max_payload_bytes integer DEFAULT 65536,
    p_admitted boolean DEFAULT false)
RETURNS TABLE (place bigint, outcome text, job_id uuid, by_kind text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, gantline.micros());
    v_job jsonb;
    v_place bigint;
    v_id uuid;
    v_tenant text;
    v_queue text;
    v_type text;
    v_payload text;
    v_version integer;
    v_max_attempts integer;
    v_lane bigint;
    v_has_request boolean;
    v_refusal text;
    v_wakes boolean := false;
BEGIN
    IF jsonb_typeof(p_jobs) = 'object' THEN
        p_jobs := jsonb_build_array(p_jobs);
    ELSIF jsonb_typeof(p_jobs) IS DISTINCT FROM 'array' THEN
        RAISE invalid_parameter_value
        USING MESSAGE = 'a job is a JSON object, many are an array of them';
    END IF;
    FOR v_job, v_place IN SELECT * FROM jsonb_array_elements(p_jobs) WITH ORDINALITY LOOP
        v_job := gantline.known_fields(v_job, v_place);
        v_id := coalesce((v_job ->> 'jobId')::uuid, gen_random_uuid());
        v_tenant := gantline.checked_name(v_job, v_place, 'tenantId', 128, 'default');
        v_type := gantline.checked_name(v_job, v_place, 'jobType', 128, NULL);
        v_queue := gantline.checked_name(v_job, v_place, 'queue', 128, 'default');
        v_payload := gantline.payload_text(v_job, v_place, p_max_payload_bytes);
        v_version := gantline.checked_number(v_job, v_place, 'payloadVersion', 1, 1, 2147483647);
        v_max_attempts := gantline.checked_number(v_job, v_place, 'maxAttempts', 3, 1, 1000);
        v_has_request := jsonb_typeof(v_job -> 'requestKey') = 'object';
        v_refusal := NULL;
        IF NOT p_admitted THEN
            PERFORM gantline.check_queue_and_time(v_job, v_place, v_queue, v_now);
            v_refusal := gantline.why_refused(v_type, v_queue, v_tenant, v_now);
        END IF;
        -- A job that was accepted before is not refused.
        IF v_refusal IS NOT NULL
           AND NOT EXISTS (SELECT FROM gantline.job WHERE id = v_id AND tenant = v_tenant)
           AND NOT EXISTS (
               SELECT FROM gantline.dedupe
               WHERE (until IS NULL OR until > v_now) AND (
                   (kind = 'job' AND tenant = v_tenant AND scope = v_type
                    AND key = v_job ->> 'idempotencyKey')
                   OR (v_has_request AND kind = 'request'
                       AND tenant = coalesce(v_job ->> 'requestKey.tenantId', v_tenant)
                       AND scope = v_job ->> 'requestKey.scope'
                       AND key = v_job ->> 'requestKey.key'))) THEN
            RAISE object_not_in_prerequisite_state
            USING MESSAGE = v_refusal, HINT = 'Try again later.';
        END IF;
        SELECT id INTO v_lane FROM gantline.lane WHERE queue = v_queue AND job_type = v_type;
        IF NOT FOUND THEN
            INSERT INTO gantline.lane (queue, job_type) VALUES (v_queue, v_type)
            ON CONFLICT (queue, job_type) DO NOTHING;
            SELECT id INTO v_lane FROM gantline.lane WHERE queue = v_queue AND job_type = v_type;
        END IF;
        SELECT refused.outcome, refused.existing, refused.by_kind INTO outcome, job_id, by_kind
        FROM gantline.insert_jobs(
            v_now, NULL, ARRAY[v_id],
            ARRAY[v_tenant],
            ARRAY[v_lane],
            ARRAY[gantline.checked_name(v_job, v_place, 'subjectId', 512, '')],
            ARRAY[gantline.checked_name(v_job, v_place, 'correlationId', 256, '')],
            ARRAY[gantline.checked_name(v_job, v_place, 'idempotencyKey', 512, '')],
            ARRAY[coalesce(decode(v_job ->> 'fingerprint', 'hex'), sha256(convert_to(
                v_version || ':' || gantline.canonical(v_payload::jsonb), 'UTF8')))],
            ARRAY[gantline.checked_number(v_job, v_place, 'attempt', 1, 1, v_max_attempts)],
            ARRAY[v_max_attempts],
            ARRAY[convert_to(v_payload, 'UTF8')], ARRAY[v_version],
            ARRAY[gantline.checked_number(v_job, v_place, 'priority', 2, 0, 3)],
            ARRAY[coalesce(gantline.micros_of(v_job ->> 'createdAt'), v_now)],
            ARRAY[gantline.micros_of(v_job ->> 'scheduledAt')],
            ARRAY[coalesce(((v_job ->> 'delaySeconds')::numeric * 1000000)::bigint, 0)],
            ARRAY[gantline.checked_name(v_job, v_place, 'createdBy', 256, '')],
            ARRAY[(v_job ->> 'parentJobId')::uuid],
            ARRAY[nullif(v_job -> 'traceContext', 'null')::text],
            ARRAY[CASE WHEN v_has_request THEN
                gantline.checked_name(v_job, v_place, 'requestKey.tenantId', 128, v_tenant) END],
            ARRAY[CASE WHEN v_has_request THEN
                gantline.checked_name(v_job, v_place, 'requestKey.scope', 512, NULL) END],
            ARRAY[CASE WHEN v_has_request THEN
                gantline.checked_name(v_job, v_place, 'requestKey.key', 512, NULL) END],
            ARRAY[CASE WHEN v_has_request THEN
                coalesce(decode(v_job ->> 'requestKey.fingerprint', 'hex'), '') END],
            ARRAY[((v_job ->> 'requestKey.holdSeconds')::numeric * 1000000)::bigint],
            CASE WHEN (v_job ->> 'logged')::boolean THEN ARRAY[true] END) AS refused;
        IF NOT FOUND THEN
            outcome := 'accepted';
            job_id := v_id;
            by_kind := NULL;
            v_wakes := true;
        END IF;
        place := v_place;
        RETURN NEXT;
    END LOOP;
    IF v_wakes THEN
        PERFORM pg_notify('gantline.wake', '');  -- goes out when the caller commits
    END IF;
END
$$;
