"""Imported by the process that workers are forked from: the default vocabulary, loaded once, is memory that they all share."""

from contextlib import suppress

from gymdata.errors import GymdataError
from gymdata.statistics.tokens import TokenCounter

with suppress(GymdataError):  # the first worker that counts says what is wrong
    TokenCounter().count_batch(["a"])
