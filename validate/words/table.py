"""Every sentence on a check, by its key. No other module words a measurement."""

from __future__ import annotations

from collections.abc import Mapping

_SHARED = {
    "text": "{text}",
    "missing": "{lacks}",
    "below": "\n{text}",
    "between": "{by}",
    "at_most": "{measured:.6g} <= {limit:.6g}",
    "above": "{measured:.6g} > {limit:.6g}",
    "at_least": "{measured:.6g} >= {limit:.6g}",
    "below_limit": "{measured:.6g} < {limit:.6g}",
    "worst_row": ", worst at row {row!r}",
    "lowest_row": ", lowest at row {row!r}",
    "worst_channel": ", worst in channel {channel} of {channels}",
    "in_channel": ", in channel {channel} of {channels}",
    "worst_value": ", worst at row {row!r}: {actual:.6g} instead of {expected:.6g}",
    "over_columns": " over all columns",
    "in_rows": ", in {in_rows:#row}, first in row {row!r}",
    "in_rows.hidden": ", in {in_rows:#row} {row}",
    "steps": ". One step of {precision} near {magnitude:.4g} is {steps:.3g}, so this difference is at most {most} "
    "steps and may be rounding",
    "steps.own_tolerance": ". If your service accepts such differences, declare a tolerance",
    "stratum_value": "{value!r} (rows: {rows})",
    "left_of_value": "{count} of {value!r} (rows: {rows})",
    "other_values": " and {count} other values",
}

_OF_ROWS = {
    "rows": "{rows:#row} in {batches:#batch}",
    "rows.none": "no rows were compared",
    "rows.none_left": " because INT8 calibration used all {left_out:#row}",
    "rows.passes": ", run {passes} times",
    "rows.few": " (expected at least {least}). Even without a mismatch, up to {share:.0 %} of all rows may differ. Add "
    "rows, or accept so few with --min-rows {rows} (min_rows in a spec)",
    "rows.little": ". Even without a mismatch in them, up to {bound} of all rows may differ (95 %)",
    "rows.left_out": ". {left_out} of {total} rows are left out because INT8 calibration used them",
    "rows.own_calibration": ". To compare them too, put other calibration rows in calibration.source",
    "valid_where": "{values} of {every} values count, those where {input} is set; {left_out} {left_out:does|do} not "
    "count",
    "samples.random": "the samples are random, so they show only that the model converts. Give real inputs with "
    "--samples FILE, or as samples.source in the spec",
    "calibration": "INT8 calibration used none of the {rows} compared rows",
    "strata": "each of the {count} values of {stratum!r} has at least {least} rows",
    "strata.few": "values of {stratum!r} with fewer than {least} rows are not covered: {values}",
    "strata.left_out": "stratum {stratum!r}: nothing was measured for {values} because INT8 calibration used all such "
    "rows",
    "strata.bound": ". Even without a mismatch in {least} rows, up to {bound} of such rows may differ (95 %)",
}

