"""Choose among a spec's targets and probes, and list the frameworks and runtimes that a target needs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from paritygate.errors import UsageError
from paritygate.formats import ENGINE_FORMATS, FORMATS
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS, LeftOutTargets, ResolvedSpec, Spec
from paritygate.pipelines.spec.targets import check_mixed_engines, name_of_target, target_meant
from paritygate.precision import Precision, Variant
from paritygate.text import nearest_first


def check_names(names: Sequence[str], resolved: ResolvedSpec) -> None:
    """Raise a `UsageError` if a name is not a target of the spec."""
    targets = resolved.target_names
    for name in names:
        if name not in targets:
            listed = ", ".join(nearest_first(name, targets))
            msg = f"--target {name!r} is not a target of spec {resolved.origin} (targets: {listed})"
            if name.partition("@")[0] in map(str, AVAILABLE_TARGETS):
                raise UsageError(msg, hint="add this target to the spec's targets, or name one of them")
            raise UsageError(msg, hint=target_meant(name, targets) or "name one of the targets")


def with_targets(resolved: ResolvedSpec, names: Sequence[str]) -> ResolvedSpec:
    """Return the spec limited to the named targets and their settings; the whole spec if none is named.

    Required targets stay if they are named. If none of them is, it is as if the spec required none by name. A run that
    leaves targets out makes no release: its variants could replace better ones that were not made.

    Raises:
        UsageError: A name is not a target of the spec.
    """
    if not names:
        return resolved
    check_names(names, resolved)
    spec = resolved.spec
    promote = spec.promote
    prefer = promote.prefer
    if isinstance(prefer, list):
        prefer = [name for name in prefer if name in names] or None
    targets = [target for target in spec.targets if name_of_target(target) in names]
    check_mixed_engines(targets, "--target")
    chosen = {
        "targets": targets,
        "required": [name for name in spec.required if name in names] or None if spec.required else spec.required,
        "tolerance": {name: limits for name, limits in spec.tolerance.items() if name in names},
        "promote": promote.model_copy(
            update={"prefer": prefer, "accept": {name: kind for name, kind in promote.accept.items() if name in names}}
        ),
    }
    others = tuple(name for name in resolved.target_names if name not in names)
    listed = tuple(name for name in others if name in (spec.required or ()))
    left_out = LeftOutTargets(required=listed, others=tuple(name for name in others if name not in listed))
    return replace(resolved, spec=spec.model_copy(update=chosen), left_out=left_out)


def with_probes(resolved: ResolvedSpec, names: Sequence[str] | None) -> ResolvedSpec:
    """Return the spec with these probes, maybe none, in place of its own; unchanged for None."""
    if names is None:
        return resolved
    chosen = list(names) or "none"
    return replace(resolved, spec=resolved.spec.model_copy(update={"probes": chosen}))


def needed_backends(variant: Variant, spec: Spec) -> tuple[str, ...]:
    """Return the backends that run and quantize a target of the spec."""
    needed = [FORMATS[variant.format].runtime]
    if variant.format in ENGINE_FORMATS:
        needed += ["polygraphy"]
    if _is_made_by_nncf(variant, spec):
        needed += ["nncf"]
    return tuple(needed)


def _is_made_by_nncf(variant: Variant, spec: Spec) -> bool:
    if variant.precision is not Precision.INT8:
        return False
    return variant.format == "openvino" or (
        variant.format in {"onnx", *ENGINE_FORMATS} and spec.calibration.tool == "nncf"
    )
