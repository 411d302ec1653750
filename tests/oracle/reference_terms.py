"""Terms of any target, divergence, support and reduction, transcribed in PyTorch on top of reference_objective.

A term is the mapping that `objective.terms` takes.
"""

import math

import torch

import reference_objective


def yaml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(yaml(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ".inf" if value == math.inf else str(value)


def components(log_p, log_q, term):
    p, q = log_p.exp(), log_q.exp()
    kind = term.get("divergence", "forward_kl")
    if kind == "forward_kl":
        return q * (log_q - log_p)
    if kind == "reverse_kl":
        return p * (log_p - log_q)
    beta = term.get("beta", 0.5)
    log_m = (beta * q + (1 - beta) * p).log()
    return beta * q * (log_q - log_m) + (1 - beta) * p * (log_p - log_m)


def on_support(log_p, log_q, term):
    kind = term.get("support", "full")
    if kind == "full":
        return log_p, log_q
    by = log_p if kind == "student_top_k" else log_q
    ids = by.topk(term["top_k"], -1).indices
    sides = []
    for side in (log_p, log_q):
        few = side.gather(-1, ids)
        total = few.logsumexp(-1, keepdim=True)
        rest = torch.log(-torch.expm1(total.clamp(max=-1e-7)))
        sides.append(torch.cat([few, rest], -1) if term.get("tail", True) else few - total)
    return sides


def trimmed_mean(values, trim):
    return values[values <= values.quantile(1 - trim)].mean()


class Objective(reference_objective.Objective):
    """Takes `terms` as mappings. `teachers` are further models by name; all distributions are over the first tokens, which
    every model has. A sample may name its teacher as views["teacher"]."""

    teachers = {}

    def of_tokens(self, logits, temperature=1.0):
        """Returns log p over the tokens that all models have."""
        common = min([self.model.config.vocab_size, *(model.config.vocab_size for model in self.teachers.values())])
        return torch.log_softmax(logits[..., :common] / temperature, -1)

    def logprobs(self, which, views):
        weights = views["teacher"] if which["weights"] == "row" else which["weights"]
        if weights in self.teachers:
            with torch.no_grad():
                logits = reference_objective.scored_logits(self.teachers[weights], views[which["view"]])
        else:
            logits = self.teacher_logits(weights, views[which["view"]])
        return self.of_tokens(logits, self.temperature)

    def routes(self, term, group):
        """Returns for each answer of the micro-batch the regime's name per token. Answers that are left out have none,
        and do not count in the averages."""
        target, skip = term["target"], term.get("skip_tokens", 0)
        pairs, left_out = [], []
        for views in group:
            ids, start, count = views[term["student"]]
            scored = torch.tensor(ids[start : start + count])[:, None]
            pairs.append([self.logprobs(target[side], views).gather(-1, scored)[skip:, 0] for side in ("first", "second")])
            left_out.append(count - len(pairs[-1][0]))
        first, second = (torch.cat(side) for side in zip(*pairs))
        trim = target.get("trim", 0.05)
        distance = (first - second).abs()
        mean_distance = trimmed_mean(distance, trim)
        largest = torch.maximum(first, second).max()  # in a unit in which float32 does not take small ones for 0
        first, second = (first - largest).exp(), (second - largest).exp()
        mean_sum = trimmed_mean(first, trim) + trimmed_mean(second, trim)
        names = []
        for d, one, two in zip(distance, first, second):
            if d < mean_distance:
                names.append("agree_likely" if one + two >= mean_sum else "agree_unlikely")
            else:
                names.append("first_surer" if one >= two else "second_surer")
        split, rest = [], names
        for pair, none in zip(pairs, left_out):
            split.append([None] * none + rest[: len(pair[0])])
            rest = rest[len(pair[0]) :]
        return split

    def target_of(self, term, views, regimes):
        """Returns log q of every scored token, and each token's factor."""
        target = term.get("target")
        if target is None:
            return self.logprobs({"view": term["teacher"], "weights": term["teacher_weights"]}, views), 1.0
        if "anchor" in target:
            delta = sum(part.get("factor", 1.0) * self.logprobs(part, views) for part in target["delta"])
            if target.get("recentre", False):
                delta = delta - delta.mean(-1, keepdim=True)
            if "soft_clip" in target:
                delta = target["soft_clip"] * torch.tanh(delta / target["soft_clip"])
            moved = self.logprobs(target["anchor"], views) + target.get("strength", 1.0) * delta
            return torch.log_softmax(moved, -1), 1.0
        choices = [target["regimes"].get(name, {}) for name in regimes]
        sides = {side: self.logprobs(target[side], views) for side in ("first", "second")}
        rows = [sides[choice.get("pass", "first")][i] for i, choice in enumerate(choices)]
        return torch.stack(rows), torch.tensor([float(choice.get("factor", 1.0)) for choice in choices])

    def importance(self, term, views):
        """Returns the factor of each token: min(p / p_sampler, cap), or its mean over the answer's counted tokens."""
        if term.get("importance", "none") == "none" or "sampler_logprobs" not in views:
            return 1.0
        ids, start, count = views["none_rollout"]
        scored = torch.tensor(ids[start : start + count])[:, None]
        with torch.no_grad():
            live = self.of_tokens(reference_objective.scored_logits(self.model, views["none_rollout"])).gather(-1, scored)[:, 0]
        ratios = (live - torch.tensor(views["sampler_logprobs"][:count])).clamp(-20, 20).exp().clamp(max=term.get("importance_cap", 2.0))
        return ratios if term["importance"] == "token" else ratios[term.get("skip_tokens", 0) :].mean().expand(count)

    def token_losses(self, term, views, regimes):
        """Returns every scored token's loss, and whether an entry of it was clipped."""
        log_p = self.of_tokens(reference_objective.scored_logits(self.model, views[term["student"]]), self.temperature)
        clip = term.get("clip", 0.05)
        if term.get("target") == "one_hot":
            ids, start, count = views[term["student"]]
            entropy = torch.nn.functional.nll_loss(log_p, torch.tensor(ids[start : start + count], dtype=torch.long), reduction="none")
            return entropy.clamp(max=clip), entropy > clip
        log_q, factors = self.target_of(term, views, regimes)
        entries = components(*on_support(log_p, log_q, term), term)
        losses = entries.clamp(max=clip).sum(-1) * factors * self.importance(term, views)
        return losses, (entries > clip).any(-1) & torch.as_tensor(factors != 0)

    def accumulate(self, samples, micro_batch_size):
        if self.ema is None:
            self.ema = self.copy_parameters()
        groups = [samples[i : i + micro_batch_size] for i in range(0, len(samples), micro_batch_size)]
        totals = {t["name"]: {"value": 0.0, "weight": t["weight"], "tokens": 0, "clipped": 0} for t in self.terms}
        for group in groups:
            loss = 0.0
            for term in self.terms:
                total = totals[term["name"]]
                routes = self.routes(term, group) if "first" in term.get("target", {}) else [None] * len(group)
                losses = []  # one tensor of token losses per answer
                for views, regimes in zip(group, routes):
                    if "teacher" in term and term["teacher"] not in views:
                        losses.append(torch.zeros(0))
                        continue
                    skip = term.get("skip_tokens", 0)
                    loss_of_tokens, clipped = self.token_losses(term, views, regimes)
                    losses.append(loss_of_tokens[skip:])
                    total["clipped"] += int(clipped[skip:].sum())
                    total["tokens"] += len(losses[-1])
                reduction = term.get("reduction", "micro_token")
                if reduction == "micro_token":
                    everything = torch.cat(losses)
                    value = everything.sum() / max(1, len(everything))
                else:
                    means = [answer.mean() for answer in losses if len(answer) > 0]
                    answers = len(losses) if reduction == "seq_mean_keep_masked" else max(1, len(means))
                    value = sum(means) / answers if means else torch.zeros(())
                total["value"] += float(value.detach()) / len(groups)
                loss = loss + term["weight"] * value
            # At least one token was scored, and not every answer is masked.
            if torch.as_tensor(loss).requires_grad:
                (loss / len(groups)).backward()
        for total in totals.values():
            total["clipped_fraction"] = total.pop("clipped") / max(1, total["tokens"])
        return {"loss": sum(t["weight"] * t["value"] for t in totals.values()), "terms": totals}
