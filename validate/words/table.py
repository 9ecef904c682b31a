"""Every sentence on a check, by its key: what is said of a measurement is worded here and nowhere else."""

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
    "steps": "; near {magnitude:.4g}, {precision} has steps of {steps:.3g}, and this is at most {most} of them: it "
    "may be rounding alone",
    "steps.own_tolerance": "; a tolerance of your own would say what is right",
    "stratum_value": "{value!r} (rows: {rows})",
    "left_of_value": "{count} of {value!r} (rows: {rows})",
    "other_values": " and {count} other values",
}

_OF_ROWS = {
    "rows": "{rows:#row} in {batches:#batch}",
    "rows.none": "no rows were compared",
    "rows.none_left": ": all {left_out} are left out, for INT8 was calibrated on them",
    "rows.passes": ", asked {passes} times",
    "rows.few": ": fewer than the {least} that min_rows asks for; {rows:#row} without a mismatch: up to {share:.0 "
    "%} may differ; give more rows, or accept so few: --min-rows {rows} (min_rows in a spec)",
    "rows.little": ": so few say little, for {rows} without a mismatch bound its rate at {bound}",
    "rows.left_out": "; {left_out} of {total} are left out, for INT8 was calibrated on them",
    "rows.own_calibration": ", and none would be with rows of their own in calibration.source",
    "valid_where": "{values} of {every} values count, those where {input} is set; {left_out} {left_out:is|are} "
    "left out",
    "samples.random": "the samples are random: they show that the model converts, not that it answers alike; give "
    "real inputs, with --samples FILE or as samples.source in the spec",
    "calibration": "none of the {rows} rows compared was calibrated on",
    "strata": "each of the {count} values of {stratum!r} has {least} rows or more",
    "strata.few": "of {stratum!r} are not covered, with fewer than {least} rows: {values}",
    "strata.left_out": "stratum {stratum!r}: nothing was measured for {values}, for INT8 was calibrated on all of them",
    "strata.bound": "; {least} rows without a mismatch bound its rate at {bound}",
}

_CONTRACT = {
    "contract": "names, shapes and dtypes are the reference's",
    "contract.times": " (in {batches} batches)",
    "contract.no_output": "the candidate has no output {output!r} (it has: {outputs})",
    "contract.more_output": "the candidate has an output {output!r} that the reference lacks",
    "contract.classes": "the columns of the candidate's {output!r} are the classes {found}, of the reference's "
    "{wanted}",
    "contract.takes": "the reference takes {expected_names}, and the candidate takes {actual_names}",
    "contract.no_input": "the candidate does not take the reference's input {input!r}",
    "contract.more_input": "the candidate takes an input {input!r} that the reference does not",
    "contract.dtype": "the candidate's dtype is {actual_dtype}, the reference's {expected_dtype}",
    "contract.shape": "the candidate's shape is [{actual_shape}], the reference's [{expected_shape}], at rows "
    "{first_row!r}..{last_row!r}",
    "accepts_inputs": "every batch was answered",
    "accepts_inputs.refused": "{count:#batch} that the reference answers {count:was|were} not answered: ",
    "accepts_inputs.batch": "rows {first_row!r}..{last_row!r}: {reason}",
    "measured.nothing": "no value of {output!r} could be compared",
    "measured.no_entries": ": an axis of it has no entries in any batch; where that is right, leave it out: "
    "outputs: {{{output}: {{ignore: REASON}}}} in the spec, or --ignore {output}=REASON",
    "fixed_dims": "{cause}",
    "provider": "{side}: {cause}",
    "distinct": "reference and candidate are not the same file",
    "distinct.recorded": "two files of recorded outputs with the same bytes ({digest}): a copy would look like this",
    "distinct.code": "reference and candidate have the same parameters, and not the same code: {changed}",
    "distinct.source": "the variant is the source itself, byte for byte: nothing was converted, so nothing could "
    "differ",
    "distinct.objects": "both have the same parameters, and whether they have the same code is not known",
    "distinct.itself": "reference and candidate are the same bytes ({digest}): a file is not compared with itself",
    "served.several": "the server answered as versions {versions} of {model}: it was given another one while it "
    "was asked; compare again, or ask one with /versions/N behind the name",
    "served": "the server answered as version {version} of {model}, of which the reference is",
    "served.other": "the server answered as version {version} of {model}, and the reference is of version "
    "{released}: start it again, write its view again, or ask /versions/{released} behind the name",
}

