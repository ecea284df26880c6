"""Verifiers that misbehave, for the workers that run them to survive."""

import os
import time
from dataclasses import dataclass

from gymdata.verifiers import Gold, Verdict, VerifierFailure


@dataclass(frozen=True)
class Misbehaving:
    """Does what the row's `does` says; otherwise gives the row's `reward`."""

    name: str = "misbehaving"
    version: str = "1"

    def verify(self, row, response):
        match row.get("does"):
            case "loop":
                while True:
                    time.sleep(0.01)
            case "compute":  # one operation in C, which no signal handler interrupts
                return Verdict(float(9 ** (9**9) % 7))
            case "die":
                os._exit(7)
            case "crash":
                os.kill(os.getpid(), 11)
            case "eat":
                return Verdict(float(len(bytearray(1 << 40))))
            case "raise":
                raise KeyError("missing")
            case "give up":
                raise VerifierFailure("the row is at fault")
            case "print":
                print("x" * 100_000, flush=True)
            case "wait":
                while not os.path.exists(row["until"]):
                    time.sleep(0.01)
            case "pid":
                return Verdict(1.0, {"pid": os.getpid(), "environment": dict(os.environ)})
        return Verdict(row.get("reward", 1.0), {"extracted_answer": row.get("answer")})

    def gold(self, row):
        return Gold("$")
