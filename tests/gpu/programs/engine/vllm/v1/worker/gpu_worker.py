# SPDX-License-Identifier: Apache-2.0
"""Stands in for vLLM 0.33's file of this name: the methods of its worker, by their names."""
import torch
from vllm.v1.worker.gpu.model_runner import GPUModelRunner


class Worker:
    def __init__(self, saver):
        self.saver, self.runner = saver, GPUModelRunner()

    def init_device(self):
        torch.cuda.init()
        self.workspace = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")

    def load_model(self):
        self.runner.load_model(self.saver)

    def determine_available_memory(self):
        self.runner.profile_run()

    def initialize_from_config(self):
        self.runner.initialize_kv_cache(self.saver)

    def compile_or_warm_up_model(self):
        self.runner.capture_model()

    def execute_model(self, tokens):
        return self.runner.execute_model(tokens)

    def sleep(self):
        torch.cuda.synchronize()
        for tag in self.saver.tags:
            self.saver.sleep(tag)

    def wake_up(self):
        for tag in self.saver.tags:
            self.saver.wake(tag)
        for cache in self.runner.caches:
            cache.zero_()
