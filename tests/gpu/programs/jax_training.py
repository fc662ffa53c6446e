# SPDX-License-Identifier: Apache-2.0
"""A training in JAX whose state each step takes over, of one of several models, on one or more GPUs.

At 20 instants it prints what XLA says is in use on each GPU, and the exact bytes of its parameters and optimizer state
there. Adam is Optax's where the model has a library, and by hand for dictionaries.
"""

import argparse
import hashlib
import json
import statistics
import time

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import vramscope

MODELS = ("dictionaries", "scan", "flax", "cnn", "transformer", "equinox")
parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=MODELS, default="dictionaries")
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--devices", type=int, default=1, help="the batch is split over them, the state is on each")
args = parser.parse_args()
KEY = jax.random.key(0)


def adam_by_hand(grads, state):
    params, (mu, nu) = state["params"], (state["opt_state"]["mu"], state["opt_state"]["nu"])
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
    nu = jax.tree.map(lambda n, g: 0.999 * n + 0.001 * g * g, nu, grads)
    new = jax.tree.map(lambda p, m, n: p - 1e-3 * m / (jnp.sqrt(n) + 1e-8), params, mu, nu)
    return {"params": new, "opt_state": {"mu": mu, "nu": nu}}


def layer(x, weights):
    return jax.nn.gelu(x @ weights["kernel"] + weights["bias"])


def by_hand():
    """Layers in a dictionary, or stacked for a scan that computes each layer again in the backward."""
    kernels = jax.random.normal(KEY, (args.layers, args.width, args.width)) / args.width**0.5
    params = {"kernel": kernels, "bias": jnp.zeros((args.layers, args.width))}
    if args.model == "dictionaries":
        params = {f"layer_{i}": jax.tree.map(lambda whole, i=i: whole[i], params) for i in range(args.layers)}

    def forward(params, x):
        if args.model == "scan":
            return jax.lax.scan(lambda x, one: (jax.checkpoint(layer)(x, one), None), x, params)[0]
        for name in sorted(params):
            x = layer(x, params[name])
        return x

    def step(state, batch):
        def loss(params):
            return jnp.mean((forward(params, batch["x"]) - batch["y"]) ** 2)

        value, grads = jax.value_and_grad(loss)(state["params"])
        return adam_by_hand(grads, state), value

    zeros = jax.tree.map(jnp.zeros_like, params)
    state = {"params": params, "opt_state": {"mu": zeros, "nu": jax.tree.map(jnp.zeros_like, params)}}
    return state, step, lambda state: (state["params"], state["opt_state"]), (args.width,), (args.width,)


def of_flax():
    import optax
    from flax import linen as nn
    from flax.training import train_state

    class Dense(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(args.layers):
                x = nn.gelu(nn.Dense(args.width)(x))
            return x

    class Cnn(nn.Module):
        @nn.compact
        def __call__(self, x):
            for i in range(args.layers):
                x = nn.relu(nn.Conv(args.width >> 4, (3, 3))(x))
                x = nn.max_pool(x, (2, 2), strides=(2, 2)) if i % 2 else x
            return nn.Dense(args.width)(x.mean(axis=(1, 2)))

    class Transformer(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(args.layers):
                x = x + nn.SelfAttention(num_heads=8)(nn.LayerNorm()(x))
                x = x + nn.Dense(args.width)(nn.gelu(nn.Dense(4 * args.width)(nn.LayerNorm()(x))))
            return x

    net, shape = {"flax": (Dense(), (args.width,)), "cnn": (Cnn(), (32, 32, 3)),
                  "transformer": (Transformer(), (64, args.width))}[args.model]  # fmt: skip
    params = jax.jit(net.init)(KEY, jnp.ones((1, *shape)))["params"]
    state = train_state.TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3))

    def step(state, batch):
        def loss(params):
            return jnp.mean((state.apply_fn({"params": params}, batch["x"]) - batch["y"]) ** 2)

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    out = shape if args.model == "transformer" else (args.width,)
    return state, step, lambda state: (state.params, state.opt_state), shape, out


def of_equinox():
    import equinox
    import optax

    model = equinox.nn.MLP(args.width, args.width, args.width, args.layers - 1, key=KEY)
    params, rest = equinox.partition(model, equinox.is_array)
    tx = optax.adam(1e-3)

    def step(state, batch):
        def loss(params):
            model = equinox.combine(params, rest)
            return jnp.mean((jax.vmap(model)(batch["x"]) - batch["y"]) ** 2)

        params, opt_state = state
        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (equinox.apply_updates(params, updates), opt_state), value

    # JAX names what a program takes by its arguments.
    def of_two(params, opt_state, batch):
        return step((params, opt_state), batch)

    return (params, tx.init(params)), of_two, lambda state: state, (args.width,), (args.width,)


def bytes_on(device, tree):
    return sum(shard.data.nbytes for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards if shard.device == device)


def main():
    makers = {"dictionaries": by_hand, "scan": by_hand, "equinox": of_equinox}
    state, step, trees, shape, out = makers.get(args.model, of_flax)()
    devices = jax.local_devices()[: args.devices]
    mesh = Mesh(devices, ("data",))
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    state = jax.device_put(state, whole)
    in_two = args.model == "equinox"
    train = jax.jit(step, donate_argnums=(0, 1) if in_two else 0)
    batches = [
        jax.device_put({"x": jax.random.normal(jax.random.key(i), (args.batch, *shape)), "y": jnp.ones((args.batch, *out))}, split)
        for i in range(4)
    ]
    kept, times = [], []
    for turn in range(60):
        began = time.perf_counter()
        state, loss = train(*(state if in_two else (state,)), batches[turn % 4])
        loss.block_until_ready()
        times.append(time.perf_counter() - began)
        if turn % 5 == 0:
            kept.append(jnp.full((1 + turn, 4096), float(turn)))
        if turn % 20 == 19:
            kept.clear()
        if turn % 3 == 2:
            jax.block_until_ready((state, kept))
            params, optimizer = trees(state)
            mark = f"m{turn // 3}"
            vramscope.mark(mark)
            print("MARK", json.dumps({"mark": mark, "gpus": [
                {"in_use": device.memory_stats()["bytes_in_use"], "peak": device.memory_stats()["peak_bytes_in_use"],
                 "parameter": bytes_on(device, params), "optimizer state": bytes_on(device, optimizer)}
                for device in devices
            ]}), flush=True)  # fmt: skip
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(trees(state)):
        digest.update(jax.device_get(leaf).tobytes())
    print("DIGEST", digest.hexdigest())
    print("STEP", json.dumps({"median_us": statistics.median(times[10:]) * 1e6}))


main()
