"""One shape of JSON object, three ways to treat what it does not name: refuse it, drop it, keep it.

NeMo Gym refuses unknown keys in the create-params and everything below them, drops them from its own items, and keeps them
in the items and tools that it takes from the OpenAI SDK, where moreover null is as good as absent. The shapes are written
once, in `content`, `tools` and `settings`; `variant` gives the other readings.
"""

from __future__ import annotations

import functools
import operator
import types
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin

from pydantic import ConfigDict
from typing_extensions import TypedDict, get_type_hints, is_typeddict

Extra = Literal["forbid", "ignore", "allow"]

NOT_NULL = "not null"
"""Annotates an optional key that takes no null, even where unknown keys are kept."""


_SDK_OPTIONAL = frozenset({"FunctionTool.parameters", "FunctionTool.strict"})
"""Keys that a request must spell out, though an answer of the SDK need not."""


_SUFFIX: dict[Extra, str] = {"forbid": "Strict", "ignore": "", "allow": "Open"}


def variant(shape: Any, extra: Extra) -> Any:
    """The same shape, and the shapes inside it, with another treatment of unknown keys.

    `extra="allow"` also lets every optional key be null, and leaves out the keys of `_SDK_OPTIONAL`.
    A shape that states its own treatment (`with_config`) keeps it and passes it on.
    """
    if is_typeddict(shape):
        return _object(shape, extra)
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return Annotated[(variant(arguments[0], extra), *arguments[1:])]  # pyright: ignore[reportInvalidTypeForm]
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, [variant(member, extra) for member in arguments])
    if origin is list:
        return list[variant(arguments[0], extra)]
    if origin is dict:
        return dict[arguments[0], variant(arguments[1], extra)]
    return shape


@functools.cache
def _object(shape: Any, extra: Extra) -> Any:
    config: ConfigDict = getattr(shape, "__pydantic_config__", ConfigDict(extra=extra))
    own: Extra = config.get("extra") or extra
    fields = {}
    for key, hint in get_type_hints(shape, include_extras=True).items():
        wrapper = get_origin(hint)
        inner = variant(get_args(hint)[0] if wrapper is NotRequired else hint, own)
        optional = wrapper is NotRequired or (own == "allow" and f"{shape.__name__}.{key}" in _SDK_OPTIONAL)
        if optional and own == "allow" and NOT_NULL not in getattr(inner, "__metadata__", ()):
            inner = inner | None
        fields[key] = NotRequired[inner] if optional else inner
    # The name tells the readings of one shape apart in the JSON Schema.
    name = shape.__name__ if hasattr(shape, "__pydantic_config__") else shape.__name__ + _SUFFIX[own]
    made: Any = TypedDict(name, fields)  # pyright: ignore
    made.__doc__ = shape.__doc__
    made.__module__ = shape.__module__
    made.__pydantic_config__ = config
    return made
