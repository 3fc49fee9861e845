"""An event that is too large for one message, in several."""

from __future__ import annotations

from saguaro.errors import InvalidRequest
from saguaro.v1 import verifier_pb2 as pb

_FRAME_BYTES = 64  # around the logprobs of one part: ids, tags and lengths


def parted(relayed: pb.RelayedEvent, most_bytes: int) -> list[pb.RelayedEvent]:
    """The same in events of at most `most_bytes`, in order.

    Logprobs of a prompt come in parts; who reads them knows from the prompt how many there are. An end comes without
    its rounds, which came with the runs. Raises InvalidRequest, with size and limit, for what has no parts.
    """
    kind = relayed.event.WhichOneof("event")
    if kind == "finished":
        short = pb.RelayedEvent()
        short.CopyFrom(relayed)
        short.event.finished.speculation.ClearField("rounds")
        if short.ByteSize() <= most_bytes:
            return [short]
    elif kind == "prompt" and (parts := _prompt_parts(relayed, most_bytes)):
        return parts
    raise InvalidRequest(
        "", f"a part of the answer has {relayed.ByteSize()} bytes; a message takes {most_bytes} (--max-message-bytes)"
    )


def _prompt_parts(relayed: pb.RelayedEvent, most_bytes: int) -> list[pb.RelayedEvent]:
    """None where a single token's are too large."""
    parts: list[pb.RelayedEvent] = []
    room = 0
    for item in relayed.event.prompt.logprobs:
        size = item.ByteSize() + 8
        if size > room:
            room = most_bytes - _FRAME_BYTES
            if size > room:
                return []
            parts.append(pb.RelayedEvent(generation_id=relayed.generation_id))
        room -= size
        parts[-1].event.prompt.logprobs.append(item)
    return parts
