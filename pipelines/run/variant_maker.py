"""Make the variants of a run, each in its own child process.

A derived variant is made from the artifact of its base, so each format converts the source once.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paritygate.artifact import ARTIFACT_FILE, Artifact, check_record, file_digests
from paritygate.backends import version_of
from paritygate.codec import from_data, to_data
from paritygate.convert.conversion import DERIVATIONS
from paritygate.convert.int8.settings import DYNAMIC, Int8Settings
from paritygate.engine.gpu_fit import require_builder
from paritygate.errors import (
    ConversionError,
    InputFileError,
    MissingBackendError,
    MissingGpuError,
    ParitygateError,
    StorageError,
    UsageError,
)
from paritygate.files import MARKER, make_marked_folder, remove_marked_folder, storage_errors
from paritygate.formats import ENGINE_FORMATS
from paritygate.machine import machine_facts
from paritygate.pipelines.calibration.calibration import CalibrationRequest
from paritygate.pipelines.compare.models import artifact_model
from paritygate.pipelines.process.child import ChildJob, Progress, progress_of
from paritygate.pipelines.process.child_result import reading_result
from paritygate.pipelines.run.overflow import OVERFLOW_PRECISIONS, OverflowFinding, find_overflow
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.pipelines.spec.checks import check_output_uses
from paritygate.pipelines.spec.output_limits import check_output_limits
from paritygate.pipelines.spec.schema import ResolvedSpec
from paritygate.precision import Precision, Variant
from paritygate.signature import Signature


class VariantMaker:
    """Makes variants, each at most once."""

    def __init__(self, run: RunFolder, wanted: Collection[str], *, time_limit_s: float, progress: Progress) -> None:
        """Prepare to make the wanted variants, even if they exist. Their bases are reused where they exist."""
        self._run = run
        self._wanted = frozenset(wanted)
        self._time_limit_s = time_limit_s
        self._progress = progress
        self._made: dict[str, Artifact | FailedVariant] = {}
        self._overflow: dict[str, OverflowFinding] = {}
        # The first variant that is made of the source checks spec and samples against it.
        self.is_fit_known = False
        # Dims that are equal in all samples, which that check reads.
        self._ties: dict[str, str] = {}

    def make(self, name: str) -> Artifact | FailedVariant:
        """Return the variant's artifact, or why it could not be made.

        Raises:
            InputFileError: The source does not exist.
            UsageError: The spec asks for what cannot be made of its source.
            StorageError: The disk is full.
            ArtifactIntegrityError: An artifact to derive from was changed.
        """
        if name not in self._made:
            self._made[name] = self.there(name) or self._make(name)
        return self._made[name]

    def there(self, name: str) -> Artifact | None:
        """Return the artifact to reuse; None if there is none, or if it must be made.

        Raises:
            ArtifactIntegrityError: Its files differ from the recorded ones.
            InputFileError: Its record is corrupt.
        """
        made = self._made.get(name)
        if isinstance(made, Artifact):
            return made
        folder = _folder(self._run, name)
        if name in self._wanted or not (folder / ARTIFACT_FILE).is_file():
            return None
        artifact = self._made[name] = Artifact.load(folder)
        return artifact

    def _make(self, name: str) -> Artifact | FailedVariant:
        variant = Variant.parse(name)
        base_name = base_of(variant)
        base = self._base(name, base_name) if base_name is not None else None
        if isinstance(base, FailedVariant):
            return FailedVariant(
                variant=name,
                message=f"{base.variant}, from which it is made, failed: {base.message}",
                hint=base.hint,
                exit_code=base.exit_code,
                operators=base.operators,
                verdict=base.verdict,
            )
        try:
            finding = self._overflow_of(variant, base)
            return self._export(variant, base, finding)
        except (UsageError, InputFileError, StorageError):
            # Errors of spec, source or disk concern every variant.
            raise
        except ParitygateError as err:
            return _failure(self._run, variant, err)

    def _overflow_of(self, variant: Variant, base: Artifact | None) -> OverflowFinding | None:
        """Return the overflow finding on an engine's model, None where no check is needed; raises where no build is."""
        if variant.format not in ENGINE_FORMATS or base is None or base.variant.precision not in OVERFLOW_PRECISIONS:
            return None
        require_builder(variant.format)
        name = str(base.variant)
        if name not in self._overflow:
            origin = base_of(base.variant)
            self._overflow[name] = find_overflow(
                self._run,
                base,
                None if origin is None else self.there(origin),
                time_limit_s=self._time_limit_s,
                progress=progress_of(name, self._progress),
            )
        self._overflow[name].stop(variant)
        return self._overflow[name]

    def _base(self, name: str, base_name: str) -> Artifact | FailedVariant:
        try:
            return self.make(base_name)
        except UsageError as err:
            if base_name in self._run.resolved.target_names:
                raise
            # The spec does not name this base.
            raise UsageError(f"target {name!r} is made from {base_name!r}: {err}", **err.next_step) from err

    def _export(self, variant: Variant, base: Artifact | None, finding: OverflowFinding | None) -> Artifact:
        run, name = self._run, str(variant)
        final = _folder(run, name)
        remove_marked_folder(final)
        staged = run.folder / f".{name}.partial"
        remove_marked_folder(staged)
        make_marked_folder(staged)
        files = staged / "files"
        with storage_errors(files):
            files.mkdir()
        try:
            job = self._job(variant, base, files)
            made = self._convert(job, variant, files)
            with reading_result(job):
                signature, made_by = from_data(Signature, made["signature"]), _made_by(made, base, finding)
                digests = file_digests(files)
                check_record({"files": digests, "main": made["main"], "variant": name})
                ties = dict(made["ties"]) if base is None else self._ties
            if base is None and not self.is_fit_known:
                _check_fit(run.resolved, made, signature)
            with storage_errors(final):
                final.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(str(files), str(final))
                (final / MARKER).touch()
        finally:
            remove_marked_folder(staged)
        if base is None:
            self.is_fit_known, self._ties = True, ties
        artifact = Artifact(
            variant=variant, folder=final, main=made["main"], signature=signature, files=digests, made_by=made_by
        )
        artifact.save()
        return artifact

    def _job(self, variant: Variant, base: Artifact | None, files: Path) -> ChildJob:
        run = self._run
        origin = _from_source(run, variant, self._ties) if base is None else _from_base(base)
        is_fit_known = base is not None or self.is_fit_known
        # No conversion depends on rules. The child checks them early, and `_check_fit` also those of a reused export.
        written = {"spec": run.resolved.spec.model_dump(mode="json", by_alias=True), "place": str(run.resolved.folder)}
        return ChildJob(
            name="export",
            args={
                "format": variant.format,
                "precision": str(variant.precision),
                "folder": str(files),
                **origin,
                "is_fit_known": is_fit_known,
                "fixed_shape": None if base is None else _fixed_shape(run, variant, base),
                "calibration": _calibration(run, variant),
                "mixed": _mixed(run, variant),
                "engine": to_data(run.resolved.engine_settings(variant)),
            },
            folder=run.jobs(f"export-{variant}"),
            what=f"the conversion of {run.resolved.name} to {variant}",
            time_limit_s=self._time_limit_s,
            crash_error=ConversionError,
            for_messages={"origin": run.resolved.origin, **({} if is_fit_known else written)},
        )

    def _convert(self, job: ChildJob, variant: Variant, files: Path) -> Mapping[str, Any]:
        made: Mapping[str, Any] = self._run.do(job, progress_of(str(variant), self._progress), makes=[files])
        return made


