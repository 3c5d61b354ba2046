"""Bugs of the worker: claims, slots, leases, ends, suspects, stopping, consumers."""

from typing import Final

from tests.seeded_bugs.breaking import code
from tests.seeded_bugs.bug import Bug, Simulation

_CLAIMER: Final = "gantline.worker.claimer:Claimer"
_COMPLETER: Final = "gantline.worker.completer:Completer"
_KEEPER: Final = "gantline.worker.lease_keeper:LeaseKeeper"
_RUNS: Final = "gantline.worker.runs:Runs"
_SLOTS: Final = "gantline.worker.slots:Slots"
_READER: Final = "gantline.consumers.event_reader:EventReader"

WORKER_BUGS: Final = (
    Bug(
        "claim repeated under a new id",
        "worker",
        "a claim whose answer was lost is repeated as another claim: its runs are nobody's",
        (
            code(
                f"{_CLAIMER}._claimed",
                "self._session, claim_id, requests",
                "self._session, new_uuid(), requests",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "claim not repeated",
        "worker",
        "a claim whose answer was lost is given up: its runs are nobody's",
        (code(f"{_CLAIMER}._claimed", "if self._is_over:", "if True:"),),
        Simulation(),
    ),
    Bug(
        "end not written again",
        "worker",
        "an end that the store could not take is dropped, and the work is done again",
        (code(f"{_COMPLETER}._persist", "await asyncio.sleep(wait)", "break"),),
        Simulation(),
    ),
    Bug(
        "end decided anew",
        "worker",
        "an end that is written again is decided for one attempt more",
        (
            code(
                f"{_COMPLETER}._flush",
                "self._persist(ending)",
                'self._persist(Ending(__import__("msgspec").structs.replace('
                "ending.run, attempt=ending.run.attempt + 1), ending.outcome, ending.seconds))",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "unwritten ends unbounded",
        "worker",
        "more is claimed though what has ended cannot be written",
        (code(f"{_COMPLETER}.add", "self.keeps_up.clear()", "pass"),),
        Simulation(),
    ),
    Bug(
        "lease by the time of the answer",
        "worker",
        "a lease is taken to hold from the answer on, not from the sending",
        (
            code(
                f"{_KEEPER}._renew",
                "self._confirm(runs, self._holds_until(now))",
                "self._confirm(runs, self._holds_until(monotonic()))",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "handler goes on without its lease",
        "worker",
        "the handlers of runs whose lease may have run out are not stopped",
        (code(f"{_KEEPER}._watch", "held.holds_until <= now}", "held.holds_until <= now - 1e9}"),),
        Simulation(),
    ),
    Bug(
        "lease dropped before the end is written",
        "worker",
        "a run is renewed no more once its handler has returned",
        (
            code(
                f"{_RUNS}._end",
                "self._free_slot(run)",
                "self._free_slot(run); self.keeper.forget([run.ref])",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "parked run started twice",
        "worker",
        "a run whose lease is confirmed stays parked, and begins again when it is uncertain next",
        (code(f"{_RUNS}._unpark", "self._parked.pop(ref, None)", "self._parked.get(ref)"),),
        Simulation(),
    ),
    Bug(
        "parked run never started",
        "worker",
        "a run whose lease is confirmed again is not started again",
        (code(f"{_RUNS}._unpark", "self._launch([run])", "pass"),),
        Simulation(),
    ),
    Bug(
        "slot kept after a transaction",
        "worker",
        "a run that its handler completed in a transaction keeps its slot",
        (
            code(
                f"{_RUNS}._execute",
                "self._reporter.completed_itself(active.run, outcome)\n"
                "        self._free_slot(active.run)",
                "self._reporter.completed_itself(active.run, outcome)",
            ),
        ),
        Simulation("sqlite"),
    ),
    Bug(
        "slot kept after a loss",
        "worker",
        "a parked run that is lost keeps its slot",
        (
            code(
                f"{_RUNS}._lose",
                "self._free_slot(run)\n        self._discard(run)",
                "self._discard(run)",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "slot freed twice",
        "worker",
        "the end of a run frees two slots",
        (
            code(
                f"{_RUNS}._end",
                "self._free_slot(run)",
                "self._free_slot(run); self._free_slot(run)",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "free slot not noticed",
        "worker",
        "a worker that was full does not look again when a slot is free",
        (code(f"{_SLOTS}.give_back", "self._changed.set()", "pass"),),
        Simulation(),
    ),
    Bug(
        "limit of a type ignored",
        "worker",
        "what runs of a limited type is not counted",
        (
            code(
                f"{_SLOTS}.take",
                "if limit := self._limits.get(job_type):",
                "if limit := None:",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "suspects never claimed",
        "worker",
        "jobs that were in several crashes wait for ever",
        (
            code(
                f"{_CLAIMER}._look_for_suspects",
                "if self._suspects.next_group:\n            self._slots.reserve_full()",
                "if False:\n            self._slots.reserve_full()",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "quarantine never ends",
        "worker",
        "a worker that has run a suspect alone claims nothing any more",
        (code(f"{_RUNS}._no_longer_active", "self._quarantine_over.set()", "pass"),),
        Simulation(),
    ),
    Bug(
        "drain drops ends",
        "worker",
        "a worker that stops does not wait until what has ended is written",
        (
            code(
                "gantline.worker.worker:Worker._close",
                "await self._runs.completer.drained()",
                "pass",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "stopping worker keeps what it claims",
        "worker",
        "what a claim brings while the worker stops is neither run nor given back",
        (
            code(
                f"{_RUNS}.start",
                "self._end(run, Released())\n        return",
                "pass\n        return",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "StopIteration of a thread",
        "worker",
        "a `def` handler that raises StopIteration never ends",
        (
            code(
                "gantline.worker.threads:HandlerThreads._hand_over",
                "waiting.set_result(end)",
                "try:\n            value = end()\n"
                "        except BaseException as error:\n            waiting.set_exception(error)\n"
                "        else:\n            waiting.set_result(lambda: value)",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "cancel of a running job not heard",
        "worker",
        "a run of which a cancel was requested goes on, and is retried",
        (
            code(
                "gantline.worker.active_run:ActiveRun.run_as_known",
                "return msgspec.structs.replace(self.run, cancel_requested=True)",
                "return self.run",
            ),
            code(
                "gantline.manager.manager:_reconsidered",
                "return Ending(run, ending.outcome, ending.seconds)",
                "return None",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "cursor moved before the consumer",
        "worker",
        "a consumer's cursor is moved before the consumer has taken the events",
        (
            code(
                f"{_READER}._read_page",
                "if error := await self._taken(step):",
                "held = await self._moved(held, step[-1].sequence)\n"
                "        if error := await self._taken(step):",
            ),
        ),
        Simulation(),
    ),
    Bug(
        "cursor moved too far",
        "worker",
        "a consumer's cursor is moved past an event that nobody has read",
        (
            code(
                f"{_READER}._read_page",
                "await self._moved(held, rows[-1].sequence)",
                "await self._moved(held, rows[-1].sequence + 1)",
            ),
        ),
        Simulation(),
    ),
)
