"""Field-aware mutations of protobuf messages, on the wire: what a hostile or broken peer may send.

A message is a tree of fields as its descriptor tells them apart; a mutation changes sizes, enums, numbers, text, order,
or the bytes themselves. Everything follows from the `Random` that is passed in.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_NUMBERS = (0, 1, 2, 7, 127, 128, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 63, (1 << 64) - 1)
_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7e308, -1.0, 1e-30, 2.0**31)
_TEXTS = (b"", b"\0", b"\xff\xfe\xc0", "\ufeff\u202e😀".encode() * 9, b"a" * 70_000, b"[" * 5_000, b'{"$ref": "#"}')
_TINY = 9  # times in ten a mutation keeps the frame small
_MOST_COPIES = 2_000


@dataclass(frozen=True)
class Field:
    """One field on the wire. `value`: an int, bytes, or the fields of a message."""

    number: int
    wire_type: int
    value: int | bytes | tuple[Field, ...]
    length_lie: int = 0  # added to the length that is written


def parse(data: bytes, kind: Descriptor) -> tuple[Field, ...]:
    """The fields of a valid message of that kind."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        value: Any
        if wire_type == VARINT:
            value, at = _read_varint(data, at)
        elif wire_type == BYTES:
            size, at = _read_varint(data, at)
            value, at = data[at : at + size], at + size
            known = kind.fields_by_number.get(number)
            if known is not None and known.type == FieldDescriptor.TYPE_MESSAGE:
                value = parse(value, known.message_type)
        else:
            size = 8 if wire_type == FIXED64 else 4
            value, at = int.from_bytes(data[at : at + size], "little"), at + size
        fields.append(Field(number, wire_type, value))
    return tuple(fields)


def write(fields: Sequence[Field]) -> bytes:
    """Inverse of `parse`, but for lengths that lie."""
    parts = []
    for field in fields:
        parts.append(_varint(field.number << 3 | field.wire_type))
        if field.wire_type == VARINT:
            parts.append(_varint(field.value if isinstance(field.value, int) else 1))
        elif field.wire_type == BYTES:
            value = field.value if isinstance(field.value, bytes) else b""
            value = write(field.value) if isinstance(field.value, tuple) else value
            parts += [_varint(max(len(value) + field.length_lie, 0)), value]
        elif field.wire_type in (FIXED32, FIXED64):
            size = 4 if field.wire_type == FIXED32 else 8
            number = field.value if isinstance(field.value, int) else 1
            parts.append((number % (1 << 8 * size)).to_bytes(size, "little"))
    return b"".join(parts)


def mutated(random: Random, data: bytes, kind: Descriptor, others: Sequence[bytes]) -> bytes:
    """`data`, a valid message of that kind, after one to three mutations; `others` are valid ones to splice with."""
    fields = parse(data, kind)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        fields = _in_some_message(random, fields)
    frame = write(fields)
    if random.random() < 0.15:
        frame = random.choice(_ON_BYTES)(random, frame, random.choice(others))
    return frame


def _in_some_message(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    nested = [at for at, field in enumerate(fields) if isinstance(field.value, tuple)]
    if nested and random.random() < 0.7:
        at = random.choice(nested)
        inner = fields[at].value
        assert isinstance(inner, tuple)
        return (*fields[:at], replace(fields[at], value=_in_some_message(random, inner)), *fields[at + 1 :])
    if not fields:
        return (_stranger(random),)
    return random.choice(_ON_FIELDS)(random, fields)


def _change(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    at = random.randrange(len(fields))
    return (*fields[:at], _other_value(random, fields[at]), *fields[at + 1 :])


def _other_value(random: Random, field: Field) -> Field:
    if field.wire_type == VARINT:
        return replace(field, value=random.choice((*_NUMBERS, random.getrandbits(64), random.getrandbits(12))))
    if field.wire_type == FIXED64:
        return replace(field, value=int.from_bytes(struct.pack("<d", random.choice(_FLOATS)), "little"))
    if field.wire_type == FIXED32:
        return replace(field, value=random.getrandbits(32))
    if isinstance(field.value, bytes):
        return replace(field, value=_other_bytes(random, field.value))
    return replace(field, value=random.choice(((), b"\x08", random.randbytes(9))))


def _other_bytes(random: Random, value: bytes) -> bytes:
    """Of text, bytes or a packed list."""
    match random.randrange(5):
        case 0:
            return random.choice(_TEXTS if random.randrange(10) >= _TINY else _TEXTS[:4])
        case 1:
            return value[: random.randrange(len(value) + 1)]
        case 2:
            return b"".join(_varint(random.choice(_NUMBERS)) for _ in range(random.randrange(1, 40)))
        case 3:
            return value * random.choice((2, 3, 50))
        case _:
            return random.randbytes(random.randrange(64))


def _drop(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    at = random.randrange(len(fields))
    return fields[:at] + fields[at + 1 :]


def _repeat(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    at = random.randrange(len(fields))
    most = 4 if random.randrange(10) < _TINY else _MOST_COPIES
    return fields[:at] + (fields[at],) * random.randrange(2, most + 1) + fields[at + 1 :]


def _retype(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    at = random.randrange(len(fields))
    wire_type = random.choice((VARINT, FIXED64, BYTES, 3, 4, FIXED32, 6, 7))
    return (*fields[:at], replace(fields[at], wire_type=wire_type), *fields[at + 1 :])


def _renumber(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    at = random.randrange(len(fields))
    number = random.choice((0, random.randrange(1, 32), 1 << 18, (1 << 29) - 1))
    return (*fields[:at], replace(fields[at], number=number), *fields[at + 1 :])


def _lie(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    at = random.randrange(len(fields))
    return (*fields[:at], replace(fields[at], length_lie=random.choice((-1, 1, 5, 1 << 31))), *fields[at + 1 :])


def _shuffle(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(random.sample(fields, len(fields)))


def _add(random: Random, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return (*fields, _stranger(random))


def _stranger(random: Random) -> Field:
    wire_type = random.choice((VARINT, FIXED64, BYTES, FIXED32))
    return _other_value(random, Field(random.randrange(1, 40), wire_type, b"" if wire_type == BYTES else 1))


_ON_FIELDS: tuple[Callable[[Random, tuple[Field, ...]], tuple[Field, ...]], ...] = (
    *(_change, _change, _change, _change, _drop, _drop, _repeat, _repeat),
    *(_retype, _renumber, _lie, _shuffle, _add),
)


def _flip(random: Random, frame: bytes, other: bytes) -> bytes:
    changed = bytearray(frame or b"\0")
    for _ in range(random.randrange(1, 9)):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut(random: Random, frame: bytes, other: bytes) -> bytes:
    return frame[: random.randrange(len(frame) + 1)]


def _splice(random: Random, frame: bytes, other: bytes) -> bytes:
    return frame[: random.randrange(len(frame) + 1)] + other[random.randrange(len(other) + 1) :]


def _endless_varint(random: Random, frame: bytes, other: bytes) -> bytes:
    return frame + b"\xff" * random.choice((10, 11, 300))


def _groups(random: Random, frame: bytes, other: bytes) -> bytes:
    return frame + _varint(60 << 3 | 3) * random.choice((1, 99, 101, 5_000))


def _noise(random: Random, frame: bytes, other: bytes) -> bytes:
    return random.randbytes(random.choice((0, 1, 5, 900)))


_ON_BYTES = (_flip, _cut, _splice, _endless_varint, _groups, _noise)


def _varint(number: int) -> bytes:
    number %= 1 << 64
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
