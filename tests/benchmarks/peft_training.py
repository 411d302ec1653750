"""The training pass as transformers and peft compute it: every group of views padded to its widest view, with autograd.

    peft_training.py MODEL ADAPTER CASE.json DEVICE PRECISION

The case, the loss and the requests are those of training_benchmark.cc. On a GPU a group's backward pass follows its forward pass, and
layers are checkpointed: otherwise one of G3's groups would keep 41 GB of activations, which do not fit beside ours.
"""

import json
import pathlib
import sys
import time

import torch
import transformers
from peft import PeftModel
from safetensors.torch import save_file

from duel import serve


class PeftTraining:
    def __init__(self, model, adapter, case, device, precision):
        self.device = torch.device(device)
        base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, precision))
        # As in our pass, on a GPU the adapter is multiplied in the model's precision, on the CPU in its own precision, float32.
        self.model = PeftModel.from_pretrained(base, adapter, is_trainable=True, autocast_adapter_dtype=self.device.type != "cuda").to(self.device)
        if self.device.type == "cuda":
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.model.train()  # checkpointing needs training mode; there is no dropout
        self.parameters = {n.replace(".default", ""): p for n, p in self.model.named_parameters() if p.requires_grad}
        case = json.loads(pathlib.Path(case).read_text())
        views = iter(case["views"])
        self.groups = [[next(views) for _ in range(size)] for size in case["groups"]]
        rows = sum(view["scored_count"] for group in self.groups for view in group)
        i, j = torch.arange(rows, dtype=torch.float64)[:, None], torch.arange(base.config.hidden_size, dtype=torch.float64)
        self.probe = torch.sin(i * 0.37 + j * 0.11).to(self.device, base.dtype)

    def tokens(self):
        return sum(len(group) * max(len(view["input_ids"]) for view in group) for group in self.groups)

    def hidden(self, group):
        width = max(len(view["input_ids"]) for view in group)
        ids = torch.zeros((len(group), width), dtype=torch.long)
        mask = torch.zeros((len(group), width), dtype=torch.long)
        for row, view in enumerate(group):
            ids[row, : len(view["input_ids"])] = torch.tensor(view["input_ids"])
            mask[row, : len(view["input_ids"])] = 1
        out = self.model.base_model.model.model(input_ids=ids.to(self.device), attention_mask=mask.to(self.device), use_cache=False)
        return [out.last_hidden_state[row, view["scored_from"] - 1 : view["scored_from"] - 1 + view["scored_count"]] for row, view in enumerate(group)]

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def round(self, request):
        for parameter in self.parameters.values():
            parameter.grad = None
        self.wait()
        start = time.perf_counter()
        hidden, done = [], 0
        for groups in [self.groups] if self.device.type != "cuda" else [[group] for group in self.groups]:
            part = torch.cat([rows for group in groups for rows in self.hidden(group)])
            (part * self.probe[done : done + len(part)]).sum().backward()
            hidden.append(part.detach())
            done += len(part)
        self.wait()
        seconds = time.perf_counter() - start
        if request:
            tensors = {"hidden": torch.cat(hidden).float(), **{n: p.grad.float() for n, p in self.parameters.items()}}
            save_file({n: t.cpu().contiguous() for n, t in tensors.items()}, request)
        return {"seconds": seconds}


def main():
    training = PeftTraining(*sys.argv[1:])
    serve({"tokens": training.tokens()}, training.round)


if __name__ == "__main__":
    main()
