"""Runs PushUp's `.lua` files in an embedded Lua 5.1, as Redis does.

There is one Lua for all in-memory servers, and each script is compiled once: a run of it takes some 20 microseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from lupa.lua51 import LuaError, LuaRuntime

PRELUDE = b"""
local invoke = ...
local names = {
  redis = {
    call = function(...) return invoke(true, ...) end,
    pcall = function(...) return invoke(false, ...) end,
  },
}
for _, name in ipairs({
  'assert', 'error', 'getmetatable', 'ipairs', 'math', 'next', 'pairs', 'pcall', 'rawequal', 'rawget', 'rawset',
  'select', 'setmetatable', 'string', 'table', 'tonumber', 'tostring', 'type', 'unpack', 'xpcall',
}) do
  names[name] = _G[name]
end
local rawset, setfenv = rawset, setfenv
local function refuse(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'")
end
setmetatable(names, {__index = refuse, __newindex = refuse})
return function(script, keys, arguments)
  rawset(names, 'KEYS', keys)
  rawset(names, 'ARGV', arguments)
  return setfenv(script, names)()
end
"""

Call = Callable[[list[bytes]], Any]
"""Carries out a command for a script."""


class ReplyError(Exception):
    """An error reply."""


class Scripts:
    """Lua, and the scripts that it has compiled."""

    def __init__(self) -> None:
        self._lua = LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
        self._run = self._lua.execute(PRELUDE, self._invoke)
        self._compiled: dict[bytes, Any] = {}
        self._call: Call | None = None

    def compile(self, text: bytes) -> bytes:
        """Returns the SHA-1 by which the script is called."""
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        if sha not in self._compiled:
            self._compiled[sha] = self._lua.compile(text)
        return sha

    def run(self, sha: bytes, keys: Sequence[bytes], arguments: Sequence[bytes], call: Call) -> Any:
        """The reply of a script. Raises: ReplyError."""
        self._call = call
        table = self._lua.table_from
        try:
            return self._reply(self._run(self._compiled[sha], table(keys), table(arguments)))
        except LuaError as error:
            raise ReplyError(f"ERR {str(error).splitlines()[0]} script: {sha.decode()}") from None
        finally:
            self._call = None

    def _invoke(self, raises: bool, *words: Any) -> Any:
        """`redis.call`, or `redis.pcall` if not `raises`."""
        assert self._call is not None
        try:
            return self._value(self._call([_word(word) for word in words]))
        except ReplyError as error:
            if raises:
                raise
            return self._lua.table_from({b"err": str(error).encode()})

    def _value(self, reply: Any) -> Any:
        """A reply as Lua sees it: nil is false."""
        if isinstance(reply, list):
            return self._lua.table_from([self._value(each) for each in reply])
        return False if reply is None else reply

    def _reply(self, value: Any) -> Any:
        """What a script returns, as a reply: numbers lose their fraction, and a list ends with the first nil."""
        if value is None or value is False:
            return None
        if isinstance(value, bytes):
            return value
        if isinstance(value, int | float):
            return int(value)  # true is 1
        for name in (b"err", b"ok"):
            if (text := value[name]) is not None:
                if name == b"err":
                    raise ReplyError(text.decode())
                return text
        replies: list[Any] = []
        while (each := value[len(replies) + 1]) is not None:
            replies.append(self._reply(each))
        return replies


def _word(value: Any) -> bytes:
    """An argument of `redis.call`, as Redis gets it."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ReplyError("ERR Lua redis lib command arguments must be strings or integers")
    return b"%.17g" % value
