"""The exceptions that gymdata raises on purpose; each class knows the exit code of the command.

GymdataError
├── DataError          1  the data is at fault
├── UsageError         2  the call is at fault
│   └── ConfigError    2  a configuration file is at fault (names file and line)
└── ExternalError      3  network, server or disk failed after its retries
"""

from __future__ import annotations

from typing import ClassVar


class GymdataError(Exception):
    """Base class. `message` says what is wrong and where, `hint` what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  help: {self.hint}" if self.hint else self.message


class DataError(GymdataError):
    """The rows are at fault."""

    exit_code = 1


class UsageError(GymdataError):
    """The command line, or the arguments of a function, are at fault."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file is at fault. `path` and `line` (1-based, 0 if unknown) say where."""

    def __init__(self, message: str, hint: str = "", path: str = "", line: int = 0) -> None:
        place = f"{path}:{line}: " if path and line else f"{path}: " if path else ""
        super().__init__(place + message, hint)
        self.path = path
        self.line = line


class ExternalError(GymdataError):
    """Something outside failed: network, server, disk."""

    exit_code = 3
