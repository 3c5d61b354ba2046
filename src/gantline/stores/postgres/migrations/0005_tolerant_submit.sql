-- Works with code of migration 3.
-- `submit` ignores the members of an envelope that it does not know, and names them in a NOTICE, as every
-- other way in does with a warning; and it takes no createdAt that is more than a day ahead.

-- An envelope with the fields of its objects beside its own, without those that are not known.
CREATE OR REPLACE FUNCTION gantline.known_fields(p_job jsonb, p_place bigint)
RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_known text[] := ARRAY[
        'attempt', 'correlationId', 'createdAt', 'createdBy', 'delaySeconds', 'fingerprint',
        'idempotencyKey', 'jobId', 'jobType', 'logged', 'maxAttempts', 'parentJobId', 'payload',
        'payloadText', 'payloadVersion', 'priority', 'queue', 'requestKey',
        'requestKey.fingerprint', 'requestKey.holdSeconds', 'requestKey.key', 'requestKey.scope',
        'requestKey.tenantId', 'scheduledAt', 'subjectId', 'tenantId', 'traceContext'];
    v_request jsonb;
    v_unknown text[];
    v_names text;
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
    v_request := coalesce(nullif(p_job -> 'requestKey', 'null'), '{}');
    v_unknown := ARRAY(
        SELECT field FROM jsonb_object_keys(p_job) AS field
        WHERE field <> ALL (v_known) OR field LIKE '%.%'
        UNION ALL
        SELECT 'requestKey.' || field FROM jsonb_object_keys(v_request) AS field
        WHERE 'requestKey.' || field <> ALL (v_known)
        ORDER BY 1);
    IF v_unknown <> '{}' THEN
        -- Not too much, and nothing that would control a terminal.
        SELECT string_agg('"' || regexp_replace(
            left(field, 64), '[\u0001-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]', '?', 'g')
            || '"', ', ') INTO v_names
        FROM unnest(v_unknown[:20]) AS field;
        IF cardinality(v_unknown) > 20 THEN
            v_names := v_names || format(' and %s more', cardinality(v_unknown) - 20);
        END IF;
        RAISE NOTICE USING
            MESSAGE = format('job %s has members that are not known and were ignored: %s', p_place,
                             v_names),
            HINT = 'Known are ' || array_to_string(v_known, ', ') || '.';
        p_job := p_job - v_unknown;
    END IF;
    RETURN p_job || coalesce((
        SELECT jsonb_object_agg('requestKey.' || field.key, field.value)
        FROM jsonb_each(v_request) AS field WHERE 'requestKey.' || field.key = ANY (v_known)), '{}');
END
$$;

-- The queues of Gantline's own jobs are for these alone, nothing waits for more than ten years, and
-- nothing was created tomorrow.
CREATE OR REPLACE FUNCTION gantline.check_queue_and_time(
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
    ELSIF gantline.micros_of(p_job ->> 'createdAt') - p_now > 86400 * 1000000::bigint THEN
        RAISE invalid_parameter_value
        USING MESSAGE = format('createdAt of job %s is in the future', p_place);
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
