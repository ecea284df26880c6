"""Numbers about rows: NeMo Gym's metrics and their check, token counts, and statistics of our own."""
