"""Bugs of the memory store and of SQLite, which run in the simulation."""

from typing import Final

from tests.seeded_bugs.breaking import code, text
from tests.seeded_bugs.bug import Bug, Simulation, Suite

_MEMORY: Final = "gantline.stores.memory.store:MemoryStore"
_SQLITE: Final = "gantline.stores.sqlite"

MEMORY_BUGS: Final = (
    Bug(
        "memory: fence ignored by apply",
        "memory store",
        "whoever had a run may end the run of another",
        (
            code(
                f"{_MEMORY}._refuse_guard",
                "token=lease.token if lease else None",
                'token=getattr(guard, "token", None) if lease else None',
            ),
        ),
        Simulation(),
    ),
    Bug(
        "memory: fence ignored by renewal",
        "memory store",
        "whoever had a run renews the run of another",
        (
            code(
                f"{_MEMORY}.renew",
                "if held is None or held.session != session:",
                "if run.job_id not in self._running:",
                (
                    "held.until, held.length = until, lease",
                    "held = self._running[run.job_id].lease\n"
                    "            held.until, held.length = until, lease",
                ),
            ),
        ),
        Simulation(),
    ),
    Bug(
        "memory: fence ignored by progress",
        "memory store",
        "whoever had a run writes the progress of another",
        (
            code(
                f"{_MEMORY}._progress",
                "lease = self._lease_of(update.run)",
                "lease = entry.lease",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "memory: key of a deleted job freed from another",
        "memory store",
        "deleting a job frees the key that a newer job has",
        (code(f"{_MEMORY}._delete", "if held and held.job_id == job_id:", "if held:"),),
        Simulation(),
    ),
    Bug(
        "memory: key kept by a failed job",
        "memory store",
        "the key of a job that failed stays taken",
        (
            code(
                f"{_MEMORY}._keep_or_free",
                "elif transition.to.is_terminal:",
                "elif transition.to is JobStatus.CANCELLED:",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "memory: crash without an event",
        "memory store",
        "a run that is taken away leaves no row in the log",
        (
            code(
                f"{_MEMORY}._write",
                "self._log(entry, entry.last, transition.change_id)",
                "transition.event is Event.CRASHED or "
                "self._log(entry, entry.last, transition.change_id)",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "memory: claim forgets its id",
        "memory store",
        "a claim that is repeated starts other runs",
        (code(f"{_MEMORY}.claim", "if before:", "if False:"),),
        Simulation(),
    ),
    Bug(
        "memory: claim out of order",
        "memory store",
        "a claim takes the last that is due before the first",
        (
            code(
                f"{_MEMORY}._pop_first_due",
                "heapq.heappop(min(due, key=lambda heap: heap[0]))",
                "heapq.heappop(max(due, key=lambda heap: heap[0]))",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "memory: lease of the future",
        "memory store",
        "leases that were given before the clock was set back last until it has caught up",
        (code(f"{_MEMORY}.expired", "self._shorten_leases(now)", "pass"),),
        Simulation(),
    ),
    Bug(
        "memory: unread jobs pruned",
        "memory store",
        "jobs whose events a consumer has not read are pruned",
        (code(f"{_MEMORY}.prune", "and entry.job.job_id not in unread", ""),),
        Simulation(),
    ),
    Bug(
        "memory: refused end stores follow-ups",
        "memory store",
        "what follows a run is stored though its end is refused",
        (
            code(
                f"{_MEMORY}._apply",
                "if refused:\n",
                "if refused:\n        [self._insert(new, now) for new in transition.follow_ups]\n",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "memory: redrive of a held key",
        "memory store",
        "a job is redriven though another has its key",
        (
            code(
                f"{_MEMORY}._refuse_attachments",
                "if held and held.job_id != entry.job.job_id:",
                "if False:",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "memory: fence goes back at a redrive",
        "memory store",
        "the runs of a redriven job are numbered from the beginning",
        (
            code(
                f"{_MEMORY}._write",
                "entry.snoozes, entry.priority = transition.snoozes, transition.priority",
                "entry.snoozes, entry.priority = transition.snoozes, transition.priority\n"
                "        if transition.event is Event.REDRIVEN:\n            entry.fence = 0",
            ),
        ),
        Simulation(),
    ),
)

SQLITE_BUGS: Final = (
    Bug(
        "sqlite: fence ignored by progress",
        "sqlite store",
        "whoever had a run writes the progress of another",
        (
            text(
                f"{_SQLITE}.leases:_PROGRESS",
                "WHERE job_id = ? AND token = ?",
                "WHERE job_id = ? AND ? <> ''",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: fence ignored by renewal",
        "sqlite store",
        "whoever had a run renews the run of another",
        (
            code(
                f"{_SQLITE}.leases:renew",
                "if token != run.token.bytes or owner != session:",
                "if token is None:",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: fence ignored by apply",
        "sqlite store",
        "whoever had a run may end the run of another",
        (
            code(
                f"{_SQLITE}.apply:_Change.add",
                "token=uuid_from_bytes(head.token) if head.token else None",
                'token=getattr(transition.guard, "token", None) if head.token else None',
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: expiry not looked at again",
        "sqlite store",
        "a run is taken away though its worker has renewed it since the reaper looked",
        (
            code(
                f"{_SQLITE}.apply:_Change.add",
                "has_expired=head.until is not None and head.until <= self._now",
                "has_expired=True",
            ),
        ),
        Suite("sqlite", ("leases", "races")),
    ),
    Bug(
        "sqlite: key of a deleted job freed from another",
        "sqlite store",
        "deleting a job frees the key that a newer job has",
        (text(f"{_SQLITE}.dedupe:FREE", "AND job_id = ?", "AND ? <> ''"),),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: counts off after a redrive",
        "sqlite store",
        "a redriven job is counted as queued and as ended",
        (
            code(
                "gantline.stores.sql.changes:ChangedRows.add",
                "self._tally.move(head.tenant, head.lane, head.status, transition.to)",
                "self._tally.move(head.tenant, head.lane, None if transition.event is "
                "Event.REDRIVEN else head.status, transition.to)",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: two ends after a redrive",
        "sqlite store",
        "the end from which a job was redriven stays its end",
        (text(f"{_SQLITE}.apply:_LEAVE_END", "SET is_end = 0", "SET is_end = 1"),),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: floor raised too far",
        "sqlite store",
        "a claim raises the floor of a lane above its first row, which is never found again",
        (
            code(
                f"{_SQLITE}.ready:raise_floors",
                "raised.append((*first[:2], *key))",
                "raised.append((first[0] + 3_600_000_000, first[1], *key))",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: floor not lowered",
        "sqlite store",
        "a job that is due before all others of its lane is not found",
        (
            text(
                f"{_SQLITE}.ready:_LOWER_FLOOR",
                "WHERE (excluded.run_at, excluded.job_id) < (run_at, job_id)",
                "WHERE false",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: event of a start not written",
        "sqlite store",
        "the start of a run is an event on request, and is not logged",
        (code(f"{_SQLITE}.claim:claim", "if logged:", "if False:"),),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: unread jobs pruned",
        "sqlite store",
        "jobs whose events a consumer has not read are pruned",
        (
            code(
                f"{_SQLITE}.prune:prune",
                "newest = _ANY_SEQUENCE if keep_events_after is None else keep_events_after",
                "newest = _ANY_SEQUENCE",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: live jobs pruned",
        "sqlite store",
        "a job that was redriven is removed as the ended one that it was",
        (
            text(
                f"{_SQLITE}.prune:_OLD",
                "WHERE is_end = 1 AND status = ?",
                "WHERE status = ?",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: commit without the guard",
        "sqlite store",
        "a handler's transaction is committed though its run is over",
        (
            code(
                "gantline.worker.context:Context._transaction",
                "if not isinstance(answer, Applied):",
                "if False:",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: end outside the transaction",
        "sqlite store",
        "a handler's transaction is committed before its run is ended",
        (
            code(
                f"{_SQLITE}.transaction:SqliteTransaction.apply",
                "return apply(",
                'self.connection.execute("COMMIT")\n    '
                'self.connection.execute("BEGIN IMMEDIATE")\n    return apply(',
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: claim forgets its id",
        "sqlite store",
        "a claim that is repeated starts other runs",
        (
            code(
                f"{_SQLITE}.claim:claim",
                "if known := find_runs_of_claim(connection, claim_id):",
                "if known := []:",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: lease of the future",
        "sqlite store",
        "leases that were given before the clock was set back last until it has caught up",
        (text(f"{_SQLITE}.leases:_TO_REPAIR", "until - length > :now OR", "false OR"),),
        Simulation("sqlite"),
    ),
    Bug(
        "sqlite: repeated change made twice",
        "sqlite store",
        "an operator's change whose answer was lost is made again",
        (
            code(
                f"{_SQLITE}.apply:_Change._is_repeated",
                "return (transition",
                "return False and (transition",
            ),
        ),
        Simulation("sqlite"),
    ),
)