_VALUES = {
    "exact": "{mismatches} of {values} values differ",
    "exact.tipped": "; if {output} is the place of the largest score, rounding tips near ties: return all scores "
    "as an output too, and declare --argmax-of {output}=SCORES (argmax_of in a spec)",
    "cosine.nothing": "of {output!r} no float value was compared, and a cosine similarity of {least:g} is asked",
    "finite": "the candidate is finite wherever the reference is",
    "finite.broken": "{count:#value} {count:is|are} NaN or infinite where the reference is finite",
    "finite.other": "{count:#value} {count:is|are} not the NaN or infinity that the reference holds there",
    "finite.declared": "; {count:#declared non-finite value} {count:matches|match}",
    "fill_values": "{values:#fill value} ({fills:.6g}), compared exactly",
    "fill_values.wrong": "{count} of {values:#fill value} ({fills:.6g}) {count:is|are} not what the reference "
    "holds there",
    "fill_values.first": ": {actual:.6g}, first in row {row!r}",
    "fill_values.only": ": {actual:.6g} in row {row!r}",
    "fill_values.nearest": "; {count} as the nearest that the precision holds ({substitutes:.6g})",
    "p9999": "of {values} values 99.99 % are within the limit: the 99.99 % quantile is {quantile:.4g} of it",
    "p9999.beyond": "the 99.99 % quantile is {quantile:.4g} times the limit",
    "bias": "{bias:.3g}, at most {bar:.3g}",
    "bias.above": "{bias:.3g}, above {bar:.3g}",
    "bias.channel": " in channel {channel} of {channels}",
    "bias.half": ", half the limit of the mean (95 %: {low:.3g} to {high:.3g})",
    "bias.none": "; the interval holds 0",
    "repeats": "{passes} passes differ by {difference:.4g} at most, {ratio:.3g} of the limit",
    "resolution": "{precision} cannot resolve {channels}: {cause} {floor:.3g}, and the values vary by "
    "{spread:.3g}; declare a decision, a max_abs_diff of this output, or keep it in float32",
    "resolution.steps": "{steps} steps of {precision} are",
    "resolution.implementations": "implementations of its last operator differ by",
    "resolution.noise": "the noise of the reference itself is",
    "variation": "{channels} hardly {count:varies|vary} on these samples: fewer than {least} values differ from "
    "the median",
    "variation.zeros_pass": "; the limit of channel {channel} is {limit:.3g} in {precision} and no value exceeds "
    "{largest:.3g}, so that zeros pass as well: give rows that reach it, or declare a max_abs_diff",
    "channels.all": "this output",
    "channels": "{count:channel|channels} {names}",
    "channels.first": "{count:#channel} of {total} ({names}, ...)",
    "padding": "{left_out} values {where} are compared apart, and are within their limits",
    "padding.zero": "where {input} is 0",
    "padding.empty": "where {input} is nowhere set",
    "padding.differs": "{where}, {output} differs: {check}: {difference}",
    "padding.differs_rows": "{where}, {output} differs in {rows:#row}: {check}: {difference}",
    "padding.excused": "; excused as padding; {advice}; it is excused, because {cause}; judged is all else, "
    "without these {left_out} values",
    "padding.fill": "; not excused, because the reference writes a constant there that stands in for no value",
    "padding.probe": "probe_{probe}, at {about}, where {input} is 0: {check}: {difference}; excused, because "
    "{cause}; {advice}",
    "padding.failed": "where {input} is 0: {difference}",
    "padding.advice": "if nobody reads these positions, write outputs: {{{output}: {{valid_where: {input}}}}} in "
    "the spec, or --valid-where {output}={input}; if somebody does, edge: fail holds them",
    "padding.advice_rows": "if such rows do occur, leave out empty: false of {input}",
}

_DECISIONS = {
    "decisions": "{mismatches} of {decisions} decisions differ ({in_band} near the boundary, {out_of_band} not; "
    "{rows_mismatched} of {rows} rows, at 95 % below {bound})",
    "decisions.outside": ": away from the boundary a flip always fails, as at {count:row|rows} {ids!r}",
    "decisions.allowed": ", allowed are {allowed}",
    "decisions.cap": ", allowed near the boundary are {cap}",
    "rate": "{bound} of the rows at 95 %, allowed is {allowed:.3%}",
    "rate.few": ": {rows} rows cannot show it, {needed} rows without a mismatch would",
    "coverage.sides": "{positive} positive, {negative} negative in the reference",
    "coverage.classes": "{count:#class} chosen by the reference",
    "coverage.constant": "; declared constant: {declared}",
    "coverage.not_constant": ", and it is not",
    "coverage.one_answer": ": {answer} all over, and rows without another answer do not show that {precision} "
    "keeps the decision; add such rows, or say why none is needed: decisions.{output}.constant: REASON, or "
    "--constant-decision {output}=REASON",
    "coverage.positive": ": fewer than {share:.0 %} are positive (see docs/gate.md)",
    "coverage.negative": ": fewer than {share:.0 %} are negative (see docs/gate.md)",
    "coverage.others": ": other classes are not covered",
    "answer.positive": "positive",
    "answer.negative": "negative",
    "answer.classes": "{count:class|classes} {labels}",
}

