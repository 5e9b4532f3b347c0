"""The training run, top to bottom: join the others, agree with them, take up where the last one stopped, loop.

Step n takes row n of the data, whatever became of the steps before it: skipped steps and rewinds never shift the
data. Everything is under `run.out`:

    config.json   checkpoints/step-...   health.jsonl   faults.jsonl   faults/step-...   states/
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer import checkpoint as checkpoints
from trainer import preflight
from trainer.checkpoint import Checkpoint, Saver
from trainer.config import TrainConfig, from_tree, model_config, optimizer_config, stream_config, validation_config
from trainer.errors import TrainError, TrainUsageError
from trainer.faults import Guard
from trainer.health import Monitor
from trainer.loss import bits_per_byte, perplexity
from trainer.out_of_memory import Use, remember
from trainer.parallel import refuse
from trainer.ranks import Ranks, start
from trainer.step import StepResult, Trainee, build_trainee, evaluate, split, train_step
from trainer.stream import Batch, Loader, merge
from trainer.stream.batch import MASKED
from trainer.stream.lineage import columns

#: the longest that a step may go beyond the time-out of its collectives before the process ends itself
GRACE = 30.0
#: failing steps whose weights are kept for `replay`
FAULTS_KEPT = 2


@dataclass(frozen=True)
class Outcome:
    steps: int
    tokens: int
    first_loss: float | None
    last_loss: float | None
    skipped: int
    rewinds: int


@dataclass
class Session:
    """What a rank holds of a run. `replay` builds one too."""

    config: TrainConfig
    ranks: Ranks
    loader: Loader
    trainee: Trainee
    guard: Guard
    parameters: int

    @property
    def out(self) -> Path:
        return Path(self.config.run.out)


def device_of(config: TrainConfig) -> str:
    return config.run.device or ("cuda" if torch.cuda.is_available() else "cpu")


def data_rank(config: TrainConfig, rank: int) -> int:
    """Ranks are numbered (pp, replicate, shard, tp), the last fastest; those of one pipeline and tensor group read
    the same data."""
    return rank // config.parallel.tp % config.parallel.dp


def check_mesh(config: TrainConfig, world: int) -> None:
    """Raises TrainUsageError for a configuration that so many processes cannot run."""
    stream_config(config)
    refuse(
        config.parallel,
        model_config(config, config.model.vocab_size or 1),
        world=world,
        batch_size=config.data.batch_size,
        seq_len=config.data.seq_len,
        accumulation=config.data.accumulation,
        mode=config.data.mode,
    )


def build(config: TrainConfig, ranks: Ranks, *, log: bool = True) -> Session:
    """Everything up to the first step; the weights are the initial ones. Raises TrainUsageError for what cannot be.

    `log`: whether the data states that `gristmill batch` starts from are written.
    """
    if device_of(config) == "cuda" and not torch.cuda.is_available():
        raise TrainUsageError("run.device cuda: torch finds no GPU here; take --set run.device=cpu")
    check_mesh(config, ranks.world)
    data = config.data
    stream = stream_config(config) if log else dataclasses.replace(stream_config(config), log_dir=None)
    loader = Loader(stream, data_rank(config, ranks.rank), config.parallel.dp)
    preflight.check(preflight.digest(config, loader), ranks)
    rows = data.batch_size // config.parallel.dp // data.accumulation
    trainee = build_trainee(
        model_config(config, loader.encoder.vocabulary),
        config.parallel,
        optimizer_config(config),
        rows=rows,
        seq_len=data.seq_len,
        seed=config.run.seed,
        device=device_of(config),
        timeout=config.run.timeout,
    )
    parameters = parameter_count(trainee, ranks)
    remember(Use(trainee.model, config.parallel, rows, data.seq_len, data.accumulation, parameters))
    checkpoints.settle(trainee)
    return Session(config, ranks, loader, trainee, Guard(config.faults), parameters)


def train(config: TrainConfig, *, reset_data: bool = False) -> Outcome:
    """Trains, or goes on; on every rank the same call. Raises TrainError or the loader's StreamError."""
    torch.set_float32_matmul_precision("high")
    ranks = start(device_of(config), config.run.timeout)
    watch(10 * config.run.timeout)
    session = build(config, ranks)
    trainee, out = session.trainee, session.out
    monitor = Monitor(config.health, out, ranks, trainee.device, trainee.model, config.data.seq_len)
    try:
        resume(session, monitor, reset_data)
        return loop(session, monitor)
    finally:
        faulthandler.cancel_dump_traceback_later()
        monitor.close()


