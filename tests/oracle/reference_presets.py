"""The baselines as in papers and released code: their terms as mappings (reference_terms) and their prompts."""

import math

import reference_objective
from reference_objective import INSTRUCTION

NONE = {"view": "none_rollout", "weights": "base"}
CROSS = {"view": "cross_rollout", "weights": "base"}
PROBE = {"view": "probe_rollout", "weights": "base"}
LIVE = {"view": "cross_rollout", "weights": "live"}
PLAIN = {"teacher": "cross_rollout", "teacher_weights": "base"}
NONE_PLAIN = {"teacher": "none_rollout", "teacher_weights": "base"}
JENSEN_SHANNON = {"divergence": "jensen_shannon", "beta": 0.5, "clip": math.inf}


def term(name, student="none_rollout", **fields):
    return {"name": name, "student": student, "weight": 1, **fields}


def purified(recentre=True, soft_clip=10, beta=1.0):
    delta = [{**CROSS, "factor": 1}, {**PROBE, "factor": -1}]
    return {"target": {"anchor": NONE, "delta": delta, "recentre": recentre, "soft_clip": soft_clip, "strength": 1 / beta}}


def dopd(likely=0.6, unlikely=0.3, trim=0.05, top_k=128, tail=False):
    """Reverse KL over the student's top k where the passes agree or the student is surer; Jensen-Shannon where the
    teacher is surer."""
    def routed(regimes):
        return {"target": {"first": CROSS, "second": LIVE, "trim": trim, "regimes": regimes}, "reduction": "seq_mean"}

    reverse = {
        "agree_likely": {"pass": "first", "factor": likely},
        "agree_unlikely": {"pass": "second", "factor": unlikely},
        "first_surer": {"factor": 0},
        "second_surer": {"pass": "second", "factor": likely},
    }
    surer = {regime: {"pass": "first", "factor": 1 if regime == "first_surer" else 0} for regime in reverse}
    return [
        term("dopd_reverse", **routed(reverse), divergence="reverse_kl", clip=math.inf, support="student_top_k", top_k=top_k, tail=tail),
        term("dopd_surer", **routed(surer), **JENSEN_SHANNON),
    ]


# Terms and temperature by preset.
PRESETS = {
    "opsd": ([term("opsd", **PLAIN)], 1.1),
    "opsd_v1": ([term("opsd", **PLAIN, **JENSEN_SHANNON)], 1.1),
    "privileged_anchor": ([term("privileged_rollout", "self_rollout", **PLAIN)], 1.1),
    "sdft": (
        [term("sdft", teacher="demonstration_rollout", teacher_weights="ema", clip=math.inf, reduction="seq_mean_keep_masked", skip_tokens=3)],
        1.0,
    ),
    "purified_opsd": ([term("purified_opsd", **purified(), **JENSEN_SHANNON)], 1.1),
    "dopd": (dopd(), 1.1),
    "opd": ([term("opd", **NONE_PLAIN, divergence="reverse_kl", clip=math.inf)], 1.0),
    "sft": ([term("sft", "none_reference", target="one_hot", clip=math.inf)], 1.0),
}


class Views(reference_objective.Views):
    """The six views, SDFT's demonstration and the probe."""

    def demonstration_message(self, problem, shown):
        return (
            f"\n{self.none_message(problem)}\n\nThis is an example for a response to the question:\n{shown}\n\n"
            "Now answer with a response of your own, including the thinking process.\n"
        )

    def probe_message(self, shown):
        whole, leading = reference_objective.privileged_message("", shown), "Problem: \n\n"
        assert whole.startswith(leading)
        return whole[len(leading) :]

    def build(self, problem, reference, rollout):
        views = super().build(problem, reference, rollout)
        ids, start, count = views["none_rollout"]
        scored = ids[start : start + count]
        for name, message in (
            ("demonstration_rollout", self.demonstration_message(problem, reference)),
            ("probe_rollout", self.probe_message(reference)),
        ):
            prefix = self.cut(self.ids(self.prompt(message, self.privileged_thinking)))
            views[name] = (prefix + scored, len(prefix), count)
        return views


class OpsdV1Views(Views):
    """Views of OPSD's first release, which drops the chat tokens of the sampling prompt and thinks if the template does
    by default."""

    thinking = True

    def sampler_ids(self, problem):
        ids = self.ids(self.prompt(self.none_message(problem), True))
        text = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return self.ids(text)[: self.max_sampler_prompt]

    def privileged_message(self, problem, shown):
        return (
            f"{problem}\n\nHere is a reference solution to this problem:\n{shown}\n\n\nAfter understanding the reference solution "
            "and the rationale behind each step, now articulate your own step-by-step reasoning that derives the same final "
            f"answer to the problem below:\n\n{INSTRUCTION}"
        )


class SdftViews(Views):
    """SDFT thinks in both prompts if the template does by default, and keeps the last 1,024 tokens of each prompt."""

    thinking = True
    max_prompt_length = 1024

    def sampler_ids(self, problem):
        return self.cut(self.ids(self.prompt(self.none_message(problem), True)))

    def cut(self, ids):
        return ids[-self.max_prompt_length :]


def views_of(preset):
    return {"opsd_v1": OpsdV1Views, "sdft": SdftViews}.get(preset, Views)
