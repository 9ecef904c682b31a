"""What the shape of a spec does not say: that its names refer to something, and that its values fit each other."""

from __future__ import annotations

from paritygate.convert.int8.settings import DYNAMIC
from paritygate.errors import UsageError
from paritygate.formats import ENGINE_FORMATS
from paritygate.pipelines.spec.benchmark_plan import check_price, plan_of
from paritygate.pipelines.spec.names import check_alias, check_name
from paritygate.pipelines.spec.output_checks import check_output_uses
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS, ResolvedSpec
from paritygate.pipelines.spec.targets import check_targets
from paritygate.precision import Precision
from paritygate.text import nearest_first

__all__ = ["check_spec"]

_ONNX_INT8 = "onnx-int8"
_OUTPUTS = "outputs: {logits: {dtype: float32, shape: [batch, 3]}}"


def check_spec(resolved: ResolvedSpec) -> None:
    """Do nothing if the spec's names refer to something, and its values fit each other.

    Raises:
        UsageError: They do not; the message says which.
    """
    _check_targets(resolved)
    _check_names(resolved)
    _check_calibration(resolved)
    # Raises if what is to be measured does not fit the model.
    plan_of(resolved)
    check_price(resolved, resolved.spec.promote.limits)
    for variant in resolved.variants:
        # Raises what is wrong with the limits.
        resolved.rules(variant)


def _check_targets(resolved: ResolvedSpec) -> None:
    spec, origin = resolved.spec, resolved.origin
    check_targets(spec.targets, available=AVAILABLE_TARGETS, signature=resolved.signature, origin=origin)
    targets = resolved.target_names
    lists: dict[str, list[str]] = {
        "required": list(spec.required or ()),
        "tolerance": list(spec.tolerance),
        "promote.prefer": spec.promote.prefer if isinstance(spec.promote.prefer, list) else [],
        "promote.accept": list(spec.promote.accept),
    }
    for key, names in lists.items():
        for name in names:
            if name not in targets:
                listed = ", ".join(nearest_first(name, targets))
                msg = f"spec {origin}: {key} names {name!r}, which is no target (targets: {listed})"
                raise UsageError(msg, hint="name one of the targets, or add it to them")


def _check_names(resolved: ResolvedSpec) -> None:
    spec, origin = resolved.spec, resolved.origin
    # Refused here, where it costs nothing, rather than at the end of the run.
    check_name("model", spec.model.name)
    if spec.promote.alias is not None:
        check_alias(spec.promote.alias)
    if (spec.model.inputs is None) != (spec.model.outputs is None):
        msg = f"spec {origin}: model.inputs and model.outputs are given together or not at all"
        hint = "leave both to be taken from the source: of a PyTorch module, the message then shows both to paste"
        if spec.model.outputs is None:
            hint = f"add for example {_OUTPUTS}, or {hint}"
        raise UsageError(msg, hint=hint)
    # Making them raises what is wrong with a dtype, a dim or a rule.
    signature = resolved.signature
    check_output_uses(resolved, signature)
    if signature is None:
        return
    for name in spec.model.dims:
        if name not in signature.symbols:
            msg = f"spec {origin}: model.dims names {name!r}, which no input or output has"
            raise UsageError(msg, hint=f"symbolic dims are: {', '.join(signature.symbols) or 'none'}")


def _check_calibration(resolved: ResolvedSpec) -> None:
    """Refuse what engines are not built from, which would be found out after the quantizing alone."""
    part = resolved.spec.calibration
    engines = [
        str(variant)
        for variant in resolved.variants
        if variant.format in ENGINE_FORMATS and variant.precision is Precision.INT8
    ]
    unfit = [
        f"calibration.{name} {value}"
        for name, value, is_unfit in (
            ("tool", part.tool, part.tool != "onnxruntime"),
            ("method", part.method, part.method == DYNAMIC),
            ("activations", part.activations, part.activations == "uint8"),
        )
        if is_unfit
    ]
    if not engines or not unfit:
        return
    msg = (
        f"spec {resolved.origin}: {', '.join(engines)} cannot be built with {' and '.join(unfit)}: engines compute in "
        "int8, in ranges that are known before and with zero points of 0"
    )
    hint = "write calibration: {tool: onnxruntime, method: minmax, activations: int8}"
    if _ONNX_INT8 in resolved.target_names:
        msg += f"; they are made from {_ONNX_INT8}, and one calibration cannot make it both ways"
        hint += f", or give {_ONNX_INT8} a spec of its own"
    raise UsageError(msg, hint=hint)