_CONTRACT = {
    "contract": "names, shapes and dtypes match the reference",
    "contract.times": " (in {batches} batches)",
    "contract.no_output": "the candidate has no output {output!r} (outputs: {outputs})",
    "contract.more_output": "the candidate has an output {output!r} that the reference lacks",
    "contract.classes": "the candidate's columns of {output!r} are the classes {found}, the reference's {wanted}",
    "contract.takes": "the candidate's inputs are {actual_names}, the reference's {expected_names}",
    "contract.no_input": "the candidate lacks the reference's input {input!r}",
    "contract.more_input": "the candidate has an input {input!r} that the reference lacks",
    "contract.dtype": "the candidate's dtype is {actual_dtype}, the reference's {expected_dtype}",
    "contract.shape": "the candidate's shape is [{actual_shape}], the reference's [{expected_shape}], at rows "
    "{first_row!r}..{last_row!r}",
    "accepts_inputs": "the candidate accepted every batch",
    "accepts_inputs.refused": "the candidate refused {count:#batch} that the reference accepted: ",
    "accepts_inputs.batch": "rows {first_row!r}..{last_row!r}: {reason}",
    "measured.nothing": "no value of {output!r} could be compared",
    "measured.no_entries": ", because one of its axes is empty in every batch. If this is correct, ignore the output: "
    "outputs: {{{output}: {{ignore: REASON}}}} in the spec, or --ignore {output}=REASON",
    "fixed_dims": "{cause}",
    "fp32_base": "{base}, from which it is made, does not fail",
    "fp32_base.failed": "{base}, from which it is made, does not pass ({verdict}), so precision is not the cause. "
    "Run `diagnose` to find the operator",
    "fp32_base.unmeasured": "{base}, from which it is made, could not be measured, so a fault of the conversion may "
    "be hidden. With {base} among the targets, its own checks show the cause",
    "fp16_range": "with each value rounded to FP16, as on a GPU, {cause}. This CPU computes FP16 in FP32, which hides "
    "the overflow",
    "fp16_range.hidden": "{rows} of {every:#row} overflow on the way and come out wrong",
    "fp16_range.unknown": "with each value rounded to FP16, as on a GPU, values are beyond their limits. It is unknown "
    "whether they overflow: {reason}",
    "fp16_range.open": ". Use onnx-mixed or onnx-bf16, validate with --device cuda, or declare promote.for: [cpu]",
    "provider": "{side}: {cause}",
    "distinct": "reference and candidate are different files",
    "distinct.recorded": "both recordings have the same bytes ({digest}), so one may be a copy of the other",
    "distinct.code": "reference and candidate have the same parameters but different code: {changed}",
    "distinct.source": "the variant is an exact copy of the source, so nothing can differ",
    "distinct.objects": "both models have the same parameters, but paritygate cannot compare their code",
    "distinct.itself": "reference and candidate have the same bytes ({digest}), so there is nothing to compare",
    "served.several": "the server changed between versions {versions} of {model} during the comparison. Compare "
    "again, or add /versions/N after the name",
    "served": "the server runs version {version} of {model}, the same as the reference",
    "served.other": "the server runs version {version} of {model}, but the reference is version {released}. Restart "
    "the server, write its view again, or add /versions/{released} after the name",
}

