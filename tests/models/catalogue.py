# SPDX-License-Identifier: Apache-2.0
"""The programs of this folder, and which oracles can look at them."""

import dataclasses
import pathlib

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    script: str
    arguments: tuple = ()
    # MemTracker knows no frozen layers and is refused by torch.compile; processes that talk to each
    # other are only asked for sums.
    references: tuple = ("saved", "memtracker")
    ranks: int = 1
    # Of these categories bytes are not compared.
    unchecked: tuple = ()

    def command(self, python, device, size, steps, *more):
        options = ["--device", device, "--size", size, *self.arguments]
        if steps is not None:
            options += ["--steps", str(steps)]
        return [str(python), str(HERE / self.script), *options, *map(str, more)]


CASES = (
    Case("resnet", "resnet.py"),
    Case("gpt2", "gpt2.py"),
    Case("lstm_lm", "lstm_lm.py"),
    Case("neumf", "neumf.py"),
    Case("gan", "gan.py"),
    Case("checkpointed", "checkpointed.py"),
    Case("checkpointed_reentrant", "checkpointed.py", ("--reentrant",)),
    Case("hf_trainer", "hf_trainer.py"),
    Case("lora_trainer", "hf_trainer.py", ("--lora",), references=()),
    # Losses that Lightning copies within the optimizer step count as its state.
    Case("lightning", "lightning_fit.py", references=(), unchecked=("optimizer state",)),
    Case("flat_lstm", "flat_lstm.py"),
    Case("amp", "amp.py"),
    Case("accumulate", "accumulate.py"),
    Case("closure", "closure.py", references=()),
    Case("sparse", "sparse.py", references=()),
    Case("replaced", "replaced.py", references=("saved",)),
    Case("compiled", "compiled.py", references=("saved",)),
    Case("tensordot", "tensordot.py"),
    Case("mlp3", "mlp3.py"),
    Case("ddp", "distributed.py", references=(), ranks=2),
    Case("fsdp", "distributed.py", ("--shard",), references=(), ranks=2),
)


def case(name):
    return next(entry for entry in CASES if entry.name == name)
