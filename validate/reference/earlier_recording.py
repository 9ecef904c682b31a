"""Recordings of earlier versions, whose profiles are computed again from their arrays."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from paritygate.codec import from_data
from paritygate.validate.reference.noise_floor import NoiseFloor, with_noise
from paritygate.validate.reference.record import profile_all
from paritygate.validate.reference.recording import Recording


def load_to_judge(folder: Path) -> Recording:
    """Return the recording in `folder` with profiles by which candidates are judged.

    A recording without a spread for each channel gets new profiles. Profiles and limits stay where inputs that are not
    stored mask positions, or where arrays are missing.

    Raises:
        InputFileError: There is no recording, or it is of another format.
        ArtifactIntegrityError: It was changed after it was written.
    """
    recording = Recording.load(folder)
    is_masked = recording.settings.get("valid_where") or recording.settings.get("undeclared_padding")
    if not recording.digest_before or is_masked:
        return recording
    if not all((folder / chunk).is_file() for chunk in recording.chunks):
        return recording
    axes = {name: profile.axis for name, profile in recording.profiles.items() if profile.axis is not None}
    profiles = profile_all(
        recording.batches, shapes=recording.shapes, dtypes=recording.dtypes, axes=axes, signature=recording.signature
    )
    noise = recording.settings.get("noise")
    if noise is not None:
        profiles = with_noise(profiles, from_data(NoiseFloor, noise))
    return replace(recording, profiles=profiles)
