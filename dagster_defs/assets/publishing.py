"""Proposing a prepared dataset to the Hugging Face Hub: by hand only."""

from collections.abc import Iterator

import dagster as dg

from dagster_defs import metadata
from dagster_defs.failures import explained
from dagster_defs.partitions import environments
from dagster_defs.resources import Hub, Preparation
from gymdata.environments import registry
from gymdata.manifest import fingerprint


@dg.asset(
    group_name="publishing",
    owners=["team:data"],
    kinds={"huggingface"},
    partitions_def=environments,
    pool="hub",
    output_required=False,
    deps=["train_split", "validation_split", "dataset_metrics"],
)
def hub_pull_request(context: dg.AssetExecutionContext, preparation: Preparation, hub: Hub) -> Iterator[dg.MaterializeResult]:
    """A **pull request on the Hugging Face Hub** with the splits, their statistics and a card. Only run by hand, and by itself:
    a run that makes other assets, too, leaves it out.

    Before anything leaves, rows are judged again and searched for secrets; afterwards they are read back and compared. What is
    there already is not sent again.
    """
    from gymdata.engine.local import default_jobs
    from gymdata.publish.dataset import load_dataset
    from gymdata.publish.diff import to_markdown
    from gymdata.publish.gates import objections
    from gymdata.publish.huggingface import send
    from gymdata.publish.plan import planned
    from gymdata.publish.verify import verify
    from gymdata.sources.hub import find_credentials

    if context.run.asset_selection != {context.asset_key}:
        context.log.info("nothing was proposed: materialize this asset by itself for that")
        return
    with explained():
        environment = registry.load(context.partition_key)
        dataset = load_dataset(preparation.directory(environment), environment)
        target, token = hub.target(environment), environment.secret("hf_token")
        credentials = find_credentials(token.get_secret_value() if token else None)
        found = list(objections(dataset, hub.accept_secrets, default_jobs()))
        if found:
            raise dg.Failure(
                f"{environment.name} may not be published: {len(found):,} objections; nothing was sent",
                metadata={"objections": metadata.objections(found)},
                allow_retries=False,
            )
        with planned(dataset, target, credentials) as plan:
            done = send(plan, credentials, on_step=context.log.info)
            verified = verify(done.repo_id, done.commit, plan.splits, credentials, on_step=context.log.info).rows
            difference = to_markdown(plan.diff)
    yield dg.MaterializeResult(
        metadata={
            "pull request": dg.MetadataValue.url(done.url),
            "changes": dg.MetadataValue.md(difference),
            **{f"rows, {split}": rows for split, rows in verified.items()},
            "commit": done.commit,
            "sent": done.sent,
        },
        data_version=dg.DataVersion(fingerprint(done.repo_id, done.commit)[:16]),
    )
