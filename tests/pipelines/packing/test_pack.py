"""A run that goes to another machine as one file: what goes along, and that its stages work there."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.pipelines.conftest import Desk, make_desk

from paritygate.files import MARKER

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called

_STAGES = ("record", "validate", "promote")
_MODEL_MODULE = """
    import torch

    from parts.layers import WIDTH


    def make() -> torch.nn.Module:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, WIDTH)
        with open(__file__.replace("source.py", "bias.txt")) as stream:
            model.bias.data += float(stream.read())
        return model
"""
_SAMPLES_MODULE = """
    import numpy as np

    from paritygate.batch import Batch


    def rows(path):
        from late import SCALE

        values = np.random.default_rng(int(open(path).read())).standard_normal((120, 4)).astype(np.float32) * SCALE
        yield Batch(inputs={"x": values}, ids=[str(row) for row in range(120)])
"""


def _pack(desk: Desk, *options: str) -> Path:
    called = desk.json("pack", "--run", str(desk.run_folder), *options)
    assert called.code == 0, str(called)
    return Path(called.data["pack"])


def _moved(desk: Desk, folder: Path, *options: str) -> Desk:
    """Return another machine to which the desk's run was brought, and of the first one nothing is left."""
    folder.mkdir()
    shutil.move(_pack(desk, *options), folder / "run.paritygate.tar")
    shutil.rmtree(desk.folder)
    return Desk(folder=folder)


def _stages(desk: Desk, *stages: str) -> dict[str, Called]:
    return {stage: desk.call(stage, "--run", str(desk.run_folder)) for stage in stages}


@pytest.fixture
def packed(tmp_path: Path, finished: Desk) -> Desk:
    """Return a desk with a finished run, to be packed and then thrown away."""
    return finished.copy(tmp_path / "first")


def _names(pack: Path) -> list[str]:
    with tarfile.open(pack) as archive:
        return archive.getnames()


def test_a_pack_is_a_plain_archive_of_the_run_and_its_inputs(packed: Desk) -> None:
    pack = _pack(packed)

    names = _names(pack)
    assert pack.name == f"tiny-{packed.run_folder.name}.paritygate.tar"
    assert names[0] == "paritygate-pack.json"
    assert {"inputs/model.onnx", "inputs/inputs.npz", "inputs/spec.yaml"} == {
        name for name in names if name.startswith("inputs/")
    }
    for name in ("spec.json", "evidence.json", "report.html", "reference/record.json", "onnx-fp32/artifact.json"):
        assert f"run/{name}" in names
    assert "run/jobs/record/record.log" in names
    assert not [name for name in names if name.endswith(".job.json") or "/passes/" in name]
    with tarfile.open(pack) as archive:
        for member in archive:
            assert member.isreg()
            assert (member.uid, member.gid, member.uname, member.mtime, member.mode) == (0, 0, "", 0, 0o644)


def test_a_pack_names_no_place_of_the_machine_in_its_spec(packed: Desk) -> None:
    with tarfile.open(_pack(packed)) as archive:
        for name in ("run/spec.json", "paritygate-pack.json"):
            stream = archive.extractfile(name)
            assert stream is not None
            assert str(packed.folder) not in stream.read().decode()


def test_the_same_run_makes_the_same_bytes(packed: Desk) -> None:
    first, second = _pack(packed), _pack(packed, "--output", "again.tar")

    assert first.read_bytes() == second.read_bytes()


