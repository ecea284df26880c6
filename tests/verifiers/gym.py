"""NeMo Gym's own verifiers, asked in its own Python, which GYMDATA_GYM_PYTHON names."""

import json
import os
import subprocess

import pytest

PYTHON = os.environ.get("GYMDATA_GYM_PYTHON", "")
needs_gym = pytest.mark.skipif(not PYTHON, reason="GYMDATA_GYM_PYTHON does not name a Python with nemo-gym")

ASK = """
import asyncio, contextlib, importlib, io, json, sys, typing, warnings
warnings.simplefilter("ignore")
asked = json.load(sys.stdin)
MINIMAL = {"id": "r", "created_at": 0.0, "model": "m", "object": "response", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
def whole(item):
    if item["type"] == "message":
        parts = [{"annotations": [], **part} for part in item["content"]]
        return {"id": "i", "status": "completed", **item, "content": parts}
    return item
answers = []
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        module = importlib.import_module(f"resources_servers.{asked['server']}.app")
    except ModuleNotFoundError as error:
        answers = str(error)
    else:
        server_type = next(v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__ and hasattr(v, "setup_webserver"))
        request_type = typing.get_type_hints(server_type.verify)["body"]
        config_type = typing.get_type_hints(server_type)["config"]
        config = config_type.model_construct(**{k: f.get_default(call_default_factory=True) for k, f in config_type.model_fields.items()} | asked["options"])
        server = server_type.model_construct(config=config)
        if hasattr(server, "_library_verifier_semaphore") or asked["server"] == "math_with_judge":
            object.__setattr__(server, "__pydantic_private__", {"_library_verifier_semaphore": asyncio.Semaphore(4)})
        async def one(row, response):
            try:
                response = MINIMAL | response | {"output": [whole(item) for item in response["output"]]}
                verdict = await server.verify(request_type.model_validate(row | {"response": response}))
                return {k: v for k, v in verdict.model_dump(mode="json").items() if k not in row and k not in ("response", "mask_sample")}
            except Exception as error:
                return f"{type(error).__name__}: {error}"[:300]
        async def all_of_them():
            return [await one(*case) for case in asked["cases"]]
        answers = asyncio.run(all_of_them())
print(json.dumps(answers))
"""


def verdicts(server, cases, **options):
    """What NeMo Gym's server says of (row, response) pairs: what its answer adds to the row, or the text of its error."""
    rows = [({"responses_create_params": {"input": "?"}} | row, response) for row, response in cases]
    asked = json.dumps({"server": server, "cases": rows, "options": options})
    done = subprocess.run([PYTHON, "-c", ASK], input=asked, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout)
    if isinstance(answers, str):
        pytest.skip(f"NeMo Gym's server {server} cannot be imported there: {answers}")
    return answers
