"""The child's side: the kernel is asked to tell the parent of all that brings something into the process.

A filter of system calls (seccomp, `SECCOMP_RET_USER_NOTIF`) holds such a call until the parent has seen it, and then it
goes on. It is there before the child's Python begins, since what that reads to begin counts as well. Threads, processes
and programs that are started later inherit it, whatever language they are written in.
"""

from __future__ import annotations

import os
import struct
import sys

from paritygate.pipelines.process.witness.system_calls import HARMLESS, SystemCalls, system_calls

# In place of a folder beside a path that needs none, where Python notes itself what it asks.
NOWHERE = -1_000_003
# With that, a file is opened like this alone.
UNSEEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC
# The child looks for this once its Python notes itself what it does; nothing is there.
NOTES_ITSELF = "/dev/paritygate-notes"
# linux/bpf_common.h, linux/seccomp.h
_LOAD_WORD = 0x20
_AND = 0x54
_JUMP_IF_EQUAL = 0x15
_JUMP_IF_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_TELL = 0x7FC00000
# Where these stand in `struct seccomp_data`.
_NUMBER_AT = 0
_PROCESSOR_AT = 4
_ARGUMENTS_AT = 16
_ARGUMENT_BYTES = 8
# sched.h: all that gives a process a view of its own, such as of mounts, but for that of times.
NAMESPACES = 0x7E020000
# ioctl of network interfaces, and what is left of a number of them.
_OF_INTERFACES = 0x8900
_KIND = 0xFFFFFF00
# sys/socket.h, DONTROUTE | CONFIRM | NOSIGNAL: no other message is sent with these.
_HANDS_OVER = 0x4 | 0x800 | 0x4000

# The first that the child does, before it becomes what it is to be. It must not import what a user may have put in the
# place of Python's own modules: it runs with -I -S.
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
    """Return the command that does the same, and first tells the parent of the descriptor to listen by.

    Args:
        command: A program by its path, and its arguments.
        descriptor: A Unix socket that the child inherits, whose other end the parent holds.
    """
    calls = system_calls()
    assert calls is not None  # noqa: S101 - nobody listens elsewhere
    number, content = str(calls.numbers["seccomp"]), _instructions(calls, descriptor).hex()
    return [sys.executable, "-I", "-S", "-c", _BEGIN, str(descriptor), number, str(_HANDS_OVER), content, *command]


def _instructions(calls: SystemCalls, descriptor: int) -> bytes:
    """Return the filter: what is not known to be harmless is told of, another processor's calls too."""
    lines = [_load(_PROCESSOR_AT), (_JUMP_IF_EQUAL, 1, 0, calls.audit), _answer(_TELL), _load(_NUMBER_AT)]
    # The kernel knows of those that are allowed whatever their arguments, and asks the filter no more.
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
    """Return the checks of those that are told of by some of their arguments alone."""
    return {
        # With any flag, a path may be named: what it is can be read in the memory of the process alone.
        "newfstatat": [_argument(0), *_if_equal(NOWHERE, _ALLOW), _answer(_TELL)],
        "openat": [
            _argument(0),
            (_JUMP_IF_EQUAL, 0, 3, NOWHERE & 0xFFFFFFFF),
            _argument(2),
            *_if_equal(UNSEEN_FLAGS, _ALLOW),
            _answer(_TELL),
        ],
        "clone": [_argument(0), *_if_any(NAMESPACES, _TELL), _answer(_ALLOW)],
        "ioctl": [_argument(1), (_AND, 0, 0, _KIND), *_if_equal(_OF_INTERFACES, _TELL), _answer(_ALLOW)],
        # Both halves of the pointer to an address.
        "sendto": [
            _argument(4),
            *_if_any(0xFFFFFFFF, _TELL),
            _argument(4, half=1),
            *_if_any(0xFFFFFFFF, _TELL),
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


def _if_any(bits: int, answer: int) -> list[_Line]:
    return [(_JUMP_IF_ANY_BIT, 0, 1, bits), _answer(answer)]
