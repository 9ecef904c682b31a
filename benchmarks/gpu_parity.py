"""Run two models on this machine's GPU in every way there is, hold each against FP32 on the CPU, and write the figures.

Run it with `make gpu-test`, or `python benchmarks/gpu_parity.py --out benchmarks/results/gpu_parity.json` in an
environment with the extras gpu, torch and tensorflow. TensorRT engines in FP32 and FP16, ONNX Runtime's CUDA and
TensorRT providers, and PyTorch on CUDA in FP32 without TF32, TF32, FP16 and BF16 are each judged by `compare`, under
the default limits of their precision. Beside FP16 and BF16 stand the figures that the emulation gave on the CPU; the
real ones must be within a factor of 3 of them, up or down, where not both are below 4 ulp of the reference.

Everything but PyTorch's precisions goes through the public commands. What the machine lacks is an entry that says so.
The exit code is 0 if all that ran passed and was predicted, 1 if something did not, 5 if something could not be
measured or there is no GPU; with `--strict` what was not run counts as not measured.

`--device cpu` tries the script itself, with PyTorch on the CPU; the file it writes says that it is a rehearsal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gpu_judgement import NOISE_ULPS, Entry, State, entry_of, exit_code, failed, lines, not_run, ratios_of, report
from numpy.typing import NDArray

from paritygate.artifact import Artifact
from paritygate.backends import backend_state
from paritygate.machine import gpu_of_machine, machine_facts
from paritygate.validate.measure.profile import ulp_of
from paritygate.validate.reference.recording import Recording

Answers = NDArray[Any]

_HERE = Path(__file__).resolve().parent
_NO_GPU = "gpu_parity: the CUDA driver shows no NVIDIA GPU to this process: nothing was run"
_CANNOT_MEASURE = 5
# As ONNX Runtime's runner says it.
_NO_LIBRARIES = "its libraries are not found"
# The reference is that of the CPU, and no framework may find a GPU while it answers.
_NO_CUDA = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model, where it comes from and what is decided on its only output."""

    name: str
    samples: str
    output: str
    decision: str
    torch: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """A way to run a variant: by what, with which options of `compare`, and what has to be installed.

    `is_optional` says that its libraries may not be there: ONNX Runtime looks for those of one version of TensorRT.
    """

    runner: str
    variant: str
    precision: str
    options: tuple[str, ...] = ()
    backend: str = "onnxruntime"
    is_optional: bool = False


MODELS = (
    Model(
        name="sts",
        samples="paritygate.fixtures.sts:evaluation_pairs",
        output="logits",
        decision="logits:threshold=3.0",
        torch="paritygate.fixtures.sts:torch_model",
    ),
    Model(
        name="face_resnet50",
        samples="paritygate.fixtures.face_resnet50:images",
        output="output_1",
        decision="output_1:argmax",
        torch=None,
    ),
)


def _by_provider(variant: str, precision: str) -> Way:
    options = ("--provider", "tensorrt")
    return Way(runner="onnxruntime-tensorrt", variant=variant, precision=precision, options=options, is_optional=True)


WAYS = (
    Way(runner="tensorrt", variant="tensorrt-fp32", precision="fp32", backend="tensorrt"),
    Way(runner="tensorrt", variant="tensorrt-fp16", precision="fp16", backend="tensorrt"),
    Way(runner="onnxruntime-cuda", variant="onnx-fp32", precision="fp32"),
    Way(runner="onnxruntime-cuda", variant="onnx-fp16", precision="fp16"),
    _by_provider("onnx-fp32", "fp32"),
    _by_provider("onnx-fp16", "fp16"),
)
TORCH_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# By precision, the variant whose emulation predicts it.
EMULATED = {"fp16": "onnx-fp16", "bf16": "onnx-bf16"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run folder with a recorded reference, and what could not be made in it."""

    model: Model
    folder: Path
    failures: Mapping[str, str]
    device: str

    @property
    def noise(self) -> float:
        """What a difference is at least taken to be, in the unit of the output."""
        profile = Recording.load(self.folder / "reference").profiles[self.model.output]
        return NOISE_ULPS * ulp_of(float(profile.max_abs.max()), profile.dtype)


def main() -> int:
    """Measure, print a line an entry, write the figures, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the JSON file to write")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--models", nargs="+", default=[model.name for model in MODELS])
    parser.add_argument("--strict", action="store_true", help="what was not run counts as not measured")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and gpu_of_machine() is None:
        print(_NO_GPU, file=sys.stderr)
        return _CANNOT_MEASURE
    entries: list[Entry] = []
    for model in MODELS:
        if model.name not in arguments.models:
            entries += left_out(model)
            continue
        with tempfile.TemporaryDirectory() as folder:
            for entry in measured(model, Path(folder), arguments.device):
                print("\n".join(lines([entry])), flush=True)
                entries.append(entry)
    result = report(entries, machine=machine_facts(), device=arguments.device)
    print(json.dumps(result["counts"]))
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return exit_code(entries, is_strict=arguments.strict)