_VALUES = {
    "exact": "{mismatches} of {values} values differ",
    "exact.tipped": ". If {output} is an argmax, rounding can flip near ties. Return all scores too, and declare "
    "--argmax-of {output}=SCORES (argmax_of in a spec)",
    "exact.quantity": ". A limit applies to integers only by name. If {output} is a quantity, declare "
    "--tolerance {output}:max_abs_diff=1 (tolerance in a spec)",
    "floor.equal": "no value differs, so {check} {least:g} holds",
    "floor.zeros": "the reference is all zeros and the candidate is not, so {check} {least:g} does not hold",
    "floor.nothing": "no float value of {output!r} was compared, but {check} requires at least {least:g}",
    "finite": "the candidate is finite wherever the reference is",
    "finite.broken": "{count:#value} {count:is|are} NaN or infinite where the reference is finite",
    "finite.other": "{count:#value} {count:differs|differ} from the reference's NaN or infinity",
    "finite.declared": "; {count:#declared non-finite value} {count:matches|match}",
    "fill_values": "{values:#fill value} ({fills:.6g}), all equal",
    "fill_values.wrong": "{count} of {values:#fill value} ({fills:.6g}) {count:differs|differ} from the reference",
    "fill_values.first": ": {actual:.6g}, first in row {row!r}",
    "fill_values.only": ": {actual:.6g} in row {row!r}",
    "fill_values.nearest": "; {count} {count:is|are} the nearest value that the precision has ({substitutes:.6g})",
    "p9999": "the 99.99 % quantile of {values} differences is {quantile:.4g} times the limit",
    "p9999.beyond": "the 99.99 % quantile of {values} differences is {quantile:.4g} times the limit",
    "bias": "signed mean {bias:.3g}, limit {bar:.3g}",
    "bias.above": "signed mean {bias:.3g} against a limit of {bar:.3g}",
    "bias.channel": " in channel {channel} of {channels}",
    "bias.half": " (95 % interval: {low:.3g} to {high:.3g})",
    "bias.none": ". The interval contains 0",
    "repeats": "{passes} passes differ by at most {difference:.4g}, {ratio:.3g} times the limit",
    "resolution": "{precision} cannot resolve {channels} because {cause} {floor:.3g}, and the values vary by only "
    "{spread:.3g}. Declare a decision or a max_abs_diff for this output, or keep it in float32",
    "resolution.steps": "{steps} steps of {precision} are",
    "resolution.implementations": "implementations of the last operator differ by",
    "resolution.noise": "the reference's own noise is",
    "variation": "{channels} hardly {count:varies|vary} in these samples because fewer than {least} values differ "
    "from the median",
    "variation.zeros_pass": ". In {precision}, the limit of channel {channel} is {limit:.3g}, but no value exceeds "
    "{largest:.3g}, so zeros would pass too. Add rows with larger values, or declare a max_abs_diff",
    "channels.all": "this output",
    "channels": "{count:channel|channels} {names}",
    "channels.first": "{count:#channel} of {total} ({names}, ...)",
    "padding": "{left_out} values {where} are within their limits, compared separately",
    "padding.zero": "where {input} is 0",
    "padding.empty": "where {input} is never set",
    "padding.differs": "{output} differs {where}: {check}: {difference}",
    "padding.differs_rows": "{output} differs in {rows:#row}, {where}: {check}: {difference}",
    "padding.excused": ". This is excused as padding. {advice}. It is excused because {cause}. All values but these "
    "{left_out} are judged",
    "padding.fill": ". This is not excused because the reference writes a fill value there",
    "padding.probe": "probe_{probe}, at {about}, where {input} is 0: {check}: {difference}. This is excused because "
    "{cause}. {advice}",
    "padding.failed": "where {input} is 0: {difference}",
    "padding.advice": "If nobody reads these positions, write outputs: {{{output}: {{valid_where: {input}}}}} in the "
    "spec, or --valid-where {output}={input}. If somebody does, set edge: fail",
    "padding.advice_rows": "If such rows occur, remove empty: false from the role of {input}",
}

_DECISIONS = {
    "decisions": "{mismatches} of {decisions} decisions differ ({in_band} near the boundary, {out_of_band} not; "
    "{rows_mismatched} of {rows} rows, below {bound} at 95 %)",
    "decisions.outside": ". A flip away from the boundary always fails, as in {count:row|rows} {ids!r}",
    "decisions.allowed": ", allowed: {allowed}",
    "decisions.cap": ", allowed near the boundary: {cap}",
    "rate": "{bound} of the rows at 95 %, allowed: {allowed:.3%}",
    "rate.few": ". {rows} rows cannot show this; {needed} rows without a mismatch can",
    "coverage.sides": "the reference has {positive} positive and {negative} negative decisions",
    "coverage.classes": "the reference chooses {count:#class}",
    "coverage.constant": "; declared constant: {declared}",
    "coverage.not_constant": ", but the decisions differ",
    "coverage.one_answer": ". All decisions are {answer}, so these rows do not show that {precision} keeps them. Add "
    "rows with other decisions, or declare decisions.{output}.constant: REASON, or --constant-decision {output}=REASON",
    "coverage.positive": ". Fewer than {share:.0 %} are positive (see docs/gate.md)",
    "coverage.negative": ". Fewer than {share:.0 %} are negative (see docs/gate.md)",
    "coverage.others": ". Other classes are not covered",
    "answer.positive": "positive",
    "answer.negative": "negative",
    "answer.classes": "{count:class|classes} {labels}",
}

