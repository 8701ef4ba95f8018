"""Flags of other tools and their names in tsm, which make better suggestions than similar spellings."""

from __future__ import annotations

from collections.abc import Iterable

from ..registry import close_to

SYNONYMS = {
    "--batch": "--batch-size",
    "--bs": "--batch-size",
    "--per-device-train-batch-size": "--batch-size",
    "--bfloat16": "--bf16",
    "--amp": "--bf16",
    "--checkpoint": "--path",
    "--checkpoint-dir": "--save-dir",
    "--ckpt": "--path",
    "--clip-grad": "--clip-norm",
    "--gradient-clip-val": "--clip-norm",
    "--max-grad-norm": "--clip-norm",
    "--cuda": "--device cuda",
    "--gpu": "--device cuda",
    "--gpus": "--device cuda",
    "--dropout-rate": "--dropout",
    "--embed-dim": "--decoder-embed-dim",
    "--embedding-dim": "--decoder-embed-dim",
    "--embedding-size": "--decoder-embed-dim",
    "--epochs": "--max-epoch",
    "--max-epochs": "--max-epoch",
    "--num-epochs": "--max-epoch",
    "--num-train-epochs": "--max-epoch",
    "--eval-split": "--gen-subset",
    "--split": "--gen-subset",
    "--gradient-accumulation-steps": "--update-freq",
    "--accumulate-grad-batches": "--update-freq",
    "--hidden": "--decoder-hidden-size",
    "--hidden-dim": "--decoder-hidden-size",
    "--hidden-size": "--decoder-hidden-size",
    "--units": "--decoder-hidden-size",
    "--layers": "--decoder-layers",
    "--n-layers": "--decoder-layers",
    "--num-layers": "--decoder-layers",
    "--learning-rate": "--lr",
    "--log-dir": "--tensorboard-logdir",
    "--logdir": "--tensorboard-logdir",
    "--log-every": "--log-interval",
    "--logging-steps": "--log-interval",
    "--max-steps": "--max-update",
    "--steps": "--max-update",
    "--iterations": "--max-update",
    "--max-len": "--max-length",
    "--model": "--arch",
    "--model-path": "--path",
    "--optim": "--optimizer",
    "--opt": "--optimizer",
    "--outdir": "--save-dir",
    "--out": "--output",
    "--output-dir": "--save-dir",
    "--early-stopping-patience": "--patience",
    "--random-seed": "--seed",
    "--resume": "--restore-file",
    "--resume-from-checkpoint": "--restore-file",
    "--load": "--restore-file",
    "--scheduler": "--lr-scheduler",
    "--schedule": "--lr-scheduler",
    "--seq-len": "--tokens-per-sample",
    "--seq-length": "--tokens-per-sample",
    "--block-size": "--tokens-per-sample",
    "--tie-weights": "--share-decoder-input-output-embed",
    "--tied": "--share-decoder-input-output-embed",
    "--warmup": "--warmup-updates",
    "--warmup-steps": "--warmup-updates",
    "--wd": "--weight-decay",
    "--l2": "--weight-decay",
}


# Flags of fairseq that tsm-train does not have, or has only for some tasks, with the reason.
REASONS = {
    "--fp16": "float16 would need loss scaling; --bf16 is as fast without it",
    "--max-tokens": "it is for --task classification, series and series_steps, whose rows differ in length; "
    "elsewhere an update has --batch-size x --tokens-per-sample (or the task's length) steps",
}


def unknown_flag(flag: str, known: Iterable[str], prog: str) -> str:
    """The message for an unknown flag: suggests a flag with the same meaning, or else similar spellings. prog:
    what lists all flags with --help."""
    known = list(known)
    meant = SYNONYMS.get(flag.replace("_", "-"), "")
    close = [meant] if meant.partition(" ")[0] in known else close_to(flag, known)
    question = f"did you mean {' or '.join(close)}? " if close else ""
    return f"unknown flag {flag!r}; {question}{prog} --help lists all"
