"""The objective transcribed in PyTorch with transformers and peft autograd, one view at a time, in whole tensors.

It is slow and obvious on purpose and shares no code with the product.
"""

import math

import torch
from peft import LoraConfig, PeftModel, get_peft_model

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


def privileged_message(problem, shown):
    return (
        f"Problem: {problem}\n\nHere is a reference solution to this problem:\n=== Reference Solution Begin ===\n{shown}\n"
        "=== Reference Solution End ===\n\n\nAfter reading the reference solution above, make sure you truly understand the "
        "reasoning behind each step \u2014 do not copy or paraphrase it. Now, using your own words and independent reasoning, "
        "derive the same final answer to the problem above. Think step by step, explore different approaches, and don't be "
        "afraid to backtrack or reconsider if something doesn't work out:\n\n" + INSTRUCTION
    )


# name, scored side's student view, teacher view, teacher weights, weight of the released 4B model
DAPD_TERMS = [
    ("entangled_rollout", "none_rollout", "cross_rollout", "snapshot", 2 / 15),
    ("inference_reference", "self_reference", "none_reference", "base", 2 / 15),
    ("privileged_rollout", "self_rollout", "cross_rollout", "base", 2 / 15),
    ("entangled_reference", "none_reference", "cross_reference", "snapshot", 2 / 5),
    ("inference_rollout", "self_rollout", "none_rollout", "base", 2 / 5),
    ("privileged_reference", "self_reference", "cross_reference", "base", 4 / 5),
]


EMPTY_THOUGHTS = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


