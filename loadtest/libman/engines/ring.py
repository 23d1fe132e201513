"""The two rings of io_uring: operations for the kernel, and their completions.

By system call, without a library: the one that is maintained, `liburing` for Python (2026.3.30), says of its receive
call that it was never tested. Layouts and numbers are those of `linux/io_uring.h`.

Only the kernel moves the head of the first ring and the tail of the second, and both are only used right after a
system call of this thread, so that no memory barriers are needed, which Python does not have.
"""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import struct

_SETUP, _ENTER = 425, 426

ACCEPT, SEND, RECV = 13, 26, 27
"""Operations."""

_SETUP_CQSIZE = 1 << 3
_SETUP_COOP_TASKRUN = 1 << 8
"""The kernel works on completions when this thread calls it, without interrupting it. (`DEFER_TASKRUN`, which is newer,
takes 20 at a time: with 10,000 connections thousands of them then wait for seconds.)"""

_ENTER_GETEVENTS = 1 << 0
_ENTER_EXT_ARG = 1 << 3
_FEATURE_SINGLE_MMAP = 1 << 0
_OFFSET_RINGS, _OFFSET_ENTRIES = 0, 0x10000000

_PARAMETERS = struct.Struct("=10I8IQ8IQ")
_PARAMETERS_BYTES = 120
_ENTRY = struct.Struct("=BBHiQQIIQ24x")
_COMPLETION = struct.Struct("=QiI")
_ARGUMENTS = struct.Struct("=QIIQ")
_TIMESPEC = struct.Struct("=qq")

SUBMISSIONS = 4096
"""How many operations can be prepared before they have to be submitted."""

COMPLETIONS = 32768


Completion = tuple[int, int]
"""The operation's number, and its result: a number of bytes, a descriptor, or an error's number below zero."""


class Ring:
    """`submissions`: a power of two. Raises: OSError if this system has no io_uring, or not for this process."""

    def __init__(self, submissions: int = SUBMISSIONS) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        flags = _SETUP_CQSIZE | _SETUP_COOP_TASKRUN
        parameters = ctypes.create_string_buffer(
            struct.pack("=10I", 0, COMPLETIONS, flags, *[0] * 7), _PARAMETERS_BYTES
        )
        self.fd = self._system(_SETUP, submissions, ctypes.addressof(parameters))
        values = _PARAMETERS.unpack(parameters.raw)
        submissions, completions, features = values[0], values[1], values[5]
        if not features & _FEATURE_SINGLE_MMAP:
            os.close(self.fd)
            raise OSError(errno.ENOSYS, "io_uring of before Linux 5.4")
        _, sq_tail, sq_mask, _, _, _, sq_array = values[10:17]
        cq_head, cq_tail, cq_mask, _, _, cqes = values[19:25]
        size = max(sq_array + 4 * submissions, cqes + _COMPLETION.size * completions)
        self._rings = mmap.mmap(self.fd, size, offset=_OFFSET_RINGS)
        self._entries = mmap.mmap(self.fd, _ENTRY.size * submissions, offset=_OFFSET_ENTRIES)
        self._words = memoryview(self._rings).cast("I")
        self._sq_tail, self._sq_mask = sq_tail // 4, self._words[sq_mask // 4]
        self._cq_head, self._cq_tail, self._cq_mask = cq_head // 4, cq_tail // 4, self._words[cq_mask // 4]
        self._cqes = cqes
        self._tail = 0
        self._unsubmitted = 0
        for index in range(submissions):
            self._words[sq_array // 4 + index] = index
        self._timespec = ctypes.create_string_buffer(_TIMESPEC.size)
        arguments = _ARGUMENTS.pack(0, 0, 0, ctypes.addressof(self._timespec))
        self._arguments = ctypes.create_string_buffer(arguments, _ARGUMENTS.size)
        self._arguments_at = ctypes.addressof(self._arguments)

    def prepare(self, operation: int, fd: int, address: int, length: int, flags: int, number: int) -> None:
        """Add an operation, whose completion will have this number. `address`: of a buffer that stays where it is."""
        if self._unsubmitted > self._sq_mask:
            self._enter(0, 0)
        at = _ENTRY.size * (self._tail & self._sq_mask)
        _ENTRY.pack_into(self._entries, at, operation, 0, 0, fd, 0, address, length, flags, number)
        self._tail = (self._tail + 1) & 0xFFFFFFFF
        self._words[self._sq_tail] = self._tail
        self._unsubmitted += 1

    def wait(self, timeout: float | None) -> list[Completion]:
        """Submit what was prepared, wait for a completion for at most this many seconds, and return what there is."""
        if timeout is None:
            self._enter(1, _ENTER_GETEVENTS)
        else:
            whole = math.floor(timeout)
            _TIMESPEC.pack_into(self._timespec, 0, whole, int(1e9 * (timeout - whole)))
            self._enter(1 if timeout else 0, _ENTER_GETEVENTS | _ENTER_EXT_ARG)
        words, mask, at, unpack = self._words, self._cq_mask, self._cqes, _COMPLETION.unpack_from
        head, tail = words[self._cq_head], words[self._cq_tail]
        completions: list[Completion] = []
        while head != tail:
            number, result, _ = unpack(self._rings, at + _COMPLETION.size * (head & mask))
            completions.append((number, result))
            head = (head + 1) & 0xFFFFFFFF
        words[self._cq_head] = head
        return completions

    def close(self) -> None:
        self._words.release()
        self._entries.close()
        self._rings.close()
        os.close(self.fd)

    def _enter(self, at_least: int, flags: int) -> None:
        timeout = (self._arguments_at, _ARGUMENTS.size) if flags & _ENTER_EXT_ARG else (0, 0)
        try:
            self._unsubmitted -= self._system(_ENTER, self.fd, self._unsubmitted, at_least, flags, *timeout)
        except OSError as error:
            if error.errno not in (errno.ETIME, errno.EINTR, errno.EAGAIN, errno.EBUSY):
                raise
            if error.errno == errno.ETIME:
                self._unsubmitted = 0

    def _system(self, *arguments: int) -> int:
        # As `long`, every one, for the library function takes any number of arguments and knows the type of none.
        result: int = self._call(*map(ctypes.c_long, arguments))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def missing() -> str:
    """Why io_uring cannot be used here; empty if it can."""
    try:
        Ring().close()
    except (OSError, AttributeError) as error:
        return f"no io_uring: {error}"
    return ""
