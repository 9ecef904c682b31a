"""Small real models, files of samples, and the commands as users call them: a bench for `compare`, a desk for specs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
import yaml
from msgspec import Struct

import paritygate.errors
from paritygate.__main__ import _run
from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.pipelines.compare import session_probes
from paritygate.pipelines.compare.result import schema_of_result
from paritygate.pipelines.process import child, lone_child
from paritygate.pipelines.process.child import run_child
from paritygate.pipelines.process.child_main import JOBS
from paritygate.pipelines.run.comparisons import comparison_of
from paritygate.pipelines.run.workspace import open_run
from paritygate.pipelines.selftest import stage as selftest_stage
from paritygate.validate.reference.recording import Recording

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from paritygate.pipelines.process.child import ChildJob, Progress

# Old enough for every ONNX Runtime that is supported.
_IR_VERSION = 9
_ROOT = Path(__file__).resolve().parents[2]
_OPSET = 17


class Outcome(Struct, frozen=True, kw_only=True):
    """What a user sees of one `compare`: exit code, both streams, and the JSON file if there is one."""

    code: int
    out: str
    err: str
    result: dict[str, Any]

    def check(self, name: str, output: str | None = None) -> dict[str, Any]:
        """Return the one check of that name, of that output where one is given."""
        found = [
            check
            for check in self.result["checks"]
            if check["name"] == name and (output is None or check["output"] == output)
        ]
        seen = [(check["name"], check["output"], check["status"]) for check in self.result["checks"]]
        assert len(found) == 1, f"{len(found)} checks {name!r} of output {output!r}; seen: {seen}"
        return dict(found[0])

    def status(self, name: str, output: str | None = None) -> str:
        """Return the status of the one check of that name."""
        return str(self.check(name, output)["status"])

    @property
    def failed(self) -> set[str]:
        """Names of the checks that failed."""
        return {check["name"] for check in self.result["checks"] if check["status"] == "fail"}

    @property
    def message(self) -> str:
        """The error message, where nothing could be measured."""
        return str(self.result["error"]["message"]) if self.result["error"] else ""


@functools.cache
def _validator() -> Any:  # noqa: ANN401 - jsonschema has no types
    kind = jsonschema.Draft202012Validator
    check, valid = kind.VALIDATORS["$ref"], set[tuple[str, str]]()

    def check_once(validator: Any, ref: str, instance: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
        # Most parts of a result are equal in other tests, and validating takes a fifth of the time of `compare`.
        part = (ref, json.dumps(instance))
        if part not in valid:
            errors = [*check(validator, ref, instance, schema)]
            yield from errors
            if not errors:
                valid.add(part)

    return jsonschema.validators.extend(kind, {"$ref": check_once})(schema_of_result())


@dataclass(kw_only=True, slots=True)
class Bench:
    """Makes models and samples in a folder and compares them by the command line.

    Attributes:
        folder: Where everything lies.
        capture: What is printed.
        is_probing: Whether all probes are asked where the options do not say, which takes most of the time.
    """

    folder: Path
    capture: pytest.CaptureFixture[str]
    is_probing: bool = False

    def npz(self, name: str, arrays: Mapping[str, NDArray[np.generic]]) -> str:
        """Write arrays under their keys, which may hold slashes, and return the path."""
        path = self.folder / name
        np.savez(path, **dict(arrays))  # type: ignore[arg-type]  # keys are free in a mapping
        return str(path)

    def samples(self, rows: int = 32, *, width: int = 4, name: str = "inputs.npz") -> str:
        """Write normal input `x`, shape (rows, width), the same for the same arguments."""
        return self.npz(name, {"x": self.normal(rows, width)})

    @staticmethod
    def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
        """Return normal values, the same for the same arguments."""
        return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

    def model(
        self,
        name: str,
        nodes: Sequence[onnx.NodeProto],
        *,
        inputs: Mapping[str, tuple[str, Sequence[int | str]]],
        outputs: Mapping[str, tuple[str, Sequence[int | str]]],
        weights: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> str:
        """Write an ONNX model and return its path; inputs and outputs are `{name: (dtype, shape)}`."""
        import onnx

        def values(specs: Mapping[str, tuple[str, Sequence[int | str]]]) -> list[onnx.ValueInfoProto]:
            return [
                onnx.helper.make_tensor_value_info(key, onnx.TensorProto.DataType.Value(dtype.upper()), list(shape))
                for key, (dtype, shape) in specs.items()
            ]

        graph = onnx.helper.make_graph(
            list(nodes),
            # The name is in the bytes: two models of one bench are never the same file.
            name,
            values(inputs),
            values(outputs),
            [onnx.numpy_helper.from_array(array, key) for key, array in (weights or {}).items()],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", _OPSET)])
        model.ir_version = _IR_VERSION
        path = self.folder / f"{name}.onnx"
        onnx.save(model, str(path))
        return str(path)

    def linear(
        self,
        name: str,
        *,
        error: float = 0.0,
        output: str = "logits",
        batch: int | str = "batch",
        weight: NDArray[np.float32] | None = None,
    ) -> str:
        """Write `logits = x @ weight + error`, `x` of width 4, three logits unless `weight` says otherwise."""
        import onnx

        kernel = self.normal(4, 3, seed=7) if weight is None else weight
        return self.model(
            name,
            [
                onnx.helper.make_node("MatMul", ["x", "weight"], ["product"]),
                onnx.helper.make_node("Add", ["product", "error"], [output]),
            ],
            inputs={"x": ("float", [batch, kernel.shape[0]])},
            outputs={output: ("float", [batch, kernel.shape[1]])},
            weights={"weight": kernel, "error": np.full(1, error, dtype=np.float32)},
        )

    def given(
        self,
        expected: Mapping[str, NDArray[np.generic]],
        actual: Mapping[str, NDArray[np.generic]],
        *options: str,
        rows: int | None = None,
    ) -> Outcome:
        """Compare arrays as outputs recorded elsewhere; samples have as many rows as the reference unless said."""
        count = len(next(iter(expected.values()))) if rows is None else rows
        samples = self.npz("inputs.npz", {"x": np.zeros((count, 1), dtype=np.float32)})
        recorded = self.folder / "actual.npz"
        # Compressed, so that equal outputs of two models are not the same file.
        np.savez_compressed(recorded, **dict(actual))  # type: ignore[arg-type]  # keys are free in a mapping
        return self.compare(self.npz("expected.npz", expected), str(recorded), "--samples", samples, *options)

    def compare(self, reference: str, candidate: str, *options: str) -> Outcome:
        """Run `compare` and check what holds of every run: its JSON follows the schema and says the exit code."""
        target = self.folder / "result.json"
        self.capture.readouterr()
        if not self.is_probing and "--probes" not in options:
            options = (*options, "--probes", "none")
        if "--min-rows" not in options:
            # Most tests need few rows to see what they look for.
            options = (*options, "--min-rows", "1")
        if not {"--quiet", "--verbose", "--json"} & set(options):
            # What most tests look at are details.
            options = (*options, "--verbose")
        code = _run(["compare", reference, candidate, "--json", str(target), *options])
        streams = self.capture.readouterr()
        result = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
        if result:
            _validator().validate(result)
            assert result["exit_code"] == code
        return Outcome(code=code, out=streams.out, err=streams.err, result=result)


def _run_here(job: ChildJob, progress: Progress = lambda *_: None) -> Any:  # noqa: ANN401 - the job's JSON
    """Do what the child would, here, and turn an unexpected exception into the job's error as the parent does."""
    job.folder.mkdir(parents=True, exist_ok=True)
    job.log.touch()
    path, modules = list(sys.path), set(sys.modules)
    importlib.invalidate_caches()
    try:
        run: Callable[..., Any] = importlib.import_module(JOBS[job.name]).run
        return json.loads(json.dumps(run(json.loads(json.dumps(job.all_args)), progress)))
    except paritygate.errors.ParitygateError:
        raise
    except Exception as err:
        msg = f"{job.what} failed: {type(err).__name__}: {err}"
        raise job.crash_error(msg) from err
    finally:
        sys.path[:] = path
        _forget_modules_of_users(set(sys.modules) - modules)
        if "keras" in sys.modules:
            _forget_layers()


