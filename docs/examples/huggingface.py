"""A sweep over a tiny Hugging Face model: GPT-2's architecture on the bytes of Python's own sources, trained by ``Trainer``.

``hpo sweep huggingface.yaml`` runs it. What makes ``Trainer`` a training function of a sweep is the callback: it reports every
step, saves what ``Trainer`` itself saves whenever a checkpoint is due, and ends the training when the session says so.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments


def train(settings, session):
    """Train one model; ``settings`` are the target's, with a size's and the searched values laid over them."""
    torch.manual_seed(settings["seed"])
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256,
            n_positions=settings["seq_len"],
            n_embd=settings["width"],
            n_layer=1,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            max_steps=settings["n_steps"],
            per_device_train_batch_size=settings["batch_sequences"],
            learning_rate=settings["lr"],
            weight_decay=0.0,
            lr_scheduler_type="linear",
            warmup_steps=settings["n_steps"] // 10,
            logging_steps=1,  # a report every step
            save_strategy="no",  # the session decides
            data_seed=0,  # the same data in the same order for every trial
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        trainer = Trainer(model, arguments, train_dataset=Text(settings["seq_len"]), callbacks=[Reports(session)])
        trainer.remove_callback(PrinterCallback)
        folder = session.restore()  # a checkpoint of Trainer's, or None
        trainer.train(resume_from_checkpoint=None if folder is None else str(folder))


class Text(torch.utils.data.Dataset):
    """The bytes of a few modules of Python, in sequences."""

    def __init__(self, seq_len):
        text = b"".join((Path(argparse.__file__).parent / name).read_bytes() for name in ("argparse.py", "ast.py", "typing.py"))
        self.sequences = torch.frombuffer(bytearray(text), dtype=torch.uint8)[: len(text) // seq_len * seq_len].view(
            -1, seq_len
        )

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, i):
        ids = self.sequences[i].long()
        return {"input_ids": ids, "labels": ids}


class Reports(TrainerCallback):
    """Passes what ``Trainer`` logs to the session, and the session's wishes to ``Trainer``."""

    def __init__(self, session):
        self.session = session

    def on_log(self, _args, state, control, *, logs, model, optimizer, lr_scheduler, **_):
        """One step was logged."""
        if "loss" not in logs:
            return  # the summary at the end

        def save(folder):
            model.save_pretrained(folder)
            torch.save(optimizer.state_dict(), folder / "optimizer.pt")
            torch.save(lr_scheduler.state_dict(), folder / "scheduler.pt")
            state.save_to_json(str(folder / "trainer_state.json"))

        self.session.report(step=state.global_step, loss=logs["loss"])
        self.session.checkpoint(save)  # saves only when due
        control.should_training_stop = control.should_training_stop or self.session.should_stop()
