"""Notice of compilation: numba compiles a loop when it is first used, and keeps it on disk."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["on_first_compilation"]


@contextmanager
def on_first_compilation(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` once if anything is compiled within; what is read from disk does not count."""
    from numba.core import event

    class Once(event.Listener):
        said = False

        def on_start(self, event: Any) -> None:
            if not self.said:
                self.said = True
                say()

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Once()):
        yield
