# SPDX-License-Identifier: Apache-2.0
"""Finds PyTorch's names for memory, inside the recorded program.

agent.cc puts this into the process as text, with agent_layouts.py behind it in the same module, and
calls run_look(), run_search() and run_check(), with the GIL. Its globals are the functions of
agent_builtins.cc's table, `modules` (sys.modules), and `known`, `roots` and `paths`, where agent.cc takes
out what has died: by address a weak reference, the address of the root module and the path below it.
Tuples, lists and dictionaries that end are kept by the interpreter, and given out again without counting for the
garbage collection: so it makes few at once, keeps none, and makes none by calling list() or dict(), which do not take one
that was kept. What it may not do: import anything, call a method of a tensor, touch the program's modules
other than through their dictionaries, keep anything of the program alive, write, or let an exception
of its own out.
"""

FAILED, LATER, DONE = -1, 0, 1

PARAMETER, BUFFER = 1, 3  # NameKind
META = 14  # c10::DeviceType

# Wrappers whose name for what they wrap is no part of a path.
SEE_THROUGH = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
TABLES = ("_parameters", "_buffers", "_modules")
PARALLEL = ("DistributedDataParallel", "DataParallel")

FIRST_SCANS = 2  # of a process that trains
FIRST_STEPS = 8  # buffers are looked at before each of these
MOST_STEPS = 64  # then at most so many lie between two looks, while they stay as they are
MOST_LOOKS = 256  # at one that stays as it is

state = {"version": False, "calibrated": False, "hooked": False, "whole": True, "gap": 1, "left": 0, "checks": 0, "scans": 0, "groups": 0, "grid": False, "rank": None, "graphs": False}
buffered = {}  # addresses of modules that have buffers -> None
restless = {}  # of those, the ones whose buffers become other tensors -> looks since one did
moved = {}  # those whose buffers were others in the last walk
nothing = {}
graphs = {}  # address of a replayed graph's node -> weak reference, device, its outputs that live (number -> address), all of them
graph_memory = {}  # address of such an output -> the outputs that live of the node that made it last, its number there
said = []  # what is noted in each recording: function, arguments


def run_look():
    return guarded(look)


def run_search(tensors):
    return guarded(search, tensors)


def run_check():
    return guarded(check)


def run_last():
    return guarded(last)