def _forget_layers() -> None:
    from keras.src.backend.common import global_state

    # Keras counts the layers of a process, and names variables by it. To clear its session takes half a second.
    if global_state.get_global_attribute("object_name_uids"):
        sys.modules["keras"].utils.clear_session()


def _forget_modules_of_users(names: set[str]) -> None:
    # The next job is to find its own module of that name, as a process of its own would.
    kept = (sys.prefix, sys.base_prefix, str(_ROOT))
    for name in names:
        module = sys.modules[name]
        # A folder without `__init__.py` is a module that has no file, but places.
        places = [module.__file__] if getattr(module, "__file__", None) else list(getattr(module, "__path__", ()))
        if places and not any(str(place).startswith(kept) for place in places):
            del sys.modules[name]


@contextlib.contextmanager
def jobs_done_here(run: Callable[..., Any] = _run_here) -> Iterator[None]:
    """Have a run do its jobs in this process, or by another function in place of `run_child`.

    In this process there is no cache, since it needs a child that is watched.
    """
    with pytest.MonkeyPatch.context() as patch:
        if run is _run_here:
            patch.setenv("PARITYGATE_CACHE", "off")
        for module in (child, lone_child, selftest_stage, session_probes):
            patch.setattr(module, "run_child", run)
        yield


@pytest.fixture(scope="module", autouse=True)
def jobs_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """Do in this process what a run does in children: loading a framework for each of them takes minutes.

    A file or test with the marker `children` does its jobs as users do.
    """
    with jobs_done_here(run_child if request.node.get_closest_marker("children") else _run_here):
        yield


