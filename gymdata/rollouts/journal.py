"""An append-only file of JSON lines in which each (task, rollout) stands once, whatever interrupted those who wrote it.

A record that was reported written is on the disk: appends wait for an fsync, which all records that are ready share. What a
killed process left behind, a line without its end, is cut off when the file is opened again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gymdata.atomic import disk_errors, fsync, writing
from gymdata.errors import ExternalError, UsageError

Key = tuple[int, int]
"""A rollout: its `_ng_task_index` and its `_ng_rollout_index`."""

TaskIndex = Annotated[int, msgspec.Meta(ge=0)]
RolloutIndex = Annotated[int, msgspec.Meta(ge=0, lt=1 << 24)]
"""Bounded: one beyond that was written by no collector, and would fill the memory as a key."""
_BLOCK = 1 << 20


class _Keys(msgspec.Struct):
    task: TaskIndex = msgspec.field(name="_ng_task_index")
    rollout: RolloutIndex = msgspec.field(name="_ng_rollout_index")
    reward: Any = None


_decode_keys = msgspec.json.Decoder(_Keys).decode


@dataclass(frozen=True, slots=True)
class Record:
    """Where a line stands in its file, the line feed included, and whose it is; `key` is None for one that cannot be read."""

    key: Key | None
    start: int
    size: int
    reward: float | None = None


def records(path: Path) -> Iterator[Record]:
    """The whole lines of a file, in order; an unfinished one at the end is not among them. A file that is not there has none."""
    with suppress(FileNotFoundError), open(path, "rb", buffering=_BLOCK) as file:
        start = 0
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield _record(line, start)
            start += len(line)


def _record(line: bytes, start: int) -> Record:
    try:
        found = _decode_keys(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Record(None, start, len(line))
    reward = found.reward if isinstance(found.reward, int | float) else None
    return Record((found.task, found.rollout), start, len(line), reward)


class Keys:
    """A set of rollouts: one bit each, so that millions fit."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._count = 0

    def __contains__(self, key: Key) -> bool:
        return bool(self._bits.get(key[0], 0) >> key[1] & 1)

    def __len__(self) -> int:
        return self._count

    def add(self, key: Key) -> bool:
        """Add one; whether it was not in yet."""
        bits = self._bits.get(key[0], 0)
        if bits >> key[1] & 1:
            return False
        self._bits[key[0]] = bits | 1 << key[1]
        self._count += 1
        return True


@dataclass
class Rewards:
    """How many rewards there are, and their sum."""

    count: int = 0
    total: float = 0.0

    def add(self, reward: float | None) -> None:
        if reward is not None:
            self.count, self.total = self.count + 1, self.total + reward

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


class Journal:
    """One file, open for appending by this process alone; `async with` it, or `close()` it.

    With `unique`, a record whose (task, rollout) the file has already is refused by `append`, and repeated ones are removed on
    opening. `keys` are the rollouts that the file has, `rewards` those that it had when it was opened; `repaired` says in words what
    had to be mended. Raises UsageError if another process writes to the file, ExternalError if the disk refuses.
    """

    def __init__(self, path: Path, *, unique: bool = True) -> None:
        self.path, self.unique = path, unique
        self.keys = Keys()
        self.rewards = Rewards()
        self.repaired = ""
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _locked(path)
            try:
                self._repair()
            except BaseException:
                os.close(self._file)
                raise

    async def append(self, record: Any) -> bool:
        """Write a JSON-able record with its `_ng_task_index` and `_ng_rollout_index`; returns once it is on the disk.

        False, and nothing is written, if the journal is `unique` and has the rollout. Raises ExternalError if the disk refuses;
        the file then ends with the last whole record.
        """
        key = (record["_ng_task_index"], record["_ng_rollout_index"])
        if not self.keys.add(key) and self.unique:
            return False
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((msgspec.json.encode(record) + b"\n", done))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
        await asyncio.shield(done)
        return True

    async def close(self) -> None:
        """Wait for what is being written, then let go of the file."""
        if self._writer is not None:
            await self._writer
        os.close(self._file)

    async def __aenter__(self) -> Journal:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._write, b"".join(line for line, _ in batch))
            except ExternalError as error:
                for _, done in batch:
                    done.set_exception(error)
            else:
                for _, done in batch:
                    done.set_result(None)

    def _write(self, data: bytes) -> None:
        with disk_errors(self.path):
            whole = os.fstat(self._file).st_size
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._file, view) :]
                os.fdatasync(self._file)
            except OSError:
                os.ftruncate(self._file, whole)
                raise

    def _repair(self) -> None:
        """Cut a torn tail; where lines in the middle are unreadable or repeated, write the file anew without them."""
        end, unreadable, repeated = 0, 0, 0
        kept: list[tuple[int, int]] = []  # runs of good lines: (start, stop)
        for record in records(self.path):
            end = record.start + record.size
            if record.key is None:
                unreadable += 1
            elif not self.keys.add(record.key) and self.unique:
                repeated += 1
            else:
                self.rewards.add(record.reward)
                if kept and kept[-1][1] == record.start:
                    kept[-1] = (kept[-1][0], end)
                else:
                    kept.append((record.start, end))
        torn = os.fstat(self._file).st_size - end
        if unreadable or repeated:
            self._rewrite(kept)
        elif torn:
            os.ftruncate(self._file, end)
            os.fsync(self._file)
        counts = {"unreadable lines": unreadable, "repeated rollouts": repeated, "bytes of an unfinished line": torn}
        told = [f"{count:,} {what}" for what, count in counts.items() if count]
        self.repaired = f"{self.path}: removed {', '.join(told)}" if told else ""

    def _rewrite(self, kept: list[tuple[int, int]]) -> None:
        with writing(self.path) as temporary, open(self.path, "rb") as source, open(temporary, "wb") as target:
            for start, stop in kept:
                source.seek(start)
                while start < stop:
                    start += target.write(source.read(min(_BLOCK, stop - start)))
            target.flush()
            old, self._file = self._file, _lock(os.open(temporary, os.O_RDWR | os.O_APPEND), self.path)
        os.close(old)


def refuse_busy(path: Path) -> None:
    """Raise UsageError while another process writes to a file that is there; nothing in it is mended."""
    os.close(_locked(path))


def _locked(path: Path) -> int:
    """The file, made if need be, locked: the lock goes with the process, and no lock file is left behind."""
    while True:
        created = not path.exists()
        handle = _lock(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666), path)
        if created:
            fsync(path.parent)
        # Another process may have put a repaired file in its place between our opening and locking it.
        if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
            return handle
        os.close(handle)


def _lock(handle: int, path: Path) -> int:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(
            f"{path}: another run is writing to it",
            "wait for it, or choose another --output; several machines share a run by --shard",
        ) from None
    return handle