def test_packing_and_unpacking_say_what_they_did(packed: Desk) -> None:
    said = packed.json("pack", "--run", str(packed.run_folder), "--output", "p.tar")
    unpacked = packed.call("unpack", "p.tar", "--root", "other", "--json", "said.json")

    size = (packed.folder / "p.tar").stat().st_size
    assert said.data["pack_bytes"] == size
    assert said.data["inputs"] == ["inputs/inputs.npz", "inputs/model.onnx", "inputs/spec.yaml"]
    assert f"pack: p.tar ({size / 1e6:,.1f} MB)" in said.out
    assert f"digest: {said.data['digest']}" in said.out
    assert re.fullmatch(r"tiny: packed \d+ files in \d+\.\d s\n", said.err)
    assert unpacked.data["digest"] == said.data["digest"]
    assert unpacked.data["run"] == f"{packed.folder}/other/runs/tiny/{packed.run_folder.name}"
    assert f"run: {Path(unpacked.data['run']).relative_to(packed.folder)}\n" in unpacked.out
    assert "every digest checked" in unpacked.out
    quiet = packed.call("pack", "--run", str(packed.run_folder), "--output", "q.tar", "--quiet", "--json", "-")
    assert json.loads(quiet.out)["digest"] == said.data["digest"]
    assert "pack: " in quiet.err


def test_every_stage_works_where_the_run_was_unpacked(packed: Desk, tmp_path: Path) -> None:
    before = packed.evidence()
    there = _moved(packed, tmp_path / "second")

    assert there.call("unpack", "run.paritygate.tar").code == 0
    said = _stages(there, *_STAGES)

    assert {stage: called.code for stage, called in said.items()} == dict.fromkeys(_STAGES, 0), said
    assert there.releases == ["tiny/1"]
    assert there.evidence()["reference"]["digest"] == before["reference"]["digest"]
    assert there.evidence()["samples"] == before["samples"]


def test_a_run_is_promoted_where_it_was_unpacked_without_measuring_again(packed: Desk, tmp_path: Path) -> None:
    there = _moved(packed, tmp_path / "second")
    there.call("unpack", "run.paritygate.tar")

    digest = there.json("unpack", "run.paritygate.tar", "--root", "again").data["digest"]
    assert there.call("promote", "--verbose", "--run", str(there.run_folder), "--trust", digest).code == 0
    assert there.call("benchmark", "--run", str(there.run_folder), "--rounds", "2", "--seconds", "0.01").code == 0
    assert there.call("choose", "--run", str(there.run_folder)).code == 0


def test_a_run_that_was_unpacked_is_packed_to_the_same_bytes(packed: Desk, tmp_path: Path) -> None:
    there = _moved(packed, tmp_path / "second")
    there.call("unpack", "run.paritygate.tar")

    again = _pack(there, "--output", "again.tar")

    assert again.read_bytes() == (there.folder / "run.paritygate.tar").read_bytes()


def test_what_is_restored_is_ours_and_plain(packed: Desk, tmp_path: Path) -> None:
    (packed.run_folder / "onnx-fp32/model.onnx").chmod(0o777)
    there = _moved(packed, tmp_path / "second")
    there.call("unpack", "run.paritygate.tar")

    run = there.run_folder
    assert (run / MARKER).is_file()
    assert (run / "onnx-fp32" / MARKER).is_file()
    modes = {path.stat().st_mode & 0o777 for path in run.rglob("*") if path.is_file()}
    assert modes == {0o644}
    assert {path.stat().st_mode & 0o777 for path in run.rglob("*") if path.is_dir()} == {0o755}
    assert [path.name for path in run.parent.iterdir()] == [run.name]


def test_files_elsewhere_go_along_and_are_found(tmp_path: Path) -> None:
    for name in ("first", "data"):
        (tmp_path / name).mkdir()
    desk = make_desk(tmp_path / "first")
    (desk.folder / "model.onnx").rename(tmp_path / "data/model.onnx")
    (desk.folder / "inputs.npz").rename(tmp_path / "data/inputs.npz")
    desk.spec(
        model={"name": "tiny", "source": "../data/model.onnx", "rename": {"output_0": "logits"}},
        samples={"source": str(tmp_path / "data/inputs.npz")},
    )
    assert desk.call("run", "spec.yaml", "--verbose").code == 0
    there = _moved(desk, tmp_path / "second")
    shutil.rmtree(tmp_path / "data")

    assert there.call("unpack", "run.paritygate.tar").code == 0
    said = _stages(there, *_STAGES)

    assert {stage: called.code for stage, called in said.items()} == dict.fromkeys(_STAGES, 0), said
    spec = json.loads((there.run_folder / "spec.json").read_text(encoding="utf-8"))
    assert spec["spec"]["model"]["source"] == "outside/model/model.onnx"
    assert spec["spec"]["samples"]["source"] == "outside/samples/inputs.npz"
    assert _pack(there, "--output", "again.tar").is_file()


