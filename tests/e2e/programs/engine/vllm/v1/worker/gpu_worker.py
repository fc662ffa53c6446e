# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM 0.33's file of this name: the methods of its worker, by their names."""
import gpu
from vllm.v1.worker.gpu.model_runner import GPUModelRunner

MIB = gpu.MIB


class Worker:
    def init_device(self):
        gpu.start()
        self.workspace = gpu.Block(4 * MIB)
        self.runner = GPUModelRunner()

    def load_model(self):
        self.runner.load_model()

    def determine_available_memory(self):
        self.runner.profile_run()
        self.runner.profile_cudagraph_memory()

    def initialize_from_config(self):
        self.runner.initialize_kv_cache(512 * MIB)

    def compile_or_warm_up_model(self):
        self.runner.capture_model([1, 2, 4])

    def execute_model(self):
        self.runner.execute_model()

    def sleep(self):
        self.backup = [gpu.pinned(block.size) for block in self.runner.weights]
        for block in [*self.runner.weights, self.runner.cache]:
            block.sleep()

    def wake_up(self):
        for block in [*self.runner.weights, self.runner.cache]:
            block.wake()
