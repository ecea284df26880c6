"""Rollouts that others wrote, as ours: a module per origin, each of which reads one record."""
