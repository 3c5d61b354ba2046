"""The checker is worth what it catches: broken stores, by what a recorded run of each shows."""

import asyncio
from contextlib import suppress

import pytest

from gantline.proof.checker import check
from gantline.stores.memory import MemoryStore
from gantline.testing.conformance import Rule, all_rules
from tests import broken_flow
from tests import broken_stores as broken
from tests.broken_stores import BROKEN
from tests.harness import MemoryHarness
from tests.history.test_sound_stores import MADE_UP, YEARS, RecordedHarness

# By which rule of the checker a broken store must be caught.
CAUGHT: dict[type[MemoryStore], str] = {
    broken.FenceDropped: "takeover",
    broken.StateRecheckDropped: "terminal",
    broken.VersionRecheckDropped: "guard",
    broken.CancelRecheckDropped: "cancel",
    broken.LeaseUnfenced: "takeover",
    broken.RenewsByTokenAlone: "takeover",
    broken.ClaimForgetsItsId: "claim",
    broken.ClaimNotAtomic: "one run",
    broken.ClaimsTheFuture: "claim",
    broken.PriorityIgnored: "counters",
    broken.TypeLimitsIgnored: "claim",
    broken.TypeLimitsPerPriority: "claim",
    broken.SuspectsLeftInLine: "claim",
    broken.SuspectsOfAllCrashesMixed: "order",
    broken.SuspectsShownByRank: "counters",
    broken.FenceFollowsAttempt: "fence",
    broken.TokensReused: "token",
    broken.ApplyForgetsItsToken: "event",
    broken.ApplyTrustsTheToken: "one end",
    broken.CountersKept: "counters",
    broken.FollowUpsFirst: "refused",
    broken.FollowUpsForgotten: "lost",
    broken.EmittedForgotten: "event",
    broken.KeyFreedByAnyone: "key",
    broken.KeyNeverFreed: "key",
    broken.KeyNotRetaken: "key",
    broken.FingerprintIgnored: "key",
    broken.NumbersReused: "event",
    broken.LastNumberForgotten: "event",
    broken.NumbersSkipped: "event",
    broken.StartsUnasked: "event",
    broken.SubmissionsUnlogged: "event",
    broken.NumberedBeforeCommit: "event",
    broken.PrunesTheUnread: "lost",
    broken_flow.LimitsIgnored: "limit",
    broken_flow.CountsBeforeOthers: "limit",
    broken_flow.LimitsPerQueue: "limit",
    broken_flow.LimitsPerPriority: "limit",
    broken_flow.LimitsOfTheTypePerGroup: "limit",
    broken_flow.CountsOncePerClaim: "limit",
    broken_flow.PlacesEndWithLeases: "limit",
    broken_flow.PlacesGivenBackTwice: "limit",
    broken_flow.PlacesGivenBackByZombies: "limit",
    broken_flow.SuspectsWithoutLimits: "limit",
    broken_flow.SuspectsUncounted: "limit",
    broken_flow.TurnsOverPriorities: "order",
    broken_flow.SuspectsTakeTurns: "order",
    broken_flow.GatesIgnored: "gate",
    broken_flow.GatesPerClaim: "gate",
    broken_flow.GatesPerType: "gate",
    broken_flow.GatesInWindows: "gate",
    broken_flow.GatesSaveForEver: "gate",
    broken_flow.ThrottledCostsAnAttempt: "counters",
}
# The others break what the checker does not judge: instants of the store's own clock (leases, keys
# that a completed job holds, closed gates), whose turn it is, what lists show, records, leaders,
# contents, and moving to another.


@pytest.mark.parametrize("store", CAUGHT, ids=lambda store: store.__name__)
async def test_the_checker_catches(store: type[MemoryStore]) -> None:
    topic = BROKEN[store].partition(".")[0]
    rules = sorted(all_rules(), key=lambda rule: rule.topic != topic)
    for rule in rules:
        if str(rule) != MADE_UP and CAUGHT[store] in await found_by(rule, store):
            return
    pytest.fail(f"no rule of the suite shows {CAUGHT[store]!r}")


async def found_by(rule: Rule, store: type[MemoryStore]) -> set[str]:
    harness = RecordedHarness(MemoryHarness(store))
    with suppress(Exception):  # the suite catches it too; what was recorded counts
        await asyncio.wait_for(rule.check(harness), timeout=1)
    report = check(harness.history.calls, rest=harness.rest, within=YEARS)
    return {violation.rule for violation in report.violations}
