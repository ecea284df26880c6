"""How environments are prepared and published: what the commands have as options, set once for all assets of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import dagster as dg
from pydantic import Field, SecretStr

if TYPE_CHECKING:
    from gymdata.environments.model import DatasetConfig, Environment
    from gymdata.errors import GymdataError
    from gymdata.prepare import Options, Prepared
    from gymdata.publish.plan import Target
    from gymdata.rollouts.policy import Settings
    from gymdata.rollouts.run import Run
    from gymdata.sources.huggingface import Fetched
    from gymdata.validation.report import Report


class Onlooker:
    """Who is told how far it is; nobody, unless a terminal is looking on (`make prepare`)."""

    def progress(self, name: str, done: int, total: int) -> None:
        """So many bytes of a file are done."""

    def wait(self, directory: Path) -> None:
        """Another run is writing there."""

    def fetched(self, fetched: Fetched) -> None:
        """A file has arrived."""

    def done(self, prepared: Prepared) -> None:
        """A dataset is prepared."""

    def failed(self, error: GymdataError) -> None:
        """Something went wrong."""


onlooker = Onlooker()


class Preparation(dg.ConfigurableResource):
    """Options of `gymdata prepare`."""

    folder: str = Field(default="data", description="Where the outputs go: one directory per environment.")
    download: bool = Field(default=False, description="Fetch missing datasets; for a built-in environment, the public dataset.")
    refresh: bool = Field(default=False, description="Fetch again what was fetched from the Hub, if it has a newer commit.")
    data_source: Literal["any", "huggingface", "gitlab"] = Field(default="any", description="If a dataset names both.")
    mode: Literal["train_preparation", "example_validation"] = "train_preparation"
    on_invalid: Literal["fail", "quarantine"] = Field(default="fail", description="Stop, or leave invalid rows out.")
    stamp: Literal["agent_ref", "task_source", "both"] = Field(default="agent_ref", description="How rows name their agent.")
    validation_fraction: float = Field(default=0.0, ge=0, lt=1, description="Share of the train rows moved to validation.")
    shuffle: int | None = Field(default=None, description="Seed of a shuffle of the train split.")
    limit: int | None = Field(default=None, ge=1, description="Rows read of each dataset.")
    encoding: Literal["o200k_base", "cl100k_base", "none"] = Field(default="o200k_base", description="To count tokens with.")
    overwrite_metrics: bool = Field(default=False, description="Replace committed metrics that do not fit the rows.")
    jobs: int | None = Field(default=None, ge=1, description="Processes; one per core if not set.")

    def directory(self, environment: Environment) -> Path:
        """Where the outputs of an environment are."""
        return Path(self.folder, environment.name)

    def options(self) -> Options:
        """The same for `gymdata.prepare`."""
        from gymdata.prepare import Options

        return Options(
            mode=self.mode,
            on_invalid=self.on_invalid,
            stamp=self.stamp,
            validation_fraction=self.validation_fraction,
            shuffle=self.shuffle,
            limit=self.limit,
            encoding=None if self.encoding == "none" else self.encoding,
        )

    def datasets(self, environment: Environment) -> tuple[DatasetConfig, ...]:
        """The datasets in scope, whether or not their files are there."""
        from gymdata.prepare import SPLITS

        return environment.datasets(SPLITS[self.mode], real=self.download)

    def source_files(self, environment: Environment) -> list[DatasetConfig]:
        """The datasets in scope, fetched where they are missing and `download` is set, or out of date and `refresh` is."""
        from gymdata.prepare import source_files
        from gymdata.sources.remote import fetch_dataset, newer_commit

        found = source_files(
            [environment],
            self.options(),
            download=self.download,
            data_source=None if self.data_source == "any" else self.data_source,
            on_fetched=onlooker.fetched,
        )
        for _, dataset in found if self.refresh else ():
            if newer_commit(dataset, environment):
                onlooker.fetched(fetch_dataset(dataset, environment, "huggingface"))
        return [dataset for _, dataset in found]

    def prepare(self, environment: Environment, accept: Callable[[Report], None]) -> Prepared:
        """Validate, measure and collate; `accept` may raise before anything is written."""
        from gymdata.engine.local import default_jobs
        from gymdata.prepare import prepare

        directory = self.directory(environment)
        prepared = prepare(
            [environment],
            directory,
            self.options(),
            download=self.download,
            data_source=None if self.data_source == "any" else self.data_source,
            overwrite_metrics=self.overwrite_metrics,
            jobs=self.jobs or default_jobs(),
            accept=accept,
            on_progress=onlooker.progress,
            on_wait=lambda: onlooker.wait(directory),
        )
        onlooker.done(prepared)
        return prepared


class Hub(dg.ConfigurableResource):
    """Where `hub_pull_request` proposes; the token is found as `gymdata publish` finds it."""

    organization: str = Field(default="", description="Default: hf_organization of env.yaml.")
    repo_id: str = Field(default="", description="OWNER/NAME instead of a name by NeMo Gym's rule.")
    private: bool = Field(default=True, description="Of a new repository.")
    message: str = Field(default="", description="Of the commit.")
    accept_secrets: bool = Field(default=False, description="Publish although rows hold what looks like a credential.")

    def names(self, environment: Environment) -> bool:
        """Whether it is known which repository is an environment's."""
        return bool(self.repo_id or self.organization or environment.settings.get("hf_organization"))

    def target(self, environment: Environment) -> Target:
        """A new pull request to the environment's repository. Raises UsageError if it is not known which that is."""
        from gymdata.errors import UsageError
        from gymdata.publish.plan import Target, repository_name

        repo_id, settings = self.repo_id, environment.settings
        if not repo_id:
            organization = self.organization or settings.get("hf_organization")
            if not organization:
                raise UsageError(
                    "to which repository?",
                    "under Config: `resources: {hub: {config: {organization: NAME}}}`, or `repo_id: OWNER/NAME`;"
                    " or hf_organization in env.yaml",
                )
            prefix = settings.get("hf_dataset_prefix", "Nemotron-RL")
            repo_id = repository_name(organization, environment.name, environment.domain, prefix)
        return Target(repo_id, create_pr=True, message=self.message, private=self.private)


