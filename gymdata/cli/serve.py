"""`gymdata serve`: environments and a model over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gymdata.cli.numbers import number, whole
from gymdata.cli.rollouts_collect import add_judge_arguments, judge_settings, key_in
from gymdata.errors import UsageError

if TYPE_CHECKING:
    from gymdata.rollouts.server import Server

DEFAULT_PORT = 11_000  # that of NeMo Gym's head server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("environments", nargs="*", metavar="ENV", help="what rows are scored by (name or NeMo Gym YAML)")
    parser.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML of your own; repeatable")
    model, limits = (parser.add_argument_group(name) for name in ("the model", "limits"))
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; there is no login (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"(default: {DEFAULT_PORT}, NeMo Gym's; 0: any that is free)"
    )
    parser.add_argument("--workers", type=whole(0), default=0, metavar="N", help="processes that score (default: one per core)")
    parser.add_argument(
        "--seconds", type=number(above=True), default=30.0, metavar="S", help="what one verification may take (default: 30)"
    )
    parser.add_argument(
        "--max-steps", type=whole(1), default=32, metavar="N", help="replies of the model in one /run (default: 32)"
    )
    parser.add_argument(
        "--failure-rows",
        action="store_true",
        help="answer a /run that failed with a failure row, which NeMo Gym's collector files, not with an error, which ends it",
    )
    model.add_argument("--model-url", action="append", default=[], metavar="URL", help="an OpenAI-compatible server; repeatable")
    model.add_argument("--model", metavar="NAME", help="which of the server's models (default: its only one)")
    model.add_argument(
        "--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="variable with the server's key (default: OPENAI_API_KEY)"
    )
    model.add_argument("--no-token-ids", action="store_true", help="do not ask for token ids and log probabilities")
    model.add_argument(
        "--concurrency", type=whole(1), metavar="N", help="requests at the servers (default: as many as they take)"
    )
    model.add_argument(
        "--timeout", type=number(above=True), default=1800, metavar="SECONDS", help="longest silence in a request (default: 1800)"
    )
    model.add_argument("--attempts", type=whole(1), default=5, metavar="N", help="tries of a request (default: 5)")
    model.add_argument("--wait", type=number(), default=10, metavar="SECONDS", help="for a server to start (default: 10)")
    model.add_argument("--patience", type=number(), default=60, metavar="SECONDS", help="without any server (default: 60)")
    add_judge_arguments(parser)
    limits.add_argument("--max-request-mb", type=whole(1), default=64, metavar="N", help="size of a request (default: 64)")
    limits.add_argument(
        "--max-output-tokens", type=whole(1), metavar="N", help="tokens that a request may ask for, and gets if it does not"
    )
    limits.add_argument("--max-rollouts", type=whole(1), default=16_384, metavar="N", help="kept at a time (default: 16384)")
    limits.add_argument(
        "--max-rollout-tokens", type=whole(1), default=1 << 20, metavar="N", help="tokens of one (default: 1048576)"
    )
    limits.add_argument(
        "--rollout-seconds",
        type=number(above=True),
        default=3600,
        metavar="S",
        help="kept after its last request (default: 3600)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C; 0, or 130 if requests in flight were given up."""
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        raise UsageError("serving needs aiohttp", "pip install 'gymdata[rollouts]'") from None

    from gymdata.environments.config import load_config
    from gymdata.environments.registry import load
    from gymdata.rollouts.policy import Settings
    from gymdata.rollouts.server import Serving, serve

    environments = [load(name) for name in args.environments]
    if args.config:
        environments.append(load_config([Path(path) for path in args.config]))
    if not environments and not args.model_url:
        raise UsageError("there is nothing to serve", "name environments (`gymdata envs list`), give --model-url, or both")
    settings = Settings(
        urls=tuple(args.model_url),
        model=args.model,
        api_key=key_in(args.api_key_env),
        most=args.concurrency or 16_384,
        fixed=args.concurrency is not None,
        timeout=args.timeout,
        attempts=args.attempts,
        patience=args.patience,
        wait=args.wait,
        token_ids=not args.no_token_ids,
    )
    serving = Serving(
        environments=tuple(environments),
        settings=settings if args.model_url else None,
        judge=judge_settings(args),
        host=args.host,
        port=args.port,
        max_steps=args.max_steps,
        workers=args.workers,
        verify_seconds=args.seconds,
        max_request_bytes=args.max_request_mb << 20,
        max_output_tokens=args.max_output_tokens,
        max_rollouts=args.max_rollouts,
        max_rollout_tokens=args.max_rollout_tokens,
        rollout_seconds=args.rollout_seconds,
        failure_rows=args.failure_rows,
    )

    def on_start(server: Server) -> None:
        names = ", ".join(environment.name for environment in environments) or "no environment"
        print(f"{names}; {f'model {server.model}' if server.model else 'no model'}; at {server.url}", flush=True)

    finished = asyncio.run(serve(serving, on_start))
    print("stopped" if finished else "stopped; what was in flight was given up", file=sys.stderr)
    return 0 if finished else 130
