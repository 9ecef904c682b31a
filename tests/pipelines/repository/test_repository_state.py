"""What records add up to: releases, aliases, and where an alias can go back to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.errors import RepositoryError
from paritygate.pipelines.release.repository.record import Record, RecordKind
from paritygate.pipelines.release.repository.state import ModelState, state_of

_TIME = "2025-01-01T00:00:00.000000+00:00"
_ALIASES = ("prod", "canary")


def _released(version: int, *aliases: str) -> Record:
    return Record(
        kind=RecordKind.RELEASED,
        time=_TIME,
        version=version,
        aliases=dict.fromkeys(aliases, version),
        manifest=f"sha256:{version:064x}",
    )


def _moved(**aliases: int) -> Record:
    return Record(kind=RecordKind.ALIAS_MOVED, time=_TIME, aliases=aliases)


def _rolled_back(**aliases: int) -> Record:
    return Record(kind=RecordKind.ROLLED_BACK, time=_TIME, aliases=aliases)


def _collected(version: int) -> Record:
    return Record(kind=RecordKind.COLLECTED, time=_TIME, version=version)


def _next_records(state: ModelState) -> list[Record]:
    """Return everything that can happen next, given the state, as far as aliases are concerned one at a time."""
    new = max([*state.releases, *state.collected], default=0) + 1
    found = [_released(new), *(_released(new, alias) for alias in _ALIASES), _released(new, *_ALIASES)]
    found += [_moved(**{alias: version}) for alias in _ALIASES for version in state.releases]
    for alias, past in state.pasts.items():
        found += [_rolled_back(**{alias: version}) for version in past if version != state.aliases[alias]]
    found += [_collected(version) for version in state.releases if version not in state.aliases.values()]
    return found


@st.composite
def _histories(draw: st.DrawFn) -> list[Record]:
    """Draw a history that can have happened."""
    records: list[Record] = []
    for _ in range(draw(st.integers(0, 12))):
        records.append(draw(st.sampled_from(_next_records(state_of(records)))))
    return records


def _last_word(records: Sequence[Record], alias: str) -> int | None:
    """Return where `alias` points, found from the end of the history: a second way to the same answer."""
    return next((record.aliases[alias] for record in reversed(records) if alias in record.aliases), None)


@given(_histories())
def test_the_state_is_what_the_records_add_up_to(records: list[Record]) -> None:
    state = state_of(records)

    released = [record.version for record in records if record.kind is RecordKind.RELEASED]
    collected = [record.version for record in records if record.kind is RecordKind.COLLECTED]
    assert [*state.releases] == [version for version in released if version not in collected]
    assert [*state.collected] == collected
    for alias in _ALIASES:
        assert state.aliases.get(alias) == _last_word(records, alias)
    assert state.history == tuple(records)


@given(_histories(), st.data())
def test_every_beginning_of_a_history_is_a_history_and_times_do_not_matter(
    records: list[Record], data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(records)))
    shuffled = [replace(record, time=f"{2030 - number}") for number, record in enumerate(records)]

    state = state_of(records[:length])

    assert dict(state.aliases) == dict(state_of(shuffled[:length]).aliases)
    assert {*state.releases} <= {*state_of(records).releases, *state_of(records).collected}


@given(_histories())
def test_an_alias_points_and_goes_back_only_to_what_is_there(records: list[Record]) -> None:
    state = state_of(records)

    assert {*state.aliases.values()} <= {*state.releases}
    for past in state.pasts.values():
        assert {*past} <= {*state.releases}


@given(_histories(), st.sampled_from(_ALIASES))
def test_rolling_back_again_and_again_never_comes_to_where_it_was_and_ends(records: list[Record], alias: str) -> None:
    pasts = []
    while alias in (state := state_of(records)).aliases:
        past = [version for version in state.pasts[alias] if version != state.aliases[alias]]
        pasts.append(state.pasts[alias])
        if not past:
            break
        records = [*records, _rolled_back(**{alias: past[-1]})]

    lengths = [len(past) for past in pasts]
    assert lengths == sorted(set(lengths), reverse=True)


def test_a_rollback_takes_away_what_it_goes_back_from() -> None:
    records = [_released(1, "prod"), _released(2, "prod"), _released(3, "prod"), _rolled_back(prod=2)]

    state = state_of(records)
    further = state_of([*records, _released(4, "prod"), _rolled_back(prod=2)])

    assert (state.aliases, state.pasts) == ({"prod": 2}, {"prod": (1,)})
    assert (further.aliases, further.pasts) == ({"prod": 2}, {"prod": (1,)})


def test_a_rollback_goes_to_the_last_time_that_the_alias_was_there() -> None:
    moves = [_moved(prod=version) for version in (1, 2, 1, 3)]

    state = state_of([_released(1), _released(2), _released(3), *moves, _rolled_back(prod=1)])

    assert (state.aliases["prod"], state.pasts["prod"]) == (1, (1, 2))


def test_a_version_that_was_rolled_back_from_is_in_no_past_however_often_the_alias_was_there() -> None:
    moves = [_moved(prod=version) for version in (1, 2, 3, 1, 3)]
    records = [_released(1), _released(2), _released(3), *moves, _rolled_back(prod=1)]

    assert state_of(records).pasts == {"prod": (1, 2)}
    assert state_of(records).left == {"prod": {3: 9}}
    further = state_of([*records, _moved(prod=2), _rolled_back(prod=1)])
    assert further.pasts == {"prod": (1,)}
    # Where it was moved there again, somebody wants it.
    assert state_of([*records, _moved(prod=3)]).left == {"prod": {}}


def test_one_record_moves_several_aliases() -> None:
    state = state_of([_released(1), _released(2), _moved(blue=1, green=2), _moved(blue=2, green=1)])

    assert state.aliases == {"blue": 2, "green": 1}
    assert state.pasts == {"blue": (1,), "green": (2,)}


def test_a_release_may_move_several_aliases() -> None:
    assert state_of([_released(1, "prod", "canary")]).aliases == {"prod": 1, "canary": 1}


def test_an_alias_moved_to_where_it_is_has_no_new_past() -> None:
    assert state_of([_released(1, "prod"), _moved(prod=1)]).pasts == {"prod": ()}


def test_what_was_collected_is_no_release_any_more_and_in_no_past() -> None:
    moves = [_moved(prod=version) for version in (1, 2, 1, 3)]

    state = state_of([_released(1), _released(2), _released(3), *moves, _collected(2)])

    assert [*state.releases] == [1, 3]
    assert [*state.collected] == [2]
    assert state.pasts == {"prod": (1,)}


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([_released(1), _released(1)], "record 2 of the log .released. .* version 1 was released before"),
        ([_released(1), _collected(1), _released(1)], "version 1 was released before"),
        ([_released(0)], "version 0 is not a version"),
        ([replace(_released(1), version=None)], "version None is not a version"),
        ([replace(_released(1), manifest=None)], "it names no manifest"),
        ([replace(_released(2), aliases={"prod": 1})], "version 1 was not released by then"),
        ([_released(1), _moved(prod=2)], "version 2 was not released by then"),
        ([_released(1), _moved(prod=1, canary=2)], "version 2 was not released by then"),
        ([_released(1), _collected(1), _moved(prod=1)], "version 1 was collected by then"),
        ([_released(1), _moved()], "it names no alias"),
        ([_released(1), _rolled_back(prod=1)], "alias 'prod' did not exist by then"),
        ([_released(1, "prod"), _released(2), _rolled_back(prod=2)], "alias 'prod' was not at version 2 before"),
        ([_released(1, "prod"), _rolled_back(prod=1)], "alias 'prod' was not at version 1 before"),
        ([_collected(0)], "version 0 is not a version"),
        ([_collected(1), _released(1)], "version 1 was released before"),
        ([_released(1), _collected(1), _collected(1)], "version 1 was collected before"),
        ([_released(1, "prod"), _collected(1)], "an alias points to version 1"),
        ([_released(1), _released(2), replace(_collected(1), aliases={"prod": 2})], "it moves an alias"),
    ],
)
def test_records_that_contradict_each_other_are_refused(records: list[Record], problem: str) -> None:
    with pytest.raises(RepositoryError, match=problem) as caught:
        state_of(records)
    assert "restore the log" in caught.value.hint
