"""Check that a converted SavedModel loads, with the promised signature."""

from __future__ import annotations

from paritygate.backends import backend_state
from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.models.tensorflow.savedmodel import load_savedmodel


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the promised signature, once the SavedModel is proved sound."""
    with our_file():
        loaded = load_savedmodel(job.folder / conversion.main).signature
    facts = {"loaded_in": f"tensorflow {backend_state('tensorflow').version}"}
    return as_promised(job, conversion, loaded, facts, keeps_names=False)
