"""Where work runs: in this process or in local processes, always as an ordered map."""
