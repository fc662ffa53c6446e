# SPDX-License-Identifier: Apache-2.0
"""A training in JAX whose state each step takes over: Flax and Optax where they are there, or dictionaries and Adam by hand.

At 20 instants it prints what XLA says is in use, and the exact bytes of its parameters and optimizer state.
"""

import argparse
import hashlib
import importlib.util
import json
import statistics
import time

import jax
import jax.numpy as jnp

import vramscope

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--plain", action="store_true", help="no Flax and no Optax")
args = parser.parse_args()
HAS_FLAX = not args.plain and all(importlib.util.find_spec(name) for name in ("flax", "optax"))


def forward(params, x):
    for name in sorted(params):
        x = jax.nn.gelu(x @ params[name]["kernel"] + params[name]["bias"])
    return x


if HAS_FLAX:
    import optax
    from flax import linen as nn
    from flax.training import train_state

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(args.layers):
                x = nn.gelu(nn.Dense(args.width)(x))
            return x

    net = Net()
    variables = jax.jit(net.init)(jax.random.key(0), jnp.ones((1, args.width)))
    state = train_state.TrainState.create(apply_fn=net.apply, params=variables["params"], tx=optax.adam(1e-3))
    del variables

    def step(state, batch):
        def loss(params):
            return jnp.mean((state.apply_fn({"params": params}, batch["x"]) - batch["y"]) ** 2)

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    def trees(state):
        return state.params, state.opt_state
else:
    keys = jax.random.split(jax.random.key(0), args.layers)
    params = {
        f"layer_{i}": {
            "kernel": jax.random.normal(keys[i], (args.width, args.width)) / args.width**0.5,
            "bias": jnp.zeros(args.width),
        }
        for i in range(args.layers)
    }
    state = {
        "params": params,
        "opt_state": {"mu": jax.tree.map(jnp.zeros_like, params), "nu": jax.tree.map(jnp.zeros_like, params)},
    }
    del params, keys

    def step(state, batch):
        def loss(params):
            return jnp.mean((forward(params, batch["x"]) - batch["y"]) ** 2)

        value, grads = jax.value_and_grad(loss)(state["params"])
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["opt_state"]["mu"], grads)
        nu = jax.tree.map(lambda n, g: 0.999 * n + 0.001 * g * g, state["opt_state"]["nu"], grads)
        new = jax.tree.map(lambda p, m, n: p - 1e-3 * m / (jnp.sqrt(n) + 1e-8), state["params"], mu, nu)
        return {"params": new, "opt_state": {"mu": mu, "nu": nu}}, value

    def trees(state):
        return state["params"], state["opt_state"]


def size(tree):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


device = jax.local_devices()[0]
train = jax.jit(step, donate_argnums=0)
batches = [
    {"x": jax.device_put(jax.random.normal(jax.random.key(i), (args.batch, args.width))), "y": jnp.ones((args.batch, args.width))}
    for i in range(4)
]
kept, times = [], []
for turn in range(60):
    began = time.perf_counter()
    state, loss = train(state, batches[turn % 4])
    loss.block_until_ready()
    times.append(time.perf_counter() - began)
    if turn % 5 == 0:
        kept.append(jnp.full((1 + turn, 4096), float(turn)))
    if turn % 20 == 19:
        kept.clear()
    if turn % 3 == 2:
        jax.block_until_ready((state, kept))
        stats = device.memory_stats()
        params, optimizer = trees(state)
        mark = f"m{turn // 3}"
        vramscope.mark(mark)
        print("MARK", json.dumps({
            "mark": mark, "in_use": stats["bytes_in_use"], "peak": stats["peak_bytes_in_use"],
            "parameter": size(params), "optimizer state": size(optimizer),
        }), flush=True)
digest = hashlib.sha256()
for leaf in jax.tree.leaves(trees(state)):
    digest.update(jax.device_get(leaf).tobytes())
print("DIGEST", digest.hexdigest())
print("STEP", json.dumps({"median_us": statistics.median(times[10:]) * 1e6, "flax": HAS_FLAX}))
