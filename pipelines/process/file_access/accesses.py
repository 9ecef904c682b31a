"""Hold what a process read, as far as its result may follow from it."""

from __future__ import annotations

from msgspec import Struct, field


class FileAccesses(Struct, kw_only=True):
    """Hold what a process and all its children read, by absolute path."""

    # Opened files: device, inode, size and times when first opened.
    files: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # Digests of what was read at that moment, where an identity does not show later changes.
    contents: dict[str, str] = field(default_factory=dict)
    bytecode: set[str] = field(default_factory=set)  # that Python keeps, or would keep, of modules
    folders: dict[str, str] = field(default_factory=dict)  # listed ones: the digest of the names at that time
    without_reports: dict[str, str] = field(default_factory=dict)  # the same without the files written for `--json`
    # Folders that Python alone listed to find modules: the digest of the names that can be modules.
    modules_in: dict[str, str] = field(default_factory=dict)
    # Those of them where all searched names are known, so that no other name counts: whether packages were listed.
    searched: dict[str, bool] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)  # `endings_of_module` of each module searched for in those
    sizes: dict[str, int | None] = field(default_factory=dict)  # of what was not opened; None for no file
    links: dict[str, str | None] = field(default_factory=dict)  # where a link leads to; None for no link
    attributes: dict[str, str] = field(default_factory=dict)  # the digest of the extended attributes
    # Looked at by the user's own code: written last, in nanoseconds since 1970, and the mode.
    looked_at: dict[str, tuple[int, int]] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)  # looked for and not there
    variables: set[str] = field(default_factory=set)  # of the environment, read by Python code
    variables_of_user: set[str] = field(default_factory=set)  # those read by the user's own code
    reads_all_variables: bool = False
    reads_host_name: bool = False  # in the user's own code
    why_unknown: str = ""  # why this may not be all; empty where it is