_DETECTIONS = {
    "match.nothing": "neither side has a detection in {rows} rows",
    "match.dtype": "the candidate's dtype of {output!r} is {actual_dtype}, the reference's {expected_dtype}",
    "match.shape": "the candidate's shape of {output!r} is {actual_shape}, the reference's {expected_shape}",
    "match.broken": "the candidate's outputs hold no detections: {cause}",
    "match": "{matched} of {total} detections matched at IoU {iou:g}, {missing} missing, {extra} extra",
    "match.near_floor": ", {at_floor} left over near the score floor {score_floor:g}",
    "match.at_end": ", {at_end} left over at the end of full lists in {end_rows} of {rows} rows, where others "
    "score alike",
    "match.smallest": "; smallest IoU {min_iou:.4g}, coordinates differ by {difference:.4g} at most",
    "match.example": "; {example}",
    "match.below_floor": "; {count} of the reference score below {score_floor:g} and were not looked at",
    "match.no_floor": ": say where scores begin, with score_floor",
    "match.mostly_end": "; equal scores explain that in {share:.0%} of the rows at most: say with score_floor from "
    "which score on detections matter, above the end of the lists",
    "match.left_by": "; left over by {stratum!r}: {values}",
    "match.not_covered": "of {stratum!r} are not covered, as the reference detects nothing there: {values}",
    "match.finite": "every detection is finite",
    "match.not_finite": "{count} detections of the candidate are NaN or infinite",
    "match.of_rule": "{match}: {difference}",
    "match.repeats": "in {batches} batches of later passes the detections are those of the first pass",
    "match.changed": "in {changed} of {batches} batches of later passes the detections are others than in the "
    "first pass: rows {first_row!r}..{last_row!r}: {difference}",
    "match.without": "one of the answers is without {output!r}",
    "match.first_broken": "the first answer holds no detections ({cause}), and this one is another",
    "earlier.unknown": "the evidence does not say which check",
    "earlier.more": "and {count} more checks",
    "of_check": "{check}: {difference}",
}

_GOLD = {
    "gold": "candidate {candidate:.6g}, reference {reference:.6g}, difference {difference:.6g} (95 %: {interval}) "
    "over {rows} rows{without}",
    "gold.without": ", {rows} rows without gold left out",
    "gold.interval": "{low:.3g} to {high:.3g}",
    "gold.no_interval": "not known",
    "nothing": "",
    "gold.no_limit": "; no limit is declared",
    "gold.undefined": "; not defined of such rows",
    "gold.reference_undefined": "; the reference's is not defined: its answers or gold are all the same here",
    "gold.ratio_of_nothing": "; a ratio says nothing of a reference that is not above 0: use max_drop",
    "gold.below": "; below {limit:.6g}{rule}",
    "gold.few": "; {rows} rows carry gold, fewer than min_rows asks for, {needed}",
    "gold.least": "; {rows} rows carry gold, fewer than {needed}",
    "gold.at_least": "; at least {limit:.6g}{rule}",
    "gold.few_resamples": ", and too few resamples have a metric to bear it out",
    "gold.may_be_below": ", and at 95 % it may be {difference:.3g} below it",
    "gold.ratio": " ({ratio:g} % of the reference's)",
    "gold.drop": " (at most {least:g} less)",
}

_PROBES = {
    "probe.left_out": " (left out: {what})",
    "probe.at": "at {about}",
    "probe.at_edge": " ({edge}, as no sample has, and edge: fail asks it)",
    "probe.failed": ": {check}: {difference}",
    "probe.more": ", and {count:#more batch}",
    "probe.alike_before": "; {rows} rows were answered alike before that",
    "probe.more_edges": "{count} more ways to be unlike the samples",
    "probe.rest": "; the rest of {rows} rows answered alike",
    "probe.in_part": "asked in part: ",
    "probe.alike": "{rows} rows answered alike",
    "probe.but_padding": ", but for padding of {outputs}: see undeclared_padding",
    "probe.more_samples": "; more samples let it ask more",
    "probe.nothing": "nothing of it could be asked",
    "probe.does_not_apply": "does not apply: {lacks}",
    "probe.finding": "{edge}, as no sample has: the answers differ at {about}{more}: {difference}",
    "probe.itself": "the probe itself failed, by a fault of paritygate and not of a model: {error} (the traceback "
    "is in the log; --probes can leave the probe out, which a release records; please report it)",
    "probe.not_asked": "not asked: {reason}",
    "probe.refused": "the candidate does not answer: {reason}",
    "probe.refused_all": "{reason}",
    "probe.without": "the candidate answers without {output!r}",
    "probe.contract": "the candidate's {output!r} is {actual_dtype}[{actual_shape}], the reference's "
    "{expected_dtype}[{expected_shape}]",
    "probe.not_finite": "{output!r} is NaN or infinite where the reference is finite",
    "probe.again_failed": "what is asked again, {name}, could not be made: ",
    "probe.again_differs": "{output!r} differs by {difference:.3g} from the candidate's {side}{part} (limit "
    "{limit:.3g})",
    "probe.again_others": "{match}: others than in the candidate's {side}: {difference}",
    "probes.not_asked": "not asked: {reason}",
    "probes.not_recorded": "not asked: the reference was recorded without {probes}",
    "probes.nor": ", and so neither were {probes}",
}

