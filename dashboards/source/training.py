"""Shows what is learnt (losses by term, optimizer, answers, held-out measurements) and the teachers."""

from grafana import (BYTES_PER_SECOND, COUNT, PER_SECOND, PLAIN, PROCESS, RATIO, RUN, SECONDS, bars, dashboard, graph, quantiles,
                     query, timeline)

LOSSES = [
    graph("Loss", "Weighted sum of the terms below.", PLAIN, query(f"dapd_trainer_total_loss{{{RUN}}}", "loss"), width=6, low=None),
    graph("Loss by term", "Clipped divergence, token mean. docs/objective.md explains the terms.", PLAIN,
          query(f"dapd_trainer_loss{{{RUN}}}", "{{term}}"), width=6, low=None),
    graph("True divergence by term", "KL without the clip. Rising while the loss falls: the clip hides what gets worse.", PLAIN,
          query(f"dapd_trainer_unclipped_divergence{{{RUN}}}", "{{term}}"), width=6, low=None),
    graph("Clipped tokens by term", "Share of scored tokens with a vocabulary entry at the clip.", RATIO,
          query(f"dapd_trainer_clipped_ratio{{{RUN}}}", "{{term}}"), width=6, high=1),
    timeline("The clip hides what gets worse", "A bar wherever a term's clipped loss fell over the last 20, 40 or 80 steps while its true "
             "divergence rose. Lower the rate, or raise the clip: docs/experiments.md.",
             query(f"max by (term) (dapd_trainer_clip_hides{{{RUN}}})", "{{term}}"), colour="orange", width=8, height=8),
    graph("Regimes of routed terms", "Shares of the tokens of answers, mean over the routed terms (DOPD's); empty for other objectives. "
          "docs/objective.md explains the regimes.", RATIO,
          query(f"avg by (regime) (dapd_trainer_regime_ratio{{{RUN}}})", "{{regime}}"), width=8, high=1, stack=True),
    graph("True divergence by teacher", "Of the terms whose rows name their teachers (`teacher_weights: row`): from each teacher, over its own "
          "tokens of the last step that had any; empty for other objectives.", PLAIN,
          query(f"dapd_trainer_teacher_divergence{{{RUN}}}", "{{term}} {{teacher}}"), width=8, low=None),
]

OPTIMIZER = [
    graph("Gradient norm", "Before clipping, and the limit above which it is clipped (trainer.max_grad_norm).", PLAIN,
          query(f"dapd_trainer_gradient_norm{{{RUN}}}", "norm"),
          query(f"dapd_trainer_gradient_norm_limit{{{RUN}}}", "limit"), width=6, low=None, logarithmic=True),
    graph("Learning rate", "Of the last step.", "sci", query(f"dapd_trainer_learning_rate{{{RUN}}}", "rate"), width=6),
    graph("Age of the snapshot", "Steps between the live adapter and the snapshot that teaches.", PLAIN,
          query(f"dapd_trainer_policy_version{{{RUN}}} - dapd_trainer_snapshot_version{{{RUN}}}", "steps"), width=6),
    graph("Samples", "`trained`; `empty`: an answer of which nothing is left to score; `unverified`: left out, since no answer may take the "
          "reference's place (rollout.unverified).", PER_SECOND,
          query(f"sum by (outcome) (rate(dapd_trainer_samples_total{{{RUN}}}[$window]))", "{{outcome}}"), width=6),
]

