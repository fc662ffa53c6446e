# SPDX-License-Identifier: Apache-2.0
"""An LSTM language model: tied weights, state carried from batch to batch, clipped gradients, SGD.

On a GPU cuDNN keeps all weights of the LSTM in one flat storage.
"""

import oracle
import torch
from torch import nn
from torch.nn import functional as F


class LSTMLM(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.encoder = nn.Embedding(vocabulary, width)
        self.drop = nn.Dropout(0.2)
        self.rnn = nn.LSTM(width, width, layers, dropout=0.2)
        self.decoder = nn.Linear(width, vocabulary)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens, state):
        output, state = self.rnn(self.drop(self.encoder(tokens)), state)
        return self.decoder(self.drop(output)), state


def main():
    run = oracle.Run(__doc__)
    vocabulary, width, layers, length, batch = (
        (10000, 650, 2, 35, 64) if run.full else (200, 32, 2, 12, 4)
    )
    model = LSTMLM(vocabulary, width, layers).to(run.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    run.watch(model=model, optimizer=optimizer)
    state = tuple(torch.zeros(layers, batch, width, device=run.device) for _ in range(2))
    for _ in run.steps():
        words = torch.randint(vocabulary, (length + 1, batch), device=run.device)
        tokens, targets = run.data(words[:-1].contiguous(), words[1:].contiguous())
        del words
        optimizer.zero_grad()
        state = tuple(part.detach() for part in state)
        logits, state = model(tokens, state)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        run.at("end of forward", logits, loss, *state)
        loss.backward()
        run.at("end of backward", logits, loss, *state)
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        run.at("after step", logits, loss, *state)
        run.loss(loss)
        del logits, loss
    run.finish()


if __name__ == "__main__":
    main()