_DETECTIONS = {
    "match.nothing": "neither model has a detection in {rows} rows",
    "match.dtype": "the candidate's dtype of {output!r} is {actual_dtype}, the reference's {expected_dtype}",
    "match.shape": "the candidate's shape of {output!r} is {actual_shape}, the reference's {expected_shape}",
    "match.broken": "the candidate's outputs are not valid detections: {cause}",
    "match": "{matched} of {total} detections matched at IoU {iou:g}, {missing} missing, {extra} extra",
    "match.near_floor": ", {at_floor} unmatched near the score floor {score_floor:g}",
    "match.at_end": ", {at_end} unmatched with equal scores at the end of full lists in {end_rows} of {rows} rows",
    "match.smallest": "; smallest IoU {min_iou:.4g}, coordinates differ by at most {difference:.4g}",
    "match.example": "; {example}",
    "match.below_floor": ". {count} of the reference score below {score_floor:g} and were not compared",
    "match.no_floor": ". Declare the lowest score that matters: score_floor",
    "match.mostly_end": ". Equal scores explain this in at most {share:.0 %} of the rows. Declare a score_floor above "
    "the scores at the end of the lists",
    "match.left_by": "; unmatched by {stratum!r}: {values}",
    "match.not_covered": "values of {stratum!r} are not covered because the reference detects nothing there: {values}",
    "match.finite": "every detection is finite",
    "match.not_finite": "{count} detections of the candidate are NaN or infinite",
    "match.of_rule": "{match}: {difference}",
    "match.repeats": "later passes have the detections of the first pass, in {batches} batches",
    "match.changed": "detections differ from the first pass in {changed} of {batches} batches of later passes: rows "
    "{first_row!r}..{last_row!r}: {difference}",
    "match.without": "one of the passes has no output {output!r}",
    "match.first_broken": "the first pass has no valid detections ({cause}), and this pass differs",
    "earlier.unknown": "the evidence does not name the check",
    "earlier.more": "and {count} more checks",
    "of_check": "{check}: {difference}",
}

_GOLD = {
    "gold": "candidate {candidate:.6g}, reference {reference:.6g}, difference {difference:.6g} (95 %: {interval}) "
    "over {rows} rows{without}",
    "gold.without": ", {rows} rows without gold left out",
    "gold.interval": "{low:.3g} to {high:.3g}",
    "gold.no_interval": "unknown",
    "nothing": "",
    "gold.no_limit": "; no limit is declared",
    "gold.undefined": ". The metric is not defined for these rows",
    "gold.reference_undefined": ". The reference's metric is not defined because its outputs or the gold values are "
    "constant",
    "gold.ratio_of_nothing": ". A ratio needs a reference above 0; use max_drop",
    "gold.below": "; below the limit {limit:.6g}{rule}",
    "gold.few": ". {rows} rows have gold (expected at least {needed}, min_rows)",
    "gold.least": ". {rows} rows have gold (expected at least {needed})",
    "gold.at_least": "; limit {limit:.6g}{rule}",
    "gold.few_resamples": ". Too few resamples have a metric to confirm this",
    "gold.may_be_below": ". At 95 %, the metric may be {difference:.3g} below the limit",
    "gold.ratio": " ({ratio:g} % of the reference's)",
    "gold.drop": " (at most {least:g} less)",
}

