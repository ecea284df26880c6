"""The assets, by what they are about. Each is configuration, one call of gymdata, and metadata."""
