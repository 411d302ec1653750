"""The official step as a contender: one process with transformers and peft, rollouts a micro-batch at a time, padded views.

    official_step.py MODEL ADAPTER CONFIG.json

CONFIG.json has the settings of the run that it is compared with, and "steps": for each step its rows {"problem", "reference",
"rollout_ids"} in order. Every step samples its own rollouts, as the official script does, and its time includes them; then it trains on the
recorded rollouts, so that its losses can be compared with the recorded run's.
"""

import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracle"))
import torch  # noqa: E402
import transformers  # noqa: E402
from peft import PeftModel  # noqa: E402
from reference_objective import DAPD_TERMS, INSTRUCTION, Views  # noqa: E402

from duel import serve  # noqa: E402

STUDENTS = {"rollout": ["none_rollout", "self_rollout"], "reference": ["none_reference", "self_reference"]}
BASE_TEACHERS = {"rollout": ["none_rollout", "cross_rollout"], "reference": ["none_reference", "cross_reference"]}
SNAPSHOT_TEACHERS = {"rollout": ["cross_rollout"], "reference": ["cross_reference"]}


class OfficialTrainer:
    def __init__(self, model, adapter, settings):
        self.settings = settings
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(model, padding_side="left")
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self.model = PeftModel.from_pretrained(base, adapter, is_trainable=True)
        self.model.load_adapter(adapter, adapter_name="snapshot", is_trainable=False)
        self.model.set_adapter("default")
        self.model.eval()
        generation = json.loads((pathlib.Path(model) / "generation_config.json").read_text())
        self.pad = generation["pad_token_id"]
        self.views = Views(self.tokenizer, max_reference_tokens=settings["max_reference_tokens"], max_new_tokens=settings["max_new_tokens"])
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = self.make_optimizer()
        self.done = 0

    def make_optimizer(self):
        return torch.optim.AdamW(self.parameters, lr=self.settings["learning_rate"], weight_decay=0.0)

    def generate(self, problems):
        texts = [self.views.prompt(f"Problem: {problem}\n\n{INSTRUCTION}", False) for problem in problems]
        batch = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(self.model.device)
        with torch.no_grad():
            out = self.model.generate(**batch, do_sample=True, temperature=self.settings["temperature"], top_p=self.settings["top_p"],
                                      top_k=self.settings["top_k"], max_new_tokens=self.settings["max_new_tokens"], pad_token_id=self.pad)
        return out.shape[0] * (out.shape[1] - batch["input_ids"].shape[1])

    def logits(self, views):
        """Returns the logits of a padded batch of views, each [scored tokens, V]."""
        width = max(len(ids) for ids, _, _ in views)
        ids = torch.full((len(views), width), self.pad)
        mask = torch.zeros((len(views), width), dtype=torch.long)
        for row, (tokens, _, _) in enumerate(views):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        # The head runs over the union of the group's scored positions.
        first = min(start - 1 for _, start, _ in views)
        device = self.model.device
        out = self.model(input_ids=ids.to(device), attention_mask=mask.to(device), logits_to_keep=width - first, use_cache=False).logits
        return [out[row, start - 1 - first : start - 1 - first + count].float() for row, (_, start, count) in enumerate(views)]

    def teacher_logits(self, groups):
        logits = {}
        with torch.no_grad():
            for names in BASE_TEACHERS.values():
                with self.model.disable_adapter():
                    batch = [views[name] for name in names for views in groups]
                    for i, found in enumerate(self.logits(batch)):
                        logits["base", names[i // len(groups)], i % len(groups)] = found
            self.model.set_adapter("snapshot")
            for names in SNAPSHOT_TEACHERS.values():
                for i, found in enumerate(self.logits([views[names[0]] for views in groups])):
                    logits["snapshot", names[0], i] = found
            self.model.set_adapter("default")
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_("lora_" in name and ".default." in name)
        return logits

    def micro_loss(self, groups):
        teachers = self.teacher_logits(groups)
        students = {}
        for names in STUDENTS.values():
            batch = [views[name] for name in names for views in groups]
            for i, found in enumerate(self.logits(batch)):
                students[names[i // len(groups)], i % len(groups)] = found
        temperature, loss = self.settings["objective_temperature"], 0.0
        for _, student, teacher, weights, weight in DAPD_TERMS:
            value, tokens = 0.0, 0
            for i in range(len(groups)):
                log_p = torch.log_softmax(students[student, i] / temperature, -1)
                log_q = torch.log_softmax(teachers[weights, teacher, i] / temperature, -1)
                value = value + (log_q.exp() * (log_q - log_p)).clamp(max=self.settings["clip"]).sum()
                tokens += len(log_p)
            loss = loss + weight * value / tokens
        return loss

    def step(self, rows):
        size = self.settings["micro_batch_size"]
        total, generated = 0.0, 0
        micro_batches = [rows[i : i + size] for i in range(0, len(rows), size)]
        for group in micro_batches:
            generated += self.generate([row["problem"] for row in group])
            views = [self.views.build(row["problem"], row["reference"], row["rollout_ids"]) for row in group]
            loss = self.micro_loss(views) / len(micro_batches)
            loss.backward()
            total += float(loss.detach())
        self.update()
        self.done += 1
        if self.done % self.settings["snapshot_interval"] == 0:
            live = {n.replace(".default.", ".snapshot."): p for n, p in self.model.named_parameters() if ".default." in n}
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    if ".snapshot." in name:
                        parameter.copy_(live[name])
        return total, generated

    def update(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings["max_grad_norm"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings["learning_rate"] * (1 - self.done / self.settings["schedule_steps"])
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    model, adapter, path = sys.argv[1:]
    settings = json.loads(pathlib.Path(path).read_text())
    serve({}, lambda _: train(model, adapter, settings))


def train(model, adapter, settings):
    """Trains one whole run from the start; returns its time without loading."""
    trainer = OfficialTrainer(model, adapter, settings)
    losses, tokens = [], 0
    start = time.perf_counter()
    for rows in settings["steps"]:
        loss, generated = trainer.step(rows)
        losses.append(loss)
        tokens += generated
    return {"seconds": time.perf_counter() - start, "losses": losses, "generated_tokens": tokens}


if __name__ == "__main__":
    main()