ANSWERS = [
    graph("Answer length", "Mean tokens of the last step's answers.", PLAIN,
          query(f"dapd_trainer_rollout_tokens{{{RUN}}}", "tokens"), width=6),
    graph("Answers", "Of the last step's answers: right ones (of problems with an answer), ones with a boxed result, ones cut off at "
          "rollout.max_new_tokens.", RATIO,
          query(f"dapd_trainer_rollout_accuracy_ratio{{{RUN}}}", "right"),
          query(f"dapd_trainer_rollout_boxed_ratio{{{RUN}}}", "boxed"),
          query(f"dapd_trainer_rollout_truncated_ratio{{{RUN}}}", "cut off"), high=1, width=6),
    graph("Sampler against trainer", "Absolute difference of the sampler's and the trainer's log-probability of the sampled tokens, at "
          "temperature 1. Rounding alone gives a small, steady mean; one that rises, or is ten times that of the first steps, means that "
          "the workers sample from another policy than the one that is trained. See docs/watching.md.", "sci",
          query(f"dapd_trainer_sampler_mismatch_mean{{{RUN}}}", "mean"),
          query(f"dapd_trainer_sampler_mismatch_max{{{RUN}}}", "largest"), width=6),
    graph("Tokens per step", "Tokens sampled, and tokens scored by the teachers, a step.", COUNT,
          *[query(f"sum(rate(dapd_trainer_{kind}_tokens_total{{{RUN}}}[$window])) / sum(rate(dapd_trainer_steps_total{{{RUN}}}[$window]))", kind)
            for kind in ("generated", "scored")], width=6),
    graph("What stands in for a reference", "Of the last step. `solved`: groups of answers that contain a correct one (of problems with an "
          "answer). `taught`: answers whose self-teacher had a correct sibling or feedback to read (SDPO). `verified`: samples for which the "
          "grader accepted an answer in place of the reference (rollout.source: verified). What the objective does not use stays at 0.", RATIO,
          *[query(f"dapd_trainer_rollout_{kind}_ratio{{{RUN}}}", kind) for kind in ("solved", "taught", "verified")], high=1, width=12),
    graph("Samples left out", "Share of the samples that trained nothing or only their reference: `unverified` without an answer that may "
          "take the reference's place, `empty` without a token of the answer to score.", RATIO,
          query(f'sum by (outcome) (rate(dapd_trainer_samples_total{{{RUN}, outcome!="trained"}}[$window])) / ignoring (outcome) group_left '
                f"sum(rate(dapd_trainer_samples_total{{{RUN}}}[$window]))", "{{outcome}}"), high=1, width=12),
]

GRADER = [
    graph("Answers graded", "By a grader of the user's own (`grader` in the configuration), with those that it could not grade.", PER_SECOND,
          query(f"sum(rate(dapd_trainer_grading_seconds_count{{{RUN}}}[$window]))", "answers")),
    graph("Answers not graded", "By reason: docs/graders.md explains them. They count as not right, or end the run (grader.on_error).",
          PER_SECOND, query(f"sum by (reason) (rate(dapd_trainer_ungraded_total{{{RUN}}}[$window]))", "{{reason}}"), stack=True),
    graph("Time to a grade", "From an answer to its grade, waiting for a free worker of the grader included (grader.workers).", SECONDS,
          *quantiles("dapd_trainer_grading_seconds", RUN)),
]

HELD_OUT = [
    bars("Held-out answers", "Right answers, answers with a boxed result, those cut off at the length limit, those that ended in a loop, "
         "and those that contain evaluation.marker, before and after training; `within`: the newest of evaluation.interval.", RATIO,
         query(f"dapd_trainer_evaluation_accuracy_ratio{{{RUN}}}", "right, {{when}}"),
         query(f"dapd_trainer_evaluation_boxed_ratio{{{RUN}}}", "boxed, {{when}}"),
         query(f"dapd_trainer_evaluation_truncated_ratio{{{RUN}}}", "cut off, {{when}}"),
         query(f"dapd_trainer_evaluation_repeated_ratio{{{RUN}}}", "repeating, {{when}}"),
         query(f"dapd_trainer_evaluation_marker_ratio{{{RUN}}}", "marked, {{when}}"), width=12),
    bars("Held-out divergence by term", "True KL on held-out problems, before and after training; `within`: the newest of "
         "evaluation.interval.", PLAIN,
         query(f"dapd_trainer_evaluation_divergence{{{RUN}}}", "{{term}}, {{when}}"), width=12),
    graph("Held-out accuracy within the run", "Right answers to the held-out problems as training went on (evaluation.interval), beside "
          "those before training. adapter-best/ is the adapter of the highest.", RATIO,
          query(f"dapd_trainer_evaluation_accuracy_ratio{{{RUN}}}", "{{when}}"), high=1, width=12),
    graph("Held-out divergence within the run", "True KL on held-out problems as training went on, by term.", PLAIN,
          query(f"dapd_trainer_evaluation_divergence{{{RUN}}}", "{{term}}, {{when}}"), low=None, width=12),
    graph("Held-out claims within the run", "Probability that an answer claims to know its result from memory or a reference, in the view of "
          "the problem alone (none) and with the reference (cross). Rising in none is what anchors should prevent: docs/illusion.md.", PLAIN,
          query(f"dapd_trainer_evaluation_claim_probability{{{RUN}}}", "{{view}}, {{when}}"), width=24),
]

