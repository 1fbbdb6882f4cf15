"""Helpers without mathematics, listed for the other parts of the library."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp._util import arrays, names, storage, validation
    from latentmdp._util.arrays import (
        ROW_TOLERANCE,
        Arrays,
        Flags,
        Floats,
        Indices,
        Integers,
        first_index,
        frozen,
        normalised,
        positive_integer,
        read_only,
        same_content,
        segments,
    )
    from latentmdp._util.checkpoint import (
        CheckpointError,
        packed,
        read_checkpoint,
        unpacked,
        whole,
        write_checkpoint,
    )
    from latentmdp._util.clock import compile_announcement, compile_seconds
    from latentmdp._util.cycles import (
        EndComponents,
        components,
        distances,
        end_components,
        reaching,
    )
    from latentmdp._util.duration import Duration
    from latentmdp._util.fields import Fielded, float_field, integer_field
    from latentmdp._util.figures import (
        COLOURS,
        INK,
        MUTED,
        STYLE,
        band,
        canvas,
        legend,
        own_axes,
        write_figure,
    )
    from latentmdp._util.lazy import lazy_names
    from latentmdp._util.memory import (
        ALWAYS_FITS,
        few_entries,
        free_memory,
        give_memory_back,
        memory_text,
        require_memory,
    )
    from latentmdp._util.progress import Move, progress_bar
    from latentmdp._util.random import RNGLike, as_generator, drawn, given_seed, philox_key
    from latentmdp._util.registration import register_environment, register_saver, saver
    from latentmdp._util.results import (
        Factual,
        Result,
        Worded,
        cell,
        extent,
        in_words,
        labelled,
        plain,
    )
    from latentmdp._util.spaces import FiniteSpace, element_of, known_as
    from latentmdp._util.storage import (
        FORMAT,
        LockedError,
        PathLike,
        atomic_write,
        file_header,
        one_writer,
        require_writable,
        rows_on_disk,
        write_table,
    )
    from latentmdp._util.validation import require_choice, shaped
    from latentmdp._util.words import did_you_mean, listed, markdown_table, plural
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
