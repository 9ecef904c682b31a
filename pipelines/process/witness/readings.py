"""What a process read, as far as its result may follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Readings:
    """What a process and all that it started read, by absolute path.

    Attributes:
        files: Files that were opened, each with its device, inode, size and times when it was first opened.
        contents: Digests of what was read at that moment, where an identity does not tell that it stays as it is.
        bytecode: What Python keeps, or would keep, of modules.
        folders: Folders that were listed, each with the digest of the names in it at that time.
        without_reports: The same without the files that a command wrote for `--json`.
        modules_in: Of these folders, those that Python alone listed to find modules, each with the digest of the names
            that can be modules.
        searched: Of these, those where all names are known that were searched for, so that no other name counts; each
            with whether the installed packages there were listed as well.
        imports: What is there of each module that was searched for in those: `endings_of_module` of its path.
        sizes: What was looked at and not opened, with its size; None for what is no file.
        links: What was asked of a link itself, by path: where it leads to, or None where it is none.
        attributes: Extended attributes that were asked for, as a digest of all of them.
        looked_at: When what the user's own code looked at was written last, in nanoseconds since 1970, and its mode.
        absent: What was looked for and was not there.
        variables: Environment variables that Python code read.
        variables_of_user: Of these, those that the user's own code read.
        reads_all_variables: Whether all of them were read.
        reads_host_name: Whether the user's own code asked for the name of the machine.
        why_unknown: Why this may not be all, in words; empty where it is.
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
