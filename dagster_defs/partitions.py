"""One partition per environment: those that come with gymdata, and the user's own."""

import warnings

import dagster as dg

from gymdata.environments import registry

# Checks by partition are new in Dagster and say so at each one.
warnings.filterwarnings("ignore", category=dg.PreviewWarning)

environments = dg.StaticPartitionsDefinition(registry.names())
"""As they are when the definitions are loaded; after adding one, reload them."""