def guarded(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        # A signal handler of the program's can run, and raise, between any two of our lines.
        if not is_ours(error.__traceback__):
            raise
        return FAILED


def is_ours(traceback):
    home = (modules["torch"].__dict__.get("__path__") or ("<none>",))[0] if "torch" in modules else "<none>"
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file != HERE and not file.startswith(home):
            return False
        traceback = traceback.tb_next
    return True


# ---- when -------------------------------------------------------------------------------------------


def look():
    torch = modules.get("torch")
    if torch is None:
        return LATER
    spec = torch.__dict__.get("__spec__")
    if getattr(spec, "_initializing", False):
        await_import(spec)
        return LATER
    if not state["version"]:
        state["version"] = True
        say(note, "PyTorch", str(torch.__dict__.get("__version__", "")))
    if not is_quiet(torch):
        return LATER
    anew = begins()
    if not state["calibrated"]:
        calibrate(torch)
        state["calibrated"] = True
    elif anew:
        for function, arguments in said:
            function(*arguments)
    hook_optimizers()
    hook_graphs()
    note_mesh()
    if anew:
        graphs.clear()
        survey()
    threads = in_set_up()
    half_built(threads)
    found = discover()
    # One that ran where nobody sees it now: in another thread, say, while this one waited.
    if module_is_wanted() and not found and not threads and scan_is_due(2):
        scan_ended(scan())
    if walk_is_due():
        walk_ended(has_other_tensors())
    if gradients_wanted():
        walk_again()
    if pools_wanted():
        private_pools(torch)
    return DONE


def last():
    """Names what the looks have missed, when the program ends or the recording: models that were converted or made and
    never ran afterwards."""
    if not state["calibrated"] or not is_quiet(modules["torch"]):
        return LATER
    # Memory may have come back at its old address.
    say_again(1)
    walk_again(True)
    if scan_is_due(3):
        scan_for_copies()
    return DONE


def await_import(spec):
    """Has the agent asked for at the end of `import torch`: the import machinery notes it in the spec."""
    plain = type(spec)
    if plain.__name__ != "ModuleSpec" or plain.__setattr__ is not object.__setattr__:
        return

    spec.__class__ = type(
        "ModuleSpec", (plain,), {"__slots__": (), "__module__": plain.__module__, "__setattr__": import_notice(plain, ask)}
    )


def is_quiet(torch):
    """False while something could notice what the agent does, or the agent mistake it."""
    c = getattr(torch, "_C", None)
    count = getattr(c, "_len_torch_dispatch_stack", None)
    if count is not None and count():
        return False
    count = getattr(c, "_len_torch_function_stack", None)
    for i in range(count() if count is not None else 0):
        # torch.set_default_device: it leaves alone what says its device.
        if type(c._get_function_stack_at(i)).__name__ != "DeviceContext":
            return False
    if getattr(c, "_get_tracing_state", none)() is not None:
        return False
    if getattr(modules.get("torch.autograd"), "_profiler_enabled", none)():
        return False
    transforms = getattr(getattr(c, "_functorch", None), "peek_interpreter_stack", none)
    if may_transform() and transforms() is not None:
        return False
    guards = modules.get("torch._guards")
    if guards is not None and guards.TracingContext.try_get() is not None:
        return False
    compiler = getattr(torch, "compiler", None)
    return not getattr(compiler, "is_compiling", none)()


def none():
    return None


# ---- PyTorch's segments -----------------------------------------------------------------------------


def private_pools(torch):
    """Says which segments are in a private pool: what is free there empty_cache() does not give back."""
    history = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    # Where the program records the allocator's history, each look would copy all of that.
    if history is None or history():
        return
    try:
        for segment in torch.cuda.memory_snapshot():
            pool = segment.get("segment_pool_id", (0, 0))
            if any(pool):
                note_private_pool(segment["address"], "%d.%d" % tuple(pool))
    except Exception as error:
        # A PyTorch whose answer is another costs these rows, not the names of everything.
        if not is_ours(error.__traceback__):
            raise


# ---- graphs of torch.compile ------------------------------------------------------------------------


def hook_graphs():
    """Has the functions below called around each graph that torch.compile replays."""
    trees = modules.get("torch._inductor.cudagraph_trees")
    if state["graphs"] or trees is None or getattr(trees.__dict__.get("__spec__"), "_initializing", False):
        return
    state["graphs"] = True
    manager = trees.__dict__.get("CUDAGraphTreeManager")
    suppress(1)
    try:
        can_count = uses_of(empty(modules["torch"], 1)) == 1
    finally:
        suppress(0)
    if not can_count or not hasattr(manager, "_run") or not watch_graphs(manager, run_graphs_made, run_graphs_gone):
        say(note, "tensors of CUDA graphs", "off: torch.compile's graphs are not as expected")
        lost("module names")


def run_graphs_made(manager):
    return guarded(graphs_made, manager)


def run_graphs_gone():
    return guarded(graphs_gone)


def graphs_made(manager):
    """Address, bytes and device of each tensor that the graph made which just ran, one after another; before it one of 0
    bytes, whose memory it has: a backward's graph reuses memory of activations that autograd has not dropped yet."""
    found = []
    node = manager.current_node
    # While it warms up or records, the allocator gives out the memory.
    if node is None or manager.path_state.name != "EXECUTION":
        return found
    graph = graphs.get(id(node))
    if graph is None or graph[0]() is not node:
        graph = graphs[id(node)] = modules["weakref"].ref(node), manager.device_index, {}, outputs_of(node)
    _, device, live, outputs = graph
    for index, address, size in outputs:
        if index in live:
            continue
        before, number = graph_memory.get(address, (live, index))
        if before.get(number) == address:
            del before[number]
            found += address, 0, device
        live[index] = address
        graph_memory[address] = live, index
        found += address, size, device
    return found


def outputs_of(node):
    """Number, address and bytes of what it makes in memory of its own."""
    found, places = [], {}
    for index, (reference, content) in enumerate(zip(node.outputs_weakrefs, node.outputs_metadata)):
        if reference is not None and isinstance(content, dict) and content["data_ptr"] not in places:
            places[content["data_ptr"]] = None
            found.append((index, content["data_ptr"], content["nbytes"]))
    return found


def graphs_gone():
    """Address and device of each of them that nothing holds any more, one after another."""
    found = []
    for key, (weak, device, live, _) in [*graphs.items()]:
        node = weak()
        if node is None:
            del graphs[key]
        for index in [*live] if node is None else gone_of(live, node.cached_tensor_outputs, node.outputs_weakrefs):
            address = live.pop(index, None)
            if address is not None:
                found += address, device
    return found


# ---- what stands already ----------------------------------------------------------------------------


def survey():
    """Names all that lives: recording began in a process that has models and optimizers."""
    collector = modules.get("gc")
    if collector is None:
        return
    base = getattr(modules.get("torch.optim.optimizer"), "Optimizer", None)
    objects = collected(collector.get_objects, base)
    found = [value for value in objects if is_module(value)]
    inner = {id(child) for module in found for child in children(module)}
    surveys(1)
    try:
        for module in found:
            if id(module) not in inner and not is_known(module) and not is_of_compiler(module):
                walk_root(module)
        for optimizer in objects:
            if not is_module(optimizer):
                name_optimizer(optimizer)
    finally:
        surveys(0)


# ---- modules ----------------------------------------------------------------------------------------


def discover():
    """Names the modules that run; whether any had no name."""
    found = False
    for modules_of_thread in running():
        chain = []
        for module in modules_of_thread:
            found = found or not is_known(module)
            if is_of_compiler(module):
                ignore(module)
            else:
                chain.append(module)
        if not chain:
            continue
        top = chain[0]
        if not is_known(top):
            walk_root(top)
        elif not all(is_known(module) for module in chain):
            root = live(roots[id(top)])
            if root is not None:
                walk(root, id(root), "")
        caller = top
        for module in chain:
            if not is_known(module):
                original = original_of(module)
                if original is not None:
                    walk(module, roots[original], paths[original])
                else:
                    # In no module's tables, such as one in a plain list.
                    walk(module, roots[id(caller)], join(paths[id(caller)], type(module).__name__))
            caller = module
    return found


def half_built(threads):
    """Names what constructors made and _apply moved, also where none of it has run yet."""
    if threads is None:
        return
    walk_again()
    # They get the paths that they end up with when they run: nothing of this is final.
    state["whole"] = False
    try:
        for modules_of_thread in threads:
            for module in modules_of_thread:
                if id(module) not in known and not is_of_compiler(module):
                    walk_root(module)
        if scan_is_due(1 if threads else 0):
            scan()
            scan_ended(True)
    finally:
        state["whole"] = True


def scan(is_wanted=lambda module: True):
    """Names modules that nothing leads to yet: the layers of a list that is being made. Whether there are any."""
    collector = modules.get("gc")
    if collector is None:
        return False
    found = collected(collector.get_objects, None)
    new = False
    inner = {id(child) for module in found for child in children(module)}
    for module in found:
        if id(module) in inner or id(module) in known or is_of_compiler(module) or not is_wanted(module):
            continue
        walk_root(module)
        new = True
    return new


def scan_for_copies():
    """Names models that train without running, or do not run at all: averages, targets, what is called as a function."""
    # They get another path where they turn out to be a part of what runs.
    state["whole"] = False
    try:
        scan_ended(scan(has_nameless))
    finally:
        state["whole"] = True


def has_nameless(top):
    """Whether any parameter below it belongs to no known module."""
    seen, todo = set(), [top]
    while todo:
        module = todo.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        table = table_of(module, "_parameters")
        for name in [*table]:
            tensor = table.get(name)
            if tensor is not None and not has_name(local(tensor)):
                return True
        todo.extend(children(module))
    return False


def is_of_compiler(module):
    """Whether torch.compile made it: such a module holds the program's parameters under other names, or has them as
    arguments."""
    meta = object.__getattribute__(module, "__dict__").get("meta")
    if isinstance(meta, dict) and any(str(key).startswith("dynamo_") for key in meta):
        return True
    return type(module).__name__ == "GraphModule" and not any(table_of(module, key) for key in TABLES)


def ignore(module):
    if not is_known(module):
        remember(module, None, None)
        ignore_module(module)


def walk_root(top):
    root, wrappers = top, []
    while True:
        inner = wrapped(root)
        if inner is None or inner in wrappers:
            break
        wrappers.append(root)
        root = inner
    original = original_of(root)
    if original is None:
        walk(root, id(root), "")
    else:
        walk(root, roots[original], paths[original])
    for wrapper in wrappers:
        name_module(wrapper, id(root), "")


def original_of(module):
    """What DataParallel copied to another GPU for one forward, None where the module is no copy. Both have one table of
    hooks: Module._replicate_for_data_parallel()."""
    content = object.__getattribute__(module, "__dict__")
    hooks = content.get("_forward_hooks")
    if not content.get("_is_replica") or hooks is None:
        return None
    for address in [*known]:
        other = live(address)
        if other is None or roots[address] is None or other is module:
            continue
        attributes = object.__getattribute__(other, "__dict__")
        if attributes.get("_forward_hooks") is hooks and not attributes.get("_is_replica"):
            return address
    return None


def walk(top, root, prefix):
    """Names a module, what is below it, and their tensors; the first of several paths counts. Whether any of these
    was new at its place."""
    begin_walk()
    seen, new = set(), False
    todo = [top]
    ways = [prefix]
    while todo:
        module = todo.pop()
        path = ways.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        name_module(module, root, path)
        new |= note_tensors(PARAMETER, module, root, path)
        if note_tensors(BUFFER, module, root, path):
            new = True
            moved[id(module)] = None
        table = table_of(module, "_modules")
        for name in reversed([*table]):
            child = table.get(name)
            if child is not None:
                todo.append(child)
                ways.append(step(module, name, path))
    return new


def note_tensors(kind, module, root, path):
    """Names the parameters or the buffers of one module; whether any was not known at that place."""
    table = table_of(module, "_parameters" if kind == PARAMETER else "_buffers")
    if kind == BUFFER and table:
        buffered[id(module)] = None
    new = False
    for name in [*table]:
        tensor = table.get(name)
        if tensor is not None:
            new |= note_tensor(kind, root, join(path, name), local(tensor), state["whole"], tensor)
            if name == "_flat_param":
                note_flat(tensor, root, path)
    return new


def note_flat(tensor, root, path):
    """Names the parameters that FSDP made a flat one of: those of its shard, or all while it is gathered."""
    content = object.__getattribute__(tensor, "__dict__")
    infos, shards = content.get("_param_infos", ()), content.get("_shard_param_infos")
    sizes, padding = content.get("_numels_with_padding", ()), content.get("_is_padding_mask", ())
    if shards is not None and content.get("_sharded_size") == (elements_of(tensor),):
        for i in range(len(shards)):
            if shards[i].in_shard:
                note_part(root, flat_name(infos[i], path), tensor, shards[i].offset_in_shard, shards[i].numel_in_shard)
    elif content.get("_unpadded_unsharded_size") == (elements_of(tensor),):
        first = number = 0
        for i in range(len(sizes)):
            if not padding[i]:
                note_part(root, flat_name(infos[number], path), tensor, first, sizes[i])
                number += 1
            first += sizes[i]


def flat_name(info, path):
    for name in info.module_name.split("."):
        if name and name not in SEE_THROUGH:
            path = join(path, name)
    return join(path, info.param_name)


def walk_again(is_end=False):
    new = False
    for root in set(roots.values()):
        module = live(root)  # of what is ignored: None
        # It may have become a part of a model since, or just now.
        if module is not None and roots[root] == root:
            # What is half built is so until it runs, or until the end: a dict of adapters never runs itself.
            state["whole"] = is_end or is_known(module)
            try:
                new |= walk(module, root, "")
            finally:
                state["whole"] = True
    return new


# ---- tensors that took another's place ---------------------------------------------------------------


def check():
    """Names buffers that are other tensors now, before an optimizer's step."""
    if not is_quiet(modules["torch"]):
        return LATER
    # DeepSpeed sets its grid after the models are known.
    note_mesh()
    if state["scans"] < FIRST_SCANS and scan_is_due(2):
        state["scans"] += 1
        scan_for_copies()
    state["left"] -= 1
    state["checks"] += 1
    if state["left"] <= 0:
        new = [address for address in [*buffered] if name_buffers(address)]
        for address in new:
            restless[address] = 0
        state["gap"] = state["left"] = 1 if new or state["checks"] < FIRST_STEPS else min(2 * state["gap"], MOST_STEPS)
    name_restless()
    check_in(1 if restless else state["left"])
    if not restless:
        state["left"] = 0
    return DONE


def has_other_tensors():
    """Walks the known models; whether any of their tensors is another one now."""
    moved.clear()
    new = walk_again()
    for address in moved:
        restless[address] = 0
    name_restless()
    return new


def name_restless():
    for address in [*restless]:
        looks = restless[address]
        restless[address] = 0 if name_buffers(address) else looks + 1
        if address not in buffered or looks == MOST_LOOKS:
            del restless[address]
            continue
        # A tensor that took another's place may have its address, too.
        say_again(1)
        name_buffers(address)
        say_again(0)


def name_buffers(address):
    module = live(address)
    if module is None or roots[address] is None:
        buffered.pop(address, None)
        return False
    return note_tensors(BUFFER, module, roots[address], paths[address])


def name_module(module, root, path):
    address = id(module)
    is_new = live(address) is not module
    if is_new or roots[address] != root or paths[address] != path or (state["whole"] and not is_known(module)):
        note_module(module, root, path, state["whole"])
    if is_new:
        remember(module, root, path)
    roots[address] = root
    paths[address] = path


def remember(module, root, path):
    known[id(module)] = watch_module(module)
    roots[id(module)] = root
    paths[id(module)] = path


def live(address):
    reference = known.get(address)
    return reference() if reference is not None else None


def table_of(module, key):
    table = object.__getattribute__(module, "__dict__").get(key)
    return table if isinstance(table, dict) else nothing


def children(module):
    table = table_of(module, "_modules")
    return [child for child in [*table.values()] if child is not None]


def join(path, name):
    return f"{path}.{name}" if path else str(name)


def step(module, name, path):
    if name in SEE_THROUGH or (name == "module" and type(module).__name__ in PARALLEL):
        return path
    return join(path, name)


def wrapped(module):
    """The module that a wrapper is around, or None."""
    table = table_of(module, "_modules")
    for name in [*table]:
        child = table.get(name)
        if child is not None and step(module, name, "") == "":
            return child
    return None


def local(tensor):
    """The tensor that has the memory: a distributed one has its part of it in a tensor of its own."""
    if type(tensor).__name__ != "DTensor":
        return tensor
    try:
        return object.__getattribute__(tensor, "_local_tensor")
    except AttributeError:
        return tensor


# ---- the job's mesh ---------------------------------------------------------------------------------

MEGATRON = (
    ("dp", "_DATA_PARALLEL_GROUP"),
    ("tp", "_TENSOR_MODEL_PARALLEL_GROUP"),
    ("pp", "_PIPELINE_MODEL_PARALLEL_GROUP"),
    ("cp", "_CONTEXT_PARALLEL_GROUP"),
    ("ep", "_EXPERT_MODEL_PARALLEL_GROUP"),
)


# In deepspeed.utils.groups, and in the PipelineParallelGrid that is its `mpu`.
DEEPSPEED = (("dp", "_DATA_PARALLEL_GROUP"), ("tp", "_TENSOR_MODEL_PARALLEL_GROUP"))
GRID = (("dp", "dp_proc_group"), ("tp", "slice_proc_group"), ("pp", "pp_proc_group"))

# Names of a DeviceMesh's axes that have a shorter one.
LONG = {"data_parallel": "dp", "tensor_parallel": "tp", "pipeline_parallel": "pp", "context_parallel": "cp", "expert_parallel": "ep"}


def note_mesh():
    """Notes this rank, and its coordinates, after the program made process groups: its ranks in the groups of a DeviceMesh,
    which PyTorch describes as mesh_NAME, or in Megatron's or DeepSpeed's groups. A failure costs the notes alone."""
    c10d = modules.get("torch.distributed.distributed_c10d")
    groups = c10d.__dict__.get("_pg_map", nothing) if c10d is not None else nothing
    deepspeed = modules.get("deepspeed.utils.groups")
    grid = deepspeed.__dict__.get("mpu") if deepspeed is not None else None
    if len(groups) == state["groups"] and (grid is not None) == state["grid"]:
        return
    state["groups"] = len(groups)
    state["grid"] = grid is not None
    if not groups:
        return
    try:
        world = c10d.__dict__["_get_default_group"]()
        if world.size() > 1 and state["rank"] != world.rank():
            state["rank"] = world.rank()
            say(note, "rank of torch.distributed", str(world.rank()))
        known = [group for group in groups if type(group).__module__.startswith("torch.")]
        mesh = mesh_of(known)
        if deepspeed is not None:
            add_deepspeed(mesh, known, deepspeed.__dict__, grid)
        if mesh:
            say(note, "mesh of rank " + str(world.rank()), ",".join(name + "=" + str(mesh[name]) for name in sorted(mesh)))
    except Exception as error:
        if not is_ours(error.__traceback__):
            raise


def mesh_of(groups):
    mesh = {}
    for group in groups:
        name = str(getattr(group, "group_desc", ""))
        if name.startswith("mesh_") and name != "mesh_default":
            name = name[5:].lower()
            mesh.setdefault(LONG.get(name, name), group.rank())
    megatron = modules.get("megatron.core.parallel_state")
    for name, variable in MEGATRON if megatron is not None else ():
        group = megatron.__dict__.get(variable)
        if any(group is known for known in groups):
            mesh[name] = group.rank()
    return mesh


def add_deepspeed(mesh, groups, variables, grid):
    # Experts have groups by the size of the group.
    experts = variables.get("_EXPERT_PARALLEL_GROUP")
    found = [("ep", group) for group in experts.values()] if type(experts).__name__ == "dict" else []
    found += [(name, variables.get(variable)) for name, variable in DEEPSPEED]
    if grid is not None and str(type(grid).__module__).startswith("deepspeed."):
        found += [(name, grid.__dict__.get(variable)) for name, variable in GRID]
    for name, group in found:
        # A group of one is an axis that is not used.
        if any(group is known for known in groups) and group.size() > 1:
            mesh.setdefault(name, group.rank())


# ---- optimizers -------------------------------------------------------------------------------------


def hook_optimizers():
    optim = modules.get("torch.optim.optimizer")
    if state["hooked"] or optim is None:
        return
    state["hooked"] = True
    torch = modules["torch"]
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", none)
    before, after = make_hooks(is_compiling, step_begin, step_end)
    skip = getattr(modules.get("torch._C._dynamo.eval_frame"), "skip_code", None)
    if skip is not None:
        skip(before.__code__)
        skip(after.__code__)
    optim.register_optimizer_step_pre_hook(before)
    optim.register_optimizer_step_post_hook(after)


def make_hooks(is_compiling, begin, end):
    # torch.compile reads these where it compiles a step, and finds that they do nothing there. It
    # would not take builtins.
    def before(optimizer, args, kwargs):
        if not is_compiling():
            begin(optimizer)

    def after(optimizer, args, kwargs):
        if not is_compiling():
            end(optimizer)

    return before, after


def search(tensors):
    """Looks for the modules of parameters that an optimizer has and no known module."""
    if not is_quiet(modules["torch"]):
        return LATER
    walk_again()
    wanted = {id(tensor) for tensor in tensors if not has_name(tensor)}
    collector = modules.get("gc")
    if not wanted or collector is None:
        return DONE
    # A model that never ran where the agent could see it: its main thread waits for another one.
    found = collected(collector.get_objects, None)
    parents = {id(child): module for module in found for child in children(module)}
    for module in found:
        if not any(id(tensor) in wanted for tensor in [*table_of(module, "_parameters").values()]):
            continue
        seen = set()
        while id(module) in parents and id(module) not in seen:
            seen.add(id(module))
            module = parents[id(module)]
        if not is_known(module) and not is_of_compiler(module):
            walk_root(module)
    return DONE


HERE = guarded.__code__.co_filename