@pytest.fixture(autouse=True)
def _nothing_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every run do all of its jobs, but where the cache is what is tested."""
    monkeypatch.setenv("PARITYGATE_CACHE", "off")


@pytest.fixture(autouse=True)
def _errors_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every error be one line, in which tests look for words; `test_errors_fit.py` is about broken ones."""
    monkeypatch.setenv("COLUMNS", "10000")


@pytest.fixture(autouse=True)
def _jobs_in_children(request: pytest.FixtureRequest) -> Iterator[None]:
    with jobs_done_here(run_child) if request.node.get_closest_marker("children") else contextlib.nullcontext():
        yield


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Return a bench that compares in this process: the whole command but for the child, which costs a second."""
    return Bench(folder=tmp_path, capture=capsys)


@pytest.fixture
def asks_probes(bench: Bench) -> None:
    """Have all probes asked on the bench where the options do not say."""
    bench.is_probing = True


@pytest.fixture
def isolated_bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """Return a bench that compares in a child process, as users do, with its temporary files in `tmp`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    with jobs_done_here(run_child):
        yield Bench(folder=tmp_path, capture=capsys)


class _Clock:
    """The time module, but the monotonic clock is a day ahead once a file exists."""

    def __init__(self, sign: Path) -> None:
        self._sign = sign

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - anything of the module's
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() + 86400 * self._sign.exists()


