"""The files for CI systems: their schemas, and the shell of every step, run with the variables that the systems set."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.pipelines.conftest import make_desk

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk


SCHEMAS = {
    "action.yml": ["--builtin-schema", "vendor.github-actions"],
    "ci/github-shards.yml": ["--builtin-schema", "vendor.github-workflows"],
    "ci/gitlab.yml": ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
}
# What GitHub runs a step with `shell: bash` by, and GitLab a script.
GITHUB_SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
GITLAB_SHELLS = {"bash": ["bash", "-eo", "pipefail", "-c"], "sh": ["sh", "-e", "-c"]}
# Without an index or the packages that paritygate needs, which are there: what is asked is whether it installs.
PIP = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a job, in which the tool is on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PARITYGATE_", "GITHUB_", "CI_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, **variables}


def check_schema(text: str, name: str, folder: Path) -> Result:
    """Hold what a file says against the published schema of such files, without a network."""
    import check_jsonschema

    path = folder / Path(name).name
    # Of a hidden job the schema asks nothing: it is held against it under a name that GitLab runs.
    path.write_text(text.replace("\n.paritygate:\n", "\nparitygate:\n"), encoding="utf-8")
    return CliRunner().invoke(check_jsonschema.main, [*SCHEMAS[name], str(path)])


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_file_follows_its_published_schema(name: str, project_root: Path, tmp_path: Path) -> None:
    ran = check_schema((project_root / name).read_text(encoding="utf-8"), name, tmp_path)

    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("action.yml", "      shell: bash\n", ""),
        ("action.yml", "  using: composite\n", "  using: composed\n"),
        ("ci/gitlab.yml", "    when: always\n", "    when: sometimes\n"),
        ("ci/gitlab.yml", "    expose_as: paritygate report\n", "    expose_as: [paritygate]\n"),
    ],
)
def test_a_slip_in_the_file_is_seen(name: str, right: str, wrong: str, project_root: Path, tmp_path: Path) -> None:
    text = (project_root / name).read_text(encoding="utf-8")
    assert right in text

    assert check_schema(text.replace(right, wrong), name, tmp_path).exit_code == 1


class Action:
    """The composite action, step by step, as a job on GitHub runs it in a folder."""

    def __init__(self, root: Path, folder: Path, temp: Path, **inputs: str) -> None:
        self.data = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))
        unknown = inputs.keys() - self.data["inputs"].keys()
        assert not unknown
        defaults = {name: item.get("default", "") for name, item in self.data["inputs"].items()}
        self.values = {f"inputs.{name}": value for name, value in (defaults | inputs).items()}
        self.values |= {"runner.temp": str(temp), "github.action_path": str(root)}
        self.folder, self.temp = folder, temp
        self.summary = temp / "summary.md"

    def text(self, text: str) -> str:
        """Return a text with the values of its expressions; one that is not known is an error."""
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: self.values[found[1]], text)

    def step(self, name: str) -> dict[str, Any]:
        """Return a step."""
        (found,) = (step for step in self.data["runs"]["steps"] if step.get("name") == name)
        return dict(found)

    def run(self, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the shell of a step, and keep its outputs."""
        step, output = self.step(name), self.temp / "output.txt"
        output.write_text("", encoding="utf-8")
        given = {key: self.text(value) for key, value in step.get("env", {}).items()}
        ran = subprocess.run(
            [*GITHUB_SHELL, step["run"]],
            cwd=self.folder,
            env=environment(GITHUB_OUTPUT=str(output), GITHUB_STEP_SUMMARY=str(self.summary), **given, **variables),
            check=False,
            capture_output=True,
            text=True,
        )
        for line in output.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            self.values[f"steps.{step['id']}.outputs.{key}"] = value
        return ran


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a folder with a spec, a model and samples."""
    (tmp_path / "desk").mkdir()
    return make_desk(tmp_path / "desk")


@pytest.fixture
def temp(tmp_path: Path) -> Path:
    """Return the folder that a runner keeps temporary files in."""
    (tmp_path / "runner temp").mkdir()
    return tmp_path / "runner temp"


def test_no_expression_stands_in_the_shell_of_a_step(project_root: Path) -> None:
    # What a user gives would be read as commands.
    steps = yaml.safe_load((project_root / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]

    assert [step["name"] for step in steps if "${{" in step.get("run", "")] == []


@pytest.mark.thorough
def test_the_action_runs_holds_against_a_release_and_releases(desk: Desk, temp: Path, project_root: Path) -> None:
    action = Action(project_root, desk.folder, temp, spec="spec.yaml", arguments="--quiet --device cpu", against="prod")

    ran = action.run("Run the spec")

    assert ran.returncode == 0, ran.stderr
    assert action.values["steps.run.outputs.exit-code"] == "0"
    run = Path(action.values["steps.run.outputs.run"])
    assert (run / "evidence.json").is_file()
    page = Path(action.text(action.step("Keep the page")["with"]["path"]))
    assert page.name == "paritygate-tiny.html"
    assert page.read_bytes() == (run / "report.html").read_bytes()
    kept = action.text(action.step("Keep what was measured")["with"]["path"]).split("\n")
    assert [Path(path).name for path in kept if path and Path(path).is_file()] == [
        "result.json",
        "evidence.json",
        "report.md",
    ]
    assert "## onnx-fp32: ✓ pass" in action.summary.read_text(encoding="utf-8")
    # There is no release yet: there is nothing to compare with, which is said, and nothing was released.
    first = action.run("Hold it against the released version")
    assert first.returncode == 0, first.stderr
    assert "::notice title=first release::tiny has no release in " in first.stdout
    assert action.run("Release it").returncode == 0
    held = action.run("Hold it against the released version")
    assert held.returncode == 0, held.stderr
    assert "::notice" not in held.stdout
    assert "nothing is worse than in version 1, alias prod" in held.stdout

    desk.onnx(width=12)
    larger = Action(
        project_root, desk.folder, temp, spec="spec.yaml", against="prod", worse="max_abs_diff=9 size_mb=1.01"
    )
    assert larger.run("Run the spec").returncode == 0
    assert larger.run("Hold it against the released version").returncode == 1
    other = Action(project_root, desk.folder, temp, spec="spec.yaml", against="prod", worse="size_mb=100")
    other.values = {**larger.values, **{key: other.values[key] for key in ("inputs.worse", "inputs.against")}}
    assert other.run("Hold it against the released version").returncode == 0


RENAMED = {
    "model": {"name": "tiny", "source": "model.onnx", "rename": {"output_0": "score"}},
    "decisions": {"score": {"argmax": True}},
}


@pytest.mark.thorough
def test_the_action_allows_another_interface_where_it_is_told_to(desk: Desk, temp: Path, project_root: Path) -> None:
    first = Action(project_root, desk.folder, temp, spec="spec.yaml", promote="true")
    assert first.run("Run the spec").returncode == 0
    assert first.run("Release it").returncode == 0
    desk.spec(**RENAMED)
    given = {"spec": "spec.yaml", "against": "prod"}
    renamed = Action(project_root, desk.folder, temp, **given)
    assert renamed.run("Run the spec").returncode == 0

    held = renamed.run("Hold it against the released version")

    assert held.returncode == 1
    assert "output logits is gone" in " ".join(held.stdout.split())
    renamed.values |= {"inputs.allow": "interface"}
    assert renamed.run("Hold it against the released version").returncode == 0


@pytest.mark.thorough
def test_the_action_fails_where_a_variant_does(desk: Desk, temp: Path, project_root: Path) -> None:
    desk.spec(targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-9}})
    action = Action(project_root, desk.folder, temp, spec="spec.yaml")

    ran = action.run("Run the spec")

    assert ran.returncode == 1
    assert "::error title=tiny onnx-fp16%3A fail::max_abs_diff[logits]: " in ran.stdout
    assert action.values["steps.run.outputs.exit-code"] == "1"
    # What shows why is kept all the same.
    assert Path(action.values["steps.run.outputs.page"]).is_file()


def test_the_action_keeps_nothing_of_a_spec_that_is_wrong(desk: Desk, temp: Path, project_root: Path) -> None:
    action = Action(project_root, desk.folder, temp, spec="no.yaml")

    ran = action.run("Run the spec")

    assert ran.returncode == 2
    assert "spec no.yaml does not exist" in ran.stderr
    found = {name: action.values[f"steps.run.outputs.{name}"] for name in ("exit-code", "model", "run", "page")}
    assert found == {"exit-code": "2", "model": "", "run": "", "page": ""}


def gitlab(root: Path, folder: Path, part: str, shell: str, **given: str) -> subprocess.CompletedProcess[str]:
    """Run the lines of a part of the job, as GitLab does in a folder."""
    job = yaml.safe_load((root / "ci/gitlab.yml").read_text(encoding="utf-8"))[".paritygate"]
    unknown = given.keys() - job["variables"].keys() - PIP.keys() - {"PIP_TARGET"}
    assert not unknown
    variables: Mapping[str, str] = {"CI_PROJECT_DIR": str(folder), **job["variables"], **given}
    return subprocess.run(
        [*GITLAB_SHELLS[shell], "\n".join(job[part])],
        cwd=folder,
        env=environment(**{**variables, "PIP_CACHE_DIR": str(folder / ".cache/pip")}),
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("shell", GITLAB_SHELLS)
def test_the_job_of_gitlab_runs_and_releases(shell: str, desk: Desk, project_root: Path) -> None:
    given = {"PARITY_SPEC": "spec.yaml", "PARITY_PROMOTE": "true", "PARITY_ARGUMENTS": "--quiet --device cpu"}

    first = gitlab(project_root, desk.folder, "script", shell, **given)

    assert first.returncode == 0, first.stderr
    report = desk.folder / "paritygate-report"
    names = {path.name for path in report.iterdir()}
    assert names == {"result.json", "junit.xml", "report.html", "report.md", "evidence.json"}
    suites = ET.parse(report / "junit.xml").getroot()  # noqa: S314 - it is our own
    assert [suite.get("name") for suite in suites] == ["tiny onnx-fp32"]
    assert desk.releases == ["tiny/1"]

    desk.onnx(width=12)
    worse = gitlab(
        project_root, desk.folder, "script", shell, PARITY_AGAINST="prod", PARITY_WORSE="gold=2 size_mb=1.01", **given
    )
    assert worse.returncode == 1, worse.stderr
    assert "worse    onnx-fp32  size_mb " in worse.stdout
    # What is worse is not released.
    assert desk.releases == ["tiny/1"]

    desk.spec(**RENAMED)
    given |= {"PARITY_AGAINST": "prod", "PARITY_WORSE": "size_mb=2"}
    broken = gitlab(project_root, desk.folder, "script", shell, **given)
    assert broken.returncode == 1, broken.stderr
    assert "output logits is gone" in " ".join(broken.stdout.split())
    allowed = gitlab(project_root, desk.folder, "script", shell, PARITY_ALLOW="interface", **given)
    assert allowed.returncode == 0, allowed.stderr
    assert desk.releases == ["tiny/1", "tiny/2"]


def test_the_job_of_gitlab_ends_in_the_code_of_the_run(desk: Desk, project_root: Path) -> None:
    ran = gitlab(project_root, desk.folder, "script", "sh", PARITY_SPEC="no.yaml")

    assert ran.returncode == 2
    # An empty file is no JUnit XML.
    assert list((desk.folder / "paritygate-report").iterdir()) == []


def docker_context(root: Path, target: Path) -> None:
    """Copy what `docker build` is given, by the names that .dockerignore lets in."""
    lines = [line for line in (root / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert lines[0] == "*"
    ignored = shutil.ignore_patterns(*(line.removeprefix("**/") for line in lines if line.startswith("**/")))
    target.mkdir()
    for name in (line[1:] for line in lines if line.startswith("!")):
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(root / name, target / name)


def install_commands(root: Path, context: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return the command that each file installs by, with its variables, where paritygate lies in `context`."""
    action = yaml.safe_load((root / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    job = yaml.safe_load((root / "ci/gitlab.yml").read_text(encoding="utf-8"))[".paritygate"]
    (docker,) = re.findall(r"^RUN (.*)$", (root / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    (step,) = (step for step in action if step.get("name") == "Install paritygate")
    return {
        "action.yml": ([*GITHUB_SHELL, step["run"]], {"PLACE": str(context), "EXTRAS": "cpu"}),
        "ci/gitlab.yml": (
            [*GITLAB_SHELLS["sh"], "\n".join(job["before_script"])],
            {"PARITY_PACKAGE": f"{context}[cpu]"},
        ),
        "Dockerfile": (["sh", "-c", docker.replace("/opt/paritygate", str(context))], {"EXTRAS": "cpu"}),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["action.yml", "ci/gitlab.yml", "Dockerfile"])
def test_what_the_file_installs_is_the_tool(name: str, project_root: Path, tmp_path: Path) -> None:
    context, target = tmp_path / "context", tmp_path / "installed"
    docker_context(project_root, context)
    command, variables = install_commands(project_root, context)[name]

    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(**PIP, PIP_TARGET=str(target), **variables),
        check=False,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr
    shown = subprocess.run(
        [sys.executable, "-c", "import paritygate.__main__ as tool; print(tool.__file__); tool.main()", "--version"],
        cwd=tmp_path,
        env={**environment(), "PYTHONPATH": str(target)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.startswith(f"{target}/paritygate/")


@pytest.mark.parametrize("name", ["action.yml", "ci/gitlab.yml"])
def test_the_requirements_of_a_model_are_installed_with_the_tool(name: str, project_root: Path, tmp_path: Path) -> None:
    """The command is shown by a pip that prints its arguments, since no index is there."""
    command, variables = install_commands(project_root, tmp_path)[name]
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").write_text('#!/bin/sh\nfor word; do echo "$word"; done\n', encoding="utf-8")
    (folder / "python").chmod(0o755)
    variables = {**variables, "REQUIREMENTS": "my file.txt", "PARITY_REQUIREMENTS": "my file.txt"}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"

    ran = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**environment(**variables), "PATH": path}
    )

    words = ran.stdout.splitlines()
    assert words[:3] == ["-m", "pip", "install"]
    assert words[-2:] == ["--requirement", "my file.txt"]
    assert "--constraint" not in words


def test_the_page_of_a_job_names_every_input(project_root: Path) -> None:
    page = (project_root / "docs/ci.md").read_text(encoding="utf-8")
    inputs = yaml.safe_load((project_root / "action.yml").read_text(encoding="utf-8"))["inputs"]
    variables = yaml.safe_load((project_root / "ci/gitlab.yml").read_text(encoding="utf-8"))[".paritygate"]["variables"]

    assert [name for name in inputs if f"`{name}" not in page] == []
    assert [name for name in variables if name.startswith("PARITY_") and name not in page] == []


def test_the_default_of_an_input_is_a_text(project_root: Path) -> None:
    # An input is a text, whatever YAML makes of the word.
    inputs = yaml.safe_load((project_root / "action.yml").read_text(encoding="utf-8"))["inputs"]

    assert {type(item.get("default", "")) for item in inputs.values()} == {str}