def base_of(variant: Variant) -> str | None:
    """Return the base of a variant; None for the source. Dims are fixed last."""
    if variant.static:
        return str(variant.dynamic)
    derivation = DERIVATIONS.get(str(variant))
    return None if derivation is None else derivation.base


def bases_of(variant: Variant) -> Iterator[str]:
    """Yield the base of a variant, the base of that, and so on."""
    base = base_of(variant)
    while base is not None:
        yield base
        base = base_of(Variant.parse(base))


def _folder(run: RunFolder, name: str) -> Path:
    return run.variant_folder(name) if name in run.resolved.target_names else run.base_folder(name)


def _failure(run: RunFolder, variant: Variant, err: ParitygateError) -> FailedVariant:
    failure = FailedVariant.from_error(str(variant), err)
    if variant.format not in ENGINE_FORMATS or not isinstance(err, MissingBackendError):
        return failure
    # Its base is in the run, so another machine needs neither the source nor its framework.
    elsewhere = (
        f"build it elsewhere: convert-and-validate pack --run {shlex.quote(str(run.folder))}; there: "
        "convert-and-validate unpack PACK; then: convert-and-validate build --run DIR"
    )
    # Installing does not help where the GPU is missing.
    is_installable = err.hint and not isinstance(err, MissingGpuError)
    return replace(failure, hint=f"{err.hint}; or {elsewhere}" if is_installable else elsewhere)


