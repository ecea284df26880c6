"""The one place that writes outputs: files and directories appear whole, or not at all.

A reader never sees half a file. `staged` replaces a directory in one step (`renameat2(RENAME_EXCHANGE)` on Linux), so a
process killed at any moment leaves the old directory or the new one; what it leaves beside it is removed by the next run.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gymdata.errors import ExternalError

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` through a temporary file beside it: fsync, rename, fsync of the folder.

    Raises ExternalError, naming the path, if the disk refuses; what stood at `path` is then untouched.
    """
    with writing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success what was written there takes its place, on failure it is removed."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.fchmod(handle, 0o666 & ~_umask())
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            fsync(temporary)
            os.replace(temporary, path)
            fsync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def staged(
    directory: Path, replaces: Callable[[], Iterable[str]] = tuple, on_wait: Callable[[], None] = lambda: None
) -> Iterator[Path]:
    """Yield an empty staging directory; on success `directory` becomes what was put there, in one step.

    Of the entries of `directory` that the stage does not hold, those named by `replaces()` go (it is asked under the lock),
    all others stay (files are hard-linked over). Only one process at a time may stage for a directory: others wait, after
    calling `on_wait`. On failure nothing in `directory` has changed.
    """
    with disk_errors(directory):
        created = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        directory = directory.resolve()
        with _locked(directory, on_wait):
            inside, home, prefix = _staging(directory)
            _remove_stages(home, prefix)
            stage = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
            stage.chmod(0o777 & ~_umask())
            # Once the two have changed places the stage is the directory: its lock keeps others out until all is done.
            lock = os.open(stage, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield stage
                for path in stage.rglob("*"):
                    fsync(path)
                fsync(stage)
                for path in stage.iterdir():
                    if path.is_file() and (directory / path.name).is_dir():
                        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(directory / path.name))
                gone = set(replaces())
                if inside:
                    gone -= {path.name for path in stage.iterdir()}
                    _move_files(stage, directory)
                    for name in gone:
                        (directory / name).unlink(missing_ok=True)
                else:
                    _link_missing(directory, stage, gone)
                    _exchange(stage, directory)
                    _link_missing(stage, directory, gone)
                fsync(home)
            except BaseException:
                if created and not any(directory.iterdir()):
                    directory.rmdir()
                raise
            finally:
                shutil.rmtree(stage, ignore_errors=True)
                os.close(lock)


def remove_leftovers(directory: Path) -> None:
    """Remove what killed runs left beside `directory`, unless another run is at work there."""

    def give_up() -> None:
        raise BlockingIOError

    with suppress(OSError), _locked(directory.resolve(), give_up):
        _, home, prefix = _staging(directory.resolve())
        _remove_stages(home, prefix)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the disk into an ExternalError that names the path and the reason."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        remedies = {
            errno.ENOSPC: "free some space, or choose another folder",
            errno.EDQUOT: "your disk quota is used up: free some space, or choose another folder",
            errno.EROFS: "the file system is read-only: choose another folder",
            errno.EACCES: "check the permissions of the folder, or choose another one",
            errno.ENOTDIR: "a part of the path is a file: choose another folder",
            errno.EISDIR: "a folder stands where a file should: move it away, or choose another folder",
            errno.EEXIST: "a file stands where a folder should: choose another folder",
        }
        hint = remedies.get(error.errno or 0, "nothing was changed; run the same command again once it is mended")
        raise ExternalError(f"{where}: {error.strerror or error}", hint) from error


def fsync(path: Path) -> None:
    """Flush a file or a directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _staging(directory: Path) -> tuple[bool, Path, str]:
    """Whether stages stand inside `directory` (a mount point cannot change places), where they stand, how their names begin."""
    inside = os.path.ismount(directory) or os.stat(directory).st_dev != os.stat(directory.parent).st_dev
    return inside, directory if inside else directory.parent, f".{directory.name}.staging-"


def _remove_stages(home: Path, prefix: str) -> None:
    for leftover in home.glob(f"{glob.escape(prefix)}*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _locked(directory: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a kernel lock on the directory itself, so that a dead owner frees it and no lock file is left behind."""
    while True:
        handle = os.open(directory, os.O_RDONLY)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(handle, fcntl.LOCK_EX)
            # The directory may have been exchanged for another while we waited: then the lock is on the old one.
            directory.mkdir(parents=True, exist_ok=True)
            if os.fstat(handle).st_ino == os.stat(directory).st_ino:
                yield
                return
        finally:
            os.close(handle)


def _link_missing(old: Path, new: Path, gone: Collection[str] = ()) -> None:
    for source in old.iterdir():
        target = new / source.name
        if source.name in gone or target.exists() or target.is_symlink():
            continue
        if source.is_dir() and not source.is_symlink():
            target.mkdir()
            shutil.copystat(source, target)
            _link_missing(source, target)
        else:
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError:
                shutil.copy2(source, target, follow_symlinks=False)


def _exchange(new: Path, old: Path) -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) == 0:
            return
        if ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(old))
    _move_files(new, old)


def _move_files(stage: Path, directory: Path) -> None:
    """Where a directory cannot be exchanged (a mount point): file by file, manifest.json last, so that a mix shows."""
    for path in sorted(stage.iterdir(), key=lambda path: (path.name == "manifest.json", path.name)):
        os.replace(path, directory / path.name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
