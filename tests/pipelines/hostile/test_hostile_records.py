"""Our own JSON with wrong types in it, as a hand edit leaves it: taken, or one clear error, and nothing unexpected."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from paritygate.pipelines.release.repository.record import digest_of_record

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_WRONG: tuple[object, ...] = (None, True, -1, 1e300, "text", [], ["text"], {}, {"text": 1}, [[[]]], "\ud800", 10**400)
# What reads each file, quickest first.
_READERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "evidence.json": (
        ("choose", "--run", "RUN"),
        ("promote", "--run", "RUN"),
        ("pack", "--run", "RUN", "--output", "p", "--without-inputs"),
        ("benchmark", "--run", "RUN", "--quiet", "--rounds", "2", "--seconds", "0.01"),
        ("validate", "--run", "RUN", "--verbose"),
    ),
    "onnx-fp32/artifact.json": (
        ("choose", "--run", "RUN"),
        ("promote", "--run", "RUN"),
        ("pack", "--run", "RUN", "--output", "p"),
    ),
    "reference/record.json": (("promote", "--run", "RUN"), ("validate", "--run", "RUN", "--quiet")),
    "export-failures.json": (
        ("promote", "--run", "RUN"),
        ("pack", "--run", "RUN", "--output", "p", "--without-inputs"),
    ),
    "benchmark.json": (("choose", "--run", "RUN"), ("promote", "--run", "RUN")),
    "spec.json": (("choose", "--run", "RUN"), ("promote", "--run", "RUN"), ("pack", "--run", "RUN", "--output", "p")),
    "log": (("list",), ("show", "tiny"), ("verify", "tiny"), ("rollback", "tiny"), ("promote", "--run", "RUN")),
    "store": (("list",), ("show", "tiny"), ("verify", "tiny")),
}


@pytest.fixture(scope="module")
def measured(finished: Desk, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk whose run was benchmarked as well."""
    desk = finished.copy(tmp_path_factory.mktemp("measured"))
    called = desk.call("benchmark", "--run", str(desk.run_folder), "--quiet", "--rounds", "2")
    assert called.code == 0, str(called)
    return desk


