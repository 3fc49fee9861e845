"""Conversations that the gateway keeps, so that a turn sends its new messages only and meets a warm prefix cache.

A turn is kept whole, when it has ended by itself, or not at all: of one that failed, was cancelled or lost its client,
nothing stays, and the same request may be sent again.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import replace

from gateway.answers import Answers
from gateway.guard import current_principal
from gateway.prompts import PromptBound, chat_bytes, chat_length
from gateway.sessions.holding import held, not_found
from gateway.sessions.next_prompt import NextPrompt, packed_next_prompt
from gateway.sessions.record import KeptTokens, Session
from gateway.sessions.stores import SessionStore
from saguaro.answers import (
    AnswerDelta,
    AnswerEvent,
    AnswerFinished,
    AnswerRequest,
    ChatMessage,
    ChatPrompt,
    TokenPrompt,
)
from saguaro.errors import InvalidRequest
from saguaro.sessions import SessionInfo
from saguaro.types import FinishReason, TokenIds


class Sessions:
    """Sessions of one model, and the answers in them. `max_tokens` is of one session, prompt and answer together."""

    def __init__(self, answers: Answers, store: SessionStore, *, max_tokens: int) -> None:
        self._answers = answers
        self._store = store
        self._max_tokens = max_tokens

    async def create(self, model: str, messages: tuple[ChatMessage, ...]) -> SessionInfo:
        """A new session that begins with `messages`, which may be none. InvalidRequest where they alone fill it, or the
        caller's sessions are as many as it may have.
        """
        if any(item.tool_calls for item in messages):
            raise InvalidRequest("messages", "a message has tool calls; sessions keep text, so send the whole chat")
        served = self._answers.identity(model)
        num_tokens = 0 if not messages else await self._num_tokens(messages, self._answers.prompt_bound())
        if num_tokens >= self._max_tokens:
            raise InvalidRequest(
                "messages",
                f"the messages have {num_tokens} tokens; this gateway keeps sessions of up to {self._max_tokens}",
            )
        session_id = secrets.token_hex(16)
        session = Session(served.name, time.time(), messages, owner=current_principal().name)
        expires_at = await self._store.create(session_id, session.to_bytes(), session.owner)
        return _info(session_id, session, expires_at, is_busy=False)

    async def get(self, session_id: str) -> SessionInfo:
        """Raises SessionNotFound."""
        stored = await self._store.read(session_id)
        if stored is None:
            raise not_found(session_id)
        session = _own(session_id, Session.from_bytes(stored.record))
        return _info(session_id, session, stored.expires_at, is_busy=stored.is_held)

    async def delete(self, session_id: str) -> None:
        """Raises SessionNotFound. A turn that runs goes on, and is told at its end that it is not kept."""
        await self.get(session_id)
        if not await self._store.delete(session_id):
            raise not_found(session_id)

    def generate(self, request: AnswerRequest, request_id: str, timeout_seconds: float) -> AsyncGenerator[AnswerEvent]:
        """As `Answers.generate`; in its session, if the request names one."""
        if request.session_id is None:
            return self._answers.generate(request, request_id, timeout_seconds)
        return self._turn(request, request.session_id, request_id, timeout_seconds)

    async def _turn(
        self, request: AnswerRequest, session_id: str, request_id: str, timeout_seconds: float
    ) -> AsyncGenerator[AnswerEvent]:
        new = _new_messages(request)
        request = self._answers.limits.bounded(request)  # before the session's room is taken for what was asked
        deadline = time.monotonic() + timeout_seconds
        async with held(self._store, session_id) as hold:
            session, served = _own(session_id, hold.session), self._answers.identity(request.model)
            messages, fingerprint = (*session.messages, *new), served.tokenizer_fingerprint
            prompt = await self._next_prompt(messages, session.kept, fingerprint, deadline)
            asked = replace(
                request,
                prompt=TokenPrompt(prompt.token_ids),
                max_tokens=self._room(prompt.token_ids, request.max_tokens),
                session_id=None,
            )
            said: list[str] = []
            emitted: list[int] = []
            events = self._answers.generate(asked, request_id, max(deadline - time.monotonic(), 0.0))
            async with contextlib.aclosing(events):
                async for event in events:
                    match event:
                        case AnswerDelta():
                            said.append(event.text)
                            emitted += event.token_ids
                        case AnswerFinished() if event.reason is not FinishReason.ABORTED:
                            answer = ChatMessage("assistant", "".join((*said, event.text)))
                            # Before the client hears of the end: it may send its next turn at once.
                            await hold.keep(_after(session, (*messages, answer), prompt, tuple(emitted), fingerprint))
                    yield event

    async def _num_tokens(self, messages: tuple[ChatMessage, ...], bound: PromptBound) -> int:
        num_bytes = chat_bytes(messages)
        for message in messages:
            bound.check_text(message.content, "a message")
        return await self._answers.workers.run(chat_length, num_bytes, messages)

    async def _next_prompt(
        self, messages: tuple[ChatMessage, ...], kept: KeptTokens | None, fingerprint: str, deadline: float
    ) -> NextPrompt:
        token_ids, text, num_reused = await self._answers.until(
            deadline,
            self._answers.workers.run(
                packed_next_prompt, chat_bytes(messages), messages, kept, fingerprint, self._answers.prompt_bound()
            ),
        )
        return NextPrompt(tuple(token_ids), text, num_reused)

    def _room(self, prompt: TokenIds, max_tokens: int | None) -> int:
        """What the answer may have. Raises InvalidRequest where the session's limit leaves nothing for it."""
        room = self._max_tokens - len(prompt)
        if room < 1:
            raise InvalidRequest(
                "prompt",
                f"with the new messages the session has {len(prompt)} tokens; this gateway keeps sessions of up to "
                f"{self._max_tokens}, and at least 1 token must be left for the answer: begin a new session",
            )
        return room if max_tokens is None else min(max_tokens, room)


