"""What math-verify would compute and should not, and what it accepts and should not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from gymdata.verifiers.limits import LimitError

BITS = 100_000
"""The largest number that is computed."""
SMALL = 1e-3
"""Numbers below this are compared by their ratio: the library rounds to six decimals, where all small numbers are equal."""
RATIO = 1e-2


def refuse_large(expression: Any) -> None:
    """Raise LimitError for a power, factorial or binomial whose value has more than BITS bits; computes nothing."""
    import sympy

    if not isinstance(expression, sympy.Basic):
        return
    for node in sympy.preorder_traversal(expression):
        if isinstance(node, sympy.Pow | sympy.factorial | sympy.binomial | sympy.exp) and _bits(node) > BITS:
            raise LimitError("the value of the answer is too large to compute")


def confirmed(expected: Any, given: Any) -> bool:
    """Whether two expressions that the library calls equal may be.

    It compares equations by their solutions, so that any two without real solutions are equal, and rounds small numbers to 0.
    """
    import sympy

    expected, given = _ends(expected), _ends(given)
    if isinstance(expected, sympy.Eq) and isinstance(given, sympy.Eq):
        numbers = all(isinstance(side, sympy.Expr) for one in (expected, given) for side in one.args)
        return not numbers or _same_equation(expected, given)
    both = [_members(one) for one in (expected, given)]
    if both[0] and len(both[0]) == len(both[1]) and all(isinstance(one, sympy.Eq) for side in both for one in side):
        return all(any(confirmed(one, other) for other in both[1]) for one in both[0])
    if isinstance(expected, sympy.Expr) and isinstance(given, sympy.Expr) and expected.is_number and given.is_number:
        one, other = complex(expected.evalf(15)), complex(given.evalf(15))
        largest = max(abs(one), abs(other))
        return largest >= SMALL or abs(one - other) <= RATIO * largest
    return True


def _same_equation(expected: Any, given: Any) -> bool:
    import sympy

    symbols = expected.free_symbols
    if symbols and sympy.solve(expected, symbols):
        return True
    sides = [sympy.simplify(one - other) for one, other in ((expected.lhs, given.lhs), (expected.rhs, given.rhs))]
    if all(side == 0 for side in sides):
        return True
    both = [one.lhs - one.rhs for one in (expected, given)]
    if not symbols or both[1] == 0:
        return False
    ratio = sympy.simplify(both[0] / both[1])
    return bool(ratio.is_number and ratio.is_finite and ratio != 0)


def _ends(expression: Any) -> Any:
    """Of a chain of equations, x = 2 + 1 = 3, the first and the last side, which is what the library compares."""
    import sympy

    chain = _members(expression) if isinstance(expression, sympy.And) else ()
    if chain and all(isinstance(one, sympy.Eq) for one in chain) and all(a.rhs == b.lhs for a, b in pairwise(chain)):
        return sympy.Eq(chain[0].lhs, chain[-1].rhs, evaluate=False)
    return expression


def _members(expression: Any) -> tuple[Any, ...]:
    """The parts of a conjunction, tuple or set, as written."""
    import sympy

    if isinstance(expression, sympy.And | sympy.FiniteSet | sympy.Tuple):
        return tuple(getattr(expression, "_unsorted_args", expression.args))
    return ()


def _bits(node: Any) -> float:
    """About how many bits the value of a numeric expression has; 0 for what holds symbols."""
    import sympy

    if not getattr(node, "args", ()):
        if isinstance(node, sympy.Integer):
            return float(int(node).bit_length())
        return 1.0 if isinstance(node, sympy.Number | sympy.NumberSymbol) else 0.0
    sizes = [_bits(argument) for argument in node.args]
    if isinstance(node, sympy.Pow | sympy.exp):
        base, power = (sizes[0], sizes[1]) if isinstance(node, sympy.Pow) else (2.0, sizes[0])
        return max(base, 1.0) * 2.0 ** min(power, 60.0) if power else base
    if isinstance(node, sympy.factorial | sympy.binomial):
        return 2.0 ** min(sizes[0], 60.0) * max(sizes[0], 1.0)
    return sum(sizes)
