# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM 0.33's file of this name: functions of its model runner, by their names."""
import torch
from torch import nn
from vllm.v1.worker.utils import allocate_kv_cache

WIDTH, LAYERS, VOCABULARY = 1024, 12, 16384
BATCHES = (1, 8, 32)
TOKENS, PROFILED_TOKENS = 21504, 1024  # a layer's cache is a multiple of 2 MiB, as in engines with pages


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, cache):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        if cache is not None:
            cache[0, : len(x)].copy_(k)
            cache[1, : len(x)].copy_(v)
            k, v = cache[0, :64], cache[1, :64]
        x = x + self.out(torch.softmax(q @ k.T / 32, dim=-1) @ v)
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, caches):
        x = self.embedding(tokens)
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache)
        return self.head(x).argmax(-1)


class GPUModelRunner:
    def load_model(self, saver):
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float16)
        with saver.region("weights"), torch.device("cuda"):
            self.model = Model()
        self.caches = [None] * LAYERS

    @torch.no_grad()
    def profile_run(self):
        self.model(torch.zeros(PROFILED_TOKENS, dtype=torch.long, device="cuda"), self.caches)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def initialize_kv_cache(self, saver):
        with saver.region("kv_cache"):
            self.caches = allocate_kv_cache(LAYERS, TOKENS, WIDTH)

    @torch.no_grad()
    def capture_model(self):
        self.graphs = {}
        pool = torch.cuda.graph_pool_handle()
        for batch in BATCHES:
            tokens = torch.zeros(batch, dtype=torch.long, device="cuda")
            self.model(tokens, self.caches)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                out = self.model(tokens, self.caches)
            self.graphs[batch] = graph, tokens, out

    def execute_model(self, tokens):
        graph, place, out = self.graphs[len(tokens)]
        place.copy_(torch.tensor(tokens))
        graph.replay()
        return out.tolist()
