"""Makes the rollouts that a plan asks for: as many at a time as the servers take, each scored and on the disk, or a typed failure.

Memory grows with what is in flight, not with the plan. Killed at any moment and started again, it makes what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

import msgspec

from gymdata import __version__
from gymdata.errors import ExternalError, UsageError
from gymdata.rollouts import agent
from gymdata.rollouts.files import agree, failures_of
from gymdata.rollouts.gym import URL, Agent, Gym, GymFailed, Remote, Session, added, with_seed
from gymdata.rollouts.journal import Journal, Key, Keys, RolloutIndex, TaskIndex, records, refuse_busy
from gymdata.rollouts.judge import Judge, JudgeFailed, judge_settings, score
from gymdata.rollouts.overflow import Overflow
from gymdata.rollouts.plan import Plan, Task, Who
from gymdata.rollouts.policy import Policy, RequestFailed, Settings, Trajectory, connections
from gymdata.rollouts.run import Progress, Run, Scoring, scoring
from gymdata.rollouts.tokens import TOKEN_IDS
from gymdata.verifiers import Verdict
from gymdata.verifiers.isolation import Workers

BREAKER = 50
"""Failures one after the other, with no rollout between them, that end a run."""
UNSCORED = 1024
"""Rollouts that may wait to be scored before servers get no more."""


def collect(run: Run, on_start: Callable[[Progress], None] = lambda progress: None) -> Progress:
    """Make every rollout that is missing; returns when there is nothing more to do, or when interrupted.

    `on_start` is given the progress once the servers have answered, to show as it changes. Ctrl-C lets finish what is in flight,
    a second one or SIGTERM does not; either way what was finished is on the disk. Raises GymdataError.
    """
    run.files.refuse_strangers(run.rows, new_run=run.new_run)
    plan = Plan(run.rows, run.options, run.agents)
    remote, elsewhere = _elsewhere(run.remote, plan.who)
    try:
        found = scoring(run.environments, set(plan.who) - elsewhere)
        judge = judge_settings([one.verifier for one in found.values()], run.judge, run.settings)
        return asyncio.run(_Collector(run, plan, found, judge, remote, elsewhere).collect(on_start))
    finally:
        plan.close()


class _Collector:
    def __init__(
        self, run: Run, plan: Plan, scoring: Mapping[Who, Scoring], judge: Settings | None, remote: Remote, elsewhere: Set[Who]
    ) -> None:
        """`elsewhere` are those of whose rows the servers of `remote` make the rollouts, or score them."""
        self._run, self._plan, self._scoring, self._elsewhere = run, plan, scoring, elsewhere
        settings, self._judge = run.settings, None
        if judge:  # two clients share the connections that this process may have
            self._judge = Judge(judge, None if run.options.seed is None else 0)
            settings = replace(settings, most=min(settings.most, max(1, connections() - self._judge.policy.settings.most)))
        self._policy = Policy(settings) if scoring or remote.role == "resources" else None
        self._gym = Gym(remote, elsewhere, run.settings) if elsewhere else None
        self._failing = 0  # failures since the last success
        self._held: list[dict[str, Any]] = []
        self._unscored = asyncio.Semaphore(UNSCORED)
        self.progress = Progress()

    async def collect(self, on_start: Callable[[Progress], None]) -> Progress:
        run, progress = self._run, self.progress
        async with contextlib.AsyncExitStack() as stack:
            if self._gym:
                await stack.enter_async_context(self._gym)
                progress.model, progress.servers = "NeMo Gym's agents", self._gym.servers
            if self._policy:
                await stack.enter_async_context(self._policy)
                progress.model, progress.servers = self._policy.model, [*self._policy.endpoints.all, *progress.servers]
            if self._judge:
                await stack.enter_async_context(self._judge)
                await self._judge.meet()
            if run.new_run:
                self._start_anew()
            agree(run.files.manifest, self._manifest())
            async with Journal(run.files.rollouts) as self._journal, Journal(run.files.failures, unique=False) as self._failures:
                progress.notes += [journal.repaired for journal in (self._journal, self._failures) if journal.repaired]
                progress.rewards = self._journal.rewards
                others = self._done_elsewhere()
                self._attempts, terminal = self._failed_before()
                progress.total = sum(repeats for _, repeats in self._plan.owed(run.files.shard, run.files.shards))
                todo = self._todo(others, terminal)
                on_start(progress)
                async with Workers(run.workers, seconds=run.verify_seconds) as self._workers:
                    await self._all(todo)
        progress.seconds = time.monotonic() - progress.started
        dropped = sorted(self._policy.dropped) if self._policy else ()
        progress.notes += [f"the server does not take {key!r}: it was left out" for key in dropped]
        if self._judge:
            progress.notes += [
                f"the judge's server does not take {key!r}: it was left out" for key in sorted(self._judge.policy.dropped)
            ]
        return progress

    def _start_anew(self) -> None:
        files = self._run.files
        if files.shards > 1:
            raise UsageError(
                "--new-run with --shard would set aside what other shards have just begun",
                "choose another --output, or move the files of the run away",
            )
        if files.rollouts.exists():
            refuse_busy(files.rollouts)
        if folder := files.set_aside():
            self.progress.notes.append(f"what was there is now in {folder}")

    def _manifest(self) -> dict[str, Any]:
        run = self._run
        verifiers = {
            " ".join(filter(None, who)) or "all": {
                "name": one.verifier.name,
                "version": one.verifier.version,
                "options": repr(one.verifier),
                **({"judge": judge.manifest()} if (judge := getattr(one.verifier, "judge", None)) else {}),
            }
            for who, one in self._scoring.items()
        }
        asked = {"token_bridge": run.settings.token_bridge, "extra_body": dict(run.settings.extra_body)}
        parameters = {"max_steps": run.max_steps, **asked}
        wanted = self._plan.manifest()
        made_by = {"model": self._policy.manifest()} if self._policy else {}
        if self._gym:
            made_by["servers"] = self._gym.manifest()
        return {
            **wanted,
            "parameters": {**wanted["parameters"], **parameters},
            **made_by,
            "verifiers": verifiers,
            **({"judge": self._judge.policy.manifest()} if self._judge else {}),
            "gymdata": __version__,
        }

    def _done_elsewhere(self) -> Keys:
        found = Keys()
        for path in self._run.files.others():
            for record in records(path):
                if record.key and found.add(record.key) and record.key not in self._journal.keys:
                    self.progress.rewards.add(record.reward)
        return found

    def _failed_before(self) -> tuple[Counter[Key], Keys]:
        """How often each rollout has failed, here or in another shard, and which will fail again."""
        attempts: Counter[Key] = Counter()
        terminal = Keys()
        for path in map(failures_of, [self._run.files.rollouts, *self._run.files.others()]):
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                for line in file:
                    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):  # another shard may be writing it
                        failure = _decode_failure(line)
                        attempts[failure.key] += 1
                        if _is_terminal(failure.failure, failure.kind):
                            terminal.add(failure.key)
        return attempts, terminal

    def _todo(self, others: Keys, terminal: Keys) -> Iterator[tuple[Task, int]]:
        """The rollouts that are missing, those of a task one after the other. Counts in the progress those that are not made."""
        files, progress = self._run.files, self.progress
        missing: dict[int, list[int]] = {}
        for index, repeats in self._plan.owed(files.shard, files.shards):
            for rollout in range(repeats):
                key = (index, rollout)
                if key in self._journal.keys or key in others:
                    progress.before += 1
                elif key in terminal or self._attempts[key] >= self._run.max_attempts:
                    progress.given_up += 1
                else:
                    missing.setdefault(index, []).append(rollout)
        return (
            (task, rollout)
            for task in self._plan.tasks(files.shard, files.shards)
            if task.index in missing
            for rollout in missing.pop(task.index)
        )

    async def _all(self, todo: Iterator[tuple[Task, int]]) -> None:
        """Make them; returns when all are made or the user has had enough. Raises the first error that is not one rollout's own."""
        running: set[asyncio.Task[None]] = set()
        idle = asyncio.Event()
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finished(one: asyncio.Task[None]) -> None:
            running.discard(one)
            if not running:
                idle.set()
            if not one.cancelled() and (error := one.exception()) and not over.done():
                over.set_exception(error)

        async def dispatch() -> None:
            for task, rollout in todo:
                place = await self._begin(task)
                one = asyncio.create_task(self._one(task, rollout, place))
                idle.clear()
                running.add(one)
                one.add_done_callback(finished)

        dispatcher = asyncio.create_task(dispatch())
        waiting: list[asyncio.Task[Any]] = [dispatcher]
        try:
            with _signals(self.progress, dispatcher, over):
                await asyncio.wait({dispatcher, over}, return_when=asyncio.FIRST_COMPLETED)
                if dispatcher.done() and not dispatcher.cancelled():
                    dispatcher.result()
                waiting.append(all_done := asyncio.create_task(idle.wait()))
                if not running:
                    idle.set()
                await asyncio.wait({all_done, over}, return_when=asyncio.FIRST_COMPLETED)
            if over.done():
                over.result()
            await self._write_failures()
        finally:
            waiting += running
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _begin(self, task: Task) -> Trajectory | Agent:
        """Room for one rollout of a task, where it is to be made; waits for it."""
        wish = int.from_bytes(task.key[8:], "big")
        if self._gym and self._gym.remote.role == "agent" and task.who in self._elsewhere:
            return await self._gym.begin(task.who, wish)
        assert self._policy is not None
        return await self._policy.begin(wish)

    async def _one(self, task: Task, rollout: int, place: Trajectory | Agent) -> None:
        """One rollout: asked for, scored, written."""
        progress = self.progress
        row = {key: msgspec.json.decode(value) for key, value in task.row.items()} | {"responses_create_params": task.params}
        seed = self._plan.seed_of(task, rollout)
        session: Session | None = None
        progress.in_flight += 1
        try:
            async with place:
                try:
                    if isinstance(place, Agent):
                        said = await place.run(self._sent(task, rollout, row, seed), self._name_of(task, rollout))
                    elif self._gym and task.who in self._elsewhere:
                        session = await self._gym.seed(task.who, self._sent(task, rollout, row), rollout)
                        said = await agent.run(
                            place, row, task.params, call=session.call, seed=seed, max_steps=self._run.max_steps
                        )
                    else:
                        make_tools = self._scoring[task.who].make_tools
                        said = await agent.run(place, row, task.params, make_tools, seed=seed, max_steps=self._run.max_steps)
                except (RequestFailed, GymFailed, agent.ToolsFailed) as error:
                    said = error
                await (
                    self._unscored.acquire()
                )  # with the place still held: a slow verifier slows the run, it does not fill the memory
            try:
                match said:
                    case agent.Trajectory():
                        await self._score(task, rollout, seed, row, said, session)
                    case Overflow():
                        await self._fail(task, rollout, "context_overflow", said.kind, said.message)
                    case RequestFailed():
                        failed = {"_ng_failure_http_status": said.status}
                        await self._fail(task, rollout, "request_failed", said.kind, said.message, **failed)
                    case agent.ToolsFailed():
                        await self._fail(task, rollout, "tools_failed", said.kind, said.message)
                    case GymFailed():
                        failed = {"_ng_failure_http_status": said.status}
                        await self._fail(task, rollout, said.failure, said.kind, said.message, **failed)
                    case reply:
                        extras = added(reply, self._sent(task, rollout, row, seed))
                        made = agent.Trajectory(reply["response"], "completed", 1)
                        await self._keep(task, rollout, made, reply["response"], float(reply["reward"]), extras)
            finally:
                self._unscored.release()
        finally:
            counts = [source.counts for source in (self._policy, self._gym) if source]
            progress.in_flight -= 1
            progress.output_tokens = sum(count.output_tokens for count in counts)
            progress.retries = sum(count.retries for count in counts) + (self._judge.policy.counts.retries if self._judge else 0)

    def _sent(self, task: Task, rollout: int, row: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
        """A row as NeMo Gym's servers take it."""
        stamps = _stamps(task, rollout)
        sent = {
            **row,
            **{key: msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value for key, value in stamps.items()},
        }
        if URL.fullmatch(task.who[0] or ""):
            del sent["agent_ref"]
        if attempt := self._attempts[task.index, rollout]:
            sent["_ng_attempt_index"] = attempt
        if seed is not None and self._gym and self._gym.remote.seeds:
            sent["responses_create_params"] = with_seed(task.params, seed)
        return sent

    def _name_of(self, task: Task, rollout: int) -> str:
        """The same whenever this try of a rollout is asked for, also by another process."""
        return f"{task.key.hex()}:{task.index}:{rollout}:{self._attempts[task.index, rollout]}:{self._plan.options.seed}"

    async def _score(
        self, task: Task, rollout: int, seed: int | None, row: dict[str, Any], said: agent.Trajectory, session: Session | None
    ) -> None:
        assert self._policy is not None
        response = {**said.response, "model": self._policy.model}
        if seed is not None:
            response["metadata"] = {**(response["metadata"] or {}), "seed": str(seed)}
        bare = [{key: value for key, value in item.items() if key not in TOKEN_IDS} for item in response["output"]]
        bare = {**response, "output": bare}
        try:
            verdict = await (
                session.verify(bare)
                if session
                else score(self._workers, self._judge, self._scoring[task.who].verifier, row, bare)
            )
        except GymFailed as error:
            failed = {"_ng_failure_http_status": error.status, "response": response}
            await self._fail(task, rollout, error.failure, error.kind, error.message, **failed)
            return
        if isinstance(verdict, Verdict):
            extras = {**verdict.extras, "stop_reason": said.stop_reason}
            await self._keep(task, rollout, said, response, verdict.reward, extras)
        elif isinstance(verdict, JudgeFailed):
            more = {"judge_evaluations": verdict.evaluations} if verdict.evaluations else {}
            await self._fail(task, rollout, "judge_failed", verdict.kind, verdict.message, response=response, **more)
        else:
            await self._fail(task, rollout, "verifier_failed", verdict.kind, verdict.message, response=response)

    async def _keep(
        self,
        task: Task,
        rollout: int,
        said: agent.Trajectory,
        response: Mapping[str, Any],
        reward: float,
        extras: Mapping[str, Any],
    ) -> None:
        """Write a rollout that has its reward, and the failures that were held back."""
        record = {
            **task.row,
            **extras,
            "responses_create_params": task.params,
            "response": response,
            "reward": reward,
            **_stamps(task, rollout),
        }
        if faults := agent.token_faults(record, said):
            record["token_faults"] = faults
            self.progress.discontinuous += 1
        if await self._journal.append(record):
            self.progress.done += 1
            self.progress.rewards.add(reward)
        self._failing = 0
        await self._write_failures()

    async def _fail(self, task: Task, rollout: int, failure: str, kind: str, message: str, **more: Any) -> None:
        """Keep a failure, which is written with the next rollout that succeeds: a run in which all fail is not the rollouts' fault."""
        key = (task.index, rollout)
        self._attempts[key] += 1
        self.progress.failed[f"{failure}: {kind}"] += 1
        terminal = _is_terminal(failure, kind)
        final = terminal or self._attempts[key] >= self._run.max_attempts
        self.progress.final_failures += final
        told = {"class": failure, "type": kind, "message": message[:2000], "terminal": final}
        record = {**_stamps(task, rollout), "_ng_attempt_index": self._attempts[key] - 1}
        record |= {f"_ng_failure_{name}": value for name, value in told.items()}
        self._held.append(record | {name: value for name, value in more.items() if value is not None})
        self._failing += not terminal
        if self._failing >= BREAKER:
            raise ExternalError(
                f"{BREAKER} rollouts failed one after the other; the last: {failure}: {kind}: {message[:500]}",
                "mend that, then run the same command again: what was finished is on the disk",
            )

    async def _write_failures(self) -> None:
        held, self._held = self._held, []
        await asyncio.gather(*(self._failures.append(record) for record in held))


class _Failure(msgspec.Struct):
    task: TaskIndex = msgspec.field(name="_ng_task_index")
    rollout: RolloutIndex = msgspec.field(name="_ng_rollout_index")
    failure: str = msgspec.field(name="_ng_failure_class", default="")
    kind: str = msgspec.field(name="_ng_failure_type", default="")

    @property
    def key(self) -> Key:
        return self.task, self.rollout


_decode_failure = msgspec.json.Decoder(_Failure).decode


def _is_terminal(failure: str, kind: str) -> bool:
    """Whether another try would meet a failure again."""
    return failure == "context_overflow" or (failure, kind) == ("request_failed", "inexpressible")


def _stamps(task: Task, rollout: int) -> dict[str, Any]:
    """The keys by which a rollout is known; the agent, as an object, as the row names it if it does."""
    stamps: dict[str, Any] = {"_ng_task_index": task.index, "_ng_rollout_index": rollout}
    if bytes(task.row.get("agent_ref", b""))[:1] == b"{":
        stamps["agent_ref"] = task.row["agent_ref"]
    elif task.who[0]:
        stamps["agent_ref"] = {"type": "responses_api_agents", "name": task.who[0]}
    return stamps


def _elsewhere(remote: Remote | None, who: Iterable[Who]) -> tuple[Remote, set[Who]]:
    """NeMo Gym's servers, and whose rows are for them: all, or those whose agent is a URL."""
    if remote is not None:
        return remote, set(who)
    return Remote("agent"), {one for one in who if URL.fullmatch(one[0] or "")}


@contextlib.contextmanager
def _signals(progress: Progress, dispatcher: asyncio.Task[None], over: asyncio.Future[None]) -> Iterator[None]:
    """Ctrl-C: nothing new is begun. Again, or SIGTERM: what is in flight is given up, at the servers, too."""

    def drain() -> None:
        if progress.interrupted:
            abort()
        progress.interrupted = True
        dispatcher.cancel()

    def abort() -> None:
        progress.interrupted = True
        if not over.done():
            over.set_result(None)

    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop.add_signal_handler(signal.SIGINT, drain)
    loop.add_signal_handler(signal.SIGTERM, abort)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
