"""Slips in submitting from SQL, which no rule of the suite does."""

from collections.abc import Iterator
from typing import Final

from tests.mutants.by_hand import Slip, in_function
from tests.mutants.mutant import Mutant

_TESTS: Final = ("tests/postgres/test_callers.py", "tests/test_ways_in.py")


def _slips(name: str, *slips: Slip) -> Iterator[Mutant]:
    return in_function(name, (), *slips, tests=_TESTS)


IN_SUBMITTING: Final = (
    *_slips(
        "why_refused",
        Slip("one more may wait than the cap allows", "v_waiting >= v_cap", "v_waiting > v_cap"),
        Slip(
            "the cap counts the jobs of all queues",
            "WHERE lane.queue = p_queue LIMIT v_cap",
            "LIMIT v_cap",
        ),
        Slip(
            "a closed store takes jobs",
            "key = 'closed') THEN",
            "key = 'closed/') THEN",
        ),
        Slip(
            "a type that is switched off takes jobs",
            "key = 'disabled-type/' || p_job_type",
            "key = 'disabled-type/' || p_queue",
        ),
    ),
    *_slips(
        "submit",
        Slip(
            "a job that was accepted before is refused",
            "AND NOT EXISTS (SELECT FROM gantline.job WHERE id = v_id AND tenant = v_tenant)",
            "AND true",
        ),
        Slip(
            "a job whose key was accepted before is refused",
            "(kind = 'job' AND tenant = v_tenant AND scope = v_type",
            "(kind = 'job' AND tenant = v_tenant AND scope = v_queue",
        ),
        Slip(
            "the priority of a job that names none is another",
            "'priority', 2, 0, 3",
            "'priority', 1, 0, 3",
        ),
        Slip(
            "an admitted job is checked again",
            "CASE WHEN NOT p_admitted THEN",
            "CASE WHEN true THEN",
        ),
        Slip(
            "the key of a request is of the default tenant",
            "'requestKey.tenantId', 128, v_tenant)",
            "'requestKey.tenantId', 128, 'default')",
        ),
        Slip(
            "a delay is in milliseconds",
            "(v_job ->> 'delaySeconds')::numeric * 1000000",
            "(v_job ->> 'delaySeconds')::numeric * 1000",
        ),
    ),
    *_slips(
        "canonical",
        Slip(
            "the order of keys is that of the server's language",
            'ORDER BY pair.key COLLATE "C"',
            'ORDER BY pair.key COLLATE "und-x-icu"',
        ),
        Slip("the order of an array does not count", "',' ORDER BY item.place", "',' ORDER BY 1"),
    ),
    *_slips(
        "checked_name",
        Slip("a name may be one longer", "length(v_name) > p_most", "length(v_name) > p_most + 1"),
        Slip("a name must be one shorter", "length(v_name) > p_most", "length(v_name) >= p_most"),
    ),
    *_slips(
        "payload_text",
        Slip(
            "a payload must be one byte shorter",
            "octet_length(convert_to(v_text, 'UTF8')) > p_max_bytes",
            "octet_length(convert_to(v_text, 'UTF8')) >= p_max_bytes",
        ),
        Slip(
            "characters are counted, not bytes",
            "octet_length(convert_to(v_text, 'UTF8')) > p_max_bytes",
            "length(v_text) > p_max_bytes",
        ),
    ),
)
