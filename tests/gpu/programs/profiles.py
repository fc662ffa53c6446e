# SPDX-License-Identifier: Apache-2.0
"""What other tools write of a small program on a GPU, and its framework's own figures: `profiles.py torch|jax DIRECTORY`."""

import json
import pathlib
import sys

which, directory = sys.argv[1], pathlib.Path(sys.argv[2])
if which == "torch":
    import torch
    from torch import nn
    from torch.profiler import ProfilerActivity, profile

    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(128, 256, device="cuda")
    net(x).sum().backward()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as recorded:
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            net(x).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        figures = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
    recorded.export_chrome_trace(str(directory / "profiler.json.gz"))
    (directory / "profiler.figures").write_text(json.dumps(figures) + "\n")
else:
    import jax
    import jax.numpy as jnp

    a, b = jnp.ones((1024, 1024)), jnp.ones((512, 300), dtype=jnp.bfloat16)
    c = jax.jit(lambda x: x @ x)(a).block_until_ready()
    (directory / "jax.prof").write_bytes(jax.profiler.device_memory_profile())
    figures = {"bytes_in_use": jax.devices()[0].memory_stats()["bytes_in_use"]}
    (directory / "jax.figures").write_text(json.dumps(figures) + "\n")