_REFERENCE = {
    "text_over": "{over}",
    "in_brackets": " ({over})",
    "health.no_floats": "no float output: the noise floor is 0",
    "health.noise": "noise floor: {noise:.3g} over {over}",
    "health.in_output": ", in output {output!r}",
    "health.not_over": "not over {name}, as {reason}",
    "health.depends_on": "not over {name}, on which it depends",
    "reference_batch": "depends on the batch: a row of output {output!r} differs by {difference:.3g} between "
    "batches of other sizes (limit {limit:.3g}): parity is shown for batches like those of the samples only",
    "reference_batch.shape": "depends on the batch: a row of output {output!r} differs in shape or finiteness "
    "between batches of other sizes (limit {limit:.3g}): parity is shown for batches like those of the samples only",
    "reference_batch.not_measured": "not measured: {reason}: parity is shown for batches like those of the samples "
    "only",
    "reference_threads": "depends on the number of threads: output {output!r} differs by {difference:.3g} between "
    "the runtime's threads and a single one (limit {limit:.3g}): parity is shown for as many threads as there were "
    "here only",
    "reference_threads.shape": "depends on the number of threads: output {output!r} differs in shape or finiteness "
    "between the runtime's threads and a single one (limit {limit:.3g}): parity is shown for as many threads as "
    "there were here only",
    "reference_finite": "all finite",
    "reference_finite.declared": "{count} non-finite values, declared",
    "reference_varies": "{outputs} {count:varies|vary} over the inputs",
    "reference_varies.not_measured": "not measured: no two rows of one shape",
    "reference_repeats": "{rows:#row} run twice, largest difference {difference:.3g}",
    "reference_repeats.not_measured": "not measured: the outputs were recorded elsewhere",
    "noise": "over {over} the reference differs from itself by {measured:.3g}, and {name} allows {limit:.3g}: an "
    "exact copy of it could fail; ",
    "noise.declare": "declare {name} of {least:.2g} or more",
    "noise.mend": "compare in one batch size, or mend the reference",
    "noise.not_asked": "rows that fail are not asked of the reference again: {reason}",
    "noise.excuses_nothing": "asked again about row {row!r}, alone and in its batch, the reference differs from "
    "itself by {difference:.3g}, {ratio:.3g} limits: that excuses nothing",
    "noise.excused": "row {row!r} differs by {difference:.3g}, and the reference there from itself by {noise:.3g}, "
    "alone and in its batch: that is its limit",
    "noise.excused_rows": ", but for rows within the reference's own noise: {difference}",
    "noise.in_batch": "probe_{probe}: at {about}: the reference itself differs by {difference:.3g} in {output!r} "
    "between a row alone and in a batch, {ratio:.3g} limits: that excuses nothing",
    "jumps": "at {count:#row} ({count:row|rows} {ids!r}{more}) both sides jump to the other's answer where the "
    "inputs move by a rounding: {count:it is|they are} excused, at most {cap} would be",
    "jumps.more": ", ...",
    "jumps.excused": ", but for rows where both sides jump: {difference}",
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
    "cause.optimisations": "the runtime's graph optimisations change the answers",
    "cause.confirmed": "; with this changed, the largest difference in {rows:#other row} falls from {before:.3g} to "
    "{after:.3g} times its limit",
    "cause.answered": "; with this changed, the candidate answers, and the largest difference in {rows:#other row} is "
    "{after:.3g} times its limit",
    "cause.not_confirmed": "; the worst row looks like it, {rows:#row} together do not",
    "cause.no_time": "the time for trials was over before this one",
    "cause.not_asked": "no trial was made, because the model is on a server; --endpoint trials=1 allows trials",
    "cause.training_mode": "{count:#operator} {count:is|are} in training mode ({names}); export the model in "
    "evaluation mode",
    "cause.other_weights": "{count} of {total} weight tensors differ from the source's, such as {name}; the file "
    "may come from another checkpoint",
    "cause.row_factors": "each row of {output} has a factor of its own, {low:.4g} to {high:.4g}; one side may lack a "
    "normalisation",
    "cause.fault": "looking for the cause failed: {reason}",
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
}
