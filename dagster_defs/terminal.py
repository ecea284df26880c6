"""What a terminal shows of a run: its progress, then what `gymdata prepare` would say."""

import sys
from pathlib import Path

import dagster as dg

from dagster_defs.assets.sources import SplitsOverlap
from dagster_defs.resources import Onlooker
from gymdata.cli import prepare as command
from gymdata.cli.download import describe
from gymdata.cli.progress import Progress
from gymdata.errors import GymdataError
from gymdata.prepare import InvalidRows, Prepared
from gymdata.sources.huggingface import Fetched


class Terminal(Onlooker):
    """Standard error and standard output."""

    def __init__(self) -> None:
        self._line = Progress()
        self.prepared: Prepared | None = None
        self.error: GymdataError | None = None

    def progress(self, name: str, done: int, total: int) -> None:
        self._line(name, done, total)

    def wait(self, directory: Path) -> None:
        print(f"another run is writing to {directory}; waiting for it", file=sys.stderr)

    def fetched(self, fetched: Fetched) -> None:
        print(f"fetched {fetched.path}: {describe(fetched)}", file=sys.stderr)

    def done(self, prepared: Prepared) -> None:
        self.prepared = prepared

    def failed(self, error: GymdataError) -> None:
        self.error = error

    def tell(self, result: dg.ExecuteInProcessResult, form: str) -> int:
        """Print how a run went; the exit code."""
        self._line.clear()
        failed = [check for check in result.get_asset_check_evaluations() if not check.passed]
        if isinstance(self.error, InvalidRows | SplitsOverlap):
            command.print_report(self.error.report, form)
        if self.error:
            print(f"gymdata: error: {self.error}", file=sys.stderr)
            code = self.error.exit_code
        elif self.prepared and form == "json":
            sys.stdout.write(self.prepared.manifest.to_json().decode())
            code = 0
        elif self.prepared:
            command.print_report(self.prepared.report, "text")
            print(command.summary(self.prepared), file=sys.stderr)
            code = 0
        else:
            code = 0 if result.success else 1
        if not self.error:
            for check in failed:
                print(f"  {check.severity.value.lower()}: {check.check_name}: {check.description}", file=sys.stderr)
            for event in result.all_events:
                if event.is_step_failure and event.step_failure_data.error:
                    print(f"gymdata: error: {event.step_key}: {event.step_failure_data.error.message}", file=sys.stderr)
                    code = 3
        print(f"  recorded as run {result.run_id[:8]}; `make dev` shows it", file=sys.stderr)
        return code
