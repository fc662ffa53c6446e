# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 of the transformers library under its Trainer (--lora: with adapters of peft); without them it says SKIP."""

import argparse
import sys
import tempfile

import oracle
import torch

try:
    import transformers

    if "--lora" in sys.argv:
        import peft
except ImportError as error:
    print(f"SKIP {error.name} is not installed")
    sys.exit(0)


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count, length, vocabulary):
        self.tokens = torch.randint(vocabulary, (count, length)).tolist()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, number):
        return {"input_ids": self.tokens[number], "labels": self.tokens[number]}


class Trainer(transformers.Trainer):
    """The instants that callbacks do not have."""

    run = None

    def compute_loss(self, model, inputs, *arguments, **options):
        self.run.watch(model=self.model, optimizer=self.optimizer)
        self.run.data(*inputs.values())
        loss = super().compute_loss(model, inputs, *arguments, **options)
        self.run.at("end of forward", loss)
        return loss

    def training_step(self, *arguments, **options):
        next(self.numbers)
        loss = super().training_step(*arguments, **options)
        self.run.at("end of backward", loss)
        self.run.loss(loss)
        return loss


class Steps(transformers.TrainerCallback):
    def __init__(self, run):
        self.run = run

    def on_optimizer_step(self, *arguments, **options):
        self.run.at("after step")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lora", action="store_true")
    run = oracle.Run(__doc__, parser=parser)

    def collate(rows):
        # Marked here too: the Trainer fetches the next batch while it trains on this one.
        batch = {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}
        run.data(*batch.values())
        return batch

    if run.full:
        shape = dict(vocab_size=50257, n_positions=512, n_embd=768, n_layer=6, n_head=12)
        batch, length = 4, 512
    else:
        shape = dict(vocab_size=128, n_positions=32, n_embd=48, n_layer=2, n_head=4)
        batch, length = 4, 32
    plain = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **plain))
    if run.args.lora:
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True))
    steps = run.args.steps
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            use_cpu=run.device.type == "cpu",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=1729,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=Sentences(batch * steps, length, shape["vocab_size"]),
            data_collator=collate,
            callbacks=[Steps(run)],
        )
        trainer.run, trainer.numbers = run, run.steps()
        trainer.train()
    run.finish()


if __name__ == "__main__":
    main()
