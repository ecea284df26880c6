"""`gymdata rollouts collect`: several rollouts of each task from a model server, scored; goes on where it was interrupted."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymdata.cli.numbers import number, whole
from gymdata.errors import UsageError

if TYPE_CHECKING:
    from pydantic import SecretStr

    from gymdata.environments.model import Environment
    from gymdata.rollouts.gym import Remote
    from gymdata.rollouts.policy import Settings
    from gymdata.rollouts.run import Progress, Run

DEFAULT_URL = "http://127.0.0.1:8000/v1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what, how, server = (parser.add_argument_group(name) for name in ("what to collect", "how the model is asked", "the servers"))
    parser.add_argument("targets", nargs="+", metavar="ENV|ROWS", help="environments, or files of rows (.gz and .zst too)")
    what.add_argument(
        "--env", action="append", default=[], metavar="ENV", help="what scores the ROWS (name or NeMo Gym YAML); repeatable"
    )
    what.add_argument("--config", action="append", default=[], metavar="PATH", help="a NeMo Gym YAML merged on top; repeatable")
    what.add_argument("--split", choices=["train", "validation", "example"], default="train", help="of an ENV (default: train)")
    what.add_argument("--num-repeats", type=whole(1), default=1, metavar="N", help="rollouts of each task (default: 1)")
    what.add_argument("--limit", type=whole(0), default=0, metavar="N", help="only the first N tasks of each agent")
    what.add_argument(
        "--shard", default="0/1", metavar="I/N", help="only the I-th of N parts, counted from 0; see `rollouts merge`"
    )
    what.add_argument("--output", type=Path, metavar="PATH.jsonl", help="(default: rollouts/NAME.jsonl)")
    what.add_argument(
        "--new-run", action="store_true", help="set aside what is there and start anew, instead of going on with it"
    )
    what.add_argument(
        "--max-attempts", type=whole(1), default=3, metavar="N", help="tries of a rollout over all runs (default: 3)"
    )
    what.add_argument("--format", choices=["text", "json"], default="text")
    how.add_argument("--temperature", type=number(), metavar="T")
    how.add_argument("--top-p", type=number(), metavar="P")
    how.add_argument("--max-output-tokens", type=whole(1), metavar="N")
    how.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="KEY=JSON",
        help="replaces a key of every row's responses_create_params; repeatable",
    )
    how.add_argument("--extra-body", default="{}", metavar="JSON", help='more keys of every request, such as {"top_k": 20}')
    how.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="what the seeds of the rollouts are made from (default: 0; to --agent-url none are sent)",
    )
    how.add_argument("--no-seed", action="store_true", help="send no seeds")
    how.add_argument("--no-token-ids", action="store_true", help="do not ask for token ids and log probabilities")
    how.add_argument(
        "--token-bridge",
        choices=["auto", "require", "prefix", "off"],
        default="auto",
        help="prompts of later turns: token ids where that can be (auto), token ids or a failure (require), messages with "
        "required_prefix_token_ids (prefix), messages (off)",
    )
    how.add_argument(
        "--max-steps", type=whole(1), default=32, metavar="N", help="replies of the model in one rollout (default: 32)"
    )
    server.add_argument(
        "--model-url", action="append", metavar="URL", help=f"an OpenAI-compatible server; repeatable (default: {DEFAULT_URL})"
    )
    server.add_argument(
        "--agent-url",
        action="append",
        metavar="URL",
        help="a NeMo Gym agent, whose /run makes and scores the rollouts; repeatable",
    )
    server.add_argument(
        "--resources-url",
        action="append",
        metavar="URL",
        help="a NeMo Gym resources server, which has the tools and scores what our model says; repeatable",
    )
    server.add_argument(
        "--head-url",
        metavar="URL",
        help="NeMo Gym's head server, which says where the rows' agents are (with --model-url: their resources servers)",
    )
    server.add_argument("--model", metavar="NAME", help="which of the server's models (default: its only one)")
    server.add_argument(
        "--api", choices=["chat", "responses"], default="chat", help="/chat/completions or /responses (default: chat)"
    )
    server.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="NAME",
        help="environment variable with the key (default: OPENAI_API_KEY)",
    )
    server.add_argument(
        "--concurrency",
        type=whole(1),
        metavar="N",
        help="rollouts in flight, from the start (default: as many as the servers take, up to 16384)",
    )
    server.add_argument(
        "--timeout",
        type=number(above=True),
        default=1800,
        metavar="SECONDS",
        help="the longest silence in a request (default: 1800)",
    )
    server.add_argument("--attempts", type=whole(1), default=5, metavar="N", help="tries of a request (default: 5)")
    server.add_argument("--wait", type=number(), default=10, metavar="SECONDS", help="for a server to start (default: 10)")
    server.add_argument(
        "--patience", type=number(), default=600, metavar="SECONDS", help="without any server, before giving up (default: 600)"
    )
    add_judge_arguments(parser)
    server.add_argument("--workers", type=whole(0), default=0, metavar="N", help="processes that score (default: one per core)")


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how a judge is reached."""
    judge = parser.add_argument_group("the judge, where a verifier asks one")
    judge.add_argument(
        "--judge-url", action="append", metavar="URL",
        help="an OpenAI-compatible server; repeatable (default: that of the model, where there is one and the judge is `policy_model`)",
    )  # fmt: skip
    judge.add_argument("--judge-model", metavar="NAME", help="which of the server's models (default: its only one)")
    judge.add_argument(
        "--judge-api-key-env", default="OPENAI_API_KEY", metavar="NAME",
        help="environment variable with the key (default: OPENAI_API_KEY)",
    )  # fmt: skip


