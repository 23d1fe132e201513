"""Known request smuggling vectors: bytes that two servers may read differently, and how this server must read them.

From RFC 9112 §11, the llhttp issues, PortSwigger's HTTP request smuggling papers and Kettle's and Grenfeldt's tables
of obfuscations. A request in `REFUSED` gets a 4xx and ends the connection; one in `READ` has exactly one correct
reading. An attacker's `SMUGGLED` request may follow each of them. One in `LAST` is read and ends the connection.
"""

from __future__ import annotations

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


def post(fields: bytes, body: bytes = b"0\r\n\r\n", version: bytes = b"1.1") -> bytes:
    """A POST with these header fields after Host."""
    return b"POST / HTTP/%b\r\nHost: a\r\n%b\r\n\r\n%b" % (version, fields, body)


def get(fields: bytes, line: bytes = b"GET / HTTP/1.1") -> bytes:
    """A GET with exactly these header fields."""
    return b"%b\r\n%b\r\n\r\n" % (line, fields)


def chunked(body: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked", body)


_CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"

# fmt: off
REFUSED: dict[str, bytes] = {
    # Conflicting lengths.
    "CL and TE": post(b"Content-Length: 5\r\nTransfer-Encoding: chunked"),
    "TE and CL": post(b"Transfer-Encoding: chunked\r\nContent-Length: 5"),
    "CL and TE in HTTP/1.0": post(b"Content-Length: 5\r\nTransfer-Encoding: chunked", version=b"1.0"),
    "TE in HTTP/1.0": post(b"Transfer-Encoding: chunked", version=b"1.0"),
    "TE and TE": post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
    "TE and TE identity": post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
    "TE identity and TE": post(b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
    "TE x and TE": post(b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked"),
    "TE identity": post(b"Transfer-Encoding: identity"),
    "TE identity and CL": post(b"Transfer-Encoding: identity\r\nContent-Length: 5"),
    "TE xchunked": post(b"Transfer-Encoding: xchunked"),
    "TE chunkedx": post(b"Transfer-Encoding: chunkedx"),
    "TE gzip, chunked": post(b"Transfer-Encoding: gzip, chunked"),
    "TE chunked, gzip": post(b"Transfer-Encoding: chunked, gzip"),
    "TE chunked, chunked": post(b"Transfer-Encoding: chunked, chunked"),
    "TE chunked, identity": post(b"Transfer-Encoding: chunked, identity"),
    "TE with a comma before": post(b"Transfer-Encoding: ,chunked"),
    "TE with a parameter": post(b"Transfer-Encoding: chunked;q=1"),
    "TE in quotes": post(b'Transfer-Encoding: "chunked"'),
    "TE empty": post(b"Transfer-Encoding:"),
    "TE before a space and a colon": post(b"Transfer-Encoding : chunked"),
    "TE before a tab and a colon": post(b"Transfer-Encoding\t: chunked"),
    "TE after a vertical tab": post(b"Transfer-Encoding: \x0bchunked"),
    "TE before a vertical tab": post(b"Transfer-Encoding: chunked\x0b"),
    "TE after a form feed": post(b"Transfer-Encoding: \x0cchunked"),
    "TE after a NUL": post(b"Transfer-Encoding: \x00chunked"),
    "TE after a no-break space": post(b"Transfer-Encoding: \xa0chunked"),
    "TE folded": post(b"Transfer-Encoding:\r\n chunked"),
    "TE folded by a tab": post(b"Transfer-Encoding:\r\n\tchunked"),
    "TE as the fold of another field": post(b"X: y\r\n Transfer-Encoding: chunked"),
    "TE after a bare LF in another field": post(b"X: y\nTransfer-Encoding: chunked"),
    "TE after a bare CR in another field": post(b"X: y\rTransfer-Encoding: chunked"),
    "TE with a space before its name": post(b" Transfer-Encoding: chunked"),
    # Malformed lengths.
    "CL twice, differing": post(b"Content-Length: 3\r\nContent-Length: 5", b"abc"),
    "CL twice, the same": post(b"Content-Length: 3\r\nContent-Length: 3", b"abc"),
    **{
        f"CL {text!r}": post(b"Content-Length: " + text, b"abc")
        for text in (
            b"+3", b"-3", b"-0", b"0x3", b"3, 3", b"3,3", b"3, 5", b"3;", b"3.0", b"3_0", b"3 3", b"3\x0b", b"3\x00",
            b"", b"\xb3", b"1e1", b"three", b"9" * 30, b"18446744073709551615", b"18446744073709551616",
            b"9223372036854775808",
        )
    },
    "CL of 5,000 digits": post(b"Content-Length: " + b"0" * 4999 + b"3", b"abc"),
    "CL before a space and a colon": post(b"Content-Length : 3", b"abc"),
    "CL folded": post(b"Content-Length:\r\n 3", b"abc"),
    # Line endings.
    "bare LF": b"GET / HTTP/1.1\nHost: a\n\n",
    "bare LF after the request line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "bare LF after a field": b"GET / HTTP/1.1\r\nHost: a\n\r\n",
    "bare LF for the empty line": b"GET / HTTP/1.1\r\nHost: a\r\n\n",
    "bare CR": b"GET / HTTP/1.1\rHost: a\r\r",
    "bare CR in a field": b"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
    "bare CR for the empty line": b"GET / HTTP/1.1\r\nHost: a\r\n\rX",
    "CR CR LF": b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\r\n",
    # Protocol versions.
    "HTTP/0.9": b"GET /\r\n",
    "HTTP/0.9, bare LF": b"GET /\n",
    "HTTP/0.9 with fields (llhttp 877)": b"GET /\r\nHost: a\r\n\r\n",
    "HTTP/0.9 with a body": b"POST /\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    "HTTP/0.9 in words": get(b"Host: a", b"GET / HTTP/0.9"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/2.0": get(b"Host: a", b"GET / HTTP/2.0"),
    "HTTP/3.9": get(b"Host: a", b"GET / HTTP/3.9"),
    "HTTP/1.2": get(b"Host: a", b"GET / HTTP/1.2"),
    "HTTP/1": get(b"Host: a", b"GET / HTTP/1"),
    "HTTP/1.10": get(b"Host: a", b"GET / HTTP/1.10"),
    "HTTP/ 1.1": get(b"Host: a", b"GET / HTTP/ 1.1"),
    "http/1.1": get(b"Host: a", b"GET / http/1.1"),
    "CONNECT": get(b"Host: a:443", b"CONNECT a:443 HTTP/1.1"),
    "a response": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    # Request lines.
    "space after the version": get(b"Host: a", b"GET / HTTP/1.1 "),
    "two spaces after the method": get(b"Host: a", b"GET  / HTTP/1.1"),
    "two spaces before the version": get(b"Host: a", b"GET /  HTTP/1.1"),
    "three spaces after the method": get(b"Host: a", b"GET   / HTTP/1.1"),
    "two spaces after the method, behind empty lines": b"\r\n\r\n" + get(b"Host: a", b"GET  / HTTP/1.1"),
    "spaces and another version": get(b"Host: a", b"GET / HTTP/1.0  HTTP/1.1"),
    "tab after the method": get(b"Host: a", b"GET\t/ HTTP/1.1"),
    "space before the method": get(b"Host: a", b" GET / HTTP/1.1"),
    "method in lower case": get(b"Host: a", b"get / HTTP/1.1"),
    "no such method": get(b"Host: a", b"FOO / HTTP/1.1"),
    "target that is no path": get(b"Host: a", b"GET a HTTP/1.1"),
    "absolute form and another Host": get(b"Host: a", b"GET http://b/ HTTP/1.1"),
    "absolute form and another port": get(b"Host: a:80", b"GET http://a/ HTTP/1.1"),
    "absolute form and another Host in HTTP/1.0": get(b"Host: a", b"GET http://b/ HTTP/1.0"),
    "absolute form and an empty Host": get(b"Host:", b"GET http://b/ HTTP/1.1"),
    "absolute form without Host": get(b"X: y", b"GET http://b/ HTTP/1.1"),
    "absolute form with a user": get(b"Host: a", b"GET http://b@a/ HTTP/1.1"),
    "absolute form with the user as Host": get(b"Host: b", b"GET http://b@a/ HTTP/1.1"),
    "absolute form with an empty host": get(b"Host:", b"GET http:///a HTTP/1.1"),
    "absolute form of another scheme": get(b"Host: a", b"GET ftp://a/ HTTP/1.1"),
    "NUL in the target": get(b"Host: a", b"GET /\x00 HTTP/1.1"),
    "control character in the target": get(b"Host: a", b"GET /\x01 HTTP/1.1"),
    "byte beyond ASCII in the target": get(b"Host: a", b"GET /\xff HTTP/1.1"),
    "space before the first field": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    # Host.
    "Host missing": get(b"X: y"),
    "Host twice": get(b"Host: a\r\nHost: b"),
    "Host twice, the same": get(b"Host: a\r\nHost: a"),
    "Host twice in HTTP/1.0": get(b"Host: a\r\nHost: b", b"GET / HTTP/1.0"),
    **{
        f"Host {text!r}": get(b"Host: " + text)
        for text in (b"a/b", b"a@b", b"a, b", b"a b", b"a\tb", b"a?b", b"a#b", b"a\\b", b"<a>", b"a\xff", b"a\x00")
    },
    # Chunks.
    **{
        f"chunk {text!r}": chunked(text)
        for text in (
            b"+" + _CHUNKS, b"-" + _CHUNKS, b" " + _CHUNKS, b"0x" + _CHUNKS, b"\t" + _CHUNKS, b"3 \r\nabc\r\n0\r\n\r\n",
            b"FFFFFFFFFFFFFFFFF\r\nabc", b"10000000000000003\r\nabc\r\n0\r\n\r\n", b"3\nabc\r\n0\r\n\r\n",
            b"3\rabc\r\n0\r\n\r\n", b"3\r\nabc\n0\r\n\r\n", b"3\r\nabc0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n",
            b"\r\nabc\r\n0\r\n\r\n", b"g\r\nabc\r\n0\r\n\r\n", b"0\n\r\n", b"0\r\n\n",
        )
    },
    "chunk extension before a bare LF": chunked(b"3;a\nabc\r\n0\r\n\r\n"),
    "chunk extension, empty, before a bare LF": chunked(b"3;\nabc\r\n0\r\n\r\n"),
    "chunk extension over two lines": chunked(b'3;a="b\r\n"\r\nabc\r\n0\r\n\r\n'),
    "CL as a trailer": chunked(b"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n"),
    "TE as a trailer": chunked(b"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "trailer before a bare LF": chunked(b"3\r\nabc\r\n0\r\nX: y\n\r\n"),
    # Header fields.
    **{
        f"value with {text!r}": get(b"Host: a\r\nX: y" + text + b"z")
        for text in (b"\x00", b"\x01", b"\x08", b"\x0b", b"\x0c", b"\x1b", b"\x7f", b"\n", b"\r")
    },
    **{
        f"name {text!r}": get(b"Host: a\r\n" + text + b": z")
        for text in (b"X Y", b"X(Y", b"", b"X\xff", b"X\x00", b"X\t", b"X ", b'"X"', b"X@Y", b"X/Y")
    },
    "field without a colon": get(b"Host: a\r\nX"),
}

# fmt: on

READ: dict[str, tuple[bytes, bytes]] = {
    # name -> the bytes, and the body of the only request in them
    "TE after a tab": (post(b"Transfer-Encoding:\tchunked", _CHUNKS), b"abc"),
    "TE after no space": (post(b"Transfer-Encoding:chunked", _CHUNKS), b"abc"),
    "TE in capitals": (post(b"TRANSFER-ENCODING: ChUnKeD", _CHUNKS), b"abc"),
    "CL among white space": (post(b"Content-Length: \t3 \t", b"abc"), b"abc"),
    "CL with zeros": (post(b"Content-Length: 0003", b"abc"), b"abc"),
    "CL in HTTP/1.1 GET": (get(b"Host: a\r\nContent-Length: 3") + b"abc", b"abc"),
    "chunk size with zeros": (chunked(b"0000000000003\r\nabc\r\n0\r\n\r\n"), b"abc"),
    "chunk size in capitals": (chunked(b"A\r\n0123456789\r\n00\r\n\r\n"), b"0123456789"),
    "chunk extensions": (chunked(b'3;a=b;c="d;e"\r\nabc\r\n0;f\r\n\r\n'), b"abc"),
    "trailers": (chunked(b"3\r\nabc\r\n0\r\nAuthorization: x\r\nHost: evil\r\nCookie: y\r\n\r\n"), b"abc"),
    "trailers that ask for an upgrade": (
        chunked(b"3\r\nabc\r\n0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
        b"abc",
    ),
    "empty lines before": (b"\r\n\r\n" + post(b"Content-Length: 3", b"abc"), b"abc"),
    "an empty line after": (post(b"Content-Length: 3", b"abc") + b"\r\n", b"abc"),
    "absolute form": (get(b"Host: a", b"GET http://a/c?d HTTP/1.1"), b""),
    "two spaces in a field": (get(b"Host: a\r\nX: GET  /  HTTP/1.1"), b""),
    "two spaces in a body": (post(b"Content-Length: 20", b"\r\nGET  /  HTTP/1.1\r\n"), b"\r\nGET  /  HTTP/1.1\r\n"),
    "two spaces in a chunk": (chunked(b"12\r\nGET  /  HTTP/1.1  \r\n0\r\n\r\n"), b"GET  /  HTTP/1.1  "),
    "two spaces in a trailer": (chunked(b"3\r\nabc\r\n0\r\nX: GET  /  H\r\n\r\n"), b"abc"),
    "Host empty": (get(b"Host:"), b""),
    "Host with a port": (get(b"Host: [::1]:8080"), b""),
    "an empty field before Host": (get(b"X:\r\nHost: a"), b""),
}

LAST: dict[str, bytes] = {
    # HTTP/1.0, where a proxy may believe that the connection goes on.
    **{
        f"HTTP/1.0 with {fields!r} and a body of {len(body)}": post(fields, body, version=b"1.0")
        for fields, body in (
            (b"X: y", b""), (b"Content-Length: 3", b"abc"),
            (b"Connection: keep-alive", b""), (b"Connection: Keep-Alive\r\nContent-Length: 3", b"abc"),
            (b"Keep-Alive: timeout=9\r\nConnection: keep-alive", b""), (b"Proxy-Connection: keep-alive", b""),
            (b"Connection: keep-alive, close", b""), (b"Connection: keep-alive\r\nConnection: close", b""),
            (b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3", b"abc"),
            (b"Connection: keep-alive, upgrade\r\nUpgrade: h2c\r\nContent-Length: 3", b"abc"),
        )
    },
    "HTTP/1.0 without a field": b"GET / HTTP/1.0\r\n\r\n",
    "HTTP/1.0 HEAD with keep-alive": get(b"Connection: keep-alive", b"HEAD / HTTP/1.0"),
    # Connection: close, wherever llhttp heeds it.
    **{
        f"{fields!r}": post(fields + b"\r\nContent-Length: 3", b"abc")
        for fields in (
            b"Connection: close", b"connection: CLOSE", b"Connection: keep-alive, close",
            b"Connection: close, keep-alive",
            b"Connection: close\r\nConnection: keep-alive", b"Connection: keep-alive\r\nConnection: close",
            b"Proxy-Connection: close", b"Connection: close, upgrade\r\nUpgrade: h2c",
        )
    },
    **{
        f"{field!r} as a trailer of {chunks!r}": chunked(chunks + field + b"\r\n\r\n")
        for field in (b"Connection: close", b"Connection: x, close", b"Proxy-Connection: close")
        for chunks in (b"0\r\n", b"3\r\nabc\r\n0\r\n")
    },
    # An offer to change protocols, which a proxy may believe is accepted.
    "websocket": get(b"Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket"),
    "h2c": get(b"Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ"),
    "h2c with a body": post(b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3", b"abc"),
}  # fmt: skip
