"""What a process read and its result may depend on."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Readings:
    """What a process and all processes that it started read, by absolute path.

    Attributes:
        files: Device, inode, size and times of each opened file when it was first opened.
        contents: Digests of files whose identity does not show each change.
        bytecode: The `.pyc` files of modules, whether they exist or not.
        folders: Digest of the names in each listed folder.
        without_reports: The same without the files of `--json`.
        modules_in: Digest of the possible module names in each folder that only imports listed.
        searched: Folders of `modules_in` where each searched name is known, so no other name counts. The value is
            whether the installed packages there were listed as well.
        imports: `endings_of_module` of each module path that was searched for in `searched`.
        sizes: Size of each file that was examined and not opened; None for anything but a file.
        links: Target of each path that was examined as a link; None for anything but a link.
        attributes: Digest of the extended attributes of each file whose attributes were read.
        looked_at: Modification time (nanoseconds since 1970) and mode of each path whose times the user's code read.
        absent: Paths that were looked for and missing.
        variables: Environment variables that Python code read.
        variables_of_user: Those that the user's own code read.
        reads_host_name: Whether the user's own code read the name of the machine.
        why_unknown: The reason why this may be incomplete; empty if it is complete.
    """

    files: dict[str, tuple[int, ...]] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    bytecode: set[str] = field(default_factory=set)
    folders: dict[str, str] = field(default_factory=dict)
    without_reports: dict[str, str] = field(default_factory=dict)
    modules_in: dict[str, str] = field(default_factory=dict)
    searched: dict[str, bool] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int | None] = field(default_factory=dict)
    links: dict[str, str | None] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    looked_at: dict[str, tuple[int, int]] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    variables_of_user: set[str] = field(default_factory=set)
    reads_all_variables: bool = False
    reads_host_name: bool = False
    why_unknown: str = ""
