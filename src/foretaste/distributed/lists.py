"""Lists written by several ranks: a part file of each, in one directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from foretaste._util.system import flush
from foretaste.distributed.collectives import Ranks
from foretaste.distributed.launch import joined
from foretaste.errors import SettingError
from foretaste.recommend.export import Output, Writing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@contextmanager
def writing_of_ranks() -> Iterator[Writing]:
    """Join the ranks that were started, if any, and yield how they write lists."""
    with joined() as ranks:
        yield SharedWriting(ranks) if ranks.size > 1 else Writing()


def check_is_directory(output: Output, num_ranks: int) -> None:
    """SettingError where so many ranks would write one file."""
    if num_ranks > 1 and not output.is_directory:
        raise SettingError(
            f"output {output.path} is one file, and {num_ranks} ranks write one each; name a "
            f"directory for them, with / at its end: {output.path}/"
        )


class SharedWriting(Writing):
    """Ranks take contiguous parts of the batches that a single process makes.

    So scores are the same to the last bit.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self.num_processes = ranks.size

    def check(self, output: Output) -> None:
        check_is_directory(output, self._ranks.size)

    def own(self, batches: Sequence[slice]) -> list[slice]:
        return [batches[number] for number in self._ranks.part_of(len(batches))]

    @contextmanager
    def part_file(self, output: Output) -> Iterator[Path]:
        ranks = self._ranks
        with ExitStack() as stack:
            # The first rank makes the directory, and puts it in its place once all have written.
            made = output.new_directory()
            directory = Path(ranks.on_first(lambda: str(stack.enter_context(made))))
            file = directory / output.part_name(ranks.rank, ranks.size)
            yield file
            # On the disk before the directory takes its name.
            flush(file)
            ranks.barrier()  # all are written
            ranks.on_first(stack.close)

    def total(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        total = torch.from_numpy(counts.copy())
        self._ranks.sum_(total)
        return total.numpy()
