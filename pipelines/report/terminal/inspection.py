"""A model and a written spec in the terminal, within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from paritygate.pipelines.inspecting.init import WrittenSpec
from paritygate.pipelines.inspecting.inspection import Inspection, Tensor
from paritygate.text import counted, echo, one_line

_WIDTH = 80
_LABEL = 12
# Operators named; the others are counted.
_NAMED = 10
_TITLES: Mapping[str, str] = {
    "onnx": "ONNX",
    "savedmodel": "TensorFlow SavedModel",
    "keras": "Keras model",
    "torch": "PyTorch module",
    "torchscript": "TorchScript",
    "pt2": "torch.export program",
    "openvino": "OpenVINO model",
    "tflite": "TFLite model",
    "tensorrt": "TensorRT engine",
    "tensorrt-rtx": "TensorRT-RTX engine",
}
# Kinds whose outputs only a run on rows shows.
_ASKED = frozenset({"keras", "torch", "torchscript"})
_STEPS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000


def print_inspection(found: Inspection) -> None:
    """Print the facts about a model."""
    for line in inspection_lines(found):
        echo(line)
    if found.outputs is None and found.kind in _ASKED:
        echo("hint: give rows that it answers, which show them: --samples FILE", err=True)


def inspection_lines(found: Inspection) -> Iterator[str]:
    """Yield the facts about a model, in lines of at most 80 characters, except for longer names."""
    yield from _wrapped(f"{found.model}: {_TITLES.get(found.kind, found.kind)}", indent=2)
    yield from _labelled("size", _size(found))
    yield from _labelled("precision", found.precision or "not known")
    for name, version in found.made_with.items():
        yield from _labelled(name, version)
    if found.signatures:
        yield from _labelled("signatures", ", ".join(found.signatures))
    seen = "" if found.rows is None else f", as {counted(found.rows, 'row')} of the samples show"
    yield from _tensors(f"inputs{seen}", found.inputs)
    yield from _tensors(f"outputs{seen}", found.outputs)
    for name, dim in found.dims.items():
        yield from _labelled(f"dim {name}", f"{dim.min} to {dim.max}, usually {dim.opt}")
    yield from _labelled(found.counted, _counts(found.counts))
    for what, why in found.unknown.items():
        yield from _labelled("not known", f"{what}: {why}")


def print_written_spec(written: WrittenSpec) -> None:
    """Print the written spec, its guesses, and the next command."""
    for line in _wrapped(f"wrote {written.path}: {written.name} as {', '.join(written.targets)}", indent=2):
        echo(line)
    for guess in written.guesses:
        for line in _wrapped(f"guess: {guess}", indent=2):
            echo(line)
    for note in written.notes:
        for line in _wrapped(f"note: {note}", indent=2):
            echo(line)
    if written.is_random:
        text = (
            "note: the samples are random: they show that the model converts, not that it answers alike. A run is "
            "inconclusive until samples.source names real inputs"
        )
        for line in _wrapped(text, indent=2):
            echo(line)
    elif written.rows < written.min_rows:
        text = (
            f"note: the samples hold {counted(written.rows, 'row')}, and fewer than {written.min_rows} are "
            "inconclusive: give more"
        )
        for line in _wrapped(text, indent=2):
            echo(line)
    echo(f"next: {written.next_command}")


def _size(found: Inspection) -> str:
    if found.size_bytes is None:
        return "not known"
    size, step = float(found.size_bytes), 0
    while size >= _STEP and step < len(_STEPS) - 1:
        size, step = size / _STEP, step + 1
    number = f"{size:.3g} {_STEPS[step]}" if step else f"{found.size_bytes} B"
    return f"{number} in {counted(found.files, 'file')}" if found.files else f"{number} of weights"


def _tensors(title: str, tensors: Sequence[Tensor] | None) -> Iterator[str]:
    yield from _wrapped(f"  {title}" if tensors else f"  {title}: not known", indent=4)
    names = {tensor.name: one_line(tensor.name) for tensor in tensors or ()}
    width = min(max(map(len, names.values()), default=0), _WIDTH // 2)
    for tensor in tensors or ():
        shape = "shape not known" if tensor.shape is None else _shape(tensor.shape)
        text = f"    {names[tensor.name]:<{width}}  {tensor.dtype or 'dtype not known,':<8} {shape}"
        yield from _wrapped(text, indent=8)


def _shape(shape: Sequence[int | str | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _counts(counts: Mapping[str, int]) -> str:
    if not counts:
        return "none"
    named = list(counts.items())[:_NAMED]
    listed = ", ".join(f"{name} {count}" for name, count in named)
    more = f", and {counted(len(counts) - len(named), 'other kind')}" if len(counts) > len(named) else ""
    return f"{sum(counts.values())} of {counted(len(counts), 'kind')}: {listed}{more}"


def _labelled(label: str, text: str) -> Iterator[str]:
    yield from _wrapped(f"  {label:<{_LABEL}}{'' if len(label) < _LABEL else ' '}{text}", indent=_LABEL + 2)


def _wrapped(text: str, *, indent: int) -> Iterator[str]:
    """Yield a text as lines, indented after the first; long names stay whole, so that they can be copied."""
    yield from textwrap.wrap(
        one_line(text),
        _WIDTH,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]
