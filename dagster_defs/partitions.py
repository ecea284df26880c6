"""One partition per environment: those that come with gymdata, and the user's own."""

import warnings

import dagster as dg

from gymdata.environments import registry

# Checks by partition are new in Dagster and say so at each one.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)


def usable(names: list[str]) -> list[str]:
    """The names that Dagster takes: for one with a line break, or that looks like a range, it would refuse the whole graph."""
    return [name for name in names if name.isprintable() and "..." not in name]


environments = dg.StaticPartitionsDefinition(usable(registry.names()))
"""As they are when the definitions are loaded; after adding one, reload them."""
