"""Every place where a name becomes part of a path, and why the name cannot lead out of its folder.

A new place fails this test until it is entered below. Pass a name from a model, a pack, a server, a record or
a cache through `paritygate.file_names` first.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

# `paritygate.file_names` or `pipelines/spec/names.py` has checked the name: where it is read, or where it is joined.
CHECKED = {
    "convert/engine/build.py: path.parent / name",
    "convert/torch/check_torch.py: job.source.folder / name",
    "pipelines/cache/finished_run.py: folder.joinpath(name)",
    "pipelines/cache/store.py: entry.folder / str(at) / name",
    "pipelines/cache/store.py: target / name",
    "pipelines/cache/store.py: target / part",
    "pipelines/serving/kserve.py: root / self.folder",
    "pipelines/serving/kserve.py: root / self.name",
    "pipelines/packing/contents.py: folder / name",
    "pipelines/packing/contents.py: probes / probe.name",
    "pipelines/packing/contents.py: probes / probe.name / name",
    "pipelines/packing/contents.py: run.reference / name",
    "pipelines/packing/inputs.py: gathering.folder / name",
    "pipelines/packing/read.py: folder / file.name",
    "pipelines/packing/restore.py: final.with_name(f'.{manifest.run_id}.{secrets.token_hex(4)}.partial')",
    "pipelines/packing/restore.py: folder / file.name",
    "pipelines/packing/restore.py: folder.joinpath(*samples.split('/')[1:])",
    "pipelines/packing/restore.py: restored / name",
    "pipelines/packing/restore.py: root / 'runs' / manifest.model",
    "pipelines/packing/restore.py: root / 'runs' / manifest.model / manifest.run_id",
    "pipelines/packing/unpacked.py: run.folder / name",
    "pipelines/past_runs/cleaning.py: root / 'runs' / name",
    "pipelines/past_runs/finding.py: root / 'runs' / name",
    "pipelines/release/compared.py: details.local_folder() / name",
    "pipelines/release/deploy.py: out / file",
    "pipelines/release/deploy.py: repository / 'log' / details.model",
    "pipelines/release/oci/pull.py: content / name",
    "pipelines/release/oci/push.py: folder / name",
    "pipelines/release/repository/log.py: repository / name",
    "pipelines/release/repository/log.py: store.place / name",
    "pipelines/release/repository/store.py: repository / release_name(model, version)",
    "pipelines/release/stores/disk.py: self.place / folder",
    "pipelines/release/stores/disk.py: self.place / name",
    "pipelines/release/stores/objects.py: folder / name",
    "pipelines/release/stores/objects.py: self.place / folder",
    "pipelines/release/stores/objects.py: self.place / name",
    "pipelines/release/promote.py: place / CODE_FOLDER / name",
    "pipelines/release/promote.py: source.folder / name",
    "pipelines/release/repository/log.py: repository / _LOG / model",
    "pipelines/release/repository/manifest.py: folder / name",
    "pipelines/release/repository/manifest.py: folder / variant.name",
    "pipelines/release/repository/release.py: content / name",
    "pipelines/release/repository/release.py: content / variant.name",
    "pipelines/release/repository/release.py: folder / name",
    "pipelines/release/repository/release.py: variant.folder / name",
    "pipelines/release/views/places.py: self._address / checked_name(folder)",
    "pipelines/release/views/places.py: self._address / checked_name(name)",
    "pipelines/release/views/request.py: self.root / self.name",
    "pipelines/report/tables/run.py: artifact.folder / file",
    "pipelines/repair/conversion.py: place / found.file.name",
    "pipelines/repair/variant.py: place / made.main",
    "pipelines/repair/variant.py: run.folder / FOLDER / name",
    "pipelines/run/comparisons.py: artifact.folder / artifact.main",
    "pipelines/run/variant_maker.py: run.folder / f'.{name}.partial'",
    "pipelines/run/workspace.py: root / 'runs' / resolved.name",
    "pipelines/run/workspace.py: root / 'runs' / resolved.name / f'{stamp}-{secrets.token_hex(2)}'",
    "pipelines/run/workspace.py: self.findings / 'jobs' / name",
    "pipelines/run/workspace.py: self.findings / 'probes' / name",
    "pipelines/run/workspace.py: self.folder / 'bases' / variant",
    "pipelines/run/workspace.py: self.folder / name",
    "pipelines/run/workspace.py: self.folder / variant",
    "pipelines/serving/place.py: self._root / checked_name(name)",
    "pipelines/serving/ovms.py: artifact.folder / name",
    "pipelines/serving/tensorflow_serving.py: artifact.folder / name",
    "pipelines/serving/triton/view.py: artifact.folder / place",
    "pipelines/serving/place.py: staged / checked_name(name)",
    "src/paritygate/api/releases.py: self.details.local_folder() / name",
    "src/paritygate/api/releases.py: self.details.local_folder() / name / str(main)",
    "src/paritygate/artifact.py: self.folder / name",
    "src/paritygate/artifact.py: self.folder / self.main",
    "src/paritygate/file_names.py: folder / name",
    "src/paritygate/models/digest.py: path.parent / name",
    "src/paritygate/models/onnx/file.py: folder / file",
    "src/paritygate/models/onnx/file.py: folder / name",
    "src/paritygate/models/source.py: path / name",
    "src/paritygate/models/source.py: root / name",
    "src/paritygate/models/source_copy.py: folder / CODE_FOLDER / name",
    "validate/probes/record.py: plan.folder / name",
    "validate/probes/recording.py: self.folder / probe.name",
    "validate/reference/recording.py: folder / name",
}
# Whoever calls the tool, or writes the spec, names a file of their own.
GIVEN = {
    "src/paritygate/roots.py: folder / text",
    "pipelines/inspecting/init.py: folder / text",
    "pipelines/inspecting/init.py: request.here / request.model",
    "pipelines/inspecting/init.py: request.here / request.samples",
    "pipelines/run/released_to.py: folder / name",
    "pipelines/compare/models.py: folder / text",
    "pipelines/inspecting/init.py: here / text",
    "pipelines/inspecting/init.py: request.here / request.out",
    "pipelines/inspecting/init.py: request.here / name",
    "pipelines/packing/inputs.py: found.folder / text",
    "pipelines/packing/inputs.py: self.folder / f'{root}.py'",
    "pipelines/packing/inputs.py: self.folder / root",
    "pipelines/packing/inputs.py: self.folder / text",
    "pipelines/packing/restore.py: self.run.resolved.folder / text",
    "pipelines/release/compared.py: folder / text",
    "pipelines/release/repository_of_run.py: root.joinpath(*to.parts[1:])",
    "pipelines/release/repository_of_run.py: run.resolved.folder / to",
    "pipelines/spec/loading.py: folder / name",
    "pipelines/spec/loading.py: importlib.resources.files('paritygate.pipelines') / 'specs' / f'{text}.yaml'",
    "pipelines/spec/parts.py: folder / self.timing_cache",
    "pipelines/spec/schema.py: self.folder / chosen",
    "pipelines/spec/schema.py: self.folder / part.path",
    "pipelines/spec/schema.py: self.folder / part.source",
    "pipelines/scale/comparison.py: job.samples.folder / job.samples.text",
    "pipelines/shadow/shadow.py: details.local_folder() / variant",
    "pipelines/shadow/shadow.py: folder / each",
    "pipelines/tuning/view.py: self.root / self.name",
    "src/paritygate/models/source.py: folder / text",
    "src/paritygate/models/source.py: self.folder / self.text",
    "validate/samples/samples.py: source.folder / source.text",
    "validate/samples/table_check.py: source.folder / source.text",
    "src/paritygate/models/source.py: path.with_name(f'{path.name}.py')",
}
# A folder was listed, or a path that is there taken apart.
LISTED = {
    "pipelines/release/views/subscriptions.py: repository / name",
    "pipelines/inspecting/hugging_face.py: place / name",
    "convert/engine/build.py: place / path.name",
    "convert/tensorflow/savedmodel_to_savedmodel.py: job.folder / file.relative_to(source)",
    "convert/torch/torch_to_onnx.py: to / path.name",
    "pipelines/packing/contents.py: Path(parent) / name",
    "pipelines/packing/inputs.py: Path(parent) / name",
    "pipelines/packing/inputs.py: beside / path.relative_to(source.path.parent)",
    "pipelines/packing/inputs.py: folder / name",
    "pipelines/packing/inputs.py: found.folder / origin.name",
    "pipelines/past_runs/cleaning.py: folder.with_name(f'{_FAILED}{folder.name}')",
    "pipelines/past_runs/cleaning.py: folder.with_name(f'{_GOING}{folder.name}-{secrets.token_hex(2)}')",
    "pipelines/release/promote.py: place / path.relative_to(source.path.parent)",
    "pipelines/release/promote.py: place / source.path.name",
    "pipelines/release/stores/disk.py: Path(parent) / name",
    "pipelines/release/stores/objects.py: content / file",
    "pipelines/release/stores/staging.py: folder.with_name(folder.name + _REMOVING)",
    "pipelines/report/report_data.py: run.resolved.folder / origin.name",
    "pipelines/serving/place.py: Path(place) / PurePosixPath(folder).name",
    "pipelines/serving/place.py: Path(place) / target.name",
    "src/paritygate/files.py: Path(parent) / name",
    "validate/samples/pictures.py: folder / name",
    "validate/samples/samples.py: path / splits[0]",
}
# The tool makes the name: a constant, a number, a digest, random digits, or a name of its own tables.
OWN = {
    "pipelines/cli/many_specs.py: self.root / 'fleets' / stamp",
    "pipelines/fleet/fleet.py: self._here / f'{place}.json'",
    "pipelines/fleet/fleet.py: self._here / f'{place}.log'",
    "pipelines/fleet/fleet.py: request.folder / f'{at:04}'",
    "pipelines/scale/comparison.py: folder / f'part-{number}.json'",
    "pipelines/repair/conversion.py: work / f'compare-{at}'",
    "pipelines/repair/conversion.py: work / f'export-{at}'",
    "pipelines/inspecting/init.py: folder / f'{made.name}.py'",
    "pipelines/inspecting/init.py: folder / f'{name}.py'",
    "src/paritygate/models/source.py: path / name",
    "pipelines/cli/json_file.py: self._path.with_name(f'.{self._path.name}.{secrets.token_hex(4)}.prepared')",
    "convert/engine/check_tensorrt.py: job.folder / conversion.main",
    "convert/onnx/check_onnx.py: job.folder / conversion.main",
    "pipelines/cache/folder.py: folder / name",
    "pipelines/cache/store.py: entry.folder / str(at)",
    "pipelines/cache/store.py: place / f'{stamp}-{secrets.token_hex(2)}.{_bytes_in(staged)}'",
    "pipelines/cache/store.py: self.folder / f'{STAGED}{os.getpid()}-{secrets.token_hex(4)}'",
    "pipelines/cache/store.py: self.folder / key",
    "pipelines/cache/store.py: staged / str(at)",
    "pipelines/compare/output_cache.py: self._folder / role",
    "pipelines/live/processes.py: _PROC / 'net' / table",
    "pipelines/live/processes.py: _PROC / str(pid)",
    "pipelines/compare/reproduction.py: folder / f'{probe}-{failed.at}.npz'",
    "pipelines/packing/write.py: output.with_name(f'.{output.name}.{secrets.token_hex(4)}.tmp')",
    "pipelines/process/child.py: job.folder / f'{job.name}.job.json'",
    "pipelines/process/child.py: job.folder / f'{job.name}.result.json'",
    "pipelines/process/child.py: self.folder / f'{self.name}.log'",
    "pipelines/process/child_memory.py: _CGROUPS / folder",
    "pipelines/process/child_memory.py: _CGROUPS / folder / part",
    "pipelines/process/child_memory.py: _CGROUPS / folder / part / file",
    "pipelines/process/child_memory.py: _PROC / str(pid)",
    "pipelines/release/repository/local_copy.py: _cache() / digest.removeprefix('sha256:')",
    "pipelines/release/repository/local_copy.py: copy / f'{os.getpid()}.partial'",
    "pipelines/release/stores/folders.py: folder / part",
    "pipelines/release/stores/folders.py: repository.joinpath(*parts)",
    "pipelines/release/stores/staging.py: make_folders(repository, _STAGING) / secrets.token_hex(8)",
    "pipelines/report/against/write.py: run.findings / file",
    "pipelines/report/templating.py: Path(__file__).with_name(_TEMPLATES) / f'{key}.py'",
    "pipelines/report/write.py: run.findings / name",
    "pipelines/run/record.py: out.with_name(f'.{out.name}.jobs')",
    "pipelines/run/record.py: out.with_name(f'.{out.name}.partial')",
    "src/paritygate/files.py: path.with_name(f'.{path.name}.{secrets.token_hex(4)}.tmp')",
    "src/paritygate/machine.py: Path(place) / folder",
    "validate/reference/recording.py: self._folder / f'chunk-{len(self.chunks):06d}.safetensors'",
    "validate/samples/in_memory.py: folder / f'{number}.npz'",
    "validate/samples/in_memory.py: folder / f'{number}.{_GOLD}.npz'",
}
# Modules that divide numbers, and join no paths.
NUMBERS = {
    "convert/torch/shape_check.py",
    "pipelines/benchmark/load.py",
    "pipelines/cli/console.py",
    "pipelines/report/terminal/serving/tune.py",
    "pipelines/jobs/overflow.py",
    "pipelines/report/drawings/plot.py",
    "pipelines/report/drawings/scatter.py",
    "pipelines/report/tables/probes.py",
    "pipelines/selftest/mutations/equivalents.py",
    "validate/causes/cause.py",
    "validate/causes/first_steps.py",
    "validate/causes/input_scale.py",
}
# Divisions in modules that join paths as well.
DIVISIONS = {
    "pipelines/inspecting/image_processor.py: shorter / share",
    "pipelines/inspecting/picture_guess.py: max(height, width) / share",
    "pipelines/live/processes.py: max(0.0, last.cpu_s - first.cpu_s) / max(last.at - first.at, 1e-09)",
    "pipelines/release/regression.py: before / limit_before",
    "pipelines/release/regression.py: before.candidate / factors['gold']",
    "pipelines/release/regression.py: count / of",
    "pipelines/release/regression.py: count_before / of_before",
    "pipelines/release/regression.py: factors['mismatch_rate'] * max(count_before, 1) / of_before",
    "pipelines/release/regression.py: measured / limit",
    "pipelines/jobs/shard.py: spent / max(batches.rows * job.rules.passes, 1)",
    "pipelines/shadow/shadow.py: tally.shares / tally.test.requests",
    "validate/emulation/unclipped_openvino.py: (high - low) / (node.get_attributes()['levels'] - 1)",
    "validate/samples/pictures.py: (scaled - np.array(rules.mean, np.float32)) / np.array(rules.std, np.float32)",
}
_JOINS = {"joinpath", "with_name"}


def joins_in(text: str) -> list[str]:
    """Return each expression that joins a path, or divides, by what is not a constant."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts: list[ast.expr] = [node.right]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _JOINS:
            parts = node.args
        else:
            continue
        if not all(isinstance(part, ast.Constant) or ast.unparse(part).isupper() for part in parts):
            found.append(ast.unparse(node))
    return found


def _found(project_root: Path) -> dict[str, set[str]]:
    tops = [project_root / name for name in ("convert", "validate", "pipelines")]
    own = project_root / "src/paritygate"
    files = [path for top in tops for path in top.rglob("*.py")]
    files += [*own.glob("*.py"), *(path for name in ("api", "models", "engine") for path in (own / name).rglob("*.py"))]
    return {
        path.relative_to(project_root).as_posix(): set(joins_in(text))
        for path in files
        if "Path" in (text := path.read_text(encoding="utf-8"))
    }


def test_every_name_that_becomes_part_of_a_path_is_accounted_for(project_root: Path) -> None:
    found = {
        f"{module}: {join}" for module, joins in _found(project_root).items() if module not in NUMBERS for join in joins
    }

    assert len(found) > 100
    assert sorted(found - CHECKED - GIVEN - LISTED - OWN - DIVISIONS) == []


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("folder / name", 1),
        ("folder.joinpath(name)", 1),
        ("folder / 'x' / name", 1),
        ("folder / 'x'", 0),
        ("a / _B", 0),
    ],
)
def test_this_guard_sees_a_join(statement: str, count: int) -> None:
    assert len(joins_in(statement)) == count