def all_ways() -> Iterator[tuple[str, str]]:
    """Yield what runs, and in which precision, for every entry that a model has."""
    yield from ((way.runner, way.precision) for way in WAYS)
    yield from (("torch", precision) for precision in TORCH_PRECISIONS)


def left_out(model: Model, reason: str = "left out by --models") -> list[Entry]:
    """Return the entries of a model that is not run."""
    return [not_run(model.name, runner, precision, reason) for runner, precision in all_ways()]


def measured(model: Model, folder: Path, device: str) -> Iterator[Entry]:
    """Yield every entry of one model, the emulated figures beside the real ones."""
    try:
        run = made(model, folder, device)
    except RuntimeError as err:
        yield from (failed(model.name, runner, precision, str(err)) for runner, precision in all_ways())
        return
    emulated = {precision: emulation(run, precision) for precision in EMULATED}
    for entry in (*(of_a_way(run, way) for way in WAYS), *of_torch(run, folder)):
        yield with_prediction(entry, emulated.get(entry.precision), run.noise)


def made(model: Model, folder: Path, device: str) -> Run:
    """Return a run with its ONNX files and its reference made on the CPU, and its engines on the GPU.

    Raises:
        RuntimeError: There is no ONNX file or no reference.
    """
    exported = tool(
        ["export", str(_HERE / "gpu" / f"{model.name}.yaml"), "--root", str(folder), "--quiet"], environment=_NO_CUDA
    )
    if "run" not in exported or "onnx-fp32" not in exported["artifacts"]:
        msg = f"the model was not exported: {exported.get('stderr') or exported['failures']}"
        raise RuntimeError(msg)
    run = Path(exported["run"])
    recorded = tool(["record", "--run", str(run), "--quiet"], environment=_NO_CUDA)
    if recorded["exit_code"]:
        msg = f"the reference was not recorded: {recorded['stderr']}"
        raise RuntimeError(msg)
    failures = exported["failures"]
    if device == "cuda" and backend_state("tensorrt").is_available:
        built = tool(["build", "--run", str(run), "--quiet"])
        if "artifacts" not in built:
            msg = f"nothing was built: {built['stderr']}"
            raise RuntimeError(msg)
        left = {name: failure for name, failure in failures.items() if name not in built["artifacts"]}
        failures = {**left, **built["failures"]}
    return Run(
        model=model,
        folder=run,
        failures={name: failure["message"] for name, failure in failures.items()},
        device=device,
    )


def of_a_way(run: Run, way: Way) -> Entry:
    """Return the entry of a variant that `compare` runs."""
    state = backend_state(way.backend)
    if not state.is_available:
        return not_run(run.model.name, way.runner, way.precision, f"{way.backend}: {state.reason}")
    if run.device == "cpu":
        return not_run(run.model.name, way.runner, way.precision, "a rehearsal on a CPU")
    if way.variant in run.failures:
        return failed(run.model.name, way.runner, way.precision, run.failures[way.variant])
    path = Artifact.read_record(run.folder / way.variant).path
    entry = compared(run, way.runner, way.precision, path, ("--device", "cuda", *way.options))
    if way.is_optional and entry.state is State.ERROR and _NO_LIBRARIES in entry.reason:
        return replace(entry, state=State.NOT_RUN)
    return entry


