"""Where a claim begins to look: above what was taken, and behind it every second."""

from uuid import UUID

from gantline.stores.postgres.floors import Floors, Range

START = (0, UUID(int=0))
MARK = (50, UUID(int=5))


class Watch:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def floors_after_a_claim(watch: Watch, *, cost: float = 0.0) -> Floors:
    floors = Floors(watch)
    began = floors.begin()
    assert began is not None
    watch.now += cost
    floors.finish_full_search(began)
    floors.raise_to([(1, 2, MARK)])
    return floors


def test_a_claim_begins_behind_the_last_row_taken() -> None:
    floors = floors_after_a_claim(Watch())
    assert not floors.begin()
    assert floors.ranges_of([1])[2] == Range(1, 2, MARK)
    assert floors.ranges_of([1])[0] == Range(1, 0, START)


def test_every_second_it_looks_behind() -> None:
    watch = Watch()
    floors = floors_after_a_claim(watch)
    watch.now += 0.9
    assert not floors.begin()
    watch.now += 0.2
    assert floors.begin()
    assert floors.ranges_of([1])[2] == Range(1, 2, START)


def test_looking_behind_takes_a_twentieth_of_the_time_at_most() -> None:
    watch = Watch()
    floors = floors_after_a_claim(watch, cost=0.5)
    watch.now += 9.9
    assert not floors.begin()
    watch.now += 0.2
    assert floors.begin()


def test_a_claim_that_found_nothing_looks_behind_at_once() -> None:
    floors = floors_after_a_claim(Watch(), cost=0.5)
    assert floors.begin(found_nothing=True)
    assert floors.ranges_of([1])[2] == Range(1, 2, START)


def test_of_many_lanes_only_those_with_work_are_opened_the_most_urgent_first() -> None:
    floors = Floors(Watch())
    lanes = list(range(100))
    assert floors.are_many(lanes)
    assert floors.candidates(lanes) == []
    floors.add_candidates([(7, 2, (10, UUID(int=1))), (9, 0, (99, UUID(int=2)))])
    assert [one.lane for one in floors.candidates(lanes)] == [9, 7]
    assert [one.lane for one in floors.candidates([7])] == [7]
    floors.remove_candidates([Range(9, 0, START)])
    assert [one.lane for one in floors.candidates(lanes)] == [7]
