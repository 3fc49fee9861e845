"""The settings of verifier and speculator: what each is, what it trades, and its bounds. `sources` reads them.

Frozen once read. Flags win over the environment (`SAGUARO_<ROLE>_<FIELD>`), over a TOML file (tables [verifier],
[speculator], [gateway]), over the defaults here.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from saguaro.config.connections import ConnectionSettings
from saguaro.config.cores import parse_cores
from saguaro.config.tls import DialTlsSettings, ListenTlsSettings

Dtype = Literal["float32", "bfloat16", "float16"]
Linear = Literal["auto", "stock", "packed", "int8"]
POLICY_PATTERN = r"^(auto|fixed:\d+,\d+,(\d+(\.\d+)?|inf))$"
Numerics = Literal["fast", "fixed-shape"]


class ServiceSettings(ListenTlsSettings, ConnectionSettings):
    """What every service has."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")
    role: ClassVar[str]

    host: Annotated[str, Field(min_length=1, description="address to listen on; 0.0.0.0 opens it to the network")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="least severe message that is logged")
    ] = "info"
    drain_seconds: Annotated[
        float,
        Field(ge=0, le=3600, description="longest wait for running streams after SIGTERM; longer loses fewer answers"),
    ] = 10.0
    max_message_bytes: Annotated[
        int,
        Field(ge=65536, le=1 << 30, description="largest message taken or sent; larger admits longer prompts"),
    ] = 16 << 20
    keepalive_seconds: Annotated[
        float,
        Field(ge=1, le=3600, description="silence before a connection is probed; shorter finds dead peers sooner"),
    ] = 20.0
    cores: Annotated[
        str | None,
        Field(
            description='CPU cores to run on, as "0" or "0-3,6"; keeps services of one machine out of each other\'s way'
        ),
    ] = None
    threads: Annotated[
        int | None,
        Field(ge=1, le=1024, description="threads of one model forward; default: one a core"),
    ] = None

    @field_validator("*", mode="before")
    @classmethod
    def _none_by_name(cls, value: object) -> object:
        # Flags and environment can only say text.
        return None if value == "none" else value

    @field_validator("cores")
    @classmethod
    def _cores_parse(cls, value: str | None) -> str | None:
        if value is not None:
            parse_cores(value)
        return value


class ModelSettings(ServiceSettings):
    """What a service with a model has."""

    emulate: Annotated[
        str | None,
        Field(
            min_length=1,
            description="profile of a pair that is emulated in place of the models: a TOML file, or a shipped one",
        ),
    ] = None
    metrics_port: Annotated[
        int | None,
        Field(ge=0, le=65535, description="port of /metrics, for Prometheus; 0 takes a free one"),
    ] = None
    device: Annotated[
        str, Field(pattern=r"^(cpu|cuda(:\d+)?)$", description="where the model runs: cpu, cuda or cuda:<index>")
    ] = "cpu"
    dtype: Annotated[
        Dtype, Field(description="element type of weights and KV cache; 16 bits halve memory, lose precision")
    ] = "float32"
    linear: Annotated[
        Linear,
        Field(
            description="linear layers on a CPU: packed has the same weights, read faster; int8 is faster still but "
            "loses agreement, so for drafts only; auto: packed for the target, int8 for the draft"
        ),
    ] = "auto"
    kv_tokens: Annotated[
        int,
        Field(ge=64, le=1 << 28, description="tokens that the KV pool holds; more admits more and longer sequences"),
    ] = 65536
    block_size: Annotated[
        int,
        Field(
            ge=1, le=1024, description="tokens in a KV block; smaller shares more prefixes, larger costs less to keep"
        ),
    ] = 16
    prefill_chunk_tokens: Annotated[
        int,
        Field(
            ge=1,
            le=1 << 16,
            description="prompt tokens a step; smaller keeps running answers flowing, larger starts new ones sooner",
        ),
    ] = 512

    stall_seconds: Annotated[
        float,
        Field(
            ge=0.1,
            le=3600,
            description="seconds after which a step that is also 10 times slower than usual counts as hung and health "
            "says NOT_SERVING; shorter moves requests away sooner, longer forgives a busy machine",
        ),
    ] = 5.0