class Views:
    """Returns the six views of a sample: (input_ids, scored_from, scored_count) by name."""

    thinking = False  # in the sampling prompt, and in None and Self
    privileged_thinking = True  # in prompts that show the other answer

    def __init__(self, tokenizer, *, self_rollout="append", max_reference_tokens=1024, max_prompt=20000, max_new_tokens=1024):
        self.tokenizer = tokenizer
        self.pad_id = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self.pad_is_end = self.pad_id == tokenizer.eos_token_id
        self.self_rollout = self_rollout
        self.max_reference_tokens = max_reference_tokens
        self.max_prompt = max_prompt
        self.max_sampler_prompt = max(1, max_prompt - max_new_tokens)

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def render(self, *turns, **options):
        messages = [{"role": role, "content": content} for role, content in turns]
        return self.tokenizer.apply_chat_template(messages, tokenize=False, **options)

    def prompt(self, message, thinking):
        return self.render(("user", message), add_generation_prompt=True, enable_thinking=thinking)

    def none_message(self, problem):
        return f"Problem: {problem}\n\n{INSTRUCTION}"

    def privileged_message(self, problem, shown):
        return privileged_message(problem, shown)

    def sampler_ids(self, problem):
        return self.ids(self.prompt(self.none_message(problem), self.thinking))[: self.max_sampler_prompt]

    def cut(self, ids):
        return ids[: self.max_prompt]

    def split(self, message, reference, thinking):
        """Splits a reference into its prompt and the completion that belongs to it, by the released rule."""
        full = self.render(("user", message), ("assistant", reference))
        if "enable_thinking" in self.tokenizer.chat_template and EMPTY_THOUGHTS in full:
            prompt = full[: full.rindex(EMPTY_THOUGHTS) + len(EMPTY_THOUGHTS)]
        else:
            prompt = self.prompt(message, thinking)
        prompt_ids, full_ids = self.ids(prompt), self.ids(full)
        if full_ids[: len(prompt_ids)] == prompt_ids:
            return prompt_ids, full_ids[len(prompt_ids) :]
        # The released code searches for the reference itself first, and cuts in the wrong place if its text is also in
        # the terminator.
        other = self.render(("user", message), ("assistant", "SENTINEL"))
        return prompt_ids, self.ids(reference + other.rpartition("SENTINEL")[2])

    def build(self, problem, reference, rollout):
        rollout, whole = list(rollout), len(rollout)
        while rollout and rollout[-1] == self.pad_id:
            rollout.pop()
        if self.pad_is_end and len(rollout) < whole:
            rollout.append(self.pad_id)
        text = self.tokenizer.decode(rollout, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        none_message = self.none_message(problem)
        none = self.sampler_ids(problem)
        cross_message = self.privileged_message(problem, reference)
        crossed_message = self.privileged_message(problem, text)
        none_prompt, scored = self.split(none_message, reference, self.thinking)
        self_prompt, _ = self.split(cross_message, reference, self.privileged_thinking)
        scored = scored[: self.max_reference_tokens]
        if self.self_rollout == "append":
            self_rollout = none + rollout
        else:
            self_rollout = self.cut(self.ids(self.prompt(crossed_message, self.thinking)))
        prefixes = {
            "none_rollout": (none, rollout),
            "self_rollout": (self_rollout, rollout),
            "cross_rollout": (self.cut(self.ids(self.prompt(cross_message, self.privileged_thinking))), rollout),
            "none_reference": (none_prompt, scored),
            "self_reference": (self_prompt, scored),
            "cross_reference": (self.ids(self.prompt(crossed_message, self.privileged_thinking)), scored),
        }
        return {name: (prefix + tail, len(prefix), len(tail)) for name, (prefix, tail) in prefixes.items()}


def scored_logits(model, view):
    ids, start, count = view
    return model(torch.tensor([ids])).logits[0, start - 1 : start + count - 1].float()


class Objective:
    """A PEFT model with its snapshot and moving average, AdamW, linear schedule and gradient clipping."""

    def __init__(self, base, rank, alpha, *, adapter=None, snapshot=None, temperature=1.1, terms=None, clip=0.05,
                 learning_rate=5e-6, schedule_steps=500, max_grad_norm=0.1, snapshot_interval=100, ema_rate=0.01,
                 ema_from_first_update=False):
        if adapter is None:
            targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
            config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, task_type="CAUSAL_LM")
            self.model = get_peft_model(base, config)
        else:
            self.model = PeftModel.from_pretrained(base, adapter, is_trainable=True)
        self.model.eval()
        self.parameters = {n.replace(".default", ""): p for n, p in self.model.named_parameters() if p.requires_grad}
        self.snapshot = self.read_tensors(snapshot) if snapshot else None
        # The average starts with the adapter before the first batch (in OPSD's code: after it) and includes all later
        # adapters.
        self.ema, self.ema_rate, self.ema_from_first_update = None, ema_rate, ema_from_first_update
        self.temperature, self.clip = temperature, clip
        self.terms = terms or [(*term, clip) for term in DAPD_TERMS]
        self.learning_rate, self.schedule_steps = learning_rate, schedule_steps
        self.max_grad_norm, self.snapshot_interval = max_grad_norm, snapshot_interval
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=learning_rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0
        )
        self.steps = 0

    @staticmethod
    def read_tensors(folder):
        from safetensors.torch import load_file

        return load_file(folder / "adapter_model.safetensors")

    def copy_parameters(self):
        return {name: p.detach().clone() for name, p in self.parameters.items()}

    def teacher_logits(self, weights, view):
        with torch.no_grad():
            if weights == "live":
                return scored_logits(self.model, view)
            if weights == "base" or (weights == "snapshot" and self.snapshot is None):
                with self.model.disable_adapter():
                    return scored_logits(self.model, view)
            live = self.copy_parameters()
            for name, p in self.parameters.items():
                p.data.copy_({"snapshot": self.snapshot, "ema": self.ema}[weights][name])
            logits = scored_logits(self.model, view)
            for name, p in self.parameters.items():
                p.data.copy_(live[name])
            return logits

    def accumulate(self, samples, micro_batch_size):
        """Computes the losses of one batch of views; leaves gradients in .grad."""
        if self.ema is None:
            self.ema = self.copy_parameters()
        groups = [samples[i : i + micro_batch_size] for i in range(0, len(samples), micro_batch_size)]
        totals = {t[0]: {"value": 0.0, "weight": t[4], "tokens": 0, "clipped": 0} for t in self.terms}
        for group in groups:
            loss = 0.0
            for name, student, teacher, weights, weight, clip in self.terms:
                value, tokens = 0.0, 0
                for views in group:
                    if views[student][2] == 0:
                        continue
                    log_p = torch.log_softmax(scored_logits(self.model, views[student]) / self.temperature, -1)
                    log_q = torch.log_softmax(self.teacher_logits(weights, views[teacher]) / self.temperature, -1)
                    components = log_q.exp() * (log_q - log_p)
                    value = value + components.clamp(max=clip).sum()
                    tokens += len(log_p)
                    totals[name]["clipped"] += int((components > clip).any(-1).sum())
                if tokens == 0:
                    continue
                value = value / tokens
                totals[name]["value"] += float(value.detach()) / len(groups)
                totals[name]["tokens"] += tokens
                loss = loss + weight * value
            (loss / len(groups)).backward()
        for term in totals.values():
            term["clipped_fraction"] = term.pop("clipped") / max(1, term["tokens"])
        return {"loss": sum(t["weight"] * t["value"] for t in totals.values()), "terms": totals}

    def gradients(self):
        return {name: p.grad.detach().clone() for name, p in self.parameters.items()}

    def step(self):
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.max_grad_norm))
        rate = self.learning_rate * (1 - self.steps / self.schedule_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        if self.ema_from_first_update and self.steps == 1:
            self.ema = self.copy_parameters()
            self.ema_from_first_update = False
        for name, p in self.parameters.items():
            self.ema[name] = (1 - self.ema_rate) * self.ema[name] + self.ema_rate * p.detach()
        if self.steps % self.snapshot_interval == 0:
            self.snapshot = self.copy_parameters()
        return norm, rate


def relative(a, b):
    scale = max(abs(a), abs(b), 1e-12)
    return abs(a - b) / scale if math.isfinite(a) and math.isfinite(b) else math.inf
