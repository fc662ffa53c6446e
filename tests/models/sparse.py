# SPDX-License-Identifier: Apache-2.0
"""Embeddings with sparse gradients, whose memory is that of their indices and of their values."""

import oracle
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self, words, width, outputs):
        super().__init__()
        self.padded = nn.Embedding(words, width, padding_idx=0, sparse=True)  # indices of its own
        self.plain = nn.Embedding(words, width, sparse=True)  # indices: the batch itself
        self.twice = nn.Embedding(words, width, sparse=True)  # two gradients, one behind the other
        self.bag = nn.EmbeddingBag(words, width, sparse=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens, others):
        words = self.padded(tokens) * self.plain(others) + self.twice(tokens) * self.twice(others)
        return self.head(words.mean(1) + self.bag(tokens))


def main():
    run = oracle.Run(__doc__)
    words, width, shape = (50_000, 512, (256, 64)) if run.full else (100, 16, (8, 6))
    model = Net(words, width, 10).to(run.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    run.watch(model=model, optimizer=optimizer)
    for _ in run.steps():
        tokens = torch.randint(words, shape, device=run.device)
        others = torch.randint(words, shape, device=run.device)
        labels = torch.randint(10, shape[:1], device=run.device)
        run.data(tokens, others, labels)
        optimizer.zero_grad()
        logits = model(tokens, others)
        loss = F.cross_entropy(logits, labels)
        run.at("end of forward", logits, loss)
        loss.backward()
        run.at("end of backward", logits, loss)
        optimizer.step()
        run.at("after step", logits, loss)
        run.loss(loss)
        del logits, loss
    run.finish()


if __name__ == "__main__":
    main()
