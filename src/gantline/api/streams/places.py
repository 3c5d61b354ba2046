"""Places: how many streams a process and a principal may have open."""

from collections import Counter

from gantline.api.problems import ApiCode, Refused
from gantline.auth.principal import Principal


class Places:
    """Give places away while there are some."""

    def __init__(self, *, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._taken = 0
        self._by_principal: Counter[tuple[str, str]] = Counter()

    def take(self, principal: Principal) -> "Place":
        """Take a place; raise Refused where there is none."""
        who = (principal.tenant_id, principal.id)
        if self._by_principal[who] >= self._most_of_one:
            raise Refused(
                ApiCode.TOO_MANY_STREAMS,
                f"You have {self._most_of_one} event streams open, and may not have more.",
            )
        if self._taken >= self._most:
            raise Refused(ApiCode.TOO_MANY_STREAMS, "All event streams of this server are taken.")
        self._taken += 1
        self._by_principal[who] += 1
        return Place(self, who)

    def give_back(self, who: tuple[str, str]) -> None:
        self._taken -= 1
        self._by_principal[who] -= 1
        if not self._by_principal[who]:
            del self._by_principal[who]


class Place:
    """The place of one stream."""

    def __init__(self, places: Places, who: tuple[str, str]) -> None:
        self._places: Places | None = places
        self._who = who

    def give_back(self) -> None:
        """Once counts, however often it is done."""
        places, self._places = self._places, None
        if places is not None:
            places.give_back(self._who)
