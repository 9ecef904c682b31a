"""A view follows its alias: promote, rollback, alias and run write it again, or say that it is behind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from tests.pipelines.serving.conftest import SIGNATURE

import paritygate as pg
from paritygate.errors import ChangedViewError, ExitCode, StorageError, UsageError
from paritygate.pipelines.cli.app import cli
from paritygate.pipelines.release.repository.release import StoredRelease
from paritygate.pipelines.release.views.view_updates import update_views
from paritygate.pipelines.serving import SERVERS
from paritygate.pipelines.serving.protobuf import data_of
from paritygate.pipelines.serving.triton.messages import parse_text
from paritygate.signature import TensorSpec


def shown(root: Path, name: str = "adds") -> list[str]:
    """Return the versions that a Triton server shows."""
    policy = data_of(parse_text((root / name / "config.pbtxt").read_text()))["version_policy"]
    return [str(version) for version in policy["specific"]["versions"]]


def joined(output: str) -> list[str]:
    """Return the lines as they are before they are made fit."""
    return output.replace(" \\\n  ", " ").replace("\n  ", " ").replace(" \\ ", " ").replace("  ", " ").splitlines()


@pytest.fixture
def two_releases(make_release: Callable[..., StoredRelease]) -> None:
    """Make two releases, the second of which is at prod."""
    make_release(added=1.0)
    make_release(added=2.0)


@pytest.mark.usefixtures("two_releases")
def test_a_rollback_takes_the_view_back_and_alias_brings_it_forth(tmp_path: Path, call: Callable[..., Result]) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.ones((3, 4), dtype=np.float32))
    printed = call("triton", "adds", "--out", "models", "--samples", "inputs.npz").output
    assert "follows prod: promote, run, rollback and alias write it again when they move\n  that" in printed
    warmup = sorted((tmp_path / "models/adds/warmup").rglob("*"))
    # Nothing of the user's is read again.
    (tmp_path / "inputs.npz").unlink()

    back = call("rollback", "adds", "--json", "move.json")

    assert back.return_value == 0
    assert "\n".join(joined(back.output)[-2:]) == (
        "Triton view models/adds now shows version 1\n"
        "a server that polls reads it by itself; with explicit control: POST /v2/repository/models/adds/load"
    )
    assert max(map(len, back.output.splitlines())) <= 80
    assert shown(tmp_path / "models") == ["1"]
    (view,) = json.loads((tmp_path / "move.json").read_text())["views"]
    assert (view["order"]["command"], view["order"]["which"], view["version"], view["is_changed"]) == (
        "triton",
        "prod",
        1,
        True,
    )
    assert sorted((tmp_path / "models/adds/warmup").rglob("*")) == warmup

    call("alias", "adds", "prod", "2")
    assert shown(tmp_path / "models") == ["2"]
    again = call("alias", "adds", "prod", "2")
    assert "view models/adds shows already version 2" in again.output


@pytest.mark.usefixtures("two_releases")
@pytest.mark.parametrize("words", [("prod", "--no-follow"), ("2",)])
def test_a_view_that_does_not_follow_is_left_alone(
    tmp_path: Path, call: Callable[..., Result], words: tuple[str, ...]
) -> None:
    # What was asked for last counts.
    call("triton", "adds", "--out", "models")
    printed = call("triton", "adds", *words, "--out", "models", "--overwrite").output
    assert "follows" not in printed

    back = call("rollback", "adds")

    assert "view" not in back.output
    assert shown(tmp_path / "models") == ["2"]
    assert list((tmp_path / "repository/views/adds").iterdir()) == []


@pytest.mark.usefixtures("two_releases")
def test_a_repository_that_cannot_be_written_keeps_no_order(tmp_path: Path, call: Callable[..., Result]) -> None:
    (tmp_path / "repository/views").write_text("in the way")

    with pytest.raises(StorageError, match="the view was written, but will not follow prod: ") as caught:
        call("triton", "adds", "--out", "models")

    assert caught.value.hint == "give --no-follow to turn this off"
    assert shown(tmp_path / "models") == ["2"]


@pytest.mark.usefixtures("two_releases")
def test_another_alias_moves_no_view(tmp_path: Path, call: Callable[..., Result]) -> None:
    call("triton", "adds", "--out", "models")

    assert "view" not in call("alias", "adds", "canary", "1").output

    assert shown(tmp_path / "models") == ["2"]


@pytest.mark.usefixtures("two_releases")
def test_a_view_that_is_not_there_is_a_warning_and_can_be_forgotten(
    tmp_path: Path, call: Callable[..., Result]
) -> None:
    call("triton", "adds", "--out", "models", "--name", "served")
    shutil.rmtree(tmp_path / "models")

    back = call("rollback", "adds", "--json", "move.json")

    assert back.return_value == 0
    assert joined(back.output)[-3:] == [
        "warning: Triton view models/served is not on this machine and was left out",
        "write it again: convert-and-validate triton adds prod --out models --name served --repository repository",
        "forget it: convert-and-validate views --forget models/served --repository repository",
    ]
    assert max(map(len, back.output.splitlines())) <= 80
    (view,) = json.loads((tmp_path / "move.json").read_text())["views"]
    assert (view["is_there"], view["is_changed"], view["version"], view["error"]) == (False, False, None, None)
    assert not (tmp_path / "models").exists()
    assert pg.Repository(tmp_path / "repository").release("adds", "prod").version == 1

    assert call("views", "--forget", "models/served").output == (
        "Triton view models/served follows prod of adds no more, and stays as it is\n"
    )
    moved = call("alias", "adds", "prod", "2")
    assert (moved.return_value, "view" in moved.output) == (0, False)
    assert list((tmp_path / "repository/views/adds").iterdir()) == []


@pytest.mark.usefixtures("two_releases")
def test_views_that_follow_an_alias_are_listed(tmp_path: Path, call: Callable[..., Result]) -> None:
    assert call("views").output == "no view follows an alias: repository repository\n"
    call("triton", "adds", "--out", "one")
    call("kserve", "adds", "--out", "two", "--storage-uri", "s3://team/models", "--server", "25.10")
    call("triton", "adds", "--out", "three", "--no-follow")
    shutil.rmtree(tmp_path / "two")

    printed = joined(call("views", "adds", "--json", "views.json").output)

    assert sorted(printed) == [
        "KServe view two/adds follows prod of adds, and is not on this machine",
        "Triton view one/adds follows prod of adds",
        "forget it: convert-and-validate views --forget two/adds --repository repository",
        (
            "write it again: convert-and-validate kserve adds prod --out two --server 25.10 "
            "--storage-uri s3://team/models --repository repository"
        ),
    ]
    found = json.loads((tmp_path / "views.json").read_text())["views"]
    assert sorted((each["order"]["command"], each["is_there"]) for each in found) == [
        ("kserve", False),
        ("triton", True),
    ]


@pytest.mark.usefixtures("two_releases")
def test_a_view_that_is_forgotten_stays_as_it_is(tmp_path: Path, call: Callable[..., Result]) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.ones((3, 4), dtype=np.float32))
    call("triton", "adds", "--out", "models", "--samples", "inputs.npz")

    call("views", "--forget", "elsewhere/../models/adds")

    assert "view" not in call("rollback", "adds").output
    assert shown(tmp_path / "models") == ["2"]
    # The rows of its warm-up are forgotten as well.
    assert list((tmp_path / "repository/views/adds").iterdir()) == []


@pytest.mark.usefixtures("two_releases")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--forget", "other/adds"), r"no view in other/adds follows an alias \(views that do: models/adds\)"),
        (("adds", "--forget", "models/adds"), "views takes either a MODEL or --forget DIR"),
        (("subtracts",), "has no release of model 'subtracts'"),
    ],
)
def test_views_that_are_not_known_are_said(call: Callable[..., Result], words: tuple[str, ...], message: str) -> None:
    call("triton", "adds", "--out", "models")

    with pytest.raises(UsageError, match=message):
        call("views", *words)


@pytest.mark.usefixtures("two_releases")
def test_a_service_of_kserve_is_to_be_copied_and_applied_after_each_move(call: Callable[..., Result]) -> None:
    call("kserve", "adds", "--out", "models", "--storage-uri", "s3://team/models", "--server", "25.10")

    printed = joined(call("rollback", "adds").output)

    at = printed.index("KServe view models/adds now shows version 1")
    assert printed[at + 1 :] == [
        "copy: models/adds/1 to s3://team/models/adds/1",
        "start: kubectl apply -f models/adds/inferenceservice.yaml",
    ]
    # What the cluster has already is not to be brought there.
    assert "copy" not in call("alias", "adds", "prod", "1").output


def test_a_release_that_cannot_be_served_leaves_the_view_as_it_is(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release()
    call("triton", "adds", "--out", "models")
    before = (tmp_path / "models/adds/config.pbtxt").read_bytes()
    make_release(added=2.0, serve={"max_batch_size": 4, "dynamic_batching": {"preferred_batch_size": [8]}})

    (view,) = update_views(tmp_path / "repository", "adds", "prod")

    assert "preferred_batch_size 8 is not allowed" in str(view.error)
    assert (view.version, view.is_changed) == (None, False)
    assert (tmp_path / "models/adds/config.pbtxt").read_bytes() == before


def test_a_view_of_tensorflow_serving_follows(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release("onnx-fp32", "savedmodel-fp32")
    make_release("onnx-fp32", "savedmodel-fp32", added=2.0)
    call("tfserving", "adds", "--out", "models", "--base-path", "/models")

    assert (
        "TensorFlow Serving view models/adds now shows version 1\n"
        "a server with --model_config_file_poll_wait_seconds reads it by itself\n"
    ) in call("rollback", "adds").output

    text = (tmp_path / "models/models.config").read_text()
    assert ("versions: 1" in text, "versions: 2" in text, '"/models/adds"' in text) == (True, False, True)


def test_a_server_that_batches_is_told_of_a_version_that_it_must_not_batch(
    call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    tokens = TensorSpec(name="x", dtype="float32", shape=("batch", "length"))
    make_release("savedmodel-fp32", signature=replace(SIGNATURE, inputs=(tokens,)))
    make_release("savedmodel-fp32", added=2.0)
    call("tfserving", "adds", "--out", "models", "--base-path", "/models")

    assert (
        "note: its requests are not batched: run its server without --enable_batching\n"
        in call("rollback", "adds").output
    )


@pytest.mark.usefixtures("two_releases")
@pytest.mark.parametrize(
    ("old", "new", "missing"), [('"order"', '"other"', "'order'"), ('"triton"', '"of_later"', "'of_later'")]
)
def test_what_was_asked_for_and_cannot_be_read_stops_no_rollback(
    tmp_path: Path, call: Callable[..., Result], old: str, new: str, missing: str
) -> None:
    call("triton", "adds", "--out", "models")
    (record,) = (tmp_path / "repository/views/adds").glob("*.json")
    record.write_text(record.read_text().replace(old, new))

    back = call("rollback", "adds")

    assert back.return_value == ExitCode.USAGE
    assert f"is corrupt: KeyError: {missing}" in back.output.replace("\n  ", " ")
    assert pg.Repository(tmp_path / "repository").release("adds", "prod").version == 1


def test_every_view_of_the_alias_follows(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease]
) -> None:
    make_release("onnx-fp32", added=1.0)
    call("triton", "adds", "--out", "one")
    call("triton", "adds", "--out", "two", "--name", "other")
    make_release(added=3.0)

    views = update_views(tmp_path / "repository", "adds", "prod")

    assert sorted((view.place.parent.name, view.version) for view in views) == [("one", 2), ("two", 2)]
    assert (shown(tmp_path / "one"), shown(tmp_path / "two", "other")) == (["2"], ["2"])
    assert update_views(tmp_path / "repository", "adds", None) == ()


def test_a_run_writes_the_view_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("inputs.npz", x=np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32))
    spec = {
        "model": {"name": "doubles", "source": "model.onnx"},
        "samples": {"source": "inputs.npz"},
        "targets": ["onnx-fp32"],
        "probes": "none",
    }

    def run(factor: float) -> pg.Outcome:
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Mul", ["x", "factor"], ["y"])],
            "multiplies",
            [info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
            [info("y", onnx.TensorProto.FLOAT, ["batch", 4])],
            [onnx.numpy_helper.from_array(np.full(4, factor, dtype=np.float32), "factor")],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, "model.onnx")
        return pg.run(pg.Spec.model_validate(spec))

    assert run(2.0).views == ()
    words = ["triton", "doubles", "--out", "models", "--repository", "artifacts/repository"]
    assert CliRunner().invoke(cli, words, standalone_mode=False).exception is None

    outcome = run(3.0)

    outcome.assert_passed()
    assert [(view.version, view.is_changed) for view in outcome.views] == [(2, True)]
    assert outcome.to_dict()["views"][0]["version"] == 2
    assert shown(tmp_path / "models", "doubles") == ["2"]


@pytest.mark.usefixtures("two_releases")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rollback", "adds"), "adds: alias prod was moved back from version 2 to 1, whose files are intact\n"),
        (("alias", "adds", "prod", "1"), "adds: alias prod was moved from version 2 to 1, whose files are intact\n"),
    ],
)
def test_a_quiet_move_prints_one_line(
    tmp_path: Path, call: Callable[..., Result], words: tuple[str, ...], said: str
) -> None:
    call("kserve", "adds", "--out", "models", "--storage-uri", "s3://team/models", "--server", "25.10")

    assert call(*words, "--quiet").output == said
    # A view that is not there is a warning for all that, on standard error.
    shutil.rmtree(tmp_path / "models")
    moved = call("alias", "adds", "prod", "2", "-q")
    assert moved.stdout == "adds: alias prod was moved from version 1 to 2, whose files are intact\n"
    assert moved.stderr.startswith("warning: KServe view models/adds is not on this machine")


@pytest.mark.parametrize("which", ["canary", "1"])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_view_that_follows_an_alias_is_not_taken_over_by_another(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease], kind: str, which: str
) -> None:
    make_release("onnx-fp32", "savedmodel-fp32")
    make_release("onnx-fp32", "savedmodel-fp32", added=2.0)
    call("alias", "adds", "canary", "1")
    options = ("--storage-uri", "s3://team/models", "--server", "25.10") if kind == "kserve" else ()
    call(kind, "adds", "--out", "models", *options)
    before = {path: path.read_bytes() for path in (tmp_path / "models").rglob("*") if path.is_file()}

    with pytest.raises(ChangedViewError) as caught:
        call(kind, "adds", which, "--out", "models", *options)

    said = f"the view models/adds follows prod of adds, but would show {which} of adds instead"
    assert str(caught.value) == said
    assert {path: path.read_bytes() for path in (tmp_path / "models").rglob("*") if path.is_file()} == before
    assert call("views").output == f"{SERVERS[kind].title} view models/adds follows prod of adds\n"
    # The command of the hint writes it beside that one.
    command = caught.value.hint.partition("convert-and-validate ")[2].partition(";")[0]
    assert CliRunner().invoke(cli, command.split(), standalone_mode=False).return_value == 0
    beside = f"models/adds-{which}" if kind == "kserve" else f"models-{which}/adds"
    assert (tmp_path / beside / "1").is_dir()
    call(kind, "adds", which, "--out", "models", *options, "--overwrite")
    assert "models/adds follows prod" not in call("views").output


@pytest.mark.usefixtures("two_releases")
def test_a_view_of_another_model_is_not_taken_over_either(tmp_path: Path, call: Callable[..., Result]) -> None:
    call("triton", "adds", "--out", "models")
    (tmp_path / "repository/views/adds").rename(tmp_path / "repository/views/others")
    (record,) = (tmp_path / "repository/views/others").glob("*.json")
    record.write_text(record.read_text().replace('"model": "adds"', '"model": "others"'))

    with pytest.raises(ChangedViewError, match="follows prod of others, but would show prod of adds"):
        call("triton", "adds", "--out", "models")

    call("triton", "adds", "--out", "models", "--overwrite")
    assert call("views").output == "Triton view models/adds follows prod of adds\n"


@pytest.mark.parametrize("kind", SERVERS)
def test_a_view_that_is_behind_is_listed_so(
    tmp_path: Path, call: Callable[..., Result], make_release: Callable[..., StoredRelease], kind: str
) -> None:
    make_release("onnx-fp32", "savedmodel-fp32")
    options = ("--storage-uri", "s3://team/models", "--server", "25.10") if kind == "kserve" else ()
    call(kind, "adds", "--out", "models", *options)
    shows_it = f"{SERVERS[kind].title} view models/adds follows prod of adds"
    assert call("views").output == f"{shows_it}\n"
    make_release("onnx-fp32", "savedmodel-fp32", added=2.0)

    behind, command = joined(call("views", "--json", "views.json").output)

    assert behind == f"{shows_it}; behind: shows 1, prod is 2"
    (found,) = json.loads((tmp_path / "views.json").read_text())["views"]
    assert (found["shown"], found["released"], found["is_behind"]) == (1, 2, True)
    words = command.removeprefix("next: convert-and-validate ").split()
    assert CliRunner().invoke(cli, words, standalone_mode=False).return_value == 0
    assert call("views").output == f"{shows_it}\n"


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("is_there", [True, False])
def test_files_of_a_view_that_are_not_what_was_released_are_listed(
    tmp_path: Path,
    call: Callable[..., Result],
    make_release: Callable[..., StoredRelease],
    *,
    kind: str,
    is_there: bool,
) -> None:
    make_release("onnx-fp32", "savedmodel-fp32")
    options = ("--storage-uri", "s3://team/models", "--server", "25.10") if kind == "kserve" else ()
    call(kind, "adds", "--out", "models", *options)
    assert call("views", "--json", "views.json").return_value == 0
    assert json.loads((tmp_path / "views.json").read_text())["views"][0]["changed_files"] == []
    (model,) = (tmp_path / "models/adds").rglob("model.onnx")
    if is_there:
        model.write_bytes(model.read_bytes()[:-1] + b"x")
    else:
        model.unlink()

    listed = call("views", "--json", "views.json")

    (found,) = json.loads((tmp_path / "views.json").read_text())["views"]
    assert (listed.return_value, found["changed_files"]) == (5, ["model.onnx"])


@pytest.mark.usefixtures("two_releases")
def test_a_view_whose_file_cannot_be_read_shows_nothing(tmp_path: Path, call: Callable[..., Result]) -> None:
    call("triton", "adds", "--out", "models")
    (tmp_path / "models/adds/config.pbtxt").write_text("{")

    assert "behind: shows nothing, prod is 2\n" in call("views").output
