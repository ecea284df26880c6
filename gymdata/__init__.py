"""gymdata: validated, measured, published data for reinforcement learning of language models."""

__version__ = "0.1.0"