def judge_settings(args: argparse.Namespace) -> Settings | None:
    """How the judge is reached that the arguments name; None if they name none."""
    from gymdata.rollouts.policy import Settings

    if not args.judge_url:
        if args.judge_model:
            raise UsageError("--judge-model without --judge-url", "say where its server is")
        return None
    return Settings(tuple(args.judge_url), args.judge_model, api_key=key_in(args.judge_api_key_env))


def key_in(variable: str) -> SecretStr | None:
    """The key in an environment variable; None if there is none. Raises UsageError for what no header can hold."""
    from pydantic import SecretStr

    key = os.environ.get(variable, "").strip()  # a secret read from a file often ends with a line feed
    if not key.isprintable():
        raise UsageError(f"the environment variable {variable} holds no key: there are control characters in it")
    return SecretStr(key) if key else None


def run(args: argparse.Namespace) -> int:
    """Collect; 3 if some rollouts failed and may be tried again, 1 if some failed for good, 130 if interrupted."""
    from gymdata.cli.rollouts_progress import Line

    wanted = _run(args)
    from gymdata.rollouts.collect import collect

    line = Line(wanted.files.rollouts)
    try:
        progress = collect(wanted, line.start)
    except KeyboardInterrupt:
        print("interrupted; what was finished is on the disk, and the same command goes on", file=sys.stderr)
        return 130
    finally:
        line.stop()
    for note in progress.notes:
        print(note, file=sys.stderr)
    if args.format == "json":
        print(json.dumps(_summary(progress, wanted), indent=2))
    else:
        print(_text(progress, wanted))
    print(f"wrote {wanted.files.rollouts}", file=sys.stderr)
    if progress.interrupted:
        print("interrupted" + ("; the same command goes on" if progress.owed else ", with nothing left to do"), file=sys.stderr)
        return 130
    if progress.owed:
        return 3
    return 1 if progress.given_up or progress.final_failures else 0