ASK = "resources: {sampling: {config: {model_urls: ['http://127.0.0.1:8000/v1']}}}"
"""What to write under Config, that a model is asked."""


class Sampling(dg.ConfigurableResource):
    """Options of `gymdata rollouts collect` and `select`."""

    model_urls: list[str] = Field(default=[], description="OpenAI-compatible servers, such as http://127.0.0.1:8000/v1.")
    model: str | None = Field(default=None, description="Which of the server's models; its only one by default.")
    api: Literal["chat", "responses"] = "chat"
    api_key_env: str = Field(default="OPENAI_API_KEY", description="Environment variable that holds the key.")
    judge_urls: list[str] = Field(default=[], description="The judge's servers, where a verifier asks one that is not the model.")
    judge_model: str | None = Field(default=None, description="Which of the judge's models; its only one by default.")
    judge_api_key_env: str = Field(default="OPENAI_API_KEY", description="Environment variable that holds the judge's key.")
    num_repeats: int = Field(default=4, ge=1, description="Rollouts of each task.")
    limit: int = Field(default=0, ge=0, description="Only the first tasks; 0 for all.")
    temperature: float | None = None
    max_output_tokens: int | None = None
    concurrency: int | None = Field(default=None, description="Rollouts in flight; as many as the servers take by default.")
    new_run: bool = Field(default=False, description="Set aside what is there, and start anew.")
    threshold: float = Field(default=1.0, description="The reward from which on a rollout has passed.")
    min_pass_rate: float = Field(default=0.01, description="Of a task that is selected.")
    max_pass_rate: float = Field(default=0.99, description="Of a task that is selected.")

    def output(self, environment: Environment) -> Path:
        """Where the rollouts of an environment are."""
        return Path("rollouts", f"{environment.name}.jsonl")

    def rewards(self, environment: Environment) -> Path:
        """Where the same rollouts are, scored with the verifiers of today."""
        return Path("rollouts", f"{environment.name}_rewards.jsonl")

    def servers(self) -> Settings | None:
        """How the model is reached; None where no server is set."""
        from gymdata.rollouts.policy import Settings

        most, fixed = self.concurrency or 16_384, self.concurrency is not None
        key, urls = _key(self.api_key_env), tuple(self.model_urls)
        return Settings(urls, self.model, self.api, key, most, fixed) if urls else None

    def judge(self) -> Settings | None:
        """How the judge is reached; None where it is the model, or nobody."""
        from gymdata.rollouts.policy import Settings

        key, urls = _key(self.judge_api_key_env), tuple(self.judge_urls)
        return Settings(urls, self.judge_model, api_key=key) if urls else None

    def run(self, environment: Environment, rows: Path) -> Run:
        """What `gymdata.rollouts.collect` is asked for. Raises UsageError without a server."""
        from gymdata.errors import UsageError
        from gymdata.rollouts.files import RunFiles
        from gymdata.rollouts.plan import Options
        from gymdata.rollouts.run import Run

        settings = self.servers()
        if settings is None:
            raise UsageError("which model server?", f"under Config: `{ASK}`")
        wanted = {"temperature": self.temperature, "max_output_tokens": self.max_output_tokens}
        return Run(
            rows=(rows,),
            environments=(environment,),
            files=RunFiles(self.output(environment)),
            settings=settings,
            judge=self.judge(),
            options=Options(self.num_repeats, self.limit, {name: value for name, value in wanted.items() if value is not None}),
            new_run=self.new_run,
        )


def _key(variable: str) -> SecretStr | None:
    key = os.environ.get(variable)
    return SecretStr(key) if key else None


def _deployed() -> Preparation:
    """As GYMDATA_PREPARATION says. Raises UsageError for what is not JSON, or no option."""
    from pydantic import ValidationError

    from gymdata.environments.problems import did_you_mean
    from gymdata.errors import UsageError

    example = """it is JSON, such as {"download": true}"""
    try:
        options: dict[str, object] = dict(json.loads(os.environ.get("GYMDATA_PREPARATION") or "{}"))
        for name in options.keys() - Preparation.model_fields.keys():
            raise UsageError(
                f"GYMDATA_PREPARATION: there is no option {name!r}", did_you_mean(name, list(Preparation.model_fields))
            )
        return Preparation(**options)  # pyright: ignore[reportArgumentType]  # which pydantic is to find out
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"GYMDATA_PREPARATION: {first['loc'][0]}: {first['msg']}", example) from None
    except (ValueError, TypeError) as error:
        raise UsageError(f"GYMDATA_PREPARATION cannot be read: {error}", example) from None


preparation = _deployed()
"""What every run does unless its configuration says otherwise: GYMDATA_PREPARATION='{"download": true}' for a deployment."""