def _own(session_id: str, session: Session) -> Session:
    """The session, where it is the caller's. Raises SessionNotFound."""
    if session.owner != current_principal().name:
        raise not_found(session_id)
    return session


def _new_messages(request: AnswerRequest) -> tuple[ChatMessage, ...]:
    if not isinstance(request.prompt, ChatPrompt):
        raise InvalidRequest("prompt", "the request names a session, but its prompt is no chat; give the new messages")
    if not request.prompt.messages:
        raise InvalidRequest("chat.messages", "the turn has no messages; give at least one")
    if request.tool_use is not None or any(item.tool_calls for item in request.prompt.messages):
        raise InvalidRequest(
            "tools", "the request has tools and names a session; sessions keep text, so send the whole chat"
        )
    if request.n != 1:
        raise InvalidRequest("n", f"n is {request.n} in a session, which goes on from one answer; n must be 1")
    return request.prompt.messages


def _after(
    before: Session, messages: tuple[ChatMessage, ...], prompt: NextPrompt, emitted: TokenIds, fingerprint: str
) -> Session:
    """The session with one more turn."""
    return replace(
        before,
        messages=messages,
        num_turns=before.num_turns + 1,
        prefix_reused=None if before.kept is None else prompt.num_reused > 0,
        kept=KeptTokens(fingerprint, prompt.token_ids + emitted, len(prompt.token_ids), prompt.text),
    )


def _info(session_id: str, session: Session, expires_at: float, *, is_busy: bool) -> SessionInfo:
    return SessionInfo(
        session_id=session_id,
        model=session.model,
        created_at=session.created_at,
        expires_at=expires_at,
        num_turns=session.num_turns,
        num_tokens=0 if session.kept is None else len(session.kept.token_ids),
        messages=session.messages,
        prefix_reused=session.prefix_reused,
        is_busy=is_busy,
    )