TIME = [
    graph("Step time by phase", "Mean seconds per step.", SECONDS,
          query(f"sum by (phase) (rate(dapd_trainer_step_duration_seconds_sum{{{RUN}}}[$window])) / ignoring (phase) group_left "
                f"sum(rate(dapd_trainer_step_seconds_count{{{RUN}}}[$window]))", "{{phase}}"), stack=True),
    graph("Step time", "All phases together.", SECONDS, *quantiles("dapd_trainer_step_seconds", RUN)),
    graph("Steps an hour", "Over the chosen window.", PLAIN,
          query(f"3600 * sum(rate(dapd_trainer_steps_total{{{RUN}}}[$window]))", "steps")),
]

TEACHERS = [
    graph("Tokens scored", "By teacher.", PER_SECOND,
          query(f"sum by (instance) (rate(dapd_teacher_scored_tokens_total{{{PROCESS}}}[$__rate_interval]))", "{{instance}}"), stack=True),
    graph("Time of a score", "One request: the packed forward pass over its views.", SECONDS,
          *quantiles("dapd_teacher_score_duration_seconds", PROCESS)),
    graph("Requests by how they ended", "`failed`: the weights changed meanwhile, the worker was stopping, or the request could not be "
          "computed.", PER_SECOND,
          query(f"sum by (outcome) (rate(dapd_teacher_requests_total{{{PROCESS}}}[$__rate_interval]))", "{{outcome}}")),
    graph("Waiting scores", "In each teacher's queue, and at the trainer without a teacher.", COUNT,
          query(f"dapd_teacher_requests_waiting{{{PROCESS}}}", "{{instance}}"),
          query(f'sum(dapd_trainer_tasks_pending{{{RUN}, role="teacher"}})', "at the trainer")),
    graph("Scores on the wire", "Bytes sent by the teachers, and received by the trainer.", BYTES_PER_SECOND,
          query(f"sum(rate(dapd_teacher_payload_bytes_total{{{PROCESS}}}[$window]))", "sent"),
          query(f"sum(rate(dapd_trainer_payload_bytes_total{{{RUN}}}[$window]))", "received")),
    graph("Versions of the weights", "What each teacher serves, by set of weights, and the trainer's policy and snapshot.", PLAIN,
          query(f"dapd_teacher_policy_version{{{PROCESS}}}", "{{instance}} {{weights}}"),
          query(f"max(dapd_trainer_policy_version{{{RUN}}})", "trainer, policy"),
          query(f"max(dapd_trainer_snapshot_version{{{RUN}}})", "trainer, snapshot")),
]

DASHBOARD = dashboard(
    "dapd-training", "DAPD / Training", "What is learnt: losses by term, optimizer, answers, held-out measurements; and the teachers.",
    [("Losses", LOSSES), ("Optimizer", OPTIMIZER), ("Answers", ANSWERS), ("Grader", GRADER), ("Held-out problems", HELD_OUT), ("Time", TIME),
     ("Teachers", TEACHERS)])
