"""The loader: shards of text to packed batches, the same on any number of ranks, resumable after any step.

A run has L lanes. Each owns its documents, their order and its packer, and gives B / L rows to every step; data rank r
of D carries lanes r, r + D, ... So what a step holds does not depend on D, and a state is the lanes' cursors alone.
"""

from __future__ import annotations

import dataclasses
import os
import queue
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from trainer.stream import config as configuration
from trainer.stream import state as states
from trainer.stream.batch import Batch, Utilisation, assemble
from trainer.stream.config import StreamConfig
from trainer.stream.documents import Fault, Feed
from trainer.stream.errors import StreamUsageError
from trainer.stream.manifest import Manifest, read_manifest
from trainer.stream.packing import Cursor, Lane, PackedRow, bucketed_rows, concatenated_row, packed_row
from trainer.stream.plan import deal
from trainer.stream.reader import Reader
from trainer.stream.statelog import StateLog
from trainer.stream.tokens import Encoder, length_encoder, open_encoder

if TYPE_CHECKING:
    from trainer.stream.lineage import Origin

#: A step: one batch, or with `bucketed` the batches of this rank's lanes, of different widths.
Step = Batch | list[Batch]


class Loader(IterableDataset[Step]):
    """Iterates over steps, from where its state stands.

    A run with `epochs` ends by itself where there is one rank; of several, each goes on with masked rows, and the run
    ends when the all-reduced count of valid targets is 0. Raises StreamUsageError for settings that do not fit.
    """

    def __init__(
        self, config: StreamConfig, rank: int = 0, world: int = 1, manifests: Sequence[Manifest] | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.manifests = list(manifests) if manifests else [read_manifest(source.uri) for source in config.sources]
        self._checked = configuration.check(config, self.manifests, rank, world)
        self.encoder = open_encoder(config.tokenizer, config.eos_id, self.manifests)
        self.fingerprint = configuration.fingerprint(config, self._checked, self.manifests, self.encoder)
        self.rank, self.world = rank, world
        self.lanes = list(range(rank, self._checked.lanes, world))
        self.weights = self._checked.weights
        self.deals = [
            deal(manifest, self._checked.lanes, config.seed, number, source.languages)
            for number, (source, manifest) in enumerate(zip(config.sources, self.manifests, strict=True))
        ]
        self.readers = [Reader(manifest) for manifest in self.manifests]
        self._pinned = torch.cuda.is_available() if config.pin_memory is None else config.pin_memory
        self._batch_size = config.batch_size
        self._changes = 0
        self._process = os.getpid()
        self._length: int | None = None
        self.utilisation = Utilisation()
        start = {lane: [Cursor() for _ in config.sources] for lane in self.lanes}
        self._state = states.make(self.fingerprint, 0, self._batch_size, start, [])
        self.log = StateLog(config, rank, world)

    # -- state

    def state_dict(self) -> states.State:
        """This rank's lanes after the last step that was handed out, whatever is prepared beyond it."""
        return self._state

    def load_state_dict(self, state: states.State) -> None:
        """Goes on from a merged state, or from one that holds this rank's lanes.

        Raises StreamUsageError for a state of other data, recipe, tokenizer, seed or lanes, or one that lacks lanes.
        """
        states.check_fingerprint(state, self.fingerprint)
        cursors = states.cursors(state, self.lanes)
        for lane, of_lane in cursors.items():
            for deal_of_source, cursor in zip(self.deals, of_lane, strict=True):
                if cursor.base >= max(1, rows := int(deal_of_source[lane].rows.sum())):
                    raise StreamUsageError(
                        f"the saved data state is damaged (lane {lane}: row {cursor.base:,} of {rows:,}); "
                        "take another checkpoint, or start the data anew (--reset-data)"
                    )
        self._state = states.make(self.fingerprint, state["step"], self._batch_size, cursors, state["quarantine"])
        self._changes += 1

    @property
    def batch_size(self) -> int:
        return self._batch_size

    @batch_size.setter
    def batch_size(self, rows: int) -> None:
        """From the next step on; a multiple of the lanes."""
        if type(rows) is not int or rows < 1:
            raise StreamUsageError(f"batch_size {rows!r}: a whole number, at least 1")
        configuration.check_layout(self._checked.lanes, rows, self.rank, self.world)
        self._batch_size = rows
        self._state = {**self._state, "batch_size": rows}
        self._changes += 1

    @property
    def quarantined(self) -> list[Fault]:
        return [tuple(fault) for fault in self._state["quarantine"]]

    def lineage(self, step: int) -> list[list[Origin]]:
        """Per row of this rank in a step, where its pieces are from. Recomputed from the nearest logged state."""
        from trainer.stream.lineage import replay

        return replay(self, step)

    # -- steps

    def __iter__(self) -> Iterator[Step]:
        worker = get_worker_info()
        if worker is not None or os.getpid() != self._process:
            raise StreamUsageError(
                "the loader reads by threads and refuses worker processes: num_workers=0, and no fork once it is made"
            )
        while True:
            changes = self._changes
            self.log.put(self._state)
            with closing(self._prefetched() if self.config.threads else self._steps(None)) as steps:
                for step in steps:
                    for batch in [step] if isinstance(step, Batch) else step:
                        self._state = batch.state
                        self.utilisation += batch.utilisation
                    self.log.every(self._state)
                    yield step
                    if self._changes != changes:
                        break
                else:
                    return

    def __len__(self) -> int:
        """Steps of the whole run, found by packing the stored lengths. TypeError where there are none, or no end.

        Reads one small column and packs it: the time of a run without its texts and tensors.
        """
        if self._length is None:
            encoder = length_encoder(self.manifests, self.encoder)
            if self.config.epochs is None or encoder is None:
                raise TypeError("the number of steps is known only with `epochs` and stored lengths of this tokenizer")
            self._length = sum(1 for _ in self.rows_of_all_lanes(encoder))
        return self._length

    def rows_of_all_lanes(self, encoder: Encoder | None = None) -> Iterator[list[list[PackedRow]]]:
        """Every step of a run from its start, as rows: per lane, and in the order of lanes. No tensors."""
        everything = range(self._checked.lanes)
        lanes = self._lanes({lane: [Cursor()] * len(self.manifests) for lane in everything}, {}, None, encoder)
        while True:
            rows = [self._rows(lane) for lane in lanes]
            if not any(row.pieces for of_lane in rows for row in of_lane):
                return
            yield rows

    def _lanes(
        self,
        cursors: dict[int, list[Cursor]],
        quarantine: dict[Fault, None],
        pool: ThreadPoolExecutor | None,
        encoder: Encoder | None = None,
    ) -> list[Lane]:
        config, checked = self.config, self._checked
        feeds = [
            Feed(
                source=number,
                reader=reader,
                encoder=encoder or self.encoder,
                lanes=self.deals[number],
                seed=config.seed,
                window=config.window,
                epochs=config.epochs,
                pool=pool,
                excluded_positions=np.array(sorted(checked.excluded_positions[number]), dtype=np.int64),
                excluded_ids=checked.excluded_ids,
                quarantine=quarantine,
            )
            for number, reader in enumerate(self.readers)
        ]
        by_documents = config.weights_by == "documents"
        sliding = config.mode != "bucketed"
        return [
            Lane(feeds, checked.weights, by_documents, lane, of_lane, config.seq_len, sliding)
            for lane, of_lane in cursors.items()
        ]

    def _rows(self, lane: Lane) -> list[PackedRow]:
        """What a lane gives to a step."""
        each = self._batch_size // self._checked.lanes
        if self.config.mode == "bucketed":
            return bucketed_rows(lane, each * self.config.seq_len, self.config.seed)
        make = packed_row if self.config.mode == "packed" else concatenated_row
        return [make(lane) for _ in range(each)]

    def _steps(self, pool: ThreadPoolExecutor | None) -> Generator[Step]:
        quarantine: dict[Fault, None] = dict.fromkeys(self.quarantined)
        lanes = self._lanes(states.cursors(self._state, self.lanes), quarantine, pool)
        step, batch_size, eos_id = self._state["step"], self._batch_size, self.encoder.eos_id
        while True:
            rows = [self._rows(lane) for lane in lanes]
            if self.world == 1 and not any(row.pieces for of_lane in rows for row in of_lane):
                return
            cursors = {lane.number: lane.cursors() for lane in lanes}
            state = states.make(self.fingerprint, step + 1, batch_size, cursors, list(quarantine))
            if self.config.mode == "bucketed":
                yield [assemble(of_lane, eos_id, state, step, self._pinned) for of_lane in rows]
            else:
                in_turn = [row for turn in zip(*rows, strict=True) for row in turn]
                yield assemble(in_turn, eos_id, state, step, self._pinned)
            step += 1

    def _prefetched(self) -> Generator[Step]:
        """The steps, made by threads `prefetch` ahead. Ends them when closed."""
        ready: queue.Queue[Step | BaseException | None] = queue.Queue(self.config.prefetch)
        stop = threading.Event()
        pool = ThreadPoolExecutor(self.config.threads, thread_name_prefix="gristmill-read")

        def put(item: Step | BaseException | None) -> None:
            while not stop.is_set():
                try:
                    return ready.put(item, timeout=0.1)
                except queue.Full:
                    continue

        def work() -> None:
            try:
                for step in self._steps(pool):
                    put(step)
                    if stop.is_set():
                        return
                put(None)
            except BaseException as error:  # whatever it is, the caller is to see it
                put(error)

        maker = threading.Thread(target=work, name="gristmill-pack", daemon=True)
        maker.start()
        try:
            while (item := ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            stop.set()
            with suppress(queue.Empty):  # room for the step that the maker may be waiting to put
                ready.get_nowait()
            pool.shutdown(wait=False, cancel_futures=True)
            maker.join()
            pool.shutdown(wait=True)

    def with_state(self, state: states.State, **changes: Any) -> Loader:
        """Another loader of the same rank and data that stands at `state`."""
        plain = dataclasses.replace(self.config, threads=0, log_dir=None, batch_size=state["batch_size"], **changes)
        other = Loader(plain, self.rank, self.world, self.manifests)
        other.load_state_dict(state)
        return other
