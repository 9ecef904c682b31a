"""Check that the names in a spec refer to something, and that its values fit each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paritygate.convert.int8.settings import DYNAMIC
from paritygate.errors import UsageError
from paritygate.formats import ENGINE_FORMATS
from paritygate.pipelines.spec.benchmark_plan import check_price, plan_of
from paritygate.pipelines.spec.names import check_alias, check_name
from paritygate.pipelines.spec.output_limits import check_output_limits
from paritygate.pipelines.spec.schema import AVAILABLE_TARGETS, ResolvedSpec
from paritygate.pipelines.spec.targets import check_targets
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec, is_float_dtype, is_integer_dtype
from paritygate.text import hint_of_meant, nearest_first
from paritygate.validate.detections.rule import check_match_rules
from paritygate.validate.gold.measurement import check_gold_rules
from paritygate.validate.measure.decisions import axes_of, check_classes, check_rank
from paritygate.validate.measure.valid_positions import valid_positions
from paritygate.validate.reference.record import check_some_left

_ONNX_INT8 = "onnx-int8"
_OUTPUTS = "outputs: {logits: {dtype: float32, shape: [batch, 3]}}"


def check_spec(resolved: ResolvedSpec) -> None:
    """Raise a `UsageError` if names in a spec refer to nothing, or its values do not fit each other."""
    _check_targets(resolved)
    _check_names(resolved)
    _check_calibration(resolved)
    # Raises if the benchmark does not fit the model.
    plan_of(resolved)
    check_price(resolved, resolved.spec.promote.limits)
    for variant in resolved.variants:
        # Raises for bad limits.
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
                msg = f"spec {origin}: {key} names {name!r}, which is not a target (targets: {listed})"
                raise UsageError(msg, hint="name one of the targets, or add it to them")


def _check_names(resolved: ResolvedSpec) -> None:
    spec, origin = resolved.spec, resolved.origin
    # Refused here rather than at the end of the run.
    check_name("model", spec.model.name)
    if spec.promote.alias is not None:
        check_alias(spec.promote.alias)
    if (spec.model.inputs is None) != (spec.model.outputs is None):
        msg = f"spec {origin}: model.inputs and model.outputs must be given together or not at all"
        hint = "leave both out to read them from the source; for a PyTorch module, the message then shows both to paste"
        if spec.model.outputs is None:
            hint = f"add for example {_OUTPUTS}, or {hint}"
        raise UsageError(msg, hint=hint)
    # Raises for a bad dtype, dim or rule.
    signature = resolved.signature
    check_output_uses(resolved, signature)
    if signature is None:
        return
    for name in spec.model.dims:
        if name not in signature.symbols:
            msg = f"spec {origin}: model.dims names {name!r}, which no input or output has"
            raise UsageError(msg, hint=f"symbolic dims are: {', '.join(signature.symbols) or 'none'}")


def _check_calibration(resolved: ResolvedSpec) -> None:
    """Refuse a calibration that engines cannot use, which would fail only after quantizing."""
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
        f"spec {resolved.origin}: {', '.join(engines)} cannot be built with {' and '.join(unfit)}: engines need "
        "int8 activations, ranges that are known before, and zero points of 0"
    )
    hint = "write calibration: {tool: onnxruntime, method: minmax, activations: int8}"
    if _ONNX_INT8 in resolved.target_names:
        msg += f"; they are made from {_ONNX_INT8}, and one calibration cannot make it both ways"
        hint += f", or give {_ONNX_INT8} a separate spec"
    raise UsageError(msg, hint=hint)


def check_output_uses(resolved: ResolvedSpec, signature: Signature | None) -> None:
    """Check that the spec uses no output that is ignored, matched otherwise, missing, or of another kind.

    `signature` is the declared one or the source's. Without one, only the spec itself is checked. The gate checks again
    by the reference's outputs.

    Raises:
        UsageError: It uses one.
    """
    origin, ignored = resolved.origin, resolved.ignored
    uses = {rule.output: f"decision {rule}" for rule in resolved.decisions}
    uses |= {name: "argmax_of" for pair in resolved.spec.argmax_of.items() for name in pair}
    uses |= {rule.output: f"gold {rule}" for rule in resolved.gold}
    matched = {name: f"match {rule.name!r}" for rule in resolved.matches for name in rule.outputs}
    for name, use in {**uses, **matched}.items():
        if name in ignored:
            msg = f"spec {origin}: {use} is on {name!r}, but outputs ignores it"
            raise UsageError(msg, hint="an output with a rule is compared, so it cannot be ignored")
    if signature is None:
        return
    _check_roles(resolved, [spec.name for spec in signature.inputs])
    outputs = {spec.name: spec for spec in signature.outputs}
    _check_tensor_names(resolved, outputs)
    left = [name for name in outputs if name not in ignored]
    check_some_left(left, ignored)
    check_match_rules(resolved.matches, left, uses)
    check_gold_rules(resolved.gold, [name for name in left if name not in matched])
    _check_decisions(resolved, outputs)
    _check_argmax_of(resolved, outputs)
    _check_axes(resolved, outputs)
    check_output_limits(resolved, signature)
    try:
        valid_positions(resolved.valid_where, [signature])
    except UsageError as err:
        raise UsageError(f"spec {origin}: outputs: {err}", **err.next_step) from err


def _check_roles(resolved: ResolvedSpec, inputs: Sequence[str]) -> None:
    for name in resolved.spec.roles:
        if name not in inputs:
            msg = f"spec {resolved.origin}: roles names {name!r}, which is not an input (inputs: {', '.join(inputs)})"
            raise UsageError(msg, hint=hint_of_meant(name, inputs, "name one of these inputs"))


def _check_tensor_names(resolved: ResolvedSpec, outputs: Mapping[str, TensorSpec]) -> None:
    for key, names in resolved.outputs_asked.items():
        for name in names:
            if name in outputs:
                continue
            msg = (
                f"spec {resolved.origin}: {key} names {name!r}, which is not an output (outputs: {', '.join(outputs)})"
            )
            raise UsageError(msg, hint=_meant(name, resolved, outputs))


def _meant(name: str, resolved: ResolvedSpec, outputs: Mapping[str, TensorSpec]) -> str:
    served = resolved.spec.model.rename.get(name)
    if served in outputs:
        return f"rename serves it as {served!r}: name that"
    return hint_of_meant(name, outputs, "name one of these outputs")


def _check_decisions(resolved: ResolvedSpec, outputs: Mapping[str, TensorSpec]) -> None:
    for decision in resolved.decisions:
        output = outputs[decision.output]
        where = f"spec {resolved.origin}: decisions.{decision.output}"
        if not is_float_dtype(output.dtype):
            msg = f"{where} is on an output of dtype {output.dtype}, which is compared exactly"
            hint = f"decide on the float scores, and declare the argmax: argmax_of: {{{decision.output}: SCORES}}"
            raise UsageError(msg, hint=hint)
        if output.shape is None:
            continue
        try:
            check_rank(decision, len(output.shape))
            check_classes(decision, output.shape)
        except UsageError as err:
            raise UsageError(f"{where}: {err}", **err.next_step) from err


def _check_argmax_of(resolved: ResolvedSpec, outputs: Mapping[str, TensorSpec]) -> None:
    for label, scores in resolved.spec.argmax_of.items():
        where = f"spec {resolved.origin}: argmax_of.{label}"
        is_label, is_score = (is_integer_dtype(outputs[label].dtype), is_float_dtype(outputs[scores].dtype))
        if not (is_label and is_score):
            msg = (
                f"{where}: {label!r} is {outputs[label].dtype} and {scores!r} {outputs[scores].dtype}, but "
                "the first must be an integer output, the second a float one"
            )
            raise UsageError(msg, hint="write argmax_of: {LABEL: SCORES}")
        shapes = [outputs[name].shape for name in (label, scores)]
        of_label, of_scores = (len(shape or ()) for shape in shapes)
        if None not in shapes and of_label not in {of_scores - 1, of_scores}:
            msg = f"{where}: {label!r} has rank {of_label}, but {scores!r} has rank {of_scores} (expected one less)"
            hint = "give a label the shape of its scores without the class axis, or with the best ids along it"
            raise UsageError(msg, hint=hint)


def _check_axes(resolved: ResolvedSpec, outputs: Mapping[str, TensorSpec]) -> None:
    for name, axis in resolved.spec.axes.items():
        shape = outputs[name].shape
        if shape is None:
            continue
        rank = len(shape)
        if not (-rank <= axis < rank and axis % rank != 0):
            msg = f"spec {resolved.origin}: axes.{name}: axis {axis} is not a channel axis of an output of rank {rank}"
            raise UsageError(msg, hint=f"use {axes_of(rank)}: axis 0 holds the rows" if rank > 1 else "leave it out")
