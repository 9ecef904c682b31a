"""The output of `pack` and `unpack`."""

from __future__ import annotations

import shlex

from paritygate import __version__
from paritygate.pipelines.packing.manifest import PackManifest
from paritygate.pipelines.packing.restore import UnpackResult
from paritygate.pipelines.packing.write import PackResult
from paritygate.pipelines.report.terminal.printing import print_lines
from paritygate.pipelines.report.terminal.screen import wrapped


def print_pack(packed: PackResult, *, to_stderr: bool) -> None:
    """Print what was packed and how large it is."""
    manifest = packed.manifest
    lines = [
        f"packed {_amount(manifest)} of {manifest.model} {manifest.run_id}",
        *_left_out(manifest),
        *_needed(manifest),
        f"digest: {manifest.digest}",
        f"pack: {packed.path} ({_size(manifest.pack_bytes)})",
    ]
    print_lines((line for words in lines for line in wrapped(words)), err=to_stderr)


def print_unpacked(unpacked: UnpackResult, *, to_stderr: bool) -> None:
    """Print what was restored and where."""
    manifest = unpacked.manifest
    lines = [f"restored {_amount(manifest)}, every digest checked", *_needed(manifest)]
    if manifest.paritygate != __version__:
        lines.append(f"packed by paritygate {manifest.paritygate}, and this is {__version__}")
    if unpacked.foreign_repository is not None:
        lines.append(
            f"promote.to is beside the spec, which is now {unpacked.foreign_repository}: "
            "name another place with promote --repository DIR"
        )
    if after := unpacked.run.resolved.spec.promote.after_words:
        lines.append(f"promote runs promote.after of its spec: {shlex.join(after)}")
    lines += [f"digest: {manifest.digest}", f"run: {unpacked.run.folder}"]
    print_lines((line for words in lines for line in wrapped(words)), err=to_stderr)


def _left_out(manifest: PackManifest) -> list[str]:
    lines = []
    if manifest.missing:
        names = ", ".join(file.name for file in manifest.missing)
        lines.append(f"left out, for unpack --folder DIR: {names}")
    if manifest.needs_samples is not None:
        lines.append(f"left out, for unpack --samples PATH: {manifest.needs_samples}")
    return lines


def _needed(manifest: PackManifest) -> list[str]:
    names = ", ".join(manifest.modules)
    return [f"to be installed where it is unpacked: {names}"] if names else []


def _amount(manifest: PackManifest) -> str:
    return f"{len(manifest.files)} files ({_size(manifest.content_bytes)})"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
