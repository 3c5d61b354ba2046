-- Submitting from SQL, in any language and in the caller's own transaction:
--   SELECT * FROM windlass.submit('{"jobType": "mail", "payload": {"to": "a@example.org"}}');
-- Takes one envelope or an array of them; gives a row for each: accepted, duplicate or conflict.
-- What it does not know, or what breaks the contract, is an error that names the field and the job.
-- "logged": true makes the submission an event that consumers hear of.

CREATE FUNCTION windlass.micros_of(instant text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM instant::timestamptz) * 1000000::numeric)::bigint
$$;

-- What makes two payloads the same, as the contract writes it: keys in order, no spaces.
CREATE FUNCTION windlass.canonical(value jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE jsonb_typeof(value)
        WHEN 'object' THEN (
            SELECT '{' || coalesce(string_agg(
                to_json(pair.key)::text || ':' || windlass.canonical(pair.value), ','
                ORDER BY pair.key COLLATE "C"), '') || '}'
            FROM jsonb_each(value) AS pair)
        WHEN 'array' THEN (
            SELECT '[' || coalesce(string_agg(
                windlass.canonical(item.value), ',' ORDER BY item.place), '') || ']'
            FROM jsonb_array_elements(value) WITH ORDINALITY AS item (value, place))
        ELSE value::text END;
END
$$;

-- The rules of the contract for names and numbers: give the value, or say what is wrong with it.
CREATE FUNCTION windlass.checked_name(
    p_job jsonb, p_place bigint, p_field text, p_most integer, p_default text)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_name text := coalesce(p_job ->> p_field, p_default);
    v_problem text := CASE
        WHEN jsonb_typeof(p_job -> p_field) NOT IN ('string', 'null') THEN 'is not a text'
        WHEN v_name = '' AND p_default IS DISTINCT FROM '' THEN 'is empty'
        WHEN length(v_name) > p_most THEN 'is longer than ' || p_most || ' characters'
        WHEN v_name ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]' THEN
            'contains a control character' END;
BEGIN
    IF v_name IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('job %s has no %s', p_place, p_field);
    ELSIF v_problem IS NOT NULL THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('%s of job %s %s', p_field, p_place, v_problem);
    END IF;
    RETURN v_name;
END
$$;

CREATE FUNCTION windlass.checked_number(
    p_job jsonb, p_place bigint, p_field text, p_default integer, p_least integer, p_most integer)
RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_number integer := coalesce((p_job ->> p_field)::integer, p_default);
BEGIN
    IF v_number NOT BETWEEN p_least AND p_most THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            '%s of job %s is %s; it must be from %s to %s',
            p_field, p_place, v_number, p_least, p_most);
    END IF;
    RETURN v_number;
END
$$;

-- The payload as text, because jsonb would order its keys anew.
CREATE FUNCTION windlass.payload_text(p_job jsonb, p_place bigint, p_max_bytes integer)
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_text text := coalesce(p_job ->> 'payloadText', (p_job -> 'payload')::text, 'null');
BEGIN
    IF p_job ? 'payload' AND p_job ? 'payloadText' THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('job %s has both payload and payloadText', p_place);
    ELSIF octet_length(convert_to(v_text, 'UTF8')) > p_max_bytes THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('payload of job %s has %s bytes; at most %s are allowed', p_place,
                             octet_length(convert_to(v_text, 'UTF8')), p_max_bytes),
            HINT = 'Store the data elsewhere and pass its identifier, or allow more with '
                   'p_max_payload_bytes.';
    END IF;
    PERFORM (p_job ->> 'payloadText')::json;
    RETURN v_text;
EXCEPTION WHEN invalid_text_representation THEN
    RAISE invalid_parameter_value
    USING MESSAGE = format('payloadText of job %s is not JSON', p_place);
END
$$;

-- An envelope with the fields of its objects beside its own; a field that nobody knows is an error.
CREATE FUNCTION windlass.known_fields(p_job jsonb, p_place bigint)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_known text[] := ARRAY[
        'attempt', 'correlationId', 'createdAt', 'createdBy', 'delaySeconds', 'fingerprint',
        'idempotencyKey', 'jobId', 'jobType', 'logged', 'maxAttempts', 'parentJobId', 'payload',
        'payloadText', 'payloadVersion', 'priority', 'queue', 'requestKey',
        'requestKey.fingerprint', 'requestKey.holdSeconds', 'requestKey.key', 'requestKey.scope',
        'requestKey.tenantId', 'scheduledAt', 'subjectId', 'tenantId', 'traceContext'];
    v_field text;
BEGIN
    IF jsonb_typeof(p_job) <> 'object' THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('job %s is not a JSON object', p_place);
    END IF;
    FOREACH v_field IN ARRAY ARRAY['requestKey', 'traceContext'] LOOP
        IF jsonb_typeof(p_job -> v_field) NOT IN ('object', 'null') THEN
            RAISE invalid_parameter_value
            USING MESSAGE = format('%s of job %s is not a JSON object', v_field, p_place);
        END IF;
    END LOOP;
    SELECT min(field) INTO v_field FROM jsonb_object_keys(p_job) AS field WHERE field LIKE '%.%';
    IF v_field IS NULL AND jsonb_typeof(p_job -> 'requestKey') = 'object' THEN
        p_job := p_job || coalesce((
            SELECT jsonb_object_agg('requestKey.' || field.key, field.value)
            FROM jsonb_each(p_job -> 'requestKey') AS field), '{}');
    END IF;
    IF v_field IS NULL AND NOT ARRAY(SELECT jsonb_object_keys(p_job)) <@ v_known THEN
        SELECT min(field COLLATE "C") INTO v_field FROM jsonb_object_keys(p_job) AS field
        WHERE field <> ALL (v_known);
    END IF;
    IF v_field IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('job %s has an unknown field %s', p_place, to_json(v_field)),
            HINT = 'Known are ' || array_to_string(v_known, ', ') || '.';
    END IF;
    RETURN p_job;
