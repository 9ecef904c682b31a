"""rollback and alias: an alias moves to a release that is there and intact, and the log says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paritygate.errors import ArtifactIntegrityError, InputFileError, RepositoryError, UsageError
from paritygate.files import MARKER
from paritygate.pipelines.release.repository import aliases, release
from paritygate.pipelines.release.repository.aliases import Note, point_alias, roll_back
from paritygate.pipelines.release.repository.candidate import ReleaseCandidate, VariantCandidate
from paritygate.pipelines.release.repository.inspect import list_models
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import promote
from paritygate.pipelines.release.repository.state import state_of

Make = Callable[..., ReleaseCandidate]
_MODEL = "klue-sts"


@pytest.fixture
def repository(tmp_path: Path, make_candidate: Make) -> Path:
    """Return a repository with three versions, to each of which prod was moved."""
    root = tmp_path / "repository"
    for _ in range(3):
        promote(root, make_candidate())
    return root


def _aliases(repository: Path) -> dict[str, int]:
    (model,) = list_models(repository)
    return dict(model.aliases)


def _damage(repository: Path, version: int) -> None:
    path = repository / f"store/{_MODEL}/{version}/onnx-fp32/model.onnx"
    path.chmod(0o644)
    path.write_bytes(b"grapg")


def test_a_rollback_goes_to_the_version_before_and_a_second_one_further_back(repository: Path) -> None:
    first = roll_back(repository, _MODEL)
    second = roll_back(repository, _MODEL)

    assert (first.alias, first.previous, first.version, first.past, first.record) == ("prod", 3, 2, (1,), 4)
    assert (second.previous, second.version, second.past, second.record) == (2, 1, (), 5)
    assert _aliases(repository) == {"prod": 1}


def test_a_rollback_with_nothing_before_is_refused(repository: Path) -> None:
    roll_back(repository, _MODEL, to=1)

    words = "alias 'prod' of 'klue-sts' is at version 1, and there is no version before it to go back to"
    with pytest.raises(UsageError, match=words) as caught:
        roll_back(repository, _MODEL)

    words = "move it to any version with: convert-and-validate alias klue-sts prod VERSION"
    assert caught.value.hint == f"{words} --repository {repository}"
    assert _aliases(repository) == {"prod": 1}


def test_what_was_released_after_a_rollback_goes_back_to_where_the_rollback_went(
    repository: Path, make_candidate: Make, make_variant: Callable[..., VariantCandidate]
) -> None:
    roll_back(repository, _MODEL, to=1)
    promote(repository, make_candidate(variants=(make_variant("onnx-fp16"),)))

    assert roll_back(repository, _MODEL).version == 1


def test_the_version_before_is_that_of_the_log_and_not_the_number_below(repository: Path) -> None:
    point_alias(repository, _MODEL, "prod", 1)

    assert roll_back(repository, _MODEL).version == 3


def test_a_rollback_passes_over_the_version_at_which_the_alias_is(repository: Path) -> None:
    point_alias(repository, _MODEL, "prod", 2)
    point_alias(repository, _MODEL, "prod", 3)
    roll_back(repository, _MODEL)

    move = roll_back(repository, _MODEL)

    # Nor does it go to where the first one came from, at which the alias was twice.
    assert (move.previous, move.version, move.past) == (2, 1, ())


def test_a_rollback_records_who_where_and_why(repository: Path) -> None:
    roll_back(repository, _MODEL, note=Note(reason="too slow", who="kim", host="box"))

    record = read_records(repository, _MODEL)[-1]
    assert (str(record.kind), record.version, record.aliases) == ("rolled_back", None, {"prod": 2})
    assert (record.reason, record.who, record.host) == ("too slow", "kim", "box")


def test_a_rollback_of_the_only_release_says_that_there_is_no_other(tmp_path: Path, make_candidate: Make) -> None:
    promote(tmp_path, make_candidate())

    with pytest.raises(UsageError, match="there is no version before it to go back to") as caught:
        roll_back(tmp_path, _MODEL)

    assert caught.value.hint == "this is the only release; roll back after the next run that passes"


def test_a_rollback_to_a_version_that_is_not_in_the_past_names_the_past(repository: Path, make_candidate: Make) -> None:
    promote(repository, make_candidate(alias="canary"))

    words = r"version 4 is not a past version of alias 'prod' of 'klue-sts' \(now: 3; before: 2, 1\)"
    with pytest.raises(UsageError, match=words) as caught:
        roll_back(repository, _MODEL, to=4)

    words = "move it to any version with: convert-and-validate alias klue-sts prod 4"
    assert caught.value.hint == f"{words} --repository {repository}"
    with pytest.raises(UsageError, match=r"version 3 is not a past version .* \(now: 3; before: 2, 1\)"):
        roll_back(repository, _MODEL, to=3)


def test_a_rollback_to_a_version_that_does_not_exist_names_those_that_do(repository: Path) -> None:
    with pytest.raises(UsageError, match=r"has no release '7' \(versions: 1, 2, 3; aliases: prod\)"):
        roll_back(repository, _MODEL, to=7)


def test_a_rollback_to_a_release_that_is_not_intact_moves_nothing_and_names_the_file(repository: Path) -> None:
    _damage(repository, 2)

    words = (
        "version 2 of 'klue-sts' is corrupt, alias 'prod' was not moved: "
        r"onnx-fp32/model\.onnx was changed"
    )
    with pytest.raises(ArtifactIntegrityError, match=words) as caught:
        roll_back(repository, _MODEL)

    assert "another version (1, 3) with: convert-and-validate alias klue-sts prod VERSION" in caught.value.hint
    assert _aliases(repository) == {"prod": 3}
    assert len(read_records(repository, _MODEL)) == 3
    assert not list((repository / "staging").iterdir())
    assert roll_back(repository, _MODEL, to=1).version == 1


def test_prod_is_rolled_back_where_no_alias_is_named_and_otherwise_the_only_one(
    repository: Path, make_candidate: Make
) -> None:
    for alias in ("prod", "canary", "blue"):
        promote(repository, make_candidate(model="face", alias=alias))
    promote(repository, make_candidate(model="face", alias="prod"))
    promote(repository, make_candidate(model="one", alias="live"))
    promote(repository, make_candidate(model="one", alias="live"))

    assert roll_back(repository, "face").alias == "prod"
    assert roll_back(repository, "one").alias == "live"


def test_several_aliases_without_prod_are_listed(repository: Path, make_candidate: Make) -> None:
    for alias in ("green", "blue"):
        promote(repository, make_candidate(model="face", alias=alias))

    with pytest.raises(UsageError, match=r"'face' has several aliases, none of them 'prod' \(blue, green\)") as caught:
        roll_back(repository, "face")
    assert caught.value.hint == "name one of them, such as --alias blue"


@pytest.mark.parametrize(("alias", "words"), [(None, "no alias "), ("live", "no alias 'live' ")])
def test_a_model_without_the_alias_is_told_how_to_set_one(
    repository: Path, make_candidate: Make, alias: str | None, words: str
) -> None:
    promote(repository, make_candidate(model="face", alias=None))

    with pytest.raises(UsageError, match=rf"model 'face' has {words}\(aliases: none\)") as caught:
        roll_back(repository, "face", alias=alias)
    words = f"set one with: convert-and-validate alias face {alias or 'prod'} VERSION"
    assert caught.value.hint == f"{words} --repository {repository}"


def test_an_alias_is_moved_and_made(repository: Path) -> None:
    moved = point_alias(repository, _MODEL, "prod", 1, note=Note(reason="why"))
    made = point_alias(repository, _MODEL, "canary", "2")
    from_another = point_alias(repository, _MODEL, "blue", "canary")

    assert (moved.previous, moved.version, moved.past, moved.is_rollback) == (3, 1, (3, 2), False)
    assert (made.previous, made.version, made.record) == (None, 2, 5)
    assert from_another.version == 2
    assert _aliases(repository) == {"prod": 1, "canary": 2, "blue": 2}
    record = read_records(repository, _MODEL)[3]
    assert (str(record.kind), record.aliases, record.reason) == ("alias_moved", {"prod": 1}, "why")


def test_an_alias_that_is_there_already_needs_no_record(repository: Path) -> None:
    move = point_alias(repository, _MODEL, "prod", 3)

    assert (move.version, move.previous, move.record) == (3, 3, None)
    assert len(read_records(repository, _MODEL)) == 3


def test_an_alias_is_not_pointed_to_a_release_that_is_not_intact(repository: Path) -> None:
    _damage(repository, 3)

    for alias in ("canary", "prod"):
        with pytest.raises(ArtifactIntegrityError, match=f"alias '{alias}' was not moved: onnx-fp32/model"):
            point_alias(repository, _MODEL, alias, 3)

    assert _aliases(repository) == {"prod": 3}


@pytest.mark.parametrize(
    ("model", "name", "version", "words"),
    [
        ("sts", "prod", "1", r"no release of model 'sts' \(models: klue-sts\)"),
        (_MODEL, "prod", "9", r"has no release '9' \(versions: 1, 2, 3; aliases: prod\)"),
        (_MODEL, "prod", "canary", r"has no release 'canary' \(versions: 1, 2, 3; aliases: prod\)"),
        (_MODEL, "2", "1", "alias name '2' is a number"),
        (_MODEL, "a/b", "1", "alias name 'a/b' is not allowed"),
    ],
)
def test_an_alias_is_not_pointed_to_what_is_not_there(
    repository: Path, model: str, name: str, version: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        point_alias(repository, model, name, version)

    assert len(read_records(repository, _MODEL)) == 3


def test_a_repository_that_does_not_exist_is_an_input_error_and_is_not_made(tmp_path: Path) -> None:
    for move in (lambda root: roll_back(root, "m"), lambda root: point_alias(root, "m", "prod", 1)):
        with pytest.raises(InputFileError, match=r"no repository exists at .*none"):
            move(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_rollback_goes_back_from_what_the_log_says_when_it_is_recorded(
    repository: Path, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # While version 2 is verified, another process releases version 4: from there, the version before is 3.
    verified: list[int] = []
    check = aliases._check_intact

    def check_slowly(root: Path, model: str, alias: str, version: int, *rest: Any) -> None:  # noqa: ANN401 - handed on
        if not verified:
            promote(root, make_candidate())
        verified.append(version)
        check(root, model, alias, version, *rest)

    monkeypatch.setattr(aliases, "_check_intact", check_slowly)

    move = roll_back(repository, _MODEL)

    assert verified == [2, 3]
    assert (move.previous, move.version, move.record) == (4, 3, 5)


@pytest.mark.thorough
def test_a_kill_at_any_point_of_a_rollback_leaves_the_alias_where_it_was_or_where_it_goes(
    repository: Path, make_candidate: Make, under: Callable[..., Any]
) -> None:
    found = under("killed-rollback", repository, make_candidate())

    assert len(found) > 5
    versions = []
    for item in found:
        copy = Path(item["repository"])
        versions.append(state_of(read_records(copy, _MODEL)).aliases["prod"])
        assert roll_back(copy, _MODEL).version == versions[-1] - 1
        assert not list((copy / "staging").glob(f"*/{MARKER}"))
    assert [item["outcome"] for item in found] == [-9] * (len(found) - 1) + [0]
    assert sorted(versions, reverse=True) == versions
    assert {*versions} == {3, 2}


@pytest.mark.thorough
def test_a_kill_at_any_point_of_a_move_of_two_aliases_moves_both_or_none(
    repository: Path, make_candidate: Make, under: Callable[..., Any]
) -> None:
    found = under("killed-alias", repository, make_candidate())

    moved = [_aliases(Path(item["repository"])) for item in found]
    assert [item["outcome"] for item in found] == [-9] * (len(found) - 1) + [0]
    assert [aliases for aliases in moved if aliases not in ({"prod": 3}, {"before": 3, "prod": 1})] == []
    assert (moved[0], moved[-1]) == ({"prod": 3}, {"before": 3, "prod": 1})


def test_rollbacks_at_the_same_time_each_go_one_version_back(
    tmp_path: Path, make_candidate: Make, under: Callable[..., Any]
) -> None:
    repository = tmp_path / "repository"
    for _ in range(9):
        promote(repository, make_candidate())

    found = under("race-rollback", repository, make_candidate())

    assert [item["outcome"] for item in found] == [0] * 8
    assert _aliases(repository) == {"prod": 1}
    assert [record.aliases["prod"] for record in read_records(repository, _MODEL)[9:]] == list(range(8, 0, -1))


def test_one_record_moves_several_aliases_each_to_where_the_others_were_before(repository: Path) -> None:
    move = point_alias(repository, _MODEL, "prod", 1, also={"previous": "prod", "canary": 2})

    assert (move.alias, move.version, move.previous, move.record) == ("prod", 1, 3, 4)
    assert [(other.alias, other.version, other.previous) for other in move.also] == [
        ("previous", 3, None),
        ("canary", 2, None),
    ]
    assert dict(read_records(repository, _MODEL)[-1].aliases) == {"prod": 1, "previous": 3, "canary": 2}
    assert _aliases(repository) == {"prod": 1, "previous": 3, "canary": 2}


def test_a_corrupt_release_keeps_every_alias_of_the_record_where_it_is(repository: Path) -> None:
    _damage(repository, 2)

    with pytest.raises(ArtifactIntegrityError, match="version 2"):
        point_alias(repository, _MODEL, "prod", 1, also={"canary": 2})

    assert _aliases(repository) == {"prod": 3}


def test_only_aliases_that_move_are_recorded(repository: Path) -> None:
    move = point_alias(repository, _MODEL, "prod", 3, also={"canary": 2})

    assert dict(read_records(repository, _MODEL)[-1].aliases) == {"canary": 2}
    assert (move.previous, move.version, move.record) == (3, 3, 4)
    assert point_alias(repository, _MODEL, "prod", 3, also={"canary": 2}).record is None


@pytest.mark.parametrize("current", [0, 1, 2])
def test_an_alias_that_is_elsewhere_than_expected_does_not_move(
    repository: Path, make_candidate: Make, current: int
) -> None:
    for act in (
        lambda: point_alias(repository, _MODEL, "prod", 1, if_current=current),
        lambda: roll_back(repository, _MODEL, if_current=current),
        lambda: promote(repository, make_candidate(if_current=current)),
    ):
        with pytest.raises(RepositoryError, match="is at version 3, so nothing was moved"):
            act()

    assert _aliases(repository) == {"prod": 3}
    assert list_models(repository)[0].versions == (1, 2, 3)


def test_an_alias_that_is_where_it_is_expected_moves(repository: Path, make_candidate: Make) -> None:
    point_alias(repository, _MODEL, "prod", 1, if_current=3)
    point_alias(repository, _MODEL, "new", 2, if_current=0)
    promote(repository, make_candidate(if_current=1))

    assert _aliases(repository) == {"prod": 4, "new": 2}


def test_an_alias_that_moves_while_a_release_is_made_stops_it(
    repository: Path, make_candidate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim_after_a_move(*args: Any) -> tuple[int, str]:  # noqa: ANN401 - handed on
        claimed = claim(*args)
        point_alias(repository, _MODEL, "prod", 1)
        return claimed

    claim = release._claim_version
    monkeypatch.setattr(release, "_claim_version", claim_after_a_move)

    with pytest.raises(RepositoryError, match="is at version 1"):
        promote(repository, make_candidate(if_current=3))

    assert _aliases(repository) == {"prod": 1}
    assert not (repository / "store" / _MODEL / "4").exists()
