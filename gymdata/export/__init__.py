"""Finished rollouts in the formats of trainers and other tools: a module per format, each saying what it drops."""
