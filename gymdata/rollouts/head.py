"""What NeMo Gym's head server tells of its servers: `gymdata serve` tells it of itself, so that Gym's collector finds everything in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymdata.environments.model import Environment

SERVER_TYPES = ("responses_api_agents", "resources_servers", "responses_api_models", "environment_servers")
MODEL = "policy_model"


def global_config(environments: Sequence[Environment], host: str, port: int) -> dict[str, Any]:
    """Gym's global configuration in which every server of the environments is at this address: which there are, and which they refer to.

    An agent that no environment server fronts gets one, as Gym 0.7.0 wants it: its collector speaks to these alone. Options of servers
    are left out, for they may hold secrets.
    """
    here = {"host": host, "port": port}
    server = {"entrypoint": "app.py", **here}
    config: dict[str, Any] = {"head_server": here, MODEL: {"responses_api_models": {"vllm_model": server}}}
    instances = [instance for environment in environments for instance in environment.instances]
    fronted = {instance.references["agent_server"][1] for instance in instances if "agent_server" in instance.references}
    for instance in instances:
        references = {field: {"type": kind, "name": name} for field, (kind, name) in instance.references.items()}
        config[instance.name] = {instance.server_type: {instance.implementation: {**server, **references}}}
        if instance.server_type == "responses_api_agents" and instance.name not in fronted:
            relay = {**server, "agent_server": {"type": "responses_api_agents", "name": instance.name}}
            config[f"{instance.name}_environment_server"] = {"environment_servers": {"legacy_agent": relay}}
    return config


def server_instances(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The servers of a global configuration, as `/server_instances` lists them."""
    found = []
    for name, entry in config.items():
        for kind in SERVER_TYPES:
            for implementation, body in (entry.get(kind) or {}).items() if isinstance(entry, Mapping) else ():
                found.append(
                    {
                        "process_name": name,
                        "server_type": kind,
                        "name": implementation,
                        "host": body.get("host"),
                        "port": body.get("port"),
                        "url": f"http://{body.get('host')}:{body.get('port')}",
                        "status": "success",
                    }
                )
    return found