def _fixed_shape(run: RunFolder, variant: Variant, base: Artifact) -> dict[str, Any] | None:
    rule = run.resolved.fixed_shape(variant, base.signature) if variant.static else None
    return None if rule is None else to_data(rule)


def _calibration(run: RunFolder, variant: Variant) -> dict[str, Any] | None:
    # For engines and fixed dims, the base is calibrated. Mixed precision is searched by the same rows.
    is_of_rows = variant.precision in {Precision.INT8, Precision.MIXED}
    if not is_of_rows or variant.static or variant.format in ENGINE_FORMATS:
        return None
    resolved, part = run.resolved, run.resolved.spec.calibration
    is_searched = variant.precision is Precision.MIXED
    request = CalibrationRequest(
        source=resolved.calibration_samples(run.samples_path, is_searched=is_searched),
        compared=resolved.samples(run.samples_path),
        rows=part.rows * (2 if is_searched else 1),
        tool=part.tool,
        # Only ONNX Runtime has dynamic ranges; other formats are calibrated on rows, and a search measures on them.
        method=Int8Settings().method if part.method == DYNAMIC and str(variant) != "onnx-int8" else part.method,
        activations=part.activations,
    )
    return to_data(request)


def _mixed(run: RunFolder, variant: Variant) -> dict[str, Any] | None:
    """Return the request of a search for operators to keep in FP32, None for other variants."""
    target = run.resolved.mixed(variant)
    if target is None:
        return None
    return {"lower": target.lower, "max_runs": target.max_runs, "rules": to_data(run.resolved.rules(variant))}


def _check_fit(resolved: ResolvedSpec, made: Mapping[str, Any], signature: Signature) -> None:
    """Check the spec's rules by the source's signature, as the child did that made the export; raise a `UsageError`."""
    checked = made["checked"]
    check_output_uses(resolved, None if checked is None else from_data(Signature, checked))
    check_output_limits(resolved, signature)


def _from_source(run: RunFolder, variant: Variant, ties: Mapping[str, str]) -> dict[str, Any]:
    resolved = run.resolved
    repair = resolved.repair(str(variant))
    return {
        "source": to_data(resolved.source),
        "dims": {name: to_data(dim) for name, dim in resolved.dims.items()},
        "opset": (repair.opset if repair else None) or resolved.spec.opset,
        "files": list(resolved.spec.model.files),
        "samples": to_data(resolved.samples(run.samples_path)),
        "ties": dict(ties),
        "exporter": (repair.exporter if repair else None) or resolved.spec.model.exporter,
        "repair": None if repair is None else repair.model_dump(mode="json"),
    }


def _from_base(base: Artifact) -> dict[str, Any]:
    # Names, order and dims are correct already.
    return {
        "source": to_data(replace(artifact_model(base), signature=base.signature, rename={})),
        "dims": {},
        "opset": None,
        "files": [],
        "samples": None,
        "ties": {},
        "exporter": None,
        "repair": None,
    }


def _made_by(made: Mapping[str, Any], base: Artifact | None, finding: OverflowFinding | None) -> dict[str, Any]:
    facts = made["facts"] if finding is None else {**made["facts"], **finding.facts}
    common = {"paritygate": version_of("paritygate"), "facts": facts, "machine": machine_facts()}
    if base is None:
        return {**common, "source": made["source"], "notes": made["notes"]}
    return {
        **common,
        "source": base.made_by["source"],
        # Notes on the base apply to its derivatives.
        "notes": [*base.made_by["notes"], *made["notes"], *(finding.notes if finding is not None else ())],
        "base": {"variant": str(base.variant), "digest": base.digest, "facts": dict(base.made_by["facts"])},
    }
