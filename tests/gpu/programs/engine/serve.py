# SPDX-License-Identifier: Apache-2.0
"""A small engine with vLLM's files and names, on a GPU: what is true of it at nine instants of its life."""
import hashlib
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import vramscope
from own_saver import OwnSaver
from vllm.v1.worker.gpu_worker import Worker

worker = Worker(OwnSaver(("weights", "kv_cache")))
answers, asleep = hashlib.sha256(), False


def state(name):
    """Lets NVML be sampled before and after."""
    time.sleep(0.7)
    vramscope.mark(name)
    weights = sum(parameter.nbytes for parameter in worker.runner.model.parameters())
    cache = sum(part.nbytes for part in worker.runner.caches if part is not None)
    awake = {"parameter": weights, "kv cache": cache}
    facts = {"mark": name, **({key: 0 for key in awake} if asleep else awake), "asleep": sum(awake.values()) if asleep else 0}
    print("MARK " + json.dumps(facts), flush=True)
    time.sleep(0.7)


def serve():
    token = 1
    for batch in (1, 8, 32, 8):
        for _ in range(5):
            out = worker.execute_model([(token + i) % 16384 for i in range(batch)])
            token = out[0]
            answers.update(repr(out).encode())


worker.init_device()
worker.load_model()
state("loaded")
worker.determine_available_memory()
state("profiled")
worker.initialize_from_config()
state("kv cache made")
worker.compile_or_warm_up_model()
state("captured")
serve()
state("served")
worker.sleep()
asleep = True
state("asleep")
time.sleep(1)
state("later")
worker.wake_up()
asleep = False
state("awake")
serve()
state("served again")
print("DIGEST", answers.hexdigest(), flush=True)
