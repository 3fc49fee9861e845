"""The settings of the gateway: what each is, what it trades, and its bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from saguaro.config.policy import PolicySettings
from saguaro.config.services import ServiceSettings, SpeculatorSettings, VerifierSettings
from saguaro.config.tls import DialTlsSettings


class GatewaySettings(ServiceSettings, DialTlsSettings):
    """The public door."""

    model_config = SettingsConfigDict(env_prefix="SAGUARO_GATEWAY_")
    role: ClassVar[str] = "gateway"

    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 50051
    http_port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="port of OpenAI's API over HTTP; 0 takes a free one, none serves gRPC alone"),
    ] = 8000
    admin_host: Annotated[
        str,
        Field(min_length=1, description="address of the admin port; who reaches it sets policies"),
    ] = "127.0.0.1"
    admin_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65535,
            description="port of /metrics, /admin/policy, /livez and /readyz; 0 takes a free one, none leaves /metrics "
            "to the HTTP port and policies to gRPC",
        ),
    ] = None
    verifier: Annotated[
        str,
        Field(
            min_length=1,
            description="addresses of the verifiers, all of one model, with commas between; dns:///name:port is every "
            "address of the name",
        ),
    ] = "127.0.0.1:50061"
    failover_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="longest wait of an answer whose verifier was lost for one that goes on; longer survives the "
            "restart of an only verifier, shorter tells the client sooner",
        ),
    ] = 30.0
    tokenizer: Annotated[
        str,
        Field(min_length=1, description="model whose tokenizer and chat template are used: as the verifier's target"),
    ] = "demo-target"
    text_workers: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="processes that render chat templates and tokenize prompts, about 50 MB each; with 2 or more, "
            "long prompts leave one to the others",
        ),
    ] = 2
    text_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=600,
            description="longest time to render and tokenize one prompt; longer takes longer prompts, shorter bounds "
            "what a bad chat template costs",
        ),
    ] = 10.0
    startup_seconds: Annotated[
        float,
        Field(gt=0, le=86_400, description="longest wait at start for the verifier, which may have a model to convert"),
    ] = 600.0
    max_concurrent_requests: Annotated[
        int, Field(ge=1, le=1 << 20, description="answers in flight; beyond it requests are refused at once")
    ] = 1024
    request_timeout_seconds: Annotated[
        float, Field(gt=0, le=86_400, description="longest life of one answer; a client may set a shorter one")
    ] = 600.0
    session_store: Annotated[
        str,
        Field(
            pattern=r"^(memory|sqlite:///.+|rediss?://.+)$",
            description="where sessions are kept: memory; sqlite:///absolute/path, which outlives the gateway; "
            "redis://host:port/0, for several gateways",
        ),
    ] = "memory"
    session_ttl_seconds: Annotated[
        float, Field(ge=0.01, le=31_536_000, description="time that a session is kept after its last turn")
    ] = 3600.0
    max_session_tokens: Annotated[
        int, Field(ge=2, le=1 << 24, description="tokens of a session, beyond which it takes no more turns")
    ] = 32768
    max_sessions: Annotated[
        int,
        Field(
            ge=1,
            le=1 << 24,
            description="sessions that the store keeps, in memory about 10 bytes a token; beyond it none begins",
        ),
    ] = 4096
    max_sessions_per_key: Annotated[
        int | None,
        Field(
            ge=1,
            le=1 << 24,
            description="sessions that the store keeps of one API key; beyond it the key begins none; none: as many as "
            "max_sessions, so that one key can take all",
        ),
    ] = 1024
    max_session_bytes_per_key: Annotated[
        int | None,
        Field(
            ge=65536,
            le=1 << 40,
            description="bytes of all sessions that the store keeps of one API key; beyond it the key begins no "
            "session and no turn; none sets no limit",
        ),
    ] = 128 << 20
    resume_seconds: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="time that a resumable answer goes on without its client and is kept after its end; longer "
            "forgives longer breaks, for work that nobody may read; 0 keeps none",
        ),
    ] = 0.0
    resume_buffer_bytes: Annotated[
        int,
        Field(
            ge=4096,
            le=1 << 30,
            description="bytes that are kept of one resumable answer; larger lets a client that comes back read "
            "further back, and an answer go on further without it; all take at most this times max_concurrent_requests",
        ),
    ] = 1 << 20
    max_resumable_per_key: Annotated[
        int | None,
        Field(
            ge=1,
            le=1 << 20,
            description="resumable answers kept of one API key at each door, those that have ended included, of which "
            "its oldest go first; none: as many as max_concurrent_requests",
        ),
    ] = 256
    max_body_bytes: Annotated[
        int,
        Field(
            ge=1024,
            le=1 << 30,
            description="largest body of an HTTP request, in bytes; larger admits longer prompts, each takes some ten "
            "times as much memory while it is read",
        ),
    ] = 4 << 20
    max_prompt_tokens: Annotated[
        int | None,
        Field(ge=1, le=1 << 28, description="longest prompt taken; default: what the model's context takes"),
    ] = None
    max_answer_tokens: Annotated[
        int | None,
        Field(
            ge=1,
            le=1 << 28,
            description="largest max_tokens taken, and that of requests without; default: up to the model's context",
        ),
    ] = None
    keys_file: Annotated[
        Path | None,
        Field(description="API keys, as `saguaro keys` writes them, read again on change; default: open to all"),
    ] = None
    log_prompts: Annotated[
        bool,
        Field(
            description="whether prompts are logged: helps to find out what clients send, and tells it to all "
            "who read logs"
        ),
    ] = False
    policy: Annotated[
        PolicySettings,
        NoDecode,
        Field(
            description="bounds on speculation by traffic class, until they are changed at run time: JSON as in "
            '{"latency": {"break_even_batch": "inf"}}, or tables [gateway.policy.latency] of the file'
        ),
    ] = PolicySettings()

    @field_validator("policy", mode="before")
    @classmethod
    def _policy_from_text(cls, value: object) -> object:
        # Flags and environment can only say text.
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"is not JSON: {error}") from None


SETTINGS: tuple[type[ServiceSettings], ...] = (VerifierSettings, SpeculatorSettings, GatewaySettings)
