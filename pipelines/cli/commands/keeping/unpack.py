"""`unpack`: restore a run folder from the file of `pack`."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import written_root_option
from paritygate.pipelines.cli.output import Output, output_options


@click.command("unpack")
@click.argument("pack", metavar="FILE", type=click.Path(path_type=Path))
@written_root_option
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of the spec's files on this machine, if the pack leaves them out.",
)
@click.option(
    "--samples",
    type=click.Path(path_type=Path),
    help="The run's samples on this machine, if the pack leaves them out.",
)
@output_options("quiet", "json")
def command(pack: Path, *, root: Path, folder: Path | None, samples: Path | None, output: Output) -> int:
    """Restore the run in FILE, as pack wrote it, and print its folder. Every file is checked; no code in it is run.

    The stages of the run are then called with --run. They do run the code that came along, if the source or the
    samples are a module:callable.

    \b
    Example:
      convert-and-validate unpack klue-sts-20261120T101500Z-1a2b.paritygate.tar
      convert-and-validate unpack klue-sts.paritygate.tar --root elsewhere
    """
    from paritygate.pipelines.packing.restore import OwnInputs, unpack_run
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.report.terminal.pack import print_unpacked
    from paritygate.text import counted

    with output.progress(pack.name) as progress, stage(progress, "unpacking") as did:
        unpacked = unpack_run(pack, root=root, own=OwnInputs(folder=folder, samples=samples), progress=progress)
        did(f"restored {counted(len(unpacked.manifest.files), 'file')}")
    print_unpacked(unpacked, to_stderr=output.to_stderr)
    output.write(unpacked.to_json())
    return 0
