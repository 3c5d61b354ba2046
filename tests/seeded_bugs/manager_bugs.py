"""Bugs of the manager, the schedules and the webhooks."""

from typing import Final

from tests.seeded_bugs.breaking import code
from tests.seeded_bugs.bug import Bug, Simulation

_DECIDE: Final = "gantline.manager.decide"
_TRANSITION: Final = "gantline.contract.transition:Transition"
_SCHEDULER: Final = "gantline.schedules.scheduler:Scheduler"

MANAGER_BUGS: Final = (
    Bug(
        "attempts without end",
        "manager",
        "a job is retried after its last attempt",
        (
            code(
                f"{_DECIDE}:_after_failure",
                "if run.attempt >= run.job.max_attempts:",
                "if run.attempt > run.job.max_attempts:",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "snooze costs an attempt",
        "manager",
        "a snoozed run counts as an attempt",
        (code(f"{_TRANSITION}.snoozed", '"attempt": run.attempt - 1', '"attempt": run.attempt'),),
        Simulation(),
    ),
    Bug(
        "shutdown costs an attempt",
        "manager",
        "a run that is given back counts as an attempt",
        (code(f"{_TRANSITION}.released", '"attempt": run.attempt - 1', '"attempt": run.attempt'),),
        Simulation(),
    ),
    Bug(
        "redrive keeps attempts",
        "manager",
        "a redriven job goes on with the attempts that it had",
        (code(f"{_TRANSITION}.redriven", '"attempt": 0', '"attempt": job.attempt'),),
        Simulation(),
    ),
    Bug(
        "redrive keeps crashes",
        "manager",
        "a redriven job is as suspect as before",
        (code(f"{_TRANSITION}.redriven", '"crashes": 0', '"crashes": job.crashes'),),
        Simulation(),
    ),
    Bug(
        "retry wins over cancel",
        "manager",
        "a cancel that was requested while a run ended is forgotten",
        (
            code(
                "gantline.contract.transition:_requeueing",
                "RunGuard(run.token, unless_cancelled=True)",
                "RunGuard(run.token)",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "reaper without its second look",
        "manager",
        "a run is taken away though its worker has renewed it since the reaper looked",
        (
            code(
                f"{_TRANSITION}.crashed",
                "unless_cancelled=True, only_expired=True",
                "unless_cancelled=True",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "nobody reaps",
        "manager",
        "the leader's patience after an outage never ends",
        (
            code(
                "gantline.manager.maintenance:Maintenance._note_answer",
                "if before is None or",
                "if True or",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "crash forgiven for ever",
        "manager",
        "a crash alone is never counted, so a job that ends its worker does so for ever",
        (
            code(
                "gantline.manager.reaper:Reaper._verdict",
                "return LeaseLost(times_alone=before + 1)",
                "return LeaseLost(times_alone=1)",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "settle forgets the cancel",
        "manager",
        "a run that is refused because of a cancel is not ended",
        (
            code(
                "gantline.manager.manager:_reconsidered",
                "return Ending(run, ending.outcome, ending.seconds)",
                "return None",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "pruner overtakes a consumer",
        "manager",
        "jobs are pruned whose events a consumer has not read",
        (
            code(
                "gantline.manager.pruner:Pruner.run_once",
                "keep_events_after=keep_after",
                "keep_events_after=None",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "pruner forgets the retention",
        "manager",
        "ended jobs are removed before their time",
        (
            code(
                "gantline.manager.pruner:_rules",
                "PruneRule(status, now - span)",
                "PruneRule(status, now)",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "follow-up stored by a failed run",
        "manager",
        "a run that is retried stores its follow-ups",
        (
            code(
                "gantline.manager.manager:JobManager._apply",
                "results = await self._store.apply(transitions) if transitions else []",
                "for one in transitions:\n"
                "        if one.follow_ups: await self._store.insert(one.follow_ups)\n"
                "    results = await self._store.apply(transitions) if transitions else []",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "instant fired twice",
        "schedules",
        "the job of an instant has a new id and no key each time that it is submitted",
        (
            code(
                "gantline.schedules.firing:submission_of",
                "job_id=record.job_id_of(at), scheduled_at=at)",
                "scheduled_at=at)",
                ("return Submission(job, request_key=key)", "return Submission(job)"),
            ),
        ),
        Simulation(),
    ),
    Bug(
        "instant moved before it is fired",
        "schedules",
        "the next instant is written first: where the submit fails, a run is forgotten",
        (
            code(
                f"{_SCHEDULER}._fire",
                "await self._move(firings, await self._submit(firings, now))",
                "await self._move(firings, [[_fire_of(due, submission_of(one.stored.record, due.at,"
                " now).job.job_id, Submitted(submission_of(one.stored.record, due.at, now).job"
                ".job_id), 0.0) for due in one.plan.runs] for one in firings]); "
                "await self._submit(firings, now)",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "next instant not entered",
        "schedules",
        "a schedule that was fired is not entered for its next instant",
        (code(f"{_SCHEDULER}._move", "if entry is not None]:", "if entry is None]:"),),
        Simulation(),
    ),
    Bug(
        "fan-out drops what is not stored",
        "webhooks",
        "deliveries that the store could not take are forgotten",
        (
            code(
                "gantline.webhooks.fan_out:FanOut.consume",
                "if jobs:\n        await self._app.manager.submitter.insert(jobs)",
                "if jobs:\n        try:\n"
                "            await self._app.manager.submitter.insert(jobs)\n"
                "        except Exception:\n            pass",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "refused delivery completes",
        "webhooks",
        "a delivery that nobody answered counts as delivered",
        (
            code(
                "gantline.webhooks.delivery_handler:DeliveryHandler.deliver",
                "wait = choose_wait(ctx.attempt, stored.spec, jitter=random())",
                "return result",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "delivery of a full endpoint dropped",
        "webhooks",
        "a delivery that has to wait for its endpoint is given up",
        (
            code(
                "gantline.webhooks.delivery_handler:DeliveryHandler._send_within_limits",
                "raise Snooze(timedelta(seconds=wait))",
                'raise Permanent(GONE, "no room")',
            ),
        ),
        Simulation(),
    ),
)