def watch(seconds: float) -> None:
    """Ends this process, with the place where each thread stands, unless called again in time: a collective that
    hangs has its own time-out, a file system or a kernel that hangs has none."""
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True)


# -------------------------------------------------------------------------------------------------------------- resume


def resume(session: Session, monitor: Monitor, reset_data: bool) -> None:
    """From the newest complete checkpoint, if there is one; says which it passed over."""
    config, ranks, trainee = session.config, session.ranks, session.trainee
    newest = newest_checkpoint(session, monitor)
    mesh = f"{ranks.world} process{'es' if ranks.world > 1 else ''} on {trainee.device.type}"
    monitor.say(f"{config.model.size}: {session.parameters:,} parameters, {mesh}, {config.run.steps:,} steps")
    if newest is None:
        if ranks.first:
            _write_config(session)
        return
    changed = changes(session.out, config)
    state = checkpoints.load(newest, trainee, ranks)
    session.guard.restore(state["faults"])
    monitor.smooth.__dict__.update(state["smooth"])
    monitor.first_loss, monitor.last_loss = state["first_loss"], state["last_loss"]
    if reset_data:
        monitor.say("data: from the start again (--reset-data)")
    else:
        session.loader.load_state_dict(state["data"])
    if ranks.first:
        _write_config(session)
    monitor.event("resume", trainee.step, checkpoint=newest.folder.name, changed=changed)
    monitor.say(f"goes on from {newest.folder}, {trainee.tokens_seen:,} tokens seen")
    if changed:
        monitor.say(f"changed since: {', '.join(changed)}")


def newest_checkpoint(session: Session, monitor: Monitor) -> Checkpoint | None:
    """As the first rank sees the folder: all take the same one."""
    good: list[Checkpoint] = []
    odd: list[str] = []
    if session.ranks.first:
        good, odd = checkpoints.find(session.out / "checkpoints")
    good, odd = session.ranks.from_first((good[:1], odd))
    if odd:
        monitor.say(f"passed over {', '.join(odd)}: not complete")
        monitor.event("passed_over", session.trainee.step, checkpoints=odd)
    return good[0] if good else None


