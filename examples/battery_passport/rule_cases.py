"""Test cases of a rule package, generated: what each rule must say on both sides of its limit.

The verdict of a case is known from how its value was made, not from a comparison, so that the
cases do not repeat what they test.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final, NamedTuple

from examples.battery_passport.canonical import decimal_text
from examples.battery_passport.rules import Rule, RulePackage, Verdict, judge

_STEPS: Final = ("0.000001", "0.0001", "0.01", "1", "100")
_MULTIPLES: Final = (1, 2, 3, 7, 10)


class Case(NamedTuple):
    """A value (None: absent), and what the rule must say of it."""

    rule: Rule
    value: str | None
    expected: Verdict

    @property
    def holds(self) -> bool:
        found = {} if self.value is None else {self.rule.quantity: self.value}
        return judge(self.rule, found).verdict is self.expected


def cases_of(package: RulePackage) -> Iterator[Case]:
    """Fifty-odd cases for each rule: at the limit, and in steps away from it on both sides."""
    for rule in package.rules:
        limit = Decimal(rule.limit)
        below, above = _verdicts_beside(rule)
        yield Case(rule, None, Verdict.FAIL if rule.required else Verdict.NOT_APPLICABLE)
        yield Case(rule, rule.limit, Verdict.PASS)
        for step in _STEPS:
            for multiple in _MULTIPLES:
                distance = multiple * Decimal(step)
                yield Case(rule, decimal_text(limit - distance), below)
                yield Case(rule, decimal_text(limit + distance), above)


def _verdicts_beside(rule: Rule) -> tuple[Verdict, Verdict]:
    is_ceiling = rule.comparison == "<="
    return (Verdict.PASS, Verdict.FAIL) if is_ceiling else (Verdict.FAIL, Verdict.PASS)
