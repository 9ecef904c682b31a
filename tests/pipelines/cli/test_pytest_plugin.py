"""The plugin of pytest: a spec as tests, a fixture that compares, and no cost where neither is used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytestmark = [pytest.mark.children]


def run_pytest(
    folder: Path, *options: str, plugins: tuple[str, ...] = (), code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, with our plugin as an installed one is loaded, and no others but those named."""
    names = ("paritygate.pytest_plugin", *plugins)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(f"-p{name}" for name in names)]
    ran = subprocess.run(
        [*command, *options],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == code, f"exit code {ran.returncode}:\n{ran.stdout}\n{ran.stderr}"
    return ran


def test_the_plugin_imports_nothing_where_it_is_not_asked_for(tmp_path: Path) -> None:
    text = "import sys\n\ndef test_other():\n    print('imported:', *sys.modules)\n"
    (tmp_path / "test_other.py").write_text(text, encoding="utf-8")

    ran = run_pytest(tmp_path, "-s")

    (line,) = (line for line in ran.stdout.splitlines() if "imported:" in line)
    imported = set(line.split())
    assert {name for name in imported if name.split(".")[0] == "paritygate"} == {
        "paritygate",
        "paritygate.pytest_plugin",
    }
    assert imported & {"numpy", "click", "pydantic", "onnx", "rich", "yaml"} == set()


def test_the_plugin_is_found_where_paritygate_is_installed(project_root: Path) -> None:
    text = (project_root / "pyproject.toml").read_text(encoding="utf-8")

    assert '[project.entry-points.pytest11]\nparitygate = "paritygate.pytest_plugin"\n' in text


def test_a_spec_that_is_not_there_is_said_in_two_lines(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--parity", "nothing.yaml", code=2)

    assert "error: spec nothing.yaml does not exist\nhint: give a .yaml file" in ran.stdout
    assert "Traceback" not in ran.stdout


def test_a_spec_is_run_by_one_process(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--parity", "spec.yaml", "-n", "2", plugins=("xdist.plugin",), code=4)

    assert "ERROR: --parity runs a spec in one process" in ran.stderr


@pytest.mark.thorough
def test_a_spec_is_a_test_a_variant_and_check(desk: Desk) -> None:
    (desk.folder / "test_other.py").write_text("def test_other():\n    pass\n", encoding="utf-8")
    desk.spec(targets=["onnx-fp32", "onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-9}})

    ran = run_pytest(desk.folder, "--parity", "spec.yaml", "-v", code=1)

    results = dict(re.findall(r"^(\S.*?) (PASSED|FAILED|SKIPPED)", ran.stdout, re.MULTILINE))
    assert results["test_other.py::test_other"] == "PASSED"
    assert results["spec.yaml::onnx-fp32::max_abs_diff[logits]"] == "PASSED"
    assert results["spec.yaml::onnx-fp16::mean_abs_diff[logits]"] == "PASSED"
    assert [name for name, result in results.items() if result == "FAILED"] == [
        "spec.yaml::onnx-fp16::max_abs_diff[logits]"
    ]
    # The emulated row decides nothing by itself.
    assert results.get("spec.yaml::onnx-fp16 emulated::max_abs_diff[logits]", "SKIPPED") == "SKIPPED"
    assert re.search(r"^[\d.e-]+ > 1e-09, .*worst at row ", ran.stdout, re.MULTILINE)
    assert "pytest_plugin.py" not in ran.stdout
    # Nothing is released by a test.
    assert desk.releases == []


@pytest.mark.thorough
def test_the_checks_are_chosen_by_their_marker(desk: Desk) -> None:
    (desk.folder / "test_other.py").write_text("def test_other():\n    pass\n", encoding="utf-8")

    ran = run_pytest(desk.folder, "--parity", "spec.yaml", "-m", "parity", "-k", "diff", "--strict-markers")

    assert re.search(r"\n=+ 3 passed, \d+ deselected in ", ran.stdout)


@pytest.mark.thorough
def test_the_fixture_compares_and_fails_in_our_words(desk: Desk) -> None:
    desk.onnx("same.onnx", output="output_0")
    # Another file with the same answers, and one with others.
    (desk.folder / "same.onnx").write_bytes((desk.folder / "model.onnx").read_bytes().replace(b"linear", b"lineal"))
    desk.onnx("other.onnx", fill=1.0)
    text = """
        def test_same(parity):
            assert parity("model.onnx", "same.onnx", samples="inputs.npz", probes="none").rows == 120

        def test_other(parity):
            parity("model.onnx", "other.onnx", samples="inputs.npz", probes="none")
    """
    desk.module("test_models", text)

    ran = run_pytest(desk.folder, code=1)

    assert "1 failed, 1 passed" in ran.stdout
    assert "E       fail: max_abs_diff[output_0]: " in ran.stdout
    assert "E       verdict: fail" in ran.stdout
    # The frames between the test and the words are hidden.
    assert "assert_passed" not in ran.stdout
    assert "test_models.py:6: ParityError" in ran.stdout
