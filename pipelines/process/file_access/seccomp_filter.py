"""Start a child under a filter of system calls that reports all its inputs to the parent.

The filter (seccomp, `SECCOMP_RET_USER_NOTIF`) stops a call until the parent has seen it, and then lets it continue.
It is installed before the child's Python begins, because the files that Python reads at its start count as well.
Threads, processes and programs that start later inherit it.
"""

from __future__ import annotations

import os
import struct
import sys

from paritygate.pipelines.process.file_access.system_calls import HARMLESS, SystemCalls, system_calls

# Passed as the folder of an absolute path where Python notes the call itself, so that the filter lets it pass.
NOWHERE = -1_000_003
# The only flags with which the filter lets a file be opened like that.
UNSEEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC
# The child looks for this path, which does not exist, when its Python begins to note.
NOTES_ITSELF = "/dev/paritygate-notes"
# linux/bpf_common.h, linux/seccomp.h
_LOAD_WORD = 0x20
_AND = 0x54
_JUMP_IF_EQUAL = 0x15
_JUMP_IF_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_TELL = 0x7FC00000
# Offsets in `struct seccomp_data`.
_NUMBER_AT = 0
_PROCESSOR_AT = 4
_ARGUMENTS_AT = 16
_ARGUMENT_BYTES = 8
# sched.h: flags that give a process its own view of the machine, such as of mounts; all except that of times.
NAMESPACES = 0x7E020000
# ioctl numbers of network interfaces, and the mask of that group.
_OF_INTERFACES = 0x8900
_KIND = 0xFFFFFF00
# sys/socket.h, DONTROUTE | CONFIRM | NOSIGNAL: no other message has these flags.
_HANDS_OVER = 0x4 | 0x800 | 0x4000

# The child runs this first, with -I -S, so that no file of the user can take the place of Python's own modules.
_BEGIN = """
import ctypes, os, sys, _socket
at, number, flags, content, *command = sys.argv[1:]
at, flags, content = int(at), int(flags), bytes.fromhex(content)
parent = _socket.socket(fileno=at)
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))
held = ctypes.create_string_buffer(content)
program = Program(len(content) // 8, ctypes.addressof(held))
PR_SET_NO_NEW_PRIVS, SECCOMP_SET_MODE_FILTER, NEW_LISTENER = 38, 1, 1 << 3
libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
listener = libc.syscall(int(number), SECCOMP_SET_MODE_FILTER, NEW_LISTENER, ctypes.byref(program))
if listener < 0:
    why = os.strerror(ctypes.get_errno())
    parent.send(f"the kernel does not tell what a process reads: seccomp: {why}".encode())
else:
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))]
    parent.sendmsg([b"."], rights, flags)
    os.close(listener)
parent.close()
os.execv(command[0], command)
"""


def watched(command: list[str], descriptor: int) -> list[str]:
    """Return a command that installs the filter, sends its descriptor to the parent, and runs `command`.

    Args:
        command: A program by its path, and its arguments.
        descriptor: A Unix socket that the child inherits; the parent holds the other end.
    """
    calls = system_calls()
    assert calls is not None  # noqa: S101 - nobody listens elsewhere
    number, content = str(calls.numbers["seccomp"]), _instructions(calls, descriptor).hex()
    return [sys.executable, "-I", "-S", "-c", _BEGIN, str(descriptor), number, str(_HANDS_OVER), content, *command]


def _instructions(calls: SystemCalls, descriptor: int) -> bytes:
    """Return the filter, which stops each call that is not known to be harmless, and all of another processor."""
    lines = [_load(_PROCESSOR_AT), (_JUMP_IF_EQUAL, 1, 0, calls.audit), _answer(_TELL), _load(_NUMBER_AT)]
    # For calls that pass with any arguments, the kernel skips the filter.
    for name in sorted(HARMLESS & calls.numbers.keys()):
        lines += [(_JUMP_IF_EQUAL, 0, 1, calls.numbers[name]), _answer(_ALLOW)]
    for name, checks in _with_arguments(descriptor).items():
        if name in calls.numbers:
            lines += [(_JUMP_IF_EQUAL, 0, len(checks), calls.numbers[name]), *checks]
    lines.append(_answer(_TELL))
    # struct sock_filter: code, jump if true, jump if false, operand.
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


_Line = tuple[int, int, int, int]


def _with_arguments(descriptor: int) -> dict[str, list[_Line]]:
    """Return the checks of calls that are stopped only with some arguments."""
    return {
        # With any flags a call may name a path, which only the memory of the process shows.
        "newfstatat": [_argument(0), *_if_equal(NOWHERE, _ALLOW), _answer(_TELL)],
        "openat": [
            _argument(0),
            (_JUMP_IF_EQUAL, 0, 3, NOWHERE & 0xFFFFFFFF),
            _argument(2),
            *_if_equal(UNSEEN_FLAGS, _ALLOW),
            _answer(_TELL),
        ],
        "clone": [_argument(0), *_if_any(NAMESPACES), _answer(_ALLOW)],
        "ioctl": [_argument(1), (_AND, 0, 0, _KIND), *_if_equal(_OF_INTERFACES, _TELL), _answer(_ALLOW)],
        # Both halves of the pointer to an address.
        "sendto": [
            _argument(4),
            *_if_any(0xFFFFFFFF),
            _argument(4, half=1),
            *_if_any(0xFFFFFFFF),
            _answer(_ALLOW),
        ],
        "sendmsg": [
            _argument(0),
            (_JUMP_IF_EQUAL, 0, 3, descriptor),
            _argument(2),
            *_if_equal(_HANDS_OVER, _ALLOW),
            _answer(_TELL),
        ],
    }


def _load(at: int) -> _Line:
    return _LOAD_WORD, 0, 0, at


def _argument(number: int, *, half: int = 0) -> _Line:
    return _load(_ARGUMENTS_AT + number * _ARGUMENT_BYTES + half * _ARGUMENT_BYTES // 2)


def _answer(value: int) -> _Line:
    return _RETURN, 0, 0, value


def _if_equal(value: int, answer: int) -> list[_Line]:
    return [(_JUMP_IF_EQUAL, 0, 1, value & 0xFFFFFFFF), _answer(answer)]


def _if_any(bits: int) -> list[_Line]:
    return [(_JUMP_IF_ANY_BIT, 0, 1, bits), _answer(_TELL)]
