# SPDX-License-Identifier: Apache-2.0
"""A training under Lightning's Trainer; without the library it says SKIP."""

import sys
import tempfile

import oracle
import small
import torch
from torch.nn import functional as F

try:
    import lightning
except ImportError:
    print("SKIP lightning is not installed")
    sys.exit(0)


class Images(torch.utils.data.Dataset):
    def __init__(self, count, shape, classes):
        self.images = torch.randn(count, *shape)
        self.labels = torch.randint(classes, (count,))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        return self.images[number], self.labels[number]


class Module(lightning.LightningModule):
    def __init__(self, run, network):
        super().__init__()
        # Attributes would be modules or hyperparameters of the model.
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "numbers", run.steps())
        self.network = network

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        self.run.watch(model=self, optimizer=optimizer)
        return optimizer

    def on_train_batch_start(self, batch, number):
        next(self.numbers)
        self.run.data(*batch)

    def training_step(self, batch, number):
        logits = self.network(batch[0])
        loss = F.cross_entropy(logits, batch[1])
        self.run.at("end of forward", logits, loss)
        return loss

    def on_after_backward(self):
        self.run.at("end of backward")

    def on_train_batch_end(self, outputs, batch, number):
        self.run.at("after step")
        self.run.loss(outputs["loss"])


def main():
    run = oracle.Run(__doc__)
    network, shape = small.build(run.full)
    steps, batch = run.args.steps, shape[0]
    images = Images(batch * steps, shape[1:], network.head.out_features)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="gpu" if run.device.type == "cuda" else "cpu",
            devices=1,
            max_steps=steps,
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(run, network), torch.utils.data.DataLoader(images, batch_size=batch))
    run.finish()


if __name__ == "__main__":
    main()
