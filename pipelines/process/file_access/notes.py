"""Pass examined paths from the child to its parent through shared memory, so that the kernel need not stop each call.

A note holds a kind and state, then a path; a null byte ends each part. The memory is zero at first, so two null bytes
end the notes. Only the process that mapped the memory writes; the kernel stops each call of a forked copy instead.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

# Room for about 300,000 paths; the kernel allocates pages only as they are written.
BYTES = 1 << 25
# The parent counts here each event after which paths may lead elsewhere; then each path is noted again.
_MOVES = slice(0, 8)
_FIRST = 8
# Longer than any note.
_FULL = BYTES - (1 << 16)
_END = b"\0"

# Kinds. The state of a look or link is the size of a file, NO_FILE for anything else, or ABSENT. The state of bytecode
# is the identity and the path of its source.
LOOK = "s"
LINK = "l"
BYTECODE = "c"
NO_FILE = "-"
ABSENT = ""


class NotesWriter:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, BYTES)
        os.close(descriptor)
        self._memory.seek(_FIRST)
        self._process = os.getpid()
        self._noted: set[tuple[str, str]] = set()
        self._moves = self._memory[_MOVES]

    def is_writable(self) -> bool:
        """Return whether this process may write here; forget all notes if paths may lead elsewhere now."""
        moves = self._memory[_MOVES]
        if moves != self._moves:
            self._moves = moves
            self._noted.clear()
        return os.getpid() == self._process and self._memory.tell() < _FULL

    def note(self, kind: str, state: str, path: str) -> None:
        """Add a note, unless the path has one of this kind."""
        key = (kind, path)
        if key not in self._noted:
            # One call of C, so that notes of several threads do not mix.
            self._memory.write(b"%s%s\0%s\0" % (kind.encode(), os.fsencode(state), os.fsencode(path)))
            self._noted.add(key)


class NotesReader:
    """The parent's end."""

    def __init__(self) -> None:
        self.childs_end = os.memfd_create("paritygate-notes")
        os.ftruncate(self.childs_end, BYTES)
        self._memory = mmap.mmap(self.childs_end, BYTES)
        self._at = _FIRST
        self._moves = 0

    def forget(self) -> None:
        """Let the child note each path again."""
        self._moves += 1
        self._memory[_MOVES] = self._moves.to_bytes(8, "little")

    def new(self) -> Iterator[tuple[str, str, str]]:
        """Yield kind, state and path of each note since the last call.

        Raises:
            ValueError: The memory holds something else.
        """
        if self._memory[self._at] == 0:
            return
        end = self._memory.find(_END + _END, self._at)
        if end < 0:
            raise ValueError("a note has no end")
        begin, self._at = self._at, end + 1
        # An odd number of parts raises an error as well.
        parts = iter(self._memory[begin:end].split(_END))
        for state, path in zip(parts, parts, strict=True):
            yield chr(state[0]), os.fsdecode(state[1:]), os.fsdecode(path)

    def close_childs_end(self) -> None:
        """Close the descriptor that the child inherited."""
        os.close(self.childs_end)
