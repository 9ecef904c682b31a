"""Read the view of a release on disk, check its configuration with other settings, and replace it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.errors import MeasurementError, UsageError
from paritygate.files import files_below
from paritygate.pipelines.release.views.folder import check_folder_kind, writing_command
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.release.views.to_serve import ReleaseToServe
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.protobuf import ConfigError, data_of, text_of
from paritygate.pipelines.serving.triton.backends import files_of, served_signature
from paritygate.pipelines.serving.triton.lint import View, lint
from paritygate.pipelines.serving.triton.messages import config_of, parse_text
from paritygate.pipelines.serving.triton.settings import Settings, settings_of, with_settings
from paritygate.pipelines.serving.triton.tuned import TUNED_FILE
from paritygate.pipelines.serving.triton.view import CONFIG_FILE
from paritygate.pipelines.serving.written import KEEP, check_as_written, is_ours, with_body
from paritygate.pipelines.tuning.request import TuneRequest
from paritygate.signature import Signature

CHART_FILE = "tuned.svg"


@dataclass(frozen=True, kw_only=True, slots=True)
class PresentView:
    """A view that was written before."""

    root: Path  # the server's folder of models
    name: str
    written: str  # the configuration file with its head
    config: Mapping[str, Any]
    signature: Signature  # under the names served
    devices: tuple[str, ...]  # where the model was verified

    @property
    def settings(self) -> Settings:
        """The settings that it has."""
        return settings_of(self.config)

    def text(self, settings: Settings) -> str:
        """Return the configuration with other settings; raise UsageError if it breaks a rule of Triton."""
        text = with_body(self.written, text_of(config_of(with_settings(self.config, settings))))
        folder = self.root / self.name
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files_below(folder)}
        files = {name: size for name, size in sizes.items() if "/" in name}
        problems = lint(View(folder=self.name, text=text, files=files, signature=self.signature, devices=self.devices))
        if problems:
            msg = f"Triton would refuse {settings}, or answer wrongly: " + "; ".join(map(str, problems))
            raise UsageError(msg, hint="give other values with --max-batch-size, --instances and --queue-delay")
        return text

    def write(self, settings: Settings, evidence: bytes, chart: bytes) -> None:
        """Write evidence and chart, then, at once, the configuration if it changed.

        Raises:
            MeasurementError: The view was written again during the measurement, such as for another release.
            StorageError: The disk is full, or the place cannot be written.
        """
        place = Place(self.root)
        if place.read(f"{self.name}/{CONFIG_FILE}") != self.written.encode():
            msg = f"the view {self.root}/{self.name} was written again during the measurement, so it is not changed"
            raise MeasurementError(msg, hint="tune again: another release may be served now")
        place.replace(f"{self.name}/{TUNED_FILE}", evidence)
        place.replace(f"{self.name}/{CHART_FILE}", chart)
        if settings != self.settings:
            place.replace(f"{self.name}/{CONFIG_FILE}", self.text(settings).encode())


def read_present_view(request: TuneRequest, released: ReleaseToServe, name: str) -> PresentView:
    """Return the existing view of a release, under the model's name on the server.

    Raises:
        UsageError: It is missing, was not written by us or was changed by hand, or serves something else.
    """
    root, artifact, version = request.root, released.artifact, released.details.version
    place = Place(root)
    wanted = ViewRequest(
        command="triton",
        model=request.model,
        which=str(request.which),
        root=root.absolute(),
        name=name,
        variant=request.variant,
    )
    check_folder_kind(request.repository, wanted)
    content = place.read(f"{name}/{CONFIG_FILE}")
    hint = f"write it first: {writing_command(request.repository, wanted)}"
    if content is None:
        raise UsageError(f"{root} has no view of {name}", hint=hint)
    if not is_ours(content):
        msg = f"{root}/{name} was not written by the command triton, so it is not changed"
        raise UsageError(msg, hint="write the view to another folder, and tune that")
    written = content.decode(errors="replace")
    try:
        config = data_of(parse_text(written))
    except ConfigError as err:
        raise UsageError(f"{root}/{name}/{CONFIG_FILE} cannot be read: {err}", hint=hint) from err
    over = wanted.command_line(request.repository, "--overwrite")
    check_as_written(content, f"{root}/{name}/{CONFIG_FILE}", keep=f"{KEEP}; or write over it: {over}")
    served = [int(each) for each in config.get("version_policy", {}).get("specific", {}).get("versions", ())]
    there = place.digests(f"{name}/{version}")
    if served != [version] or any(there.get(at) != artifact.files[own] for at, own in files_of(artifact).items()):
        msg = f"the view {root}/{name} serves the versions {served}, and differs from the released version {version}"
        raise UsageError(msg, hint=hint)
    return PresentView(
        root=root,
        name=name,
        written=written,
        config=config,
        signature=served_signature(artifact),
        devices=released.devices,
    )
