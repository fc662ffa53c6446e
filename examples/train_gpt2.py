# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on a play that ships beside this file, on the CPU or on a GPU.

An ordinary PyTorch program: nothing in it needs vramscope. Where the vramscope package is importable,
`vramscope.mark()` names two instants, which `vramscope report --at mark:NAME` can then show.

    python examples/train_gpt2.py
    vramscope run -- python examples/train_gpt2.py --device cuda --size gpt2
"""

import argparse
import math
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import evidence

if "--deterministic" in sys.argv:
    evidence.prepare_deterministic()

import torch
from torch import nn
from torch.nn import functional as F

TEXT = pathlib.Path(__file__).resolve().parent / "data" / "romeo_and_juliet.txt"

# Layers, heads, width, context, batch, steps: "small" fits 20 to 40 seconds of two CPU cores,
# "gpt2" is the published 124 M shape.
SIZES = {
    "small": dict(layers=4, heads=4, width=192, context=128, batch=16, steps=120),
    "gpt2": dict(layers=12, heads=12, width=768, context=1024, batch=8, steps=20),
}


def attend(q, k, v):
    """Causal attention."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    # PyTorch 1 has no fused one.
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ v


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        y = attend(q, k, v)
        return self.project(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.contract(F.gelu(self.expand(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary, layers, heads, width, context):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self._initialise)
        for block in self.blocks:
            for last in (block.attention.project, block.contract):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * layers))

    @staticmethod
    def _initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def sample_batch(text, batch, context, device, generator):
    starts = torch.randint(len(text) - context - 1, (batch,), generator=generator)
    chunk = torch.stack([text[start : start + context + 1] for start in starts.tolist()])
    return chunk[:, :-1].to(device), chunk[:, 1:].to(device)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    evidence.add_arguments(parser)
    parser.add_argument("--size", choices=sorted(SIZES), default="small")
    parser.add_argument("--steps", type=int, help="training steps (default: by --size)")
    parser.add_argument("--batch", type=int, help="sequences a step (default: by --size)")
    parser.add_argument("--seconds", type=float, help="stop after the step that passes this time")
    return parser.parse_args()


def main():
    args = parse_arguments()
    device = evidence.select_device(args)
    shape = dict(SIZES[args.size])
    batch, steps = shape.pop("batch"), shape.pop("steps")
    steps = args.steps if args.steps is not None else steps
    batch = args.batch if args.batch is not None else batch

    text = TEXT.read_text(encoding="utf-8")
    letters = sorted(set(text))
    # The published vocabulary keeps the 124 M shape, although the play needs only its letters.
    vocabulary = 50304 if args.size == "gpt2" else len(letters)
    index = {letter: number for number, letter in enumerate(letters)}
    encoded = torch.tensor([index[letter] for letter in text], dtype=torch.long)

    torch.manual_seed(1595)
    generator = torch.Generator().manual_seed(1595)
    model = GPT(vocabulary, **shape).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 if args.size == "small" else 3e-4)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"GPT of {count / 1e6:.1f} M parameters on {device}, {steps} steps", flush=True)

    losses = []
    began = time.perf_counter()
    for step in range(1, steps + 1):
        seconds = time.perf_counter() - began
        last = step == steps or (args.seconds is not None and seconds >= args.seconds)
        tokens, targets = sample_batch(encoded, batch, shape["context"], device, generator)
        loss = model(tokens, targets)
        evidence.mark(args, device, "last-forward", at=last)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if step == 1 or step % 10 == 0 or last:
            seconds = time.perf_counter() - began
            print(f"step {step:4d}  loss {loss.item():.4f}  {seconds:6.1f} s", flush=True)
        if last:
            break
    evidence.mark(args, device, "trained", at=True)
    evidence.finish(args, losses, model)


if __name__ == "__main__":
    main()
