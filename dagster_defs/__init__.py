"""The asset graph that people see: `make dev`. Thin: an asset is configuration, one call of gymdata, and metadata."""