END
$$;

-- `p_max_payload_bytes` NULL leaves the size of a payload to the caller.
CREATE FUNCTION windlass.submit(
    p_jobs jsonb, p_now bigint DEFAULT NULL, p_max_payload_bytes integer DEFAULT 65536)
RETURNS TABLE (place bigint, outcome text, job_id uuid, by_kind text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_now bigint := coalesce(p_now, windlass.micros());
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
    v_wakes boolean := false;
BEGIN
    IF jsonb_typeof(p_jobs) = 'object' THEN
        p_jobs := jsonb_build_array(p_jobs);
    ELSIF jsonb_typeof(p_jobs) IS DISTINCT FROM 'array' THEN
        RAISE invalid_parameter_value
        USING MESSAGE = 'a job is a JSON object, many are an array of them';
    END IF;
    FOR v_job, v_place IN SELECT * FROM jsonb_array_elements(p_jobs) WITH ORDINALITY LOOP
        v_job := windlass.known_fields(v_job, v_place);
        v_id := coalesce((v_job ->> 'jobId')::uuid, gen_random_uuid());
        v_tenant := windlass.checked_name(v_job, v_place, 'tenantId', 128, 'default');
        v_type := windlass.checked_name(v_job, v_place, 'jobType', 128, NULL);
        v_queue := windlass.checked_name(v_job, v_place, 'queue', 128, 'default');
        v_payload := windlass.payload_text(v_job, v_place, p_max_payload_bytes);
        v_version := windlass.checked_number(v_job, v_place, 'payloadVersion', 1, 1, 2147483647);
        v_max_attempts := windlass.checked_number(v_job, v_place, 'maxAttempts', 3, 1, 1000);
        v_has_request := jsonb_typeof(v_job -> 'requestKey') = 'object';
        SELECT id INTO v_lane FROM windlass.lane WHERE queue = v_queue AND job_type = v_type;
        IF NOT FOUND THEN
            INSERT INTO windlass.lane (queue, job_type) VALUES (v_queue, v_type)
            ON CONFLICT (queue, job_type) DO NOTHING;
            SELECT id INTO v_lane FROM windlass.lane WHERE queue = v_queue AND job_type = v_type;
        END IF;
        SELECT refused.outcome, refused.existing, refused.by_kind INTO outcome, job_id, by_kind
        FROM windlass.insert_jobs(
            v_now, NULL, ARRAY[v_id],
            ARRAY[v_tenant],
            ARRAY[v_lane],
            ARRAY[windlass.checked_name(v_job, v_place, 'subjectId', 512, '')],
            ARRAY[windlass.checked_name(v_job, v_place, 'correlationId', 256, '')],
            ARRAY[windlass.checked_name(v_job, v_place, 'idempotencyKey', 512, '')],
            ARRAY[coalesce(decode(v_job ->> 'fingerprint', 'hex'), sha256(convert_to(
                v_version || ':' || windlass.canonical(v_payload::jsonb), 'UTF8')))],
            ARRAY[windlass.checked_number(v_job, v_place, 'attempt', 1, 1, v_max_attempts)],
            ARRAY[v_max_attempts],
            ARRAY[convert_to(v_payload, 'UTF8')], ARRAY[v_version],
            ARRAY[windlass.checked_number(v_job, v_place, 'priority', 2, 0, 3)],
            ARRAY[coalesce(windlass.micros_of(v_job ->> 'createdAt'), v_now)],
            ARRAY[windlass.micros_of(v_job ->> 'scheduledAt')],
            ARRAY[coalesce(((v_job ->> 'delaySeconds')::numeric * 1000000)::bigint, 0)],
            ARRAY[windlass.checked_name(v_job, v_place, 'createdBy', 256, '')],
            ARRAY[(v_job ->> 'parentJobId')::uuid],
            ARRAY[nullif(v_job -> 'traceContext', 'null')::text],
            ARRAY[CASE WHEN v_has_request THEN
                windlass.checked_name(v_job, v_place, 'requestKey.tenantId', 128, v_tenant) END],
            ARRAY[CASE WHEN v_has_request THEN
                windlass.checked_name(v_job, v_place, 'requestKey.scope', 512, NULL) END],
            ARRAY[CASE WHEN v_has_request THEN
                windlass.checked_name(v_job, v_place, 'requestKey.key', 512, NULL) END],
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
        PERFORM pg_notify('windlass.wake', '');  -- goes out when the caller commits
    END IF;
END
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
    SELECT * FROM windlass.log
    WHERE log.job_id = job.id AND log.event NOT IN ('submitted', 'started', 'progressed')
    ORDER BY log.version DESC LIMIT 1
) AS last ON true;