_PROBES = {
    "probe.left_out": " (left out: {what})",
    "probe.at": "at {about}",
    "probe.at_edge": " ({edge}, unlike every sample, but edge: fail includes such rows)",
    "probe.failed": ": {check}: {difference}",
    "probe.more": ", and {count:#more batch}",
    "probe.alike_before": "; {rows} rows agreed before that",
    "probe.more_edges": "{count:#more out-of-sample finding}",
    "probe.rest": "; the others of {rows} rows agree",
    "probe.in_part": "run in part: ",
    "probe.alike": "{rows} rows agree",
    "probe.but_padding": ", except padding of {outputs} (see undeclared_padding)",
    "probe.more_samples": ". More samples let the probe run more batches",
    "probe.nothing": "the probe had no batch to run",
    "probe.does_not_apply": "does not apply because {lacks}",
    "probe.finding": "{edge}, unlike every sample: outputs differ at {about}{more}: {difference}",
    "probe.itself": "the probe itself failed because of a bug in paritygate, not in a model: {error}. The log has the "
    "traceback; please report it. To leave the probe out, use --probes; a release records that",
    "probe.not_asked": "not run: {reason}",
    "probe.refused": "the candidate refuses the batch: {reason}",
    "probe.refused_all": "{reason}",
    "probe.without": "the candidate returns no {output!r}",
    "probe.contract": "the candidate's {output!r} is {actual_dtype}[{actual_shape}], the reference's "
    "{expected_dtype}[{expected_shape}]",
    "probe.not_finite": "{output!r} is NaN or infinite where the reference is finite",
    "probe.again_failed": "the probe {name}, whose batches this probe reuses, failed: ",
    "probe.again_differs": "{output!r} differs by {difference:.3g} from the candidate's {side}{part} (limit "
    "{limit:.3g})",
    "probe.again_others": "{match}: detections differ from the candidate's {side}: {difference}",
    "probes.not_asked": "not run: {reason}",
    "probes.not_recorded": "not run because the reference was recorded without {probes}",
    "probes.text": "no probe changes the text input {input!r}; add rows with capitals, empty and long texts",
    "probes.nor": ", so {probes} did not run either",
}

_REFERENCE = {
    "text_over": "{over}",
    "in_brackets": " ({over})",
    "health.no_floats": "no float output, so the noise floor is 0",
    "health.noise": "noise floor {noise:.3g} over {over}",
    "health.in_output": ", in output {output!r}",
    "health.not_over": "not over {name} because {reason}",
    "health.depends_on": "not over {name} because the reference depends on them",
    "reference_batch": "output {output!r} depends on the batch: a row differs by {difference:.3g} between batch sizes "
    "(limit {limit:.3g}). Parity is shown only for batches like those of the samples",
    "reference_batch.shape": "output {output!r} depends on the batch: a row differs in shape or finiteness between "
    "batch sizes. Parity is shown only for batches like those of the samples",
    "reference_batch.not_measured": "not measured: {reason}. Parity is shown only for batches like those of the "
    "samples",
    "reference_threads": "output {output!r} differs by {difference:.3g} between the runtime's threads and a single "
    "thread (limit {limit:.3g}). Parity is shown only for this number of threads",
    "reference_threads.shape": "output {output!r} differs in shape or finiteness between the runtime's threads and a "
    "single thread. Parity is shown only for this number of threads",
    "reference_finite": "all outputs are finite",
    "reference_finite.declared": "{count:#non-finite value}, as declared",
    "reference_varies": "{outputs} {count:varies|vary} between rows",
    "reference_varies.not_measured": "not measured because no two rows have the same shape",
    "reference_repeats": "{rows:#row} run twice, largest difference {difference:.3g}",
    "reference_repeats.not_measured": "not measured because the outputs were recorded elsewhere",
    "noise": "the reference varies by {measured:.3g} over {over}, but {name} allows {limit:.3g}, so an exact copy "
    "could fail. ",
    "noise.declare": "Declare {name} of at least {least:.2g}",
    "noise.mend": "Compare in one batch size, or fix the reference",
    "noise.not_asked": "the reference cannot run again on rows that fail: {reason}",
    "noise.excuses_nothing": "the reference itself varies by {difference:.3g} on row {row!r}, alone and in its batch. "
    "This is {ratio:.3g} times the limit and excuses nothing",
    "noise.excused": "row {row!r} differs by {difference:.3g}, and the reference itself varies there by {noise:.3g}, "
    "alone and in its batch. This is the limit of the row",
    "noise.excused_rows": ", except rows within the reference's own noise: {difference}",
    "noise.in_batch": "probe_{probe}, at {about}: {output!r} of the reference varies by {difference:.3g} between a "
    "row alone and in a batch. This is {ratio:.3g} times the limit and excuses nothing",
    "jumps": "both models jump to each other's output at {count:#row} ({count:row|rows} {ids!r}{more}) when inputs "
    "move by a rounding. {count:This row is|These rows are} excused (at most {cap})",
    "jumps.more": ", ...",
    "jumps.excused": ", except rows where both models jump: {difference}",
}