def changes(out: Path, config: TrainConfig) -> list[str]:
    """`section.key old -> new` of what a resumed run sets otherwise than before; a changed model is refused."""
    try:
        before = json.loads((out / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return []
    now = config.as_json()
    found = []
    for section, values in now.items():
        for key, value in values.items():
            old = before.get(section, {}).get(key)
            if old == value:
                continue
            if section == "model":
                raise TrainUsageError(f"{out} is a run of model.{key} {old}, not {value}: give another --out")
            if (section, key) != ("run", "out"):
                found.append(f"{section}.{key} {old} -> {value}")
    return found


def _write_config(session: Session) -> None:
    session.out.mkdir(parents=True, exist_ok=True)
    (session.out / "config.json").write_text(json.dumps(session.config.as_json(), indent=2), "utf-8")


def read_config(run: Path) -> TrainConfig:
    try:
        return from_tree(json.loads((run / "config.json").read_text("utf-8")))
    except FileNotFoundError:
        raise TrainUsageError(f"{run}: no training run here (no config.json)") from None


def parameter_count(trainee: Trainee, ranks: Ranks) -> int:
    own = {name: parameter.numel() for name, parameter in trainee.named_parameters()}
    everything: dict[str, int] = {}
    for of_rank in ranks.gather(own):
        everything |= of_rank
    return sum(everything.values())


# ---------------------------------------------------------------------------------------------------------------- loop


def loop(session: Session, monitor: Monitor) -> Outcome:
    config, ranks, trainee, guard = session.config, session.ranks, session.trainee, session.guard
    saver = Saver(session.out / "checkpoints", config.checkpoints.keep, ranks)
    fault_saver = Saver(session.out / "faults", FAULTS_KEPT, ranks)
    steps = iter(session.loader)
    ended = False
    saved = trainee.step
    while trainee.step < config.run.steps:
        step = trainee.step
        checkpoints.seed_step(config.run.seed, step)
        before = session.loader.state_dict()
        began = time.monotonic()
        micro_batches = next_step(session, steps)
        waited = time.monotonic() - began
        if micro_batches is None:
            ended = True
            break
        result = train_step(trainee, micro_batches, guard.accept)
        seconds = time.monotonic() - began - waited
        if not result.valid_tokens and config.data.epochs is not None:
            ended = True
            break
        fault = guard.judge(step, result)
        monitor.step(step, result, waited, seconds, fault)
        if fault is not None:
            report_fault(session, monitor, step, fault, result, micro_batches)
            write_state(fault_saver, session, monitor, step=step, data=before)
            if (bad := guard.trouble(step)) is not None:
                saver.wait()
                rewind(session, monitor, bad, fault)
                write_state(saver, session, monitor, wait=True)
                saved = trainee.step
        if trainee.step % config.checkpoints.every == 0 and saved != trainee.step:
            write_state(saver, session, monitor)
            saved = trainee.step
        if config.validation.dir and trainee.step % config.validation.every == 0:
            validate(session, monitor)
        watch(config.run.timeout)
    fault_saver.wait()
    if problem := saver.wait():
        monitor.say(problem)
    if saved != trainee.step:
        write_state(saver, session, monitor, wait=True)
    if config.validation.dir and (ended or trainee.step % config.validation.every):
        validate(session, monitor)
    monitor.event("end", trainee.step, tokens=trainee.tokens_seen)
    outcome = Outcome(
        trainee.step,
        trainee.tokens_seen,
        monitor.first_loss,
        monitor.last_loss,
        len(guard.skipped),
        len(guard.rewinds),
    )
    monitor.say(as_text(outcome, session, ended))
    return outcome


def next_step(session: Session, steps: Iterator[Any]) -> list[Batch] | None:
    """This rank's micro-batches of the next step; None at the end of the data."""
    made = next(steps, None)
    if made is None:
        return None
    return made if isinstance(made, list) else split(made, session.config.data.accumulation)


def write_state(
    saver: Saver,
    session: Session,
    monitor: Monitor,
    *,
    step: int | None = None,
    data: dict[str, Any] | None = None,
    wait: bool = False,
) -> None:
    """Starts a checkpoint. One that fails is said and the run goes on with those before it, unless it `wait`s."""
    step = session.trainee.step if step is None else step
    merged = merge(session.ranks.gather(data or session.loader.state_dict()))
    state = checkpoints.state_of(
        session.trainee,
        data=merged,
        faults=session.guard.as_json(),
        smooth=dict(monitor.smooth.__dict__),
        first_loss=monitor.first_loss,
        last_loss=monitor.last_loss,
        config=session.config.as_json(),
    )
    problem = saver.save(session.trainee, state | {"step": step}, step)
    if problem:
        monitor.say(problem)
        monitor.event("save_failed", step, problem=problem)
    if wait and (problem := saver.wait()):
        raise TrainError(problem)


def as_text(outcome: Outcome, session: Session, ended: bool) -> str:
    losses = "" if outcome.first_loss is None else f", loss {outcome.first_loss:.4f} -> {outcome.last_loss:.4f}"
    text = f"done: {outcome.steps:,} steps{losses}, {outcome.tokens:,} tokens, {session.out}/checkpoints"
    if ended:
        text += "; the data ended"
    if outcome.skipped:
        text += f"; {outcome.skipped} steps skipped, {outcome.rewinds} rewinds, see {session.out}/faults.jsonl"
    return text


# -------------------------------------------------------------------------------------------------------------- faults


def report_fault(
    session: Session, monitor: Monitor, step: int, reason: str, result: StepResult, micro_batches: list[Batch]
) -> None:
    """Says what was skipped, and writes down the addresses of everything that was in it, of all ranks."""
    spans = {(span.source, span.position) for batch in micro_batches for row in batch.span for span in row}
    stored: list[dict[str, Any]] = []
    with suppress(Exception):  # a file that cannot be read now must not turn a skipped step into the end
        stored = list(columns(session.loader, spans, ("record_id", "url")).values())
    known = {row["record_id"]: row["url"] for part in session.ranks.gather(stored) for row in part}
    documents = [{"record_id": record, "url": url} for record, url in sorted(known.items())]
    entry = {
        "step": step,
        "reason": reason,
        "loss": str(result.loss),
        "gradient_norm": str(result.gradient_norm),
        "documents": documents,
    }
    monitor.event("skip", step, reason=reason, documents=len(documents))
    monitor.say(f"step {step} skipped: {reason}; {len(documents)} documents, see {session.out}/faults.jsonl")
    if session.ranks.first:
        with open(session.out / "faults.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def rewind(session: Session, monitor: Monitor, bad: list[int], reason: str) -> None:
    """Weights, optimiser and schedule of the last checkpoint before the trouble; the data go on from here."""
    config, ranks, trainee, guard = session.config, session.ranks, session.trainee, session.guard
    at = trainee.step
    told = f"{len(bad)} bad steps within {config.faults.window} (the last: {reason})"
    if len(guard.rewinds) >= config.faults.rewinds:
        raise TrainError(
            f"step {at - 1}: {told}, after {len(guard.rewinds)} rewinds: given up; see {session.out}/faults.jsonl, "
            f"gristmill replay {session.out} --step {bad[-1]}, and try a lower optimizer.learning_rate or model.qk_norm"
        )
    good: list[Checkpoint] = []
    if ranks.first:
        good = [c for c in checkpoints.find(session.out / "checkpoints")[0] if c.step <= bad[0]]
    good = ranks.from_first(good[:1])
    if not good:
        raise TrainError(
            f"step {at - 1}: {told} and no checkpoint from before step {bad[0]} to go back to; see "
            f"{session.out}/faults.jsonl and try a lower optimizer.learning_rate or a longer warmup"
        )
    state = checkpoints.load(good[0], trainee, ranks)
    guard.restore(state["faults"], history_only=True)
    monitor.smooth.__dict__.update(state["smooth"])
    trainee.step = at
    guard.rewinds.append({"at": at, "to": good[0].step, "reason": told})
    monitor.event("rewind", at, to=good[0].step, reason=told)
    monitor.say(f"rewound to the weights of step {good[0].step}: {told}; the data go on at step {at}")


# ---------------------------------------------------------------------------------------------------------- validation


def validate(session: Session, monitor: Monitor) -> None:
    """Loss over the same batches each time: sums over all ranks, divided once."""
    config, trainee = session.config, session.trainee
    loader = Loader(validation_config(config), session.loader.rank, session.loader.world)
    batches: list[Batch] = []
    size = 0
    for number, made in enumerate(loader):
        if number == config.validation.batches:
            break
        for batch in made if isinstance(made, list) else split(made, config.data.accumulation):
            batches.append(batch)
            size += target_bytes(loader, batch)
    loss_sum, valid = evaluate(trainee, batches)
    bytes_of = {session.loader.rank: size}
    for of_rank in session.ranks.gather(bytes_of):
        bytes_of |= of_rank
    total = sum(bytes_of.values())
    figures: dict[str, Any] = {"loss": loss_sum / max(1, valid), "perplexity": perplexity(loss_sum, valid)}
    if total:
        figures["bits_per_byte"] = bits_per_byte(loss_sum, total)
    monitor.event("validation", trainee.step, tokens=valid, **figures)
    told = ", ".join(f"{name.replace('_', '-')} {value:.4f}" for name, value in figures.items())
    monitor.say(f"step {trainee.step} validation: {told} over {valid:,} tokens")


def target_bytes(loader: Loader, batch: Batch) -> int:
    """UTF-8 bytes of the text that the valid targets are; 0 where the ids cannot be turned into text."""
    total = 0
    for row in batch.targets:
        ids = row[(row != MASKED) & (row != loader.encoder.eos_id)]
        if loader.encoder.column == "text" and not loader.encoder.heavy:
            total += len(ids)  # a byte each; decoded, the cut ends of characters would count three
            continue
        text = loader.encoder.decode(ids.tolist())
        if text is None:
            return 0
        total += len(text.encode())
    return total
