-- Submitting from SQL, in any language and in the caller's own transaction:
--   SELECT * FROM windlass.submit('{"jobType": "mail", "payload": {"to": "a@example.org"}}');
-- Takes one envelope or an array of them; gives a row for each: accepted, duplicate or conflict.

CREATE FUNCTION windlass.submit(p_jobs jsonb, p_now bigint DEFAULT NULL)
RETURNS TABLE (place bigint, outcome text, job_id uuid, by_kind text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, windlass.micros());
    v_job jsonb;
    v_place bigint;
    v_id uuid;
    v_queue text;
    v_type text;
    v_payload text;
    v_version integer;
    v_lane bigint;
    v_request jsonb;
    v_wakes boolean := false;
BEGIN
    IF jsonb_typeof(p_jobs) = 'object' THEN
        p_jobs := jsonb_build_array(p_jobs);
    END IF;
    FOR v_job, v_place IN SELECT * FROM jsonb_array_elements(p_jobs) WITH ORDINALITY LOOP
        v_id := coalesce((v_job ->> 'jobId')::uuid, gen_random_uuid());
        v_queue := coalesce(v_job ->> 'queue', 'default');
        v_type := v_job ->> 'jobType';
        -- As text, because jsonb would order its keys anew.
        v_payload := coalesce(v_job ->> 'payloadText', (v_job -> 'payload')::text, 'null');
        v_version := coalesce((v_job ->> 'payloadVersion')::integer, 1);
        v_request := v_job -> 'requestKey';
        IF v_type IS NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = 'job ' || v_place || ' has no jobType';
        END IF;
        SELECT id INTO v_lane FROM windlass.lane WHERE queue = v_queue AND job_type = v_type;
        IF NOT FOUND THEN
            INSERT INTO windlass.lane (queue, job_type) VALUES (v_queue, v_type)
            ON CONFLICT (queue, job_type) DO NOTHING;
            SELECT id INTO v_lane FROM windlass.lane WHERE queue = v_queue AND job_type = v_type;
        END IF;
        SELECT refused.outcome, refused.existing, refused.by_kind INTO outcome, job_id, by_kind
        FROM windlass.insert_jobs(
            v_now, NULL, ARRAY[v_id], ARRAY[coalesce(v_job ->> 'tenantId', 'default')],
            ARRAY[v_lane], ARRAY[coalesce(v_job ->> 'subjectId', '')],
            ARRAY[coalesce(v_job ->> 'correlationId', '')],
            ARRAY[coalesce(v_job ->> 'idempotencyKey', '')],
            ARRAY[coalesce(decode(v_job ->> 'fingerprint', 'hex'),
                           sha256(convert_to(v_version || ':' || v_payload, 'UTF8')))],
            ARRAY[coalesce((v_job ->> 'attempt')::integer, 1)],
            ARRAY[coalesce((v_job ->> 'maxAttempts')::integer, 3)],
            ARRAY[convert_to(v_payload, 'UTF8')], ARRAY[v_version],
            ARRAY[coalesce((v_job ->> 'priority')::integer, 2)],
            ARRAY[coalesce(windlass.micros_of(v_job ->> 'createdAt'), v_now)],
            ARRAY[windlass.micros_of(v_job ->> 'scheduledAt')],
            ARRAY[coalesce(((v_job ->> 'delaySeconds')::numeric * 1000000)::bigint, 0)],
            ARRAY[coalesce(v_job ->> 'createdBy', '')], ARRAY[(v_job ->> 'parentJobId')::uuid],
            ARRAY[(v_job -> 'traceContext')::text],
            ARRAY[v_request ->> 'tenantId'], ARRAY[v_request ->> 'scope'],
            ARRAY[v_request ->> 'key'], ARRAY[decode(v_request ->> 'fingerprint', 'hex')],
            ARRAY[((v_request ->> 'holdSeconds')::numeric * 1000000)::bigint]) AS refused;
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
        PERFORM pg_notify('windlass.wake', '');  -- goes out when the caller commits
    END IF;
END
$$;

CREATE FUNCTION windlass.micros_of(instant text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM instant::timestamptz) * 1000000)::bigint
$$;

-- For people: where every job stands, with instants that can be read.
CREATE VIEW windlass.jobs AS
SELECT job.id, job.tenant, lane.queue, lane.job_type,
       CASE WHEN ready.job_id IS NOT NULL THEN 'Queued'
            WHEN lease.job_id IS NOT NULL THEN 'Running'
            ELSE last.status::text END AS status,
       coalesce(ready.attempt, lease.attempt, last.attempt) AS attempt, job.max_attempts,
       to_timestamp(job.created_at / 1000000.0) AS created_at,
       to_timestamp(ready.run_at / 1000000.0) AS run_at,
       to_timestamp(coalesce(lease.started_at, last.started_at) / 1000000.0) AS started_at,
       CASE WHEN last.is_end THEN to_timestamp(last.at / 1000000.0) END AS ended_at,
       last.reason, last.error_code, last.error_message, lease.session,
       job.subject, job.correlation, job.idempotency_key,
       convert_from(job.payload, 'UTF8') AS payload
FROM windlass.job
JOIN windlass.lane ON lane.id = job.lane
LEFT JOIN windlass.ready ON ready.job_id = job.id
LEFT JOIN windlass.lease ON lease.job_id = job.id
LEFT JOIN LATERAL (
    SELECT * FROM windlass.log WHERE log.job_id = job.id ORDER BY log.version DESC LIMIT 1
) AS last ON true;
