"""`pack`: write a run folder into one file, for another machine."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import WrittenPath


@click.command("pack")
@shared.run_and_root_options
@click.option(
    "--output",
    "-o",
    "file",
    type=WrittenPath(dir_okay=False, path_type=Path),
    help="The file to write; MODEL-RUN.paritygate.tar in the current folder if not given. A pack "
    "of the same run is replaced; any other file stays.",
)
@click.option(
    "--without-inputs",
    is_flag=True,
    help="Leave out the files that the spec names, ids of rows and failing inputs; unpack then needs --folder DIR.",
)
@output_options("quiet", "json")
def command(*, run_folder: Path | None, file: Path | None, without_inputs: bool, output: Output) -> int:
    """Make one file of a run folder, which unpack restores on another machine, every digest checked.

    With it go the files that its spec names: model, samples, and the Python files beside the spec. Where the spec says
    report: {inputs: hide}, they stay here.

    \b
    Example:
      convert-and-validate pack \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
      convert-and-validate pack \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b \\
        --output klue-sts.paritygate.tar
    """
    from paritygate.pipelines.packing.write import pack_run
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.report.terminal.pack import print_pack
    from paritygate.text import counted

    opened = shared.open_given_run(run_folder, "run or export")
    with output.progress(opened.resolved.name) as progress, stage(progress, "packing") as did:
        packed = pack_run(opened, output=file, with_inputs=not without_inputs, progress=progress)
        did(f"packed {counted(len(packed.manifest.files), 'file')}")
    print_pack(packed, to_stderr=output.to_stderr)
    output.write(packed.to_json())
    return 0