def _run(args: argparse.Namespace) -> Run:
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        raise UsageError("collecting rollouts needs aiohttp", "pip install 'gymdata[rollouts]'") from None
    from gymdata.rollouts.files import RunFiles
    from gymdata.rollouts.plan import Options, parse_shard
    from gymdata.rollouts.policy import Settings
    from gymdata.rollouts.run import Run

    remote = _remote(args)
    rows, agents, environments = _rows(args, needed=remote is None)
    name = "-".join(dict.fromkeys(Path(target).name.split(".")[0] for target in args.targets))
    output = args.output or Path("rollouts", f"{name}.jsonl")
    if output.suffix != ".jsonl":
        raise UsageError(f"--output {output} must end in .jsonl", f"--output {output}.jsonl")
    overrides = {"temperature": args.temperature, "top_p": args.top_p, "max_output_tokens": args.max_output_tokens}
    overrides = {key: value for key, value in overrides.items() if value is not None} | dict(map(_param, args.param))
    _refuse_unusable(overrides)
    return Run(
        rows=tuple(rows),
        environments=tuple(environments),
        files=RunFiles(output, *parse_shard(args.shard)),
        settings=Settings(
            urls=tuple(args.model_url or [DEFAULT_URL]),
            model=args.model,
            api=args.api,
            api_key=key_in(args.api_key_env),
            most=args.concurrency or 16_384,
            fixed=args.concurrency is not None,
            timeout=args.timeout,
            attempts=args.attempts,
            patience=args.patience,
            wait=args.wait,
            token_ids=not args.no_token_ids,
            token_bridge=args.token_bridge,
            extra_body=_object("--extra-body", args.extra_body),
        ),
        judge=judge_settings(args),
        options=Options(args.num_repeats, args.limit, overrides, _seed(args, remote)),
        agents=agents,
        new_run=args.new_run,
        remote=remote,
        max_steps=args.max_steps,
        max_attempts=args.max_attempts,
        workers=args.workers,
    )


def _remote(args: argparse.Namespace) -> Remote | None:
    """NeMo Gym's servers that were asked for."""
    from gymdata.rollouts.gym import Remote

    given = [name for name in ("agent_url", "resources_url", "head_url") if getattr(args, name)]
    if len(given) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"{options} do not go together", "give the one that is to be asked")
    if args.agent_url and args.model_url:
        raise UsageError("--agent-url and --model-url do not go together: an agent has a model of its own", "leave one out")
    resources = args.resources_url or (args.head_url and args.model_url)
    urls = tuple(args.agent_url or args.resources_url or ())
    return Remote("resources" if resources else "agent", urls, args.head_url, seeds=args.seed is not None) if given else None


def _seed(args: argparse.Namespace, remote: Remote | None) -> int | None:
    if args.no_seed or (args.seed is None and remote is not None and remote.role == "agent"):
        return None
    return args.seed or 0


def _rows(args: argparse.Namespace, *, needed: bool) -> tuple[list[Path], dict[Path, str], list[Environment]]:
    """The files of rows, what runs the rows of each that do not say it, and the environments that score them, if they are `needed`."""
    from gymdata.environments.registry import load

    environments = [load(name, (), args.config) for name in args.env]
    paths: list[Path] = []
    agents: dict[Path, str] = {}
    for target in args.targets:
        path = Path(target)
        if path.is_file():
            paths.append(path)
            continue
        if path.suffix in (".jsonl", ".gz", ".zst") or path.is_dir():
            raise UsageError(
                f"{target}: no such file", "give a file of rows, or the name of an environment; see `gymdata envs list`"
            )
        environment = load(target, (), args.config)
        environments.append(environment)
        prepared = Path("data", environment.name, f"{args.split}.jsonl")
        if prepared.is_file():
            paths.append(prepared)
            continue
        datasets = environment.datasets([args.split])
        if not datasets:
            raise UsageError(
                f"{environment.name} has no data set of the type {args.split}", "choose another --split, or give a file of rows"
            )
        for dataset in datasets:
            paths.append(dataset.path)
            agents[dataset.path] = environment.agent_of(dataset)
    if not environments and needed and not all(map(_names_urls, paths)):
        raise UsageError(
            "what scores these rows?", "--env ENV names the environment that they were made for; several for a mixed file"
        )
    environments = list({environment.name: environment for environment in environments}.values())
    named = [
        one.name for environment in environments for one in environment.instances if one.server_type == "responses_api_agents"
    ]
    if len(named) == 1:
        agents |= dict.fromkeys(paths, named[0])
    return paths, agents, environments


