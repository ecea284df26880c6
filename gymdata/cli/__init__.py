"""The `gymdata` command: arguments in, one call, text out."""
