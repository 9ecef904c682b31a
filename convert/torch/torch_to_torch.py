"""Copy a PyTorch source: its name, and the files that its code was imported from."""

from __future__ import annotations

import sys

from paritygate.backends import require_backend, version_of
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.torch.program import declared_signature
from paritygate.importing import file_of_module, user_files
from paritygate.models.source_copy import SOURCE_FILE, write_source_copy
from paritygate.models.torch.module import put_in_eval_mode


def convert(job: ConversionJob) -> Conversion:
    """Write `source.json`, and the user's own files, which include `job.files`, into `code/`."""
    require_backend("torch")
    signature = declared_signature(job)
    eval_note = put_in_eval_mode(job.model)
    write_source_copy(job.folder, job.source, job.model, job.rename, job.files)
    module = job.source.text.partition(":")[0]
    installed_note = None
    if file_of_module(sys.modules.get(module)) not in user_files(job.source.folder):
        installed_note = f"module {module!r} is installed and not copied: serving it needs the same installation"
    return Conversion(
        main=SOURCE_FILE,
        signature=signature,
        notes=tuple(note for note in (eval_note, installed_note) if note),
        facts={"torch": version_of("torch")},
    )
