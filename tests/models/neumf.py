# SPDX-License-Identifier: Apache-2.0
"""NeuMF (He et al. 2017): matrix factorisation beside an MLP, four embeddings, Adam, a loss module."""

import oracle
import torch
from torch import nn


class NeuMF(nn.Module):
    def __init__(self, users, items, factors):
        super().__init__()
        self.mf_user = nn.Embedding(users, factors)
        self.mf_item = nn.Embedding(items, factors)
        self.mlp_user = nn.Embedding(users, 2 * factors)
        self.mlp_item = nn.Embedding(items, 2 * factors)
        self.mlp = nn.Sequential(
            nn.Linear(4 * factors, 2 * factors), nn.ReLU(), nn.Linear(2 * factors, factors), nn.ReLU()
        )
        self.predict = nn.Linear(2 * factors, 1)

    def forward(self, user, item):
        factored = self.mf_user(user) * self.mf_item(item)
        deep = self.mlp(torch.cat((self.mlp_user(user), self.mlp_item(item)), dim=1))
        return self.predict(torch.cat((factored, deep), dim=1)).squeeze(1)


def main():
    run = oracle.Run(__doc__)
    users, items, factors, batch = (138_000, 27_000, 64, 65_536) if run.full else (300, 200, 8, 64)
    model = NeuMF(users, items, factors).to(run.device)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.watch(model=model, criterion=criterion, optimizer=optimizer)
    for _ in run.steps():
        user = torch.randint(users, (batch,), device=run.device)
        item = torch.randint(items, (batch,), device=run.device)
        label = torch.rand(batch, device=run.device).round_()
        run.data(user, item, label)
        score = model(user, item)
        loss = criterion(score, label)
        run.at("end of forward", score, loss)
        optimizer.zero_grad()
        loss.backward()
        run.at("end of backward", score, loss)
        optimizer.step()
        run.at("after step", score, loss)
        run.loss(loss)
        del score, loss
    run.finish()


if __name__ == "__main__":
    main()
