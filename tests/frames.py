"""How deep the kernels lie below the public functions, in Python frames.

    python tests/frames.py

prints, for each entry, the frames from it to the first call of the kernel that does its work: the
E-step of EM for everything that fits, the backup of the lower bound for HSVI, the compiled loop for
L-UCRL. Comprehensions are not counted: they are frames only in some versions of Python.
"""

import inspect
import subprocess
import sys
from importlib import import_module

LIMITS = {"learn": 9, "solve": 7, "initialize": 7, "HSVI": 8, "LUCRL": 4}

_CALLS = {
    "learn": "lm.learn(model, episodes=40, rng=0, planner=lm.QMDP())",
    "solve": "lm.solve(logs, rng=0, bootstrap=2)",
    "initialize": "lm.initialize(None, logs, rng=0)",
    "HSVI": "lm.HSVI(gap=1e-4).plan(model)",
    "LUCRL": "lm.LUCRL().run(model, 5, rng=0)",
}
_KERNELS = {
    "learn": ("_kernels.mixture", "kernels"),
    "solve": ("_kernels.mixture", "kernels"),
    "initialize": ("_kernels.mixture", "kernels"),
    "HSVI": ("planning.hsvi.kernels", "work"),
    "LUCRL": ("online.kernels_lucrl", "play_lucrl"),
}


def frames_of_entries():
    """Names of the frames from each entry to the first call of its kernel, in a fresh process."""
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return {entry: frames for entry, _, *frames in lines}


class _Found(BaseException):
    """The frames that were asked for; nothing in the library catches it."""


def _watched(function, kernel):
    """`function`, whose first call below an entry with this kernel raises the frames above it."""

    def call(*arguments):
        frames = inspect.stack(0)[1:]
        names = [frame.function for frame in frames][::-1]
        if "_entry" in names:
            below = names.index("_entry") + 1
            if frames[-below].frame.f_locals["kernel"] == kernel:
                raise _Found([name for name in names[below:] if not name.startswith("<")])
        return function(*arguments)

    return call


def _watch(kernel):
    """Replace a kernel in its module; nothing else has imported it yet."""
    module, name = kernel
    kernels = import_module(f"latentmdp.{module}")
    plain = getattr(kernels, name)

    def factory(*arguments):
        return tuple(_watched(compiled, kernel) for compiled in plain(*arguments))

    setattr(kernels, name, factory if name == "kernels" else _watched(plain, kernel))


def _entry(call, kernel, names):
    exec(call, names)


def _measured():
    """(entry, its frames), for every entry."""
    for kernel in sorted(set(_KERNELS.values())):
        _watch(kernel)
    import latentmdp as lm

    model = lm.make("separated", contexts=2, states=3, horizon=6, delta=1.0, rng=0)
    logs = lm.simulate(model, lm.UniformPolicy(), 60, rng=0).without_contexts()
    for entry in sorted(LIMITS):
        try:
            _entry(_CALLS[entry], _KERNELS[entry], {"lm": lm, "model": model, "logs": logs})
        except _Found as found:
            yield entry, found.args[0]
        else:
            raise AssertionError(f"{entry} never called its kernel")


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    for entry, frames in _measured():
        print(f"{entry:12} {len(frames)}", *frames)
