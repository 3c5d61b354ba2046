"""How long the checker takes: python -m tests.history.large [calls]."""

import sys
import time

from gantline.contract.status import Event
from gantline.proof.call import Call
from gantline.proof.checker import Report, check
from tests.history.story import Story, applied, ended, key, row, run


def large(calls: int) -> list[Call]:
    """Jobs that are claimed, renewed, retried and completed, some of them with lost answers."""
    story = Story()
    job = 0
    sequence = 0
    while len(story.calls) < calls:
        job += 1
        story.insert(job, lost=job % 50 == 0, keys=(key(f"key-{job}"),) if job % 3 == 0 else ())
        story.claim(run(job), claim=(job, 1), lost=job % 40 == 0)
        if job % 40 == 0:
            story.claim(run(job), claim=(job, 1))
        story.renew(job, 1)
        story.apply(ended(job, Event.RETRIED), applied(3), lost=job % 60 == 0)
        story.claim(run(job, 2))
        story.get(job, 4, 2)
        story.apply(ended(job, Event.COMPLETED, 2), applied(5))
        story.events(
            sequence,
            row(job, sequence + 1, 3, event=Event.RETRIED, fence=1),
            row(job, sequence + 2, 5, fence=2),
        )
        sequence += 2
    return story.calls


def timed(calls: list[Call]) -> tuple[Report, float]:
    start = time.process_time()
    report = check(calls)
    return report, time.process_time() - start


if __name__ == "__main__":
    made = large(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
    report, seconds = timed(made)
    sys.stdout.write(f"{report}\n{seconds:.1f} s, {seconds / report.calls * 1e6:.1f} µs a call\n")
