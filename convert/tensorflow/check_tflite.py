"""Check that LiteRT loads a converted TFLite model, with the promised signature."""

from __future__ import annotations

from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.models.tensorflow.tflite_file import open_tflite


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the promised signature, once the file is proved sound."""
    with our_file():
        model = open_tflite(job.folder / conversion.main)
    facts = {"loaded_in": f"litert {model.version}"}
    return as_promised(job, conversion, model.signature, facts, keeps_names=False)
