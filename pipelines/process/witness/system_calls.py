"""The system calls by which a process opens files, looks for them, and reaches other machines, by processor."""

from __future__ import annotations

import platform
from dataclasses import dataclass

__all__ = ["ALWAYS_ANEW", "BEHIND_POINTER", "SystemCalls", "system_calls"]

BEHIND_POINTER = -1
ALWAYS_ANEW = -2


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemCalls:
    """Numbers of system calls of Linux on one kind of processor.

    Attributes:
        audit: The number by which the kernel calls the processor (AUDIT_ARCH_*).
        seccomp: `seccomp` itself.
        opens: Those that open a path; by number, where the arguments stand: folder (None for the current one), path,
            flags, or in place of the latter `BEHIND_POINTER` (the third argument leads to them) or `ALWAYS_ANEW` (there
            are none, and a file is made or emptied).
        looks: Those that look at a path without opening it; by number, where folder, path and flags stand (None for
            none). What they are asked of a link itself, or of an open file, is left out.
        links: Those that ask where a link leads to; by number, where folder and path stand.
        makes: Those that make a folder; by number, where folder and path stand.
        connects: Those that connect to an address, their second argument.
        unseen: Those by which files are read without any of the others.
    """

    audit: int
    seccomp: int
    opens: dict[int, tuple[int | None, int, int]]
    looks: dict[int, tuple[int | None, int, int | None]]
    links: dict[int, tuple[int | None, int]]
    makes: dict[int, tuple[int | None, int]]
    connects: frozenset[int]
    unseen: frozenset[int]

    @property
    def all(self) -> tuple[int, ...]:
        """The numbers of all of them."""
        return (*self.opens, *self.looks, *self.links, *self.makes, *self.connects, *self.unseen)


# Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6; those of `openat2`,
# `faccessat2`, `statx` and `io_uring_setup` are the same everywhere but for statx.
_TABLES = {
    "x86_64": SystemCalls(
        audit=0xC000003E,
        seccomp=317,
        # open, creat, openat, openat2
        opens={2: (None, 0, 1), 85: (None, 0, ALWAYS_ANEW), 257: (0, 1, 2), 437: (0, 1, BEHIND_POINTER)},
        # stat, access, newfstatat, faccessat, statx, faccessat2
        looks={
            4: (None, 0, None),
            21: (None, 0, None),
            262: (0, 1, 3),
            269: (0, 1, None),
            332: (0, 1, 2),
            439: (0, 1, 3),
        },
        # readlink, readlinkat
        links={89: (None, 0), 267: (0, 1)},
        # mkdir, mkdirat
        makes={83: (None, 0), 258: (0, 1)},
        connects=frozenset({42}),
        # getxattr, lgetxattr, fgetxattr, open_by_handle_at, io_uring_setup
        unseen=frozenset({191, 192, 193, 304, 425}),
    ),
    "aarch64": SystemCalls(
        audit=0xC00000B7,
        seccomp=277,
        opens={56: (0, 1, 2), 437: (0, 1, BEHIND_POINTER)},
        # readlinkat, faccessat, newfstatat, statx, faccessat2
        looks={48: (0, 1, None), 79: (0, 1, 3), 291: (0, 1, 2), 439: (0, 1, 3)},
        links={78: (0, 1)},
        makes={34: (0, 1)},
        connects=frozenset({203}),
        unseen=frozenset({8, 9, 10, 265, 425}),
    ),
}


def system_calls() -> SystemCalls | None:
    """Return the numbers for this processor; None where they are not known, or this is no Linux."""
    return _TABLES.get(platform.machine()) if platform.system() == "Linux" else None
