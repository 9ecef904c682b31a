"""The child's side: the kernel is asked to tell the parent of each file that is opened or looked for from now on.

A filter of system calls (seccomp, `SECCOMP_RET_USER_NOTIF`) holds such a call until the parent has seen it, and then it
goes on. Threads and processes that are started later inherit it, whatever language they are written in.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from paritygate.pipelines.process.witness.system_calls import SystemCalls, system_calls

__all__ = ["ask_to_be_watched"]

# linux/prctl.h, linux/seccomp.h, linux/bpf_common.h
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_FILTER_FLAG_NEW_LISTENER = 1 << 3
_SECCOMP_RET_ALLOW = 0x7FFF0000
_SECCOMP_RET_USER_NOTIF = 0x7FC00000
_LOAD_WORD = 0x20
_JUMP_IF_EQUAL = 0x15
_JUMP_IF_ANY_BIT = 0x45
_RETURN = 0x06
# Where these stand in `struct seccomp_data`.
_NUMBER_AT = 0
_PROCESSOR_AT = 4
_ARGUMENTS_AT = 16
_ARGUMENT_BYTES = 8
# fcntl.h: what is looked at is a link itself, or a file that is open. Python asks for links thousands of times while
# it finds out where a module lies.
_ABOUT_LINK_OR_OPEN = 0x100 | 0x1000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def ask_to_be_watched(descriptor: int) -> None:
    """Send the descriptor that the kernel tells of system calls by, or in words why there is none, to the parent.

    Args:
        descriptor: A Unix socket whose other end the parent holds; it is closed.
    """
    with socket.socket(fileno=descriptor) as parent:
        calls = system_calls()
        if calls is None:
            parent.send(b"only Linux on x86-64 and ARM64 tells what a process reads")
            return
        listener = _listen(calls)
        if listener < 0:
            why = os.strerror(ctypes.get_errno())
            parent.send(f"the kernel does not tell what a process reads: seccomp: {why}".encode())
            return
        socket.send_fds(parent, [b"."], [listener])
        os.close(listener)


def _listen(calls: SystemCalls) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    # Without privileges, a filter is for processes that can gain none.
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    content = _instructions(calls)
    held = ctypes.create_string_buffer(content)
    program = _Program(len(content) // 8, ctypes.addressof(held))
    number = libc.syscall(
        calls.seccomp, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_NEW_LISTENER, ctypes.byref(program)
    )
    return int(number)


def _instructions(calls: SystemCalls) -> bytes:
    """Return the filter: what another processor's number says is told of too, since it is not understood."""
    flagged = {number: at for number, (_, _, at) in calls.looks.items() if at is not None}
    plain = [number for number in calls.all if number not in flagged]
    allow = 3 + 3 * len(flagged) + len(plain)
    tell = allow + 1
    lines: list[tuple[int, int, int, int]] = [
        (_LOAD_WORD, 0, 0, _PROCESSOR_AT),
        (_JUMP_IF_EQUAL, 0, tell - 2, calls.audit),
        (_LOAD_WORD, 0, 0, _NUMBER_AT),
    ]
    for number, at in flagged.items():
        lines.append((_JUMP_IF_EQUAL, 0, 2, number))
        lines.append((_LOAD_WORD, 0, 0, _ARGUMENTS_AT + at * _ARGUMENT_BYTES))
        # A jump is counted from the instruction after it.
        after = len(lines) + 1
        lines.append((_JUMP_IF_ANY_BIT, allow - after, tell - after, _ABOUT_LINK_OR_OPEN))
    for number in plain:
        lines.append((_JUMP_IF_EQUAL, tell - len(lines) - 1, 0, number))
    lines.append((_RETURN, 0, 0, _SECCOMP_RET_ALLOW))
    lines.append((_RETURN, 0, 0, _SECCOMP_RET_USER_NOTIF))
    # struct sock_filter: code, jump if true, jump if false, operand.
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
