"""Run by a Python that has trl: make the tiny model, load exports as a user would, take one step of a trainer on the CPU with each.

    python tests/export/train.py WORK FORMAT=FILE...

prints a line of JSON for each: how many records were loaded, and the loss.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    import datasets
    import transformers  # pyright: ignore[reportMissingImports]
    import trl  # pyright: ignore[reportMissingImports]

    work = Path(sys.argv[1])
    model = work / "tiny"
    if not model.is_dir():
        script = Path(__file__).parents[2] / "serving" / "models.py"
        subprocess.run([sys.executable, str(script), "tiny", str(model)], check=True, stdout=subprocess.DEVNULL)
    common: dict[str, Any] = {
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "max_length": 2048,
        "disable_tqdm": True,
    }
    trainers = {
        "sft": (trl.SFTTrainer, trl.SFTConfig),
        "dpo": (trl.DPOTrainer, trl.DPOConfig),
        "kto": (trl.KTOTrainer, trl.KTOConfig),
        "trl": (trl.GRPOTrainer, trl.GRPOConfig),
    }

    def rewarded(completions: list[Any], expected_answer: list[str], **columns: Any) -> list[float]:
        """What a user's reward function sees of a row."""
        assert len(expected_answer) == len(completions)
        return [float(number) for number, _ in enumerate(completions)]

    for asked in sys.argv[2:]:
        name, path = asked.split("=", 1)
        kind = "parquet" if path.endswith(".parquet") else "json"
        data = datasets.load_dataset(kind, data_files=path, split="train", cache_dir=str(work / "cache"))
        trainer_class, config_class = trainers[name]
        more: dict[str, Any] = {"reward_funcs": rewarded} if name == "trl" else {}
        settings = {**common, "num_generations": 2, "max_completion_length": 8} if name == "trl" else common
        if name == "trl":
            del settings["max_length"]
        trainer = trainer_class(
            model=transformers.AutoModelForCausalLM.from_pretrained(model),
            args=config_class(output_dir=str(work / "out"), **settings),
            **more,
            train_dataset=data,
            processing_class=transformers.AutoTokenizer.from_pretrained(model),
        )
        prepared = trainer.train_dataset[0]
        kept = {key: prepared[key] for key in ("input_ids", "labels") if key in prepared}
        result = trainer.train()
        print(json.dumps({"records": len(data), "loss": result.training_loss, "first": data[0], "prepared": kept}), flush=True)


if __name__ == "__main__":
    main()
