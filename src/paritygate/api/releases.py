"""Read a repository of releases in Python."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from paritygate.errors import ArtifactIntegrityError, UsageError
from paritygate.pipelines.release import DEFAULT_REPOSITORY
from paritygate.pipelines.release.released_model import ReleasedModel
from paritygate.pipelines.release.repository.inspect import (
    ModelSummary,
    ReleaseDetails,
    Verification,
    list_models,
    show,
    verify_release,
)
from paritygate.pipelines.release.signing.keys import read_verifying_key
from paritygate.roots import Root, root_of

__all__ = ["Release", "ReleasedModel", "Repository"]


def _place(root: str | os.PathLike[str]) -> Root:
    return root if isinstance(root, Path) else root_of(os.fspath(root))


class Repository(Struct, frozen=True):
    """A repository of releases in the folder `root`, or at an address such as `s3://models/prod`."""

    root: str | os.PathLike[str] = DEFAULT_REPOSITORY

    def models(self) -> tuple[ModelSummary, ...]:
        """Return the models with versions and aliases, sorted by name; raise InputFileError without such a folder."""
        return list_models(_place(self.root))

    def release(self, model: str, which: int | str | None = None) -> Release:
        """Return a release by a version or alias; None is the highest version.

        Raises:
            UsageError: There is no such model or release; the message names the existing ones.
            InputFileError: There is no such repository.
            ArtifactIntegrityError: Its manifest or evidence is corrupt.
        """
        return Release(root=_place(self.root), details=show(_place(self.root), model, which))


class Release(Struct, frozen=True, kw_only=True):
    """One release of a repository; `details` has its manifest, numbers and history."""

    root: Root
    details: ReleaseDetails

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.details.model

    @property
    def version(self) -> int:
        """Its number."""
        return self.details.version

    @property
    def aliases(self) -> tuple[str, ...]:
        """The aliases that point to it."""
        return self.details.aliases

    @property
    def variants(self) -> tuple[str, ...]:
        """Its variants, the preferred one first."""
        return tuple(entry["name"] for entry in self.details.manifest["variants"])

    def path(self, variant: str | None = None) -> Path:
        """Return the file or folder that the runtime of a variant opens, unverified; None is the preferred one.

        Raises:
            UsageError: The release has no such variant; the message names those that it has.
        """
        name = self._named(variant)
        main = {entry["name"]: entry["main"] for entry in self.details.manifest["variants"]}[name]
        return self.details.local_folder() / name / str(main)

    def load(self, variant: str | None = None, *, device: str = "cpu") -> ReleasedModel:
        """Return a variant in its runtime, ready to run, after every file of the release was verified.

        None is the preferred variant, and the device is `cpu` or `cuda`.

        Raises:
            UsageError: The release has no such variant; the message names those that it has.
            ArtifactIntegrityError: A file was changed, removed or added.
            MissingBackendError: Its runtime is not installed.
            BackendError: The runtime refused it.
        """
        name = self._named(variant)
        self.verify()
        return ReleasedModel(self.model, self.version, self.details.local_folder() / name, device=device)

    def _named(self, variant: str | None) -> str:
        name = self.variants[0] if variant is None else variant
        if name not in self.variants:
            msg = f"{self.model} version {self.version} has no variant {name!r} (variants: {', '.join(self.variants)})"
            raise UsageError(msg, hint="name one of these, or none for the first")
        return name

    def verify(self, *, key: str | os.PathLike[str] | None = None) -> Verification:
        """Read every file of the release. With `key`, the file of a public key, it must be signed by that.

        Raises:
            ArtifactIntegrityError: A file was changed, removed or added, or the key did not sign it.
        """
        public = None if key is None else read_verifying_key(Path(key))
        verification = verify_release(self.root, self.model, self.version, key=public)
        if not verification.is_accepted:
            msg = f"{self.model} version {self.version} is {verification.problem}"
            raise ArtifactIntegrityError(msg, hint="restore the release from a backup, or promote the model again")
        return verification
