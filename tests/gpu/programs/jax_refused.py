# SPDX-License-Identifier: Apache-2.0
"""JAX runs out of memory: XLA refuses an array, and with a pool of its own the driver never hears of it."""

import jax
import jax.numpy as jnp

COLUMNS = 8192


@jax.jit
def attend(x):
    return x @ x.T


def keep(history, rows):
    history.append(jnp.ones((rows, COLUMNS)).block_until_ready())


def run():
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 64 << 30)
    history = []
    for _ in range(8):
        keep(history, limit // 10 // COLUMNS // 4)
    return attend(history[0]).block_until_ready()


try:
    run()
    print("nothing was refused")
except jax.errors.JaxRuntimeError as error:
    print("caught", str(error).splitlines()[0][:100])
print("sum", float(jnp.sum(jnp.ones(1000))))
