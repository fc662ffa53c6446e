# SPDX-License-Identifier: Apache-2.0
"""Matrix products, a convolution and a decomposition in JAX. XLA_PYTHON_CLIENT_PREALLOCATE decides who allocates."""

import pacing

args = pacing.arguments(size=8192)

import jax
import jax.numpy as jnp


@jax.jit
def step(a, b):
    return jnp.tanh(a @ b) / 64


@jax.jit
def convolve(images, kernels):
    return jax.lax.conv(images, kernels, (1, 1), "SAME")


key = jax.random.key(0)
a = jax.random.normal(key, (args.size, args.size), dtype=jnp.bfloat16)
images = jnp.ones((32, 16, 128, 128))
kernels = jnp.ones((64, 16, 3, 3))
kept = []
for turn in pacing.turns(args.seconds):
    a = step(a, a)
    convolve(images, kernels).block_until_ready()
    # Grows, and gives back.
    kept.append(jnp.full((1 + turn % 7, 1 << 20), float(turn)))
    if turn % 16 == 15:
        kept.clear()
    if turn == 40:
        jnp.linalg.svd(jnp.asarray(a[:256, :256], dtype=jnp.float32))[0].block_until_ready()
    a.block_until_ready()
print("sum", float(jnp.sum(a.astype(jnp.float32))))