def _names_urls(path: Path) -> bool:
    """Whether the first row of a file names an agent by its URL: then no environment need be known to begin with."""
    from gymdata.rows.lines import open_stream

    with io.BufferedReader(open_stream(path)) as stream:
        try:
            reference = json.loads(stream.readline()).get("agent_ref")
        except (ValueError, AttributeError):
            return False
    name = reference.get("name") if isinstance(reference, dict) else reference
    return isinstance(name, str) and name.startswith(("http://", "https://"))


def _param(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        raise UsageError(
            f"--param {text}: the value is no JSON", f"--param {key}='\"text\"' for a text, {key}=1 for a number"
        ) from None


def _refuse_unusable(overrides: dict[str, Any]) -> None:
    """Raise UsageError where no row could ask for what all are to."""
    from gymdata.validation.judge import is_error, judge

    row = json.dumps({"responses_create_params": {"input": "?", **overrides}})
    for finding in judge(row.encode(), "task").findings:
        if is_error(finding):
            hint = finding.hint + (" (keys of the server's own: --extra-body)" if finding.code == "GD204" else "")
            raise UsageError(f"no row can ask for what --param does: {finding.path}: {finding.message}", hint)


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise UsageError(f"{option} {text!r} is no JSON object", f"{option} '{{\"top_k\": 20}}'")
    return value


def _summary(progress: Progress, wanted: Run) -> dict[str, Any]:
    return {
        "output": str(wanted.files.rollouts),
        "failures": str(wanted.files.failures),
        "model": progress.model,
        "rollouts": progress.total,
        "before": progress.before,
        "done": progress.done,
        "failed": dict(progress.failed),
        "given_up": progress.given_up + progress.final_failures,
        "owed": progress.owed,
        "discontinuous": progress.discontinuous,
        "retries": progress.retries,
        "mean_reward": progress.rewards.mean,
        "output_tokens": progress.output_tokens,
        "seconds": round(progress.seconds, 3),
        "interrupted": progress.interrupted,
    }


def _text(progress: Progress, wanted: Run) -> str:
    there = progress.before + progress.done
    lines = [
        f"{there:,} of {progress.total:,} rollouts, {progress.done:,} of them now, from {progress.model}, in {progress.seconds:,.1f} s"
    ]
    if progress.rewards.mean is not None:
        rate = progress.output_tokens / progress.seconds if progress.seconds else 0.0
        lines.append(
            f"mean reward {progress.rewards.mean:.3f}; {progress.output_tokens:,} tokens, {rate:,.0f} a second; {progress.retries:,} retries"
        )
    for kind, count in sorted(progress.failed.items()):
        lines.append(f"failed: {count:,} {kind}")
    if progress.discontinuous:
        lines.append(f"{progress.discontinuous:,} have token ids that are not one sequence: `token_faults` says why")
    if progress.failed:
        lines.append(f"why: {wanted.files.failures}")
    if progress.owed and not progress.interrupted:
        lines.append(f"{progress.owed:,} can be tried again: run the same command")
    if given_up := progress.given_up + progress.final_failures:
        lines.append(f"{given_up:,} are not tried again (--max-attempts {wanted.max_attempts}, or they would fail again)")
    if there:
        what = "merge" if wanted.files.shards > 1 else "profile"
        lines.append(f"next: gymdata rollouts {what} {wanted.files.output}")
    return "\n".join(lines)