def _leaves(data: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - JSON
    yield place
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in parts:
        yield from _leaves(value, (*place, key))


def _edited(data: Any, place: tuple[str | int, ...], value: object) -> Any:  # noqa: ANN401 - JSON
    """Return JSON data with another value at a place, or without what stands there where the value is `...`."""
    if not place:
        return None if value is ... else value
    copy = json.loads(json.dumps(data))
    inner = copy
    for step in place[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return copy


def _sealed(name: str, data: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a record of the log with the digest that it would have, so that its types are looked at."""
    if name != "log" or not isinstance(data, dict) or not isinstance(data.get("digest"), str):
        return data
    return {**data, "digest": digest_of_record(data)}


def _file(desk: Desk, name: str) -> Path:
    repository = desk.folder / "artifacts/repository"
    if name == "log":
        return next(iter(sorted(repository.glob("log/tiny/*.json"))))
    if name == "store":
        return repository / "store/tiny/1/manifest.json"
    return desk.run_folder / name


def _fuzz(desk: Desk, name: str, count: int) -> tuple[str, list[str]]:
    """Edit a file `count` times, call what reads it, and return the figures and what was not said as an error."""
    path = _file(desk, name)
    path.chmod(0o644)
    content = path.read_bytes()
    data = json.loads(content)
    places = list(_leaves(data))
    chance = random.Random(name)  # noqa: S311 - a seed, so that a failure comes again
    edits = ((chance.choice(places), chance.choice((*_WRONG, ...))) for _ in range(count))
    written = (
        (f"{place} {value!r}", json.dumps(_sealed(name, _edited(data, place, value))).encode())
        for place, value in edits
    )
    figures, wrong = _read_again(desk, name, written)
    path.write_bytes(content)
    return f"{name}: {count} edits, {figures}", wrong


def _read_again(desk: Desk, name: str, written: Iterable[tuple[str, bytes]]) -> tuple[str, list[str]]:
    """Write each content in place of a record, call what reads it, and return figures and unclear errors."""
    calls = refused = 0
    wrong = []
    for about, content in written:
        _file(desk, name).write_bytes(content)
        for command in _READERS[name]:
            called = desk.call(*(str(desk.run_folder) if word == "RUN" else word for word in command))
            (desk.folder / "p").unlink(missing_ok=True)
            calls += 1
            refused += called.code != 0
            if called.code not in {0, 1, 2, 3, 5} or "unexpected" in called.err or "Traceback" in called.err:
                wrong.append(f"{command[0]} {about}: {called.err[:200]}")
    return f"{calls} calls, {refused} refused, {len(wrong)} unexpected", wrong


@pytest.mark.parametrize("name", _READERS)
def test_a_wrong_type_in_a_record_is_never_unexpected(
    measured: Desk, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    figures, wrong = _fuzz(measured.copy(tmp_path), name, 4)
    record_property("figures", figures)

    assert wrong == []


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", _READERS)
def test_many_wrong_types_in_records_are_never_unexpected(
    measured: Desk, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    figures, wrong = _fuzz(measured.copy(tmp_path), name, 60)
    record_property("figures", figures)

    assert wrong == []


def _garbage(chance: random.Random, content: bytes) -> bytes:
    """Return what a crash, a bad disk or an enemy leaves in place of a file's content."""
    at = chance.randrange(len(content))
    return chance.choice(
        (
            b"",
            content[:at],
            content + content[:at],
            content[:at] + chance.randbytes(5) + content[at + 5 :],
            content[:at] + b"\0" + content[at:],
            chance.randbytes(200),
            b"\xff\xfe" + content,
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"NaN",
            b'{"variants": ' + b"9" * 5000 + b"}",
        )
    )


def _fill_with_garbage(desk: Desk, name: str, count: int) -> tuple[str, list[str]]:
    """Put garbage in place of a file, call what reads it, and return the figures and what was not said as an error."""
    path = _file(desk, name)
    path.chmod(0o644)
    content = path.read_bytes()
    chance = random.Random(f"garbage in {name}")  # noqa: S311 - a seed, so that a failure comes again
    garbage = (_garbage(chance, content) for _ in range(count))
    figures, wrong = _read_again(desk, name, ((repr(found[:40]), found) for found in garbage))
    path.write_bytes(content)
    return f"{name}: {count} times garbage, {figures}", wrong


@pytest.mark.parametrize("name", _READERS)
def test_garbage_in_place_of_a_record_is_never_unexpected(
    measured: Desk, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    figures, wrong = _fill_with_garbage(measured.copy(tmp_path), name, 3)
    record_property("figures", figures)

    assert wrong == []


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", _READERS)
def test_much_garbage_in_place_of_records_is_never_unexpected(
    measured: Desk, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    figures, wrong = _fill_with_garbage(measured.copy(tmp_path), name, 25)
    record_property("figures", figures)

    assert wrong == []


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (
            "evidence.json",
            (("variants", 0, "result", "checks", 1), []),
            "variants.0.result.checks.1 is [], not a mapping",
        ),
        (
            "evidence.json",
            (("variants", 0, "result", "rows"), "many"),
            "variants.0.result.rows is 'many', not a whole number",
        ),
        ("evidence.json", (("paritygate",), ...), "evidence.json is corrupt: paritygate is missing"),
        ("evidence.json", (("schema_version",), 1), "evidence.json is of another version of paritygate (schema 1"),
        ("evidence.json", ((), []), "evidence.json is corrupt: what it holds is [], not a mapping"),
        (
            "evidence.json",
            (("variants", 0, "verdict"), "fail"),
            "the evidence of onnx-fp32: its verdict is fail (0), and that of its result pass",
        ),
        ("evidence.json", (("variants", 0, "result"), None), "its verdict is pass, and it holds no result"),
        ("evidence.json", (("variants", 0, "stage"), None), "it does not name what it follows from"),
        ("onnx-fp32/artifact.json", (("made_by",), "text"), "artifact.json is corrupt: TypeError: made_by is 'text'"),
        ("spec.json", (("samples_path",), 3), "spec.json is corrupt: samples_path is 3, not text"),
        (
            "onnx-fp32/artifact.json",
            (("made_by", "facts"), []),
            "artifact.json is corrupt: TypeError: made_by.facts is []",
        ),
        (
            "evidence.json",
            (("machine", "cpu"), "text"),
            "the evidence of cpu does not name the machine that it was made on",
        ),
        ("benchmark.json", (("machine", "cpu"), "text"), "cpu of the machine is 'text', not a mapping"),
        ("log", (("reason",), ["text"]), "reason is ['text'], not text"),
        ("log", (("who",), None), "who is None, not text"),
        ("log", (("despite",), 1), "despite is 1, not text"),
        ("log", (("time",), None), "time is None, not text"),
        ("log", (("predecessor",), []), "predecessor is [], not text"),
        ("log", (("digest",), None), "digest is None, not text"),
        ("log", (("aliases",), ["prod"]), "aliases is ['prod'], not a mapping"),
        ("log", (("aliases", "prod"), "1"), "aliases.prod is '1', not a whole number"),
        (
            "evidence.json",
            (("variants", 0, "result", "tolerance", "declared"), ["speed"]),
            "speed is named as a limit of the tolerance, which holds no such number",
        ),
        (
            "evidence.json",
            (("variants", 0, "result", "tolerance", "declared"), None),
            "the limits that the tolerance declares are None, not a list",
        ),
        (
            "evidence.json",
            (("variants", 0, "result", "tolerance", "outputs"), 1e300),
            "the limits of single outputs are wrong",
        ),
        (
            "evidence.json",
            (("variants", 0, "result", "tolerance", "outputs"), {"logits": {"max_abs_diff": 1}}),
            "the limits of single outputs are wrong",
        ),
        ("evidence.json", (("variants", 0, "asked", "edge"), "never"), "the recorded rule edge is 'never'"),
        ("evidence.json", (("variants", 0, "asked", "repeat"), []), "the recorded rule repeat is wrong"),
        (
            "evidence.json",
            (("variants", 0, "result", "outputs", "logits", "reference_spread"), "wide"),
            "variants.0.result.outputs.logits.reference_spread is 'wide', not a number",
        ),
        (
            "evidence.json",
            (("earlier_failures",), [{"run": "1", "variant": "onnx-fp32", "failed": "all", "asked_less": []}]),
            "earlier_failures.0.failed is 'all', not a list",
        ),
    ],
)
def test_a_wrong_type_is_named_with_its_place(
    measured: Desk, tmp_path: Path, name: str, edit: tuple[tuple[str | int, ...], object], message: str
) -> None:
    desk = measured.copy(tmp_path)
    path = _file(desk, name)
    path.chmod(0o644)
    path.write_text(json.dumps(_sealed(name, _edited(json.loads(path.read_bytes()), *edit))), encoding="utf-8")
    command = ["show", "tiny"] if name == "log" else ["choose", "--run", str(desk.run_folder)]

    called = desk.call(*command)

    assert called.code in {2, 5}
    assert message in called.err
    assert "\nhint: " in called.err


def test_evidence_of_another_run_with_a_wrong_type_shows_no_failure(measured: Desk, tmp_path: Path) -> None:
    desk = measured.copy(tmp_path)
    evidence = json.loads((desk.run_folder / "evidence.json").read_bytes())
    run = desk.run_folder
    other = run.parent / "another"
    other.mkdir()
    (other / "evidence.json").write_text(
        json.dumps(_edited(evidence, ("variants", 0, "result", "tolerance"), [1])), encoding="utf-8"
    )

    called = desk.call("validate", "--run", str(run), "--verbose")

    assert called.code == 0, str(called)


@pytest.mark.parametrize(
    "edit",
    [
        (("variants", 0, "verdict"), []),
        (("variants", 0, "result", "rows"), "many"),
        (("machine",), 1),
        (("emulated",), 1),
    ],
)
def test_evidence_of_another_device_with_a_wrong_type_is_none(
    measured: Desk, tmp_path: Path, edit: tuple[tuple[str | int, ...], object]
) -> None:
    desk = measured.copy(tmp_path)
    path = desk.run_folder / "evidence.json"
    evidence = json.loads(path.read_bytes())
    path.write_text(json.dumps({**evidence, "others": [_edited(evidence, *edit)]}), encoding="utf-8")

    refused = desk.call("promote", "--verbose", "--run", str(desk.run_folder))
    validated = desk.call("validate", "--run", str(desk.run_folder), "--verbose")

    assert refused.code == 2, str(refused)
    assert "evidence.json is corrupt: others.0." in refused.err
    assert validated.code == 0, str(validated)
    assert json.loads(path.read_bytes())["others"] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "what it holds is [1], not a mapping"),
        ("[" * 100_000, "its data is nested too deeply"),
        ('{"onnx-fp32": {"variant": "onnx-fp32"}}', "onnx-fp32.message is missing"),
    ],
)
def test_damaged_failures_of_an_export_are_named(measured: Desk, tmp_path: Path, content: str, message: str) -> None:
    desk = measured.copy(tmp_path)
    (desk.run_folder / "export-failures.json").write_text(content, encoding="utf-8")

    called = desk.call("promote", "--verbose", "--run", str(desk.run_folder))

    assert called.code == 2, str(called)
    assert f"export-failures.json is corrupt: {message}" in called.err
    assert "\nhint: start a new run:\n  convert-and-validate run SPEC" in called.err
