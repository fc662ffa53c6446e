# SPDX-License-Identifier: Apache-2.0
"""The group `ranks` of tests/gpu/run.py: DDP and FSDP2 under torchrun over NCCL, a GPU a rank, one of them made heavier.

The program is that of tests/e2e/torch/test_ranks_of_torch.py. Each GPU's ledger balances with NVML, each rank's parameters and
optimizer state are what the program says it holds, and the report names the heavy rank and its layer first.
"""

import json
import pathlib

import cases
import residual

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "e2e" / "programs" / "ranks.py"
HEAVY = 1
KEPT = 24 * 1024 * 8192 * 4  # what its blocks.2 keeps
# Multicast is never asked for on a machine that is shared.
QUIET_NCCL = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def trained(how):
    name = f"{how} under torchrun"

    def command(bench):
        torchrun = [bench.python, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        return [*torchrun, PROGRAM, how, "--heavy", str(HEAVY), "--size", "large", "--steps", "40", "--hold", "30"]

    _, record = residual.case(name, command, gpus_needed=2, owner="NCCL", environment=QUIET_NCCL, said=True)

    def case(bench):
        result = record(bench)
        if "skipped" in result:
            return result
        trace, _ = bench.files(name)

        def report(*words):
            return json.loads(cases.run([bench.program, "report", trace, "--json", *words], bench.environment, bench.limit(60)))

        ranks = report("--ranks")
        problems = result["problems"]
        first = ranks["excess"][0] if ranks["excess"] else {}
        if not ranks["uneven"] or ranks["heaviest"] != f"rank {HEAVY}" or first.get("layer") != "blocks.2":
            problems.append(f"the heavy rank is not named first: {ranks['heaviest']}, {first}")
        elif abs(first["bytes"] - KEPT) > KEPT // 24:
            problems.append(f"{first['bytes']} bytes more in blocks.2, not {KEPT}")
        if [row["on"] for row in ranks["ranks"]] != ["gpu0", "gpu1"]:
            problems.append(f"rows {[(row['name'], row['on']) for row in ranks['ranks']]}")
        # All but NVML's rounding of blocks without a name: to the byte.
        held = {}
        for row in report("--at", "mark:trained", "--by", "rank,category")["rows"]:
            key = tuple(row["path"])
            held[key] = held.get(key, 0) + row["bytes"]
        said = [json.loads(line) for line in result.pop("said") if line.startswith("{")]
        for of in said:
            for category in ("parameter", "optimizer state"):
                if held.get((str(of["rank"]), category)) != of[category]:
                    problems.append(f"rank {of['rank']}: {category} {held.get((str(of['rank']), category))}, not {of[category]}")
        if len(said) != 2:
            problems.append(f"{len(said)} ranks said what they hold")
        purposes = report("--at", "mark:trained", "--where", "owner=NCCL", "--by", "rank,tag")["rows"]
        result["nccl"] = {" ".join(row["path"]): row["bytes"] for row in purposes}
        # That of the trained model and that of the averages, under the same ids on both ranks.
        by_communicator = report("--at", "mark:trained", "--where", "owner=NCCL", "--by", "rank,communicator")["rows"]
        named = {}
        for row in by_communicator:
            result["nccl"][" ".join(row["path"])] = row["bytes"]
            if row["path"][1].endswith(" of 2 ranks"):
                named.setdefault(row["path"][0], set()).add(row["path"][1])
        if len(named) != 2 or len(set(map(frozenset, named.values()))) != 1 or len(named["0"]) < 2:
            problems.append(f"communicators by rank: {named}")
        result["imbalance"] = f"{ranks['heaviest']}: {first}"
        return result

    return name, case


def all_cases():
    yield trained("ddp")
    yield trained("fsdp")


def print_table(results):
    residual.print_table(results)
    for name, result in results.items():
        print(f"{name}: {result.get('imbalance', '')}")
        for purpose, size in sorted(result.get("nccl", {}).items()):
            print(f"  NCCL {purpose}: {size / (1 << 20):.1f} MiB")
    print()
