# SPDX-License-Identifier: Apache-2.0
"""Registers a memory hook with CuPy's pools, inside the recorded program.

cupy_hooks.cc puts this into the process as text and calls install() with the GIL. Its globals are `modules` (sys.modules),
`note_alloc` and `note_free`, which CuPy calls as methods of the hook, `watch_allocator`, and `ask`, which has install() called
again.
"""

FAILED, LATER, DONE = -1, 0, 1

state = {"hook": None}


def install():
    try:
        return look()
    except Exception:
        return FAILED


def look():
    cupy = modules.get("cupy")
    spec = cupy.__dict__.get("__spec__") if cupy is not None else None
    if spec is None:
        return LATER
    if getattr(spec, "_initializing", False):
        await_import(spec)
        return LATER
    cuda = cupy.cuda
    methods = {"name": "vramscope", "malloc_postprocess": note_alloc, "free_preprocess": note_free}
    state["hook"] = type("MemoryHook", (cuda.MemoryHook,), methods)()
    register()
    # Hooks are of a thread: the default pool's other threads are reached by their first allocation.
    plain = cuda.get_allocator()
    if plain == cupy.get_default_memory_pool().malloc:
        cuda.set_allocator(watch_allocator(plain))
    return DONE


def register():
    """Has the hook called in this thread."""
    hooks = modules["cupy.cuda.memory_hook"].get_memory_hooks()
    if "vramscope" not in hooks:
        hooks["vramscope"] = state["hook"]


def await_import(spec):
    """Has install() called at the end of `import cupy`: the import machinery notes it in the spec."""
    plain = type(spec)
    if plain.__name__ != "ModuleSpec" or plain.__setattr__ is not object.__setattr__:
        return

    def notice(self, name, value):
        plain.__setattr__(self, name, value)
        if name == "_initializing" and not value:
            plain.__setattr__(self, "__class__", plain)
            ask()

    spec.__class__ = type("ModuleSpec", (plain,), {"__slots__": (), "__module__": plain.__module__, "__setattr__": notice})
