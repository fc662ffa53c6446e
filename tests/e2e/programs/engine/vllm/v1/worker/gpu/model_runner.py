# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM 0.33's file of this name: functions of its model runner, by their names."""
import gpu
import vramscope
from vllm.v1.worker.utils import allocate_kv_cache

MIB = gpu.MIB


class GPUModelRunner:
    def load_model(self):
        self.weights = [gpu.Block(40 * MIB, sleeps=True) for _ in range(4)]
        for block in self.weights:
            vramscope.tag(block.address.value, "weights/parameter")

    def profile_run(self):
        gpu.Block(96 * MIB).free()

    def profile_cudagraph_memory(self):
        # A small cache, and graphs that are thrown away.
        small = self.initialize_kv_cache(8 * MIB)
        self.capture_model([1])
        gpu.report(small.address.value, -small.size, 0, 0, 1)
        small.sleep()

    def initialize_kv_cache(self, size):
        self.lengths = gpu.Block(2 * MIB)
        self.cache = allocate_kv_cache(size)
        return self.cache

    def capture_model(self, batches):
        self.graphs = []
        for batch in batches:
            with gpu.capture():
                self.graphs.append(gpu.Block(batch * 4 * MIB))

    def execute_model(self):
        gpu.Block(16 * MIB).free()