def compared(run: Run, runner: str, precision: str, candidate: Path, options: Sequence[str]) -> Entry:
    """Return the entry of what `compare` says of the candidate."""
    model = run.model
    result = tool(
        [
            *("compare", str(run.folder / "reference"), str(candidate), "--samples", model.samples),
            *("--probes", "none"),
            *("--precision", precision, "--decision", model.decision, "--min-rows", "100", "--quiet", *options),
        ]
    )
    if "verdict" not in result:
        return failed(model.name, runner, precision, result["stderr"])
    return entry_of(model.name, runner, precision, result)


def emulation(run: Run, precision: str) -> Entry:
    """Return the entry of the emulated precision, on the CPU."""
    variant = EMULATED[precision]
    if not (run.folder / variant).is_dir():
        reason = run.failures.get(variant, f"the spec has no {variant}")
        return not_run(run.model.name, "emulation", precision, reason)
    path = Artifact.read_record(run.folder / variant).path
    return compared(run, "emulation", precision, path, ("--emulate",))


def of_torch(run: Run, folder: Path) -> Iterator[Entry]:
    """Yield PyTorch's entries, each precision in a process of its own."""
    model = run.model
    in_fp32: Answers | None = None
    for precision in TORCH_PRECISIONS:
        if model.torch is None:
            yield not_run(model.name, "torch", precision, "the model is Keras's: there is none of PyTorch's to run")
            continue
        state = backend_state("torch")
        if not state.is_available:
            yield not_run(model.name, "torch", precision, f"torch: {state.reason}")
            continue
        out = folder / f"torch-{precision}.npz"
        command = [str(_HERE / "gpu_torch.py"), precision, run.device, model.torch, model.samples, model.output]
        ran = subprocess.run([sys.executable, *command, str(out)], check=False, capture_output=True, text=True)
        if ran.returncode:
            yield failed(model.name, "torch", precision, last_line(ran.stderr))
            continue
        facts = json.loads(ran.stdout)
        if "lacks" in facts:
            yield not_run(model.name, "torch", precision, facts["lacks"])
            continue
        entry = replace(compared(run, "torch", precision, out, ()), ran=facts)
        answers = np.load(out)[model.output]
        in_fp32 = answers if precision == "fp32" else in_fp32
        yield honoured(entry, answers, in_fp32)


def honoured(entry: Entry, answers: Answers, in_fp32: Answers | None) -> Entry:
    """Return the entry, or an error if another precision than FP32 gave FP32's answers to the bit.

    A switch that changes nothing was not honoured: the figures would be those of FP32 under another name.
    """
    if entry.precision != "fp32" and in_fp32 is not None and np.array_equal(answers, in_fp32):
        return replace(entry, state=State.ERROR, reason=f"{entry.precision} gave FP32's answers to the bit")
    return entry


def with_prediction(entry: Entry, emulated: Entry | None, noise: float) -> Entry:
    """Return the entry with the emulated figures of its precision beside its own."""
    if emulated is None:
        return replace(entry, why_not_predicted=f"{entry.precision} is not emulated")
    if entry.figures is None:
        return replace(entry, why_not_predicted="nothing ran", emulated=emulated.figures)
    if emulated.figures is None:
        # Its emulation failed, so nothing predicts its figures, and the entry is not a pass.
        reason = f"not emulated: {emulated.reason}"
        return replace(entry, state=State.ERROR, reason=reason, why_not_predicted=reason)
    ratios = ratios_of(emulated.figures, entry.figures, noise=noise)
    return replace(entry, emulated=emulated.figures, ratios=ratios)


def tool(arguments: Sequence[str], *, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command and return its JSON, with `exit_code`, and `stderr`: the last line that it wrote there."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        has_json = arguments[0] != "record"
        command = [sys.executable, "-m", "paritygate", *arguments, *(("--json", str(out)) if has_json else ())]
        ran = subprocess.run(
            command, check=False, capture_output=True, text=True, env={**os.environ, **(environment or {})}
        )
        found = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    return {"failures": {}, **found, "exit_code": ran.returncode, "stderr": last_line(ran.stderr)}


def last_line(text: str) -> str:
    """Return the last line of a text that says something; hints of the tool follow its errors and are left out."""
    said = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("hint:")]
    return said[-1] if said else "it ended without a word"


if __name__ == "__main__":
    sys.exit(main())
