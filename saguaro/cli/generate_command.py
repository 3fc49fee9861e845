"""`saguaro generate`: its flags, and nothing else."""

from __future__ import annotations

from typing import Annotated

import typer

from saguaro.cli.connection import ApiKey, Connection, TlsCa
from saguaro.cli.constraint_flags import grammar_of, schema_of

_DEFAULT_ADDRESS = "127.0.0.1:50051"
_CHOICE, _END, _MATCH, _REPORT = "Which tokens", "Where it ends", "What it must match", "What is told"


def generate(
    prompt: Annotated[str, typer.Argument(help='What to answer; "-" reads stdin.')],
    address: Annotated[str, typer.Option(help="host:port of the gateway.")] = _DEFAULT_ADDRESS,
    api_key: ApiKey = None,
    tls_ca: TlsCa = None,
    raw: Annotated[bool, typer.Option("--raw", help="The prompt as it stands, no chat template.")] = False,
    model: Annotated[str, typer.Option(help="Name of the model. Default: the one that is served.")] = "",
    no_speculation: Annotated[bool, typer.Option("--no-speculation", help="Decode plainly.")] = False,
    acceptance: Annotated[
        str | None,
        typer.Option(help="Of draft tokens: coupled or rejection, both lossless. Default: the service's."),
    ] = None,
    cached_scale: Annotated[
        float | None,
        typer.Option(help="C of Saguaro sampling in rejection mode, 0 to 1. Default: the service's."),
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.", rich_help_panel=_CHOICE)] = 0.0,
    top_p: Annotated[float, typer.Option(help="Share of probability that stays.", rich_help_panel=_CHOICE)] = 1.0,
    top_k: Annotated[int, typer.Option(help="Number of tokens that stay; 0 keeps all.", rich_help_panel=_CHOICE)] = 0,
    min_p: Annotated[
        float,
        typer.Option(help="Least probability that stays, relative to the likeliest token's.", rich_help_panel=_CHOICE),
    ] = 0.0,
    repetition_penalty: Annotated[
        float,
        typer.Option(help="Above 1: tokens of prompt and output become less likely.", rich_help_panel=_CHOICE),
    ] = 1.0,
    presence_penalty: Annotated[
        float, typer.Option(help="Subtracted from logits of tokens in the output, -2 to 2.", rich_help_panel=_CHOICE)
    ] = 0.0,
    frequency_penalty: Annotated[
        float, typer.Option(help="The same, once for each time they occurred, -2 to 2.", rich_help_panel=_CHOICE)
    ] = 0.0,
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=BIAS", help="Added to the logit of a token, -100 to 100; repeatable.", rich_help_panel=_CHOICE
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Same seed, same answer. Default: random.", rich_help_panel=_CHOICE)
    ] = None,
    n: Annotated[
        int,
        typer.Option("--n", help="Choices: answers with different noise to the one prompt.", rich_help_panel=_CHOICE),
    ] = 1,
    max_tokens: Annotated[int, typer.Option(help="Most tokens to emit.", rich_help_panel=_END)] = 256,
    min_tokens: Annotated[int, typer.Option(help="No end before so many tokens.", rich_help_panel=_END)] = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="The answer ends before this text; repeatable.", rich_help_panel=_END),
    ] = None,
    stop_token_id: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="The answer ends with this token; repeatable.", rich_help_panel=_END),
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on past the model's own end of the answer.", rich_help_panel=_END)
    ] = False,
    json_schema: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|TEXT", help="JSON that this schema allows: a file, or the schema.", rich_help_panel=_MATCH
        ),
    ] = None,
    json_object: Annotated[
        bool, typer.Option("--json-object", help="Any JSON object.", rich_help_panel=_MATCH)
    ] = False,
    regex: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A regular expression.", rich_help_panel=_MATCH)
    ] = None,
    grammar: Annotated[
        str | None, typer.Option(metavar="FILE", help="A grammar in GBNF or Lark.", rich_help_panel=_MATCH)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, nothing else, on stdout.", rich_help_panel=_REPORT)
    ] = False,
    logprobs: Annotated[
        bool,
        typer.Option("--logprobs", help="Log-probability of each token, in --json.", rich_help_panel=_REPORT),
    ] = False,
    prompt_logprobs: Annotated[
        bool, typer.Option("--prompt-logprobs", help="Those of the prompt's tokens.", rich_help_panel=_REPORT)
    ] = False,
    top_logprobs: Annotated[
        int, typer.Option(help="That many alternatives with each, at most 20.", rich_help_panel=_REPORT)
    ] = 0,
    rounds: Annotated[bool, typer.Option("--rounds", help="Report every round.", rich_help_panel=_REPORT)] = False,
) -> None:
    """One answer of a running gateway."""
    from saguaro.cli.generate import run_generate

    shown_in_json = {"--logprobs": logprobs, "--prompt-logprobs": prompt_logprobs, "--top-logprobs": bool(top_logprobs)}
    if not as_json and any(shown_in_json.values()):
        asked = ", ".join(flag for flag, is_given in shown_in_json.items() if is_given)
        raise typer.BadParameter(f"{asked} would not be shown; they come with --json")
    code = run_generate(
        prompt,
        gateway=Connection(address, api_key, tls_ca),
        raw=raw,
        as_json=as_json,
        options={
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty,
            "logit_bias": dict(_bias(item) for item in logit_bias or ()),
            "seed": seed,
            "n": n,
            "max_tokens": max_tokens,
            "min_tokens": min_tokens,
            "stop": stop or (),
            "stop_token_ids": stop_token_id or (),
            "ignore_eos": ignore_eos,
            "json_schema": schema_of(json_schema),
            "json_object": json_object,
            "regex": regex,
            "grammar": grammar_of(grammar),
            "logprobs": logprobs,
            "prompt_logprobs": prompt_logprobs,
            "top_logprobs": top_logprobs,
            "include_rounds": rounds,
            "model": model,
            "speculation": not no_speculation,
            "acceptance": acceptance,
            "cached_scale": cached_scale,
        },
    )
    raise typer.Exit(code)


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise typer.BadParameter(
            f'--logit-bias is "{text}"; it must be like 198=-5.5, a token id and a number'
        ) from None
