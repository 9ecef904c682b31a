"""Check that a program of torch.export loads, has the promised dims, and works at every size of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from paritygate.backends import version_of
from paritygate.convert.contract import as_promised, our_file
from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.torch.program import tied_dims
from paritygate.convert.torch.shape_check import check_all_sizes, module_call
from paritygate.convert.torch.sizes import example_sizes
from paritygate.models.torch.module import as_named_module
from paritygate.models.torch.names import named_file
from paritygate.models.torch.pt2_file import interface_of, known_names, load_pt2, taking_its_names
from paritygate.signature import Signature


def check(job: ConversionJob, conversion: Conversion) -> Conversion:
    """Return the conversion with the promised signature, once the file is proved sound."""
    path = job.folder / conversion.main
    with our_file():
        program = load_pt2(path)
        file_names = known_names(path, program, None, {})
    interface = interface_of(program, file_names)
    program_ties: dict[str, str] = {}
    if job.model is not None:
        program_ties = tied_dims(program, [interface.signature.inputs[index] for index in interface.inputs])
    ties = {**program_ties, **job.ties}
    facts = {"loaded_in": f"torch {version_of('torch')}"}
    # The file's dims first, because they show the cause, then the outputs.
    checked = as_promised(job, conversion, interface.found, facts, keeps_names=job.model is not None, ties=ties)
    module = program.module()
    named, signature = named_file(taking_its_names(program, module, module), file_names)
    expected = None if job.model is None else module_call(as_named_module(job.model, signature, job.rename))
    answered = check_all_sizes(
        module_call(named),
        signature,
        expected=expected,
        is_module=job.model is not None,
        other_sizes=_untied_sizes(program_ties.keys() - job.ties.keys(), signature, job.ties),
        rows=job.rows,
        ties=job.ties,
    )
    signature = replace(checked.signature, dims=checked.signature.dims or signature.dims)
    return replace(checked, signature=signature, notes=(*checked.notes, *answered.notes))


def _untied_sizes(names: Iterable[str], signature: Signature, ties: Mapping[str, str]) -> dict[str, list[int]]:
    """Return sizes that break a tie that only the program has, and that the module must refuse, too."""
    usual = example_sizes(signature, ties)
    sizes = {}
    for name in sorted(names):
        dim = signature.dims.get(name)
        near = (usual[name] - 1, usual[name] + 1)
        sizes[name] = [size for size in near if size > 0 and (dim is None or dim.min <= size <= dim.max)]
    return sizes
