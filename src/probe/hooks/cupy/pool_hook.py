# SPDX-License-Identifier: Apache-2.0
"""Registers a memory hook with CuPy's pools, inside the recorded program.

cupy_hooks.cc puts this into the process as text and calls install() with the GIL, and register_thread() in threads.
Its globals are `modules` (sys.modules), `note_alloc` and `note_free`, which CuPy calls as methods of the hook,
`watch_allocator`, `import_notice`, and `ask`, which has install() called again.
"""

FAILED, LATER, DONE = -1, 0, 1
HERE = "<vramscope agent>"  # the name of this file

state = {"hook": None}


def install():
    return guarded(look)


def register_thread():
    return guarded(register)


def guarded(function):
    try:
        return function()
    except Exception as error:
        # A signal handler of the program's can run, and raise, between any two of our lines.
        if not is_ours(error.__traceback__):
            raise
        return FAILED


def is_ours(traceback):
    home = (getattr(modules.get("cupy"), "__path__", None) or ["<none>"])[0]
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    file = traceback.tb_frame.f_code.co_filename
    return file == HERE or file.startswith(home) or file.endswith(".pyx")


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

    spec.__class__ = type("ModuleSpec", (plain,), {"__slots__": (), "__module__": plain.__module__, "__setattr__": import_notice(plain, ask)})