_CAUSES = {
    "cause.channels_reversed": "the channels of {inputs} are reversed, as between RGB and BGR",
    "cause.sizes_exchanged": "height and width of {inputs} are exchanged",
    "cause.layout": "the layout of {inputs} differs: one side reads NCHW, the other NHWC",
    "cause.scaled": "the scale of {input} differs: the candidate needs its values times {factor:.6g}",
    "cause.not_normalised": "the candidate lacks a normalisation: it needs {input} less {mean:.4g}, divided by "
    "{std:.4g}",
    "cause.normalised_again": "the candidate scales {input} once more, as by a second normalisation: it needs {input} "
    "times {std:.4g}, plus {mean:.4g}",
    "cause.other_normalisation": "the candidate normalises {input} by mean {candidate_mean:.4g} and std "
    "{candidate_std:.4g}; the reference by mean {mean:.4g} and std {std:.4g}",
    "cause.optimisations": "the runtime's graph optimisations change the outputs",
    "cause.confirmed": "; with this changed, the largest difference in {rows:#other row} falls from {before:.4g} to "
    "{after:.4g} times its limit",
    "cause.answered": "; with this changed, the candidate runs, and the largest difference in {rows:#other row} is "
    "{after:.4g} times its limit",
    "cause.not_confirmed": "; the worst row fits this, {rows:#row} together do not",
    "cause.no_time": "the time for trials ended before this one",
    "cause.not_asked": "no trial was made, because the model is on a server; --endpoint trials=1 allows trials",
    "cause.merged": "no trial was made, because merge runs no model; compare the rows that fail without --shard",
    "cause.training_mode": "{count:#operator} {count:is|are} in training mode ({names}); export the model in "
    "evaluation mode",
    "cause.saved_in_train_mode": "the file was saved in train mode ({names}); save it again after model.eval()",
    "cause.intermittent": "the same batch gets different outputs: row {row!r} is wrong in the first and correct in "
    "the second",
    "cause.intermittent.passes": "the same batches get different outputs in {passes} passes",
    "cause.other_weights": "{count} of {total} weight tensors differ from the source's, such as {name}; the file "
    "may come from another checkpoint",
    "cause.row_factors": "each row of {output} has a different factor, {low:.4g} to {high:.4g}; one side may lack a "
    "normalisation",
    "cause.operator": "the models first differ at {names} ({operators}): {difference}",
    "cause.proven": "; with the reference's values there, the outputs agree",
    "cause.no_operator": "no operator was found",
    "cause.stopped": "; the search stopped early, after {count:#tensor}",
    "cause.fault": "looking for the cause failed: {reason}",
}