def test_external_data_and_given_samples_go_along(tmp_path: Path) -> None:
    import onnx

    (tmp_path / "first").mkdir()
    desk = make_desk(tmp_path / "first")
    model = onnx.load(str(desk.folder / "model.onnx"))
    onnx.save(
        model,
        str(desk.folder / "model.onnx"),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    Desk(folder=tmp_path).samples(110, name="given.npz", seed=3)
    given = str(tmp_path / "given.npz")
    assert desk.call("run", "spec.yaml", "--verbose", "--samples", given).code == 0
    there = _moved(desk, tmp_path / "second")
    (tmp_path / "given.npz").unlink()

    assert there.call("unpack", "run.paritygate.tar").code == 0
    said = _stages(there, *_STAGES)

    assert {stage: called.code for stage, called in said.items()} == dict.fromkeys(_STAGES, 0), said
    names = _names(there.folder / "run.paritygate.tar")
    assert {"inputs/weights.bin", "inputs/outside/given/given.npz"} <= set(names)
    assert "inputs/inputs.npz" not in names
    assert there.evidence()["samples"]["rows"] == 110
    again = _pack(there, "--output", "again.tar")
    assert "inputs/outside/given/given.npz" in _names(again)


def _callable_desk(folder: Path) -> Desk:
    (folder / "parts").mkdir(parents=True)
    desk = Desk(folder=folder)
    desk.module("source", _MODEL_MODULE)
    desk.module("parts/layers", "WIDTH = 3")
    desk.module("rows", _SAMPLES_MODULE)
    desk.module("late", "SCALE = 1.0")
    (folder / "bias.txt").write_text("0.5", encoding="utf-8")
    (folder / "seed.txt").write_text("1", encoding="utf-8")
    desk.module_spec(
        "source:make",
        model={
            "name": "tiny",
            "source": "source:make",
            "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
            "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
            "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
            "files": ["bias.txt"],
        },
        samples={"source": "rows:rows", "path": "seed.txt"},
    )
    return desk


@pytest.mark.torch
def test_the_code_beside_a_spec_goes_along(tmp_path: Path) -> None:
    desk = _callable_desk(tmp_path / "first")
    (desk.folder / "env").mkdir()
    (desk.folder / "env/pyvenv.cfg").touch()
    (desk.folder / "env/big.py").touch()
    (desk.folder / "made").mkdir()
    (desk.folder / "made" / MARKER).touch()
    (desk.folder / "made/copy.py").touch()
    assert desk.call("run", "spec.yaml", "--verbose").code == 0
    there = _moved(desk, tmp_path / "second")

    assert there.call("unpack", "run.paritygate.tar").code == 0
    said = _stages(there, *_STAGES)

    assert {stage: called.code for stage, called in said.items()} == dict.fromkeys(_STAGES, 0), said
    assert [
        name.removeprefix("inputs/") for name in _names(there.folder / "run.paritygate.tar") if "inputs/" in name
    ] == [
        "bias.txt",
        "late.py",
        "parts/layers.py",
        "rows.py",
        "seed.txt",
        "source.py",
        "spec.yaml",
    ]
    again = _pack(there, "--output", "again.tar")
    assert [name for name in _names(again) if name.startswith("inputs/")] == [
        name for name in _names(there.folder / "run.paritygate.tar") if name.startswith("inputs/")
    ]


@pytest.mark.torch
def test_code_that_changed_since_it_answered_is_not_packed(tmp_path: Path) -> None:
    desk = _callable_desk(tmp_path / "first")
    desk.call("export", "spec.yaml", "--verbose")
    desk.call("record", "--run", str(desk.run_folder))
    (desk.folder / "bias.txt").write_text("0.6", encoding="utf-8")

    called = desk.call("pack", "--run", str(desk.run_folder))

    assert called.code == 5
    assert "the source differs from that of the recorded reference: bias.txt was changed" in called.err


def test_a_model_that_changed_since_it_answered_is_not_packed(packed: Desk) -> None:
    packed.onnx(fill=1.0)

    called = packed.call("pack", "--run", str(packed.run_folder))

    assert called.code == 5
    assert "reference: model.onnx was changed\nhint: start a new run" in called.err


@pytest.mark.tensorflow
def test_a_saved_model_goes_along_with_all_its_files(desk: Desk) -> None:
    import tensorflow as tf

    model = tf.Module()
    model.weight = tf.Variable(tf.eye(4))
    taken = tf.TensorSpec([None, 4], tf.float32, name="x")
    model.call = tf.function(lambda x: {"logits": x @ model.weight}, input_signature=[taken])
    tf.saved_model.save(model, str(desk.folder / "saved"), signatures=model.call)
    desk.spec(model={"name": "tiny", "source": str(desk.folder / "saved")})
    assert desk.call("export", "spec.yaml").code == 0

    names = _names(_pack(desk))

    assert {"inputs/saved/saved_model.pb", "inputs/saved/variables/variables.index"} <= set(names)


def _spec_of_module(desk: Desk) -> None:
    desk.spec(samples={"source": "rows:rows"})
    desk.module(
        "rows",
        """
        import numpy as np

        from paritygate.batch import Batch


        def rows():
            values = np.random.default_rng(0).standard_normal((120, 4)).astype(np.float32)
            yield Batch(inputs={"x": values}, ids=[str(row) for row in range(120)])
        """,
    )


def test_a_folder_with_more_code_than_a_spec_has_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paritygate.pipelines.packing.inputs._MOST_MODULES", 3)
    _spec_of_module(desk)
    for number in range(3):
        desk.module(f"other_{number}", "")
    desk.call("export", "spec.yaml", "--verbose")

    called = desk.call("pack", "--run", str(desk.run_folder))

    assert called.code == 2
    assert f"error: {desk.folder} holds more than 3 Python files or 64 MiB of them" in called.err
    assert "--without-inputs" in called.err


def test_a_module_that_is_installed_is_named_and_not_packed(desk: Desk) -> None:
    desk.spec(samples={"source": "yaml:safe_load"})
    desk.call("export", "spec.yaml", "--verbose")

    called = desk.call("pack", "--run", str(desk.run_folder), "--output", "p.tar")

    assert called.code == 0, str(called)
    assert "to be installed where it is unpacked: yaml" in called.out
    assert "to be installed where it is unpacked: yaml" in desk.call("unpack", "p.tar", "--root", "other").out


def test_a_missing_input_is_named(packed: Desk) -> None:
    (packed.folder / "inputs.npz").unlink()

    called = packed.call("pack", "--run", str(packed.run_folder))

    assert called.code == 2
    assert "error: inputs.npz, which the run needs, is missing\nhint: put it back" in called.err


def test_a_pack_without_inputs_takes_those_of_the_other_machine(packed: Desk, tmp_path: Path) -> None:
    said = packed.call("pack", "--run", str(packed.run_folder), "--without-inputs", "--output", "p.tar")
    assert "left out, for unpack --folder DIR: inputs.npz, model.onnx, spec.yaml" in said.out
    there = Desk(folder=tmp_path / "second")
    make_desk_at = tmp_path / "second/mine"
    make_desk_at.mkdir(parents=True)
    for name in ("inputs.npz", "model.onnx", "spec.yaml"):
        shutil.copy(packed.folder / name, make_desk_at / name)
    shutil.move(packed.folder / "p.tar", there.folder / "p.tar")
    shutil.rmtree(packed.folder)

    refused = there.call("unpack", "p.tar")
    assert refused.code == 2
    assert "the pack leaves out files that the run needs: inputs.npz, model.onnx, spec.yaml" in refused.err
    assert "unpack --folder DIR" in refused.err
    assert there.call("unpack", "p.tar", "--folder", "mine").code == 0
    said_there = _stages(there, *_STAGES)

    assert {stage: called.code for stage, called in said_there.items()} == dict.fromkeys(_STAGES, 0), said_there


def test_files_elsewhere_that_are_left_out_keep_the_names_that_the_spec_gives_them(tmp_path: Path) -> None:
    for name in ("first", "data", "second"):
        (tmp_path / name).mkdir()
    desk = make_desk(tmp_path / "first")
    (desk.folder / "model.onnx").rename(tmp_path / "data/model.onnx")
    (desk.folder / "inputs.npz").rename(tmp_path / "data/inputs.npz")
    model = {"name": "tiny", "source": "../data/model.onnx", "rename": {"output_0": "logits"}}
    desk.spec(model=model, samples={"source": str(tmp_path / "data/inputs.npz")})
    desk.call("export", "spec.yaml", "--verbose")

    said = desk.call("pack", "--run", str(desk.run_folder), "--without-inputs", "--output", "p.tar")
    shutil.copy(desk.folder / "spec.yaml", tmp_path / "second")
    done = desk.call("unpack", "p.tar", "--root", "../other", "--folder", "../second")

    listed = f"spec.yaml, ../data/model.onnx, {tmp_path}/data/inputs.npz"
    # A path that is longer than a line goes on in the next one.
    printed = "".join(said.out.partition("--folder DIR: ")[2].partition("\ndigest")[0].split())
    assert sorted(printed.split(",")) == sorted(listed.replace(" ", "").split(","))
    assert done.code == 0, str(done)
    (run,) = (tmp_path / "other/runs/tiny").iterdir()
    said_there = {stage: desk.call(stage, "--run", str(run)) for stage in _STAGES}
    assert {stage: called.code for stage, called in said_there.items()} == dict.fromkeys(_STAGES, 0), said_there


def test_a_file_that_cannot_be_read_is_named(packed: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("paritygate.pipelines.packing.write.digest_of_file", refuse)

    called = packed.call("pack", "--run", str(packed.run_folder))

    assert called.code == 2
    assert " cannot be read: Permission denied\nhint: check its permissions" in called.err


def test_an_input_of_the_other_machine_has_to_be_what_it_was(packed: Desk) -> None:
    packed.call("pack", "--run", str(packed.run_folder), "--without-inputs", "--output", "p.tar")
    packed.samples(seed=5)

    other = packed.call("unpack", "p.tar", "--folder", ".", "--root", "other")
    (packed.folder / "inputs.npz").unlink()
    absent = packed.call("unpack", "p.tar", "--folder", ".", "--root", "other")

    assert (other.code, absent.code) == (5, 2)
    assert "inputs.npz differs from the packed file" in other.err
    assert "inputs.npz, which the run needs, is missing" in absent.err
    assert not (packed.folder / "other").exists()


def test_given_samples_that_are_left_out_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    desk = make_desk(tmp_path / "first")
    Desk(folder=tmp_path).samples(110, name="given.npz", seed=3)
    desk.call("export", "spec.yaml", "--samples", str(tmp_path / "given.npz"), "--verbose")
    desk.call("pack", "--run", str(desk.run_folder), "--without-inputs", "--output", "p.tar")

    refused = desk.call("unpack", "p.tar", "--folder", ".", "--root", "other")
    absent = desk.call("unpack", "p.tar", "--folder", ".", "--root", "other", "--samples", "absent.npz")
    done = desk.call("unpack", "p.tar", "--folder", ".", "--root", "other", "--samples", "../given.npz")

    assert (refused.code, absent.code, done.code) == (2, 2, 0), str(done)
    assert "the pack leaves out the samples of the run: given.npz" in refused.err
    assert "samples absent.npz do not exist" in absent.err
    run = next((desk.folder / "other/runs/tiny").iterdir())
    assert desk.call("record", "--run", str(run)).code == 0


def test_options_for_what_was_not_left_out_are_wrong_usage(packed: Desk) -> None:
    _pack(packed, "--output", "p.tar")

    folder = packed.call("unpack", "p.tar", "--root", "other", "--folder", ".")
    samples = packed.call("unpack", "p.tar", "--root", "other", "--samples", "inputs.npz")

    assert (folder.code, samples.code) == (2, 2)
    assert "--folder . is not needed, because the pack leaves out no file of the spec" in folder.err
    assert "--samples inputs.npz are not needed" in samples.err


def test_a_run_that_is_there_is_left_alone(packed: Desk) -> None:
    _pack(packed, "--output", "p.tar")

    called = packed.call("unpack", "p.tar")

    assert called.code == 2
    assert "exists already, so it is not changed\nhint: unpack elsewhere with --root DIR" in called.err
    assert packed.call("validate", "--verbose", "--run", str(packed.run_folder)).code == 0


def test_a_repository_beside_the_spec_is_pointed_out(desk: Desk) -> None:
    desk.spec(promote={"to": "releases"})
    desk.call("export", "spec.yaml", "--verbose")
    desk.call("pack", "--run", str(desk.run_folder), "--output", "p.tar")

    called = desk.call("unpack", "p.tar", "--root", "other")

    assert "name another place with promote --repository DIR" in " ".join(called.out.split())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("onnx-fp32/model.onnx", "model.onnx was changed"),
        ("reference/00000.safetensors", "recorded outputs in"),
        ("reference/record.json", "record.json is"),
    ],
)
def test_a_damaged_run_is_not_packed(packed: Desk, name: str, message: str) -> None:
    path = packed.run_folder / name
    if not path.exists():
        path = min(path.parent.glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    called = packed.call("pack", "--run", str(packed.run_folder), "--output", "p.tar")

    assert called.code in {2, 5}
    assert message in called.err
    assert not list(packed.folder.glob("*.tar"))


@pytest.mark.parametrize("name", [".reference.partial", ".onnx-fp16.partial"])
def test_a_run_with_a_stage_half_written_is_not_packed(packed: Desk, name: str) -> None:
    (packed.run_folder / name).mkdir()

    called = packed.call("pack", "--run", str(packed.run_folder))

    assert called.code == 5
    assert f"{name} is half written, because a stage of the run is at work or was stopped" in called.err


def test_a_variant_without_its_record_is_half_written(packed: Desk) -> None:
    (packed.run_folder / "onnx-fp32/artifact.json").unlink()

    called = packed.call("pack", "--run", str(packed.run_folder))

    assert called.code == 5
    assert "onnx-fp32 is half written" in called.err


def test_a_link_out_of_the_run_is_not_packed(packed: Desk) -> None:
    (packed.run_folder / "notes.txt").symlink_to(packed.folder / "spec.yaml")

    called = packed.call("pack", "--run", str(packed.run_folder))

    assert called.code == 5
    assert "notes.txt is a link that leaves its folder, which cannot be packed" in called.err


def test_another_file_in_its_place_is_left_alone_and_an_older_pack_is_not(packed: Desk) -> None:
    (packed.folder / "p.tar").write_bytes(b"mine")

    refused = packed.call("pack", "--run", str(packed.run_folder), "--output", "p.tar")
    _pack(packed, "--output", "again.tar")

    assert refused.code == 2
    assert "p.tar exists and is not a pack of this run, so it is not overwritten" in refused.err
    assert (packed.folder / "p.tar").read_bytes() == b"mine"
    (packed.run_folder / "notes.txt").touch()
    assert "run/notes.txt" in _names(_pack(packed, "--output", "again.tar"))


def test_a_pack_in_the_run_itself_is_wrong_usage(packed: Desk) -> None:
    called = packed.call("pack", "--run", str(packed.run_folder), "--output", str(packed.run_folder / "p.tar"))

    assert called.code == 2
    assert "is in the run folder that is packed" in called.err


def test_a_name_that_other_machines_do_not_allow_is_refused(packed: Desk) -> None:
    (packed.run_folder / "Report.html").touch()

    called = packed.call("pack", "--run", str(packed.run_folder))

    assert called.code == 2
    assert "'run/report.html' cannot be packed: the name differs from 'run/Report.html' only in case" in called.err


def test_a_file_that_changes_while_it_is_packed_is_named(packed: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from paritygate.pipelines.packing import write

    real = write._write_members

    def changed_before(*args: object) -> None:
        (packed.run_folder / "report.md").write_text("other", encoding="utf-8")
        real(*args)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(write, "_write_members", changed_before)

    called = packed.call("pack", "--run", str(packed.run_folder), "--output", "p.tar")

    assert called.code == 5
    assert "report.md was changed while it was packed" in called.err
    assert not [path for path in packed.folder.iterdir() if path.suffix in {".tar", ".tmp"}]


@pytest.mark.parametrize("command", ["pack", "unpack"])
def test_an_interrupted_copy_leaves_nothing(packed: Desk, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    _pack(packed, "--output", "p.tar")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    name = {"pack": "write", "unpack": "read"}[command]
    monkeypatch.setattr(f"paritygate.pipelines.packing.{name}.amount_done", lambda *_: interrupt)
    args = {"pack": ("--run", str(packed.run_folder), "-o", "q.tar"), "unpack": ("p.tar", "--root", "other")}[command]

    called = packed.call(command, *args)

    assert called.code == 130
    assert sorted(path.name for path in packed.folder.glob("*.t*")) == ["p.tar"]
    assert not list(packed.folder.glob(".*.tmp"))
    assert not (packed.folder / "other").exists()


def test_a_large_pack_says_how_far_it_is() -> None:
    from paritygate.pipelines.packing.read import amount_done

    said: list[str] = []
    add = amount_done("packing", 100 << 20, lambda stage, *_: said.append(stage))
    for _ in range(100):
        add(1 << 20)

    assert said == ["packing", *(f"packing: {tenth} % of 105 MB" for tenth in range(10, 101, 10))]


def test_a_run_changed_after_it_was_unpacked_is_refused_by_name(packed: Desk, tmp_path: Path) -> None:
    there = _moved(packed, tmp_path / "second")
    there.call("unpack", "run.paritygate.tar")
    path = there.run_folder / "onnx-fp32/model.onnx"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)

    digest = there.json("unpack", "run.paritygate.tar", "--root", "again").data["digest"]
    promoted = there.call("promote", "--verbose", "--run", str(there.run_folder), "--trust", digest)
    validated = there.call("validate", "--verbose", "--run", str(there.run_folder))

    assert (promoted.code, validated.code) == (5, 5)
    assert "onnx-fp32" in promoted.err
    assert "model.onnx was changed" in promoted.err
    assert "onnx-fp32" in validated.out + validated.err
    assert "model.onnx was changed" in validated.out + validated.err


def test_samples_changed_after_it_was_unpacked_are_refused(packed: Desk, tmp_path: Path) -> None:
    there = _moved(packed, tmp_path / "second")
    there.call("unpack", "run.paritygate.tar")
    np.savez(there.run_folder / "inputs/inputs.npz", x=np.zeros((120, 4), dtype=np.float32))

    validated = there.call("validate", "--verbose", "--run", str(there.run_folder))

    assert validated.code == 5, str(validated)
    assert "samples" in validated.out + validated.err
