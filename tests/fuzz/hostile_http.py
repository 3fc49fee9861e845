"""Hostile requests for the HTTP port: each is what goes over one connection, and how its sender then behaves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/sessions", "/v1/sessions/x", "/v1/streams/x"),
    *("/openapi.json", "/livez", "/readyz", "/metrics", "/", "/%00", "/v1/../../etc/passwd", "/" + "a" * 9_000, "*"),
)
_METHODS = ("POST", "POST", "POST", "GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "post", "B\x01D", "")
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1 << 31, 1 << 64, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", "x", "\ud800", "\0", "9" * 5_000, "auto", [], [[]], {}, {"a": {}}, [None] * 200, ["x"] * 2_000),
)
_RIGHT: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}],
        "max_tokens": 2,
        "temperature": 0.7,
        "top_p": 0.9,
        "n": 1,
        "stop": ["zz"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"300": -1},
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
        "tool_choice": "auto",
        "timeout": 5,
        "seed": 7,
    },
    "/v1/completions": {"prompt": "cactus", "max_tokens": 2, "logprobs": 1, "stream": False, "regex": "[a-z]+"},
    "/v1/sessions": {"messages": [{"role": "system", "content": "Be brief."}]},
}
_HEADERS = (
    *("Content-Type: application/json", "Content-Type: text/plain", "Content-Type: multipart/form-data; boundary=x"),
    *("Content-Encoding: gzip", "Transfer-Encoding: gzip, chunked", "Expect: 100-continue", "Connection: upgrade"),
    *("Authorization: Bearer " + "k" * 5_000, "Authorization: Basic \xff", "Cookie: " + "c" * 30_000, "X: \0", "Bad"),
    *("Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5\r\nContent-Length: 6", " : x"),
    *(
        "Host: a\r\nHost: b",
        "X-Request-Id: \r\n folded",
        "Last-Event-ID: 18446744073709551616",
        "Accept: " + "a," * 999,
    ),
    *("traceparent: 00-zz", "Range: bytes=0-", "X-Forwarded-For: ::1", "Upgrade: h2c", "Http2-Settings: AAMAAABk"),
)
_BODIES_ODD = (
    *(
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"{}" * 9,
        b"[" * 50_000,
        b'{"a":' * 9_000,
        b"\xff\xfe{\0}\0",
        b"\xef\xbb\xbf{}",
    ),
    *(b'{"n": 1, "n": 2}', b'{"max_tokens": 1e999}', b"NaN", b"\0" * 999, b"9" * 9_999, b'{"messages": "\\ud800"}'),
)


@dataclass(frozen=True)
class Hostile:
    """`parts` are sent with a pause between them; then the sender closes, half-closes, or reads."""

    parts: tuple[bytes, ...]
    end: str  # "close", "half", "read", "reset"


def hostile(random: Random) -> Hostile:
    """One request."""
    path = random.choice((*_RIGHT, *_RIGHT, *_PATHS))
    body = _body(random, path)
    if path in _RIGHT and random.random() < 0.5:
        # A right head, so that it is the body that is judged.
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
        return Hostile((f"POST {path} HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\n".encode() + body,), "read")
    head = _head(random, path, body)
    if random.random() < 0.15:
        body = b"".join(_chunks(random, body))
        head = head.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n", 1)
    data = head + body
    if random.random() < 0.1:
        changed = bytearray(data)
        for _ in range(random.randrange(1, 20)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        data = bytes(changed)
    if random.random() < 0.15:
        data = data[: random.randrange(len(data) + 1)]
    if random.random() < 0.1:
        data *= random.choice((2, 5))  # pipelined
    cut = random.randrange(len(data) + 1)
    parts = (data[:cut], data[cut:]) if random.random() < 0.2 else (data,)
    return Hostile(parts, random.choice(("read", "read", "read", "close", "half", "reset")))


def _body(random: Random, path: str) -> bytes:
    if path not in _RIGHT or random.random() < 0.2:
        return random.choice((*_BODIES_ODD, random.randbytes(random.randrange(300))))
    document = dict(_RIGHT[path])
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        _spoil(random, document)
    text = json.dumps(document, ensure_ascii=random.random() < 0.8)
    return text.encode(random.choice((*["utf-8"] * 9, "utf-16", "latin-1")), "replace")


def _spoil(random: Random, document: dict[str, Any]) -> None:
    """One field of it, or of what is in it, gets another value, goes, or comes."""
    name = random.choice((*document, "zzz"))
    inner = document.get(name)
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        inner = dict(random.choice(inner))
        document[name] = [inner]
    elif isinstance(inner, dict):
        inner = document[name] = dict(inner)
    if isinstance(inner, dict) and inner and random.random() < 0.6:
        _spoil(random, inner)
    elif random.random() < 0.2:
        document.pop(name, None)
    else:
        document[name] = random.choice(_VALUES)


def _head(random: Random, path: str, body: bytes) -> bytes:
    method = "POST" if path in _RIGHT and random.random() < 0.8 else random.choice(_METHODS)
    version = "HTTP/1.1" if random.random() < 0.9 else random.choice(("HTTP/1.0", "HTTP/2.0", "HTTP/9", "HTP/1.1", ""))
    lines = [f"{method} {path} {version}", "Host: 127.0.0.1"]
    lines += random.sample(_HEADERS, random.choice((0, 0, 1, 1, 2, 5)))
    if random.random() < 0.02:
        lines += [f"X-{number}: y" for number in range(random.choice((101, 5_000)))]
    if random.random() < 0.85:
        length = (
            len(body) if random.random() < 0.9 else random.choice((0, len(body) + 9, max(len(body) - 3, 0), 1 << 40))
        )
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def _chunks(random: Random, body: bytes) -> list[bytes]:
    size = random.choice(
        (f"{len(body):x}", "0", "-1", "ffffffffffffffffff", "g", f"{len(body) + 5:x}", "1;x=" + "y" * 999)
    )
    end = random.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"", b"0\r\nX: y\r\n\r\n", b"\r\n"))
    return [size.encode() + b"\r\n", body, b"\r\n", end]
