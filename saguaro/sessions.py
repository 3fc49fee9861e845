"""A conversation that a gateway keeps, as its clients see it."""

from __future__ import annotations

from dataclasses import dataclass

from saguaro.answers import ChatMessage


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What is kept. Times are seconds since 1970; `expires_at` moves on with every turn.

    `num_tokens` are those of the last turn's prompt and answer. `prefix_reused`: whether that prompt began with the
    tokens of the turn before, None before the second turn. `is_busy`: whether a turn is running.
    """

    session_id: str
    model: str
    created_at: float
    expires_at: float
    num_turns: int
    num_tokens: int
    messages: tuple[ChatMessage, ...]
    prefix_reused: bool | None
    is_busy: bool