_DIVERGENCE = {
    "divergence.other_number": "the models have different numbers of {names}",
    "divergence.other_output": "output {output} is {actual}, but the reference's is {expected}",
    "divergence.unknown": "the values of {outputs} cannot be compared",
    "divergence.no_budget": "the budget of tensors does not allow one run of each model",
    "divergence.rounding": "the difference is no larger than the candidate's rounding of every tensor",
    "divergence.small": "it is small and may be rounding; graph-diff --within 1e-6 lists the nodes that differ",
    "divergence.overflow": "{operator} overflows because its values reach {largest:.4g} in FP32, and FP16 ends at "
    "{limit:.0f}",
    "divergence.overflow_more": "; {count:#later operator} {count:overflows|overflow} too",
    "divergence.all_matched": "every inner tensor has a partner",
    "divergence.exchanged": "output {output} has the values of the reference's output {other}",
    "divergence.no_partner": "the candidate has {operator}, but no tensor of the reference has its values",
    "divergence.operator": "the reference has {other_operator}, the candidate {operator}",
    "divergence.lost": "the reference has {operators} before {operator}, but the candidate has nothing here",
    "divergence.added": "the candidate has {operators} before {operator}, but the reference has nothing here",
    "divergence.constant_there": "the constant of {operator} differs: {reference:.6g} in the reference, "
    "{candidate:.6g} in the candidate, which has no {operator}",
    "divergence.constant_here": "the constant of {operator} differs: {reference:.6g} in the reference, "
    "which has no {operator}, {candidate:.6g} in the candidate",
    "divergence.equal_nodes": "both have {operator}, with equal attributes and constants, but its outputs differ",
    "divergence.other_values": "the values of {operators} differ from those of the reference's {other_operators}",
    "divergence.added_here": "the candidate has {operators}, but the reference has nothing here",
    "divergence.not_alone": "other nodes between {names} and {end} may differ too",
    "divergence.attribute": "{name} is {candidate}, not {reference}",
    "divergence.constant": "input {number} ({input}) {difference}",
    "divergence.is_constant": "input {number} ({input}) is constant, but computed in the reference",
    "divergence.is_computed": "input {number} ({input}) is computed, but constant in the reference",
    "divergence.other_input": "input {number} is a different tensor ({input})",
    "minimal.unknown": "not all nodes between the equal tensors and the first different one are known",
    "minimal.large": "the place has {count} nodes, but a minimal model has at most {most}",
    "minimal.inputs": "the fault does not show on random inputs; add --with-inputs to store the real ones",
    "minimal.holds": "the attributes of {operator} hold weights, tables or nodes, which cannot be random",
    "minimal.unseen": "the fault does not show in these nodes alone",
    "divergence.rounded_weights": "{count} of {total} weights differ; {most} of them: each {difference}",
    "divergence.changed_weights": "{count} of {total} weights differ a little",
    "stage.other_stages": "the stages differ (got {names}, expected {expected_names})",
    "stage.none": "no single stage returns different values for the reference's input",
    "stage.nothing": "stage {name} returns no values, so nothing was compared",
    "stage.fails": "stage {name} fails on the reference's value: {reason}",
    "stage.differs": "stage {name} differs on the reference's value: {difference}",
    "stage.other_parts": "it returns {actual} arrays, not {expected}",
    "stage.other_names": "it returns {names}, not {expected_names}",
    "stage.own_names": (
        "stage {name} returns {names} where the reference returns {expected_names}, so no stage is judged by itself"
    ),
    "stage.other_items": "{count} of {total} values differ",
    "stage.error": "its values differ by {share:.2g} of their size",
    "stage.other_shape": "its shape is {actual_shape}, not {expected_shape}",
    "stage.cut_off": "its shape is {actual_shape}, not {expected_shape}, and the part that both have is equal",
    "stage.reversed": "axis {number} is reversed",
    "stage.factor": "its values are {factor:.6g} times the reference's",
    "stage.affine": "its values are {factor:.6g} times the reference's, plus {offset:.6g}",
    "weight.other": "has different values",
    "weight.scalar": "is {candidate:.6g}, not {reference:.6g}",
    "weight.rounded": "is rounded to {precision}",
    "weight.transposed": "is transposed",
    "weight.shape": "has shape {candidate}, not {reference}",
    "weight.part_zero": "is zero in {part} {numbers}",
    "weight.part_other": "has different values in {part} {numbers}",
    "weight.zero": "is zero",
    "weight.factor": "is {factor:.6g} times the reference's",
    "weight.other_checkpoint": "is from another checkpoint",
    "weight.close": "differs by {difference:.2g} of its size",
}

SENTENCES: Mapping[str, str] = {
    **_SHARED,
    **_OF_ROWS,
    **_CONTRACT,
    **_VALUES,
    **_DECISIONS,
    **_DETECTIONS,
    **_GOLD,
    **_PROBES,
    **_REFERENCE,
    **_CAUSES,
    **_DIVERGENCE,
}