@pytest.fixture
def time_is_over_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return a function by which the time limit of a child is over once a file exists, however slow the machine is."""

    def patch(sign: Path) -> None:
        monkeypatch.setattr(child, "time", _Clock(sign))

    return patch


@pytest.fixture
def tool() -> list[str]:
    """Return how the tool is started as a process of its own."""
    return [sys.executable, "-m", "paritygate"]


def _fail_on_constant(text: str) -> None:
    pytest.fail(f"strict JSON has no {text}")


def strict_json(text: str) -> dict[str, Any]:
    """Return the data in a JSON text; NaN and infinity, which Python writes unasked, fail the test."""
    data: dict[str, Any] = json.loads(text, parse_constant=_fail_on_constant)
    return data


class Called(Struct, frozen=True, kw_only=True):
    """What a user sees of one command: exit code, both streams, and what it wrote to its JSON file."""

    code: int
    out: str
    err: str
    data: dict[str, Any]

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Desk(Struct, frozen=True, kw_only=True):
    """A folder with a spec, a small model and samples in it, and the commands as a user calls them there."""

    folder: Path

    def onnx(
        self, name: str = "model.onnx", *, fill: float | None = None, output: str = "output_0", width: int = 3
    ) -> None:
        """Write `output = x @ weight`, `x` of width 4, `output` of `width`; `fill` stands for all weights."""
        import onnx

        weight = np.random.default_rng(7).standard_normal((4, width)).astype(np.float32)
        if fill is not None:
            weight[:] = fill
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "weight"], [output])],
            "linear",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
            [onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, ["batch", width])],
            [onnx.numpy_helper.from_array(weight, "weight")],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", _OPSET)])
        model.ir_version = _IR_VERSION
        onnx.save(model, str(self.folder / name))

    def samples(self, rows: int = 120, *, name: str = "inputs.npz", seed: int = 0) -> None:
        """Write normal input `x` of width 4."""
        values = np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)
        np.savez(self.folder / name, x=values)

    def spec(self, name: str = "spec.yaml", /, **parts: object) -> str:
        """Write the spec of the ONNX model, with `parts` in place of its own, and return its name.

        Renaming the output makes the exported file another one than the source, which may be compared.
        """
        data = {
            "model": {"name": "tiny", "source": "model.onnx", "rename": {"output_0": "logits"}},
            "samples": {"source": "inputs.npz"},
            "decisions": {"logits": {"argmax": True}},
            "targets": ["onnx-fp32"],
            # Probes start a process a variant, and most tests are about other matters.
            "probes": "none",
            **parts,
        }
        (self.folder / name).write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        return name

    def module(self, name: str, text: str) -> None:
        """Write a Python module beside the spec."""
        (self.folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")

    def module_spec(self, source: str, **parts: object) -> str:
        """Write the spec of a `module:callable` with the inputs and outputs of the ONNX model."""
        model = {
            "name": "tiny",
            "source": source,
            "inputs": {"x": {"dtype": "float32", "shape": ["batch", 4]}},
            "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
            "dims": {"batch": {"min": 1, "opt": 8, "max": 64}},
        }
        return self.spec(**{"model": model, **parts})

    def call(self, *args: str) -> Called:
        """Call a command in this folder, in this process; its JSON file is read if it writes one."""
        target = self.folder / "said.json"
        before = Path.cwd()
        out, err = io.StringIO(), io.StringIO()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = _run(list(args))
        finally:
            os.chdir(before)
        data = strict_json(target.read_text(encoding="utf-8")) if "said.json" in args and target.exists() else {}
        return Called(code=code, out=out.getvalue(), err=err.getvalue(), data=data)

    def json(self, *args: str) -> Called:
        """Call a command with `--json said.json`."""
        return self.call(*args, "--json", "said.json")

    @property
    def runs(self) -> list[Path]:
        """Return the run folders of the model `tiny`, oldest first."""
        # By when each was begun: of two in the same second, the names are in no order.
        found = self.folder.glob("artifacts/runs/tiny/*")
        return sorted(found, key=lambda path: (path / "spec.json").stat().st_mtime_ns)

    @property
    def run_folder(self) -> Path:
        """Return the one run folder."""
        (found,) = self.runs
        return found

    @property
    def run_from_here(self) -> Path:
        """Return the one run folder as messages name it."""
        return self.run_folder.relative_to(self.folder)

    @property
    def releases(self) -> list[str]:
        """Return what is in the store, as `model/version`; staging is empty, or a release was left half."""
        repository = self.folder / "artifacts/repository"
        assert not list(repository.glob("staging/*")), "a release was left half"
        stored = sorted(str(path.relative_to(repository / "store")) for path in repository.glob("store/*/*"))
        records = [(path, strict_json(path.read_text(encoding="utf-8"))) for path in repository.glob("log/*/*.json")]
        recorded = [f"{path.parent.name}/{data['version']}" for path, data in records if data["kind"] == "released"]
        assert stored == sorted(recorded), "what is stored and what is recorded differ"
        return stored

    def evidence(self) -> dict[str, Any]:
        """Return the evidence of the one run."""
        return strict_json((self.run_folder / "evidence.json").read_text(encoding="utf-8"))

    def stage(self, variant: str, device: str) -> dict[str, Any]:
        """Return what a comparison of the variant would follow from now, as evidence of the device says it."""
        run = open_run(self.run_folder)
        artifact = Artifact.read_record(run.variant_folder(variant))
        recording = Recording.load(run.reference)
        return to_data(comparison_of(run, artifact, recording, device.partition(":")[0]).stage)

    def entry_on(self, entry: Mapping[str, Any], on: str, /, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields
        """Return an entry of evidence as if the variant had run on another device, by what the spec asks for now."""
        return changed_entry(entry, **{"device": on, "stage": self.stage(entry["variant"], on), **changes})

    def copy(self, folder: Path) -> Desk:
        """Return a copy in `folder` that may be tampered with: its runs refer to its own files."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        for path in (*folder.glob("artifacts/runs/*/*/spec.json"), *folder.glob("said.json")):
            text = path.read_text(encoding="utf-8").replace(str(self.folder), str(folder))
            path.write_text(text, encoding="utf-8")
        return Desk(folder=folder)


def changed_entry(entry: Mapping[str, Any], **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields
    """Return an entry of evidence that says otherwise, and its result with it; `device` is where the candidate ran."""
    found = {**entry, **{key: value for key, value in changes.items() if key in entry}}
    if found["result"] is not None:
        within = {**found["result"], **{key: value for key, value in changes.items() if key in found["result"]}}
        if "device" in changes:
            within["candidate"] = {**within["candidate"], "device": changes["device"]}
        found["result"] = within
    return found


def make_desk(folder: Path) -> Desk:
    """Return a desk in `folder` with the ONNX model, 120 rows and their spec."""
    desk = Desk(folder=folder)
    desk.onnx()
    desk.samples()
    desk.spec()
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk with a small ONNX model whose run passes."""
    return make_desk(tmp_path)


@pytest.fixture(scope="session")
def _finished_once(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    desk = make_desk(tmp_path_factory.mktemp("finished"))
    with jobs_done_here():
        called = desk.json("run", "spec.yaml", "--verbose")
    assert called.code == 0, str(called)
    return desk


@pytest.fixture(scope="module")
def finished(_finished_once: Desk, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk on which the run of the ONNX model has passed; not to be changed, but copied."""
    return _finished_once.copy(tmp_path_factory.mktemp("finished"))