class VerifierSettings(ModelSettings, DialTlsSettings):
    """The service that owns the target model."""

    model_config = SettingsConfigDict(env_prefix="SAGUARO_VERIFIER_")
    role: ClassVar[str] = "verifier"

    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 50061
    target: Annotated[
        str, Field(min_length=1, description="target model: demo-target, a folder, or a Hugging Face id")
    ] = "demo-target"
    model_name: Annotated[
        str | None, Field(min_length=1, description="name that requests use; default: last part of target")
    ] = None
    max_running: Annotated[
        int,
        Field(ge=1, le=4096, description="sequences decoded at once; more raises throughput and each one's latency"),
    ] = 64
    max_waiting: Annotated[
        int, Field(ge=0, le=1 << 20, description="requests that may queue; beyond it they are refused at once")
    ] = 1024
    speculator: Annotated[str, Field(description="address of the speculator; empty decodes without one")] = (
        "127.0.0.1:50071"
    )
    lookahead: Annotated[
        int,
        Field(
            ge=0,
            le=16,
            description="most draft tokens in a speculation (K); the policy uses as many as pay; 0 never speculates",
        ),
    ] = 8
    budget: Annotated[
        int,
        Field(ge=0, le=128, description="most outcomes prepared a round (B); the speculator prepares as many as fit"),
    ] = 32
    policy: Annotated[
        str,
        Field(
            pattern=POLICY_PATTERN,
            description="auto: lookahead and waiting by measured gain; fixed:K,B,b*: always K and B, waiting below b*",
        ),
    ] = "auto"
    acceptance: Annotated[
        Literal["coupled", "rejection"],
        Field(
            description="of draft tokens, where a request names no mode: coupled gives the same tokens with any draft, "
            "rejection accepts some more and hits less"
        ),
    ] = "coupled"
    cached_scale: Annotated[
        Annotated[float, Field(ge=0, le=1)] | Literal["auto"],
        Field(
            description="C of Saguaro sampling in rejection mode, where a request names none: less hits more, accepts "
            "less; auto: by measured tokens a second"
        ),
    ] = 1.0
    just_in_time_ms: Annotated[
        float | None,
        Field(
            ge=0,
            le=10_000,
            description="longest wait for a speculation after a cache miss; 0 never waits; default: measured",
        ),
    ] = None
    audit_rate: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="share of finished requests that are replayed without speculation in idle time and compared; "
            "higher finds a fault sooner, for idle time and cached prefixes",
        ),
    ] = 0.0
    numerics: Annotated[
        Numerics,
        Field(
            description="fixed-shape: output does not depend on what is computed beside it, to the bit (float32 on a "
            "CPU); fast rounds by the shape of each forward, a tenth to a third faster"
        ),
    ] = "fast"
    reconnect_seconds: Annotated[
        float, Field(gt=0, le=600, description="pause before a lost speculator is tried again")
    ] = 1.0
    link_delay_ms: Annotated[
        float,
        Field(ge=0, le=10_000, description="delay added to each message to and from the speculator; for experiments"),
    ] = 0.0


class SpeculatorSettings(ModelSettings):
    """The service that owns the draft model."""

    model_config = SettingsConfigDict(env_prefix="SAGUARO_SPECULATOR_")
    role: ClassVar[str] = "speculator"

    port: Annotated[int, Field(ge=0, le=65535, description="port to listen on; 0 takes a free one")] = 50071
    draft: Annotated[
        str, Field(min_length=1, description="draft model: demo-draft, a folder, or a Hugging Face id")
    ] = "demo-draft"
    target: Annotated[
        str, Field(min_length=1, description="target model, whose embeddings and tokenizer the draft may share")
    ] = "demo-target"
    max_sequences: Annotated[
        int, Field(ge=1, le=4096, description="sequences speculated at once; the rest decode plainly")
    ] = 64
    acceptance_prior: Annotated[
        float,
        Field(gt=0, lt=1, description="acceptance rate assumed until it is measured; higher prepares deeper outcomes"),
    ] = 0.5
    miss_exponent: Annotated[
        float, Field(gt=0, le=10, description="r of the assumed miss law F**-r; smaller spreads the budget wider")
    ] = 0.5
    max_lookahead: Annotated[int, Field(ge=1, le=64, description="largest lookahead a verifier may ask for")] = 16
    max_budget: Annotated[int, Field(ge=1, le=1024, description="largest budget a verifier may ask for")] = 128
    max_forward_mebibytes: Annotated[
        int,
        Field(
            ge=16,
            le=1 << 20,
            description="MiB that attention masks and logits of one forward may take; more drafts for more or longer "
            "sequences in one forward",
        ),
    ] = 1024
    lease_seconds: Annotated[
        float,
        Field(
            gt=0,
            le=86_400,
            description="a sequence is closed, and its KV freed, when its verifier spoke only of others for so long; "
            "shorter frees forgotten ones sooner, longer opens fewer anew while other prompts are computed",
        ),
    ] = 60.0
