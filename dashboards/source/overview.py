"""Shows whether the run is healthy, how fast it is and how far it has come."""

from grafana import (BYTES, COUNT, GREEN, PER_SECOND, PLAIN, RED, RUN, SECONDS, YELLOW, bars, dashboard, firing, gauge, graph,
                     query, stat, thresholds, timeline)

LOUD = 'severity!="info"'
STEP_SECONDS = f"(sum(rate(dapd_trainer_step_seconds_sum{{{RUN}}}[$window])) / sum(rate(dapd_trainer_step_seconds_count{{{RUN}}}[$window])))"


def usable(role):
    # Every trainer rank counts for itself: the rank that sees the fewest workers decides.
    return query(f'min(sum by (instance) (dapd_trainer_workers{{{RUN}, role="{role}", state=~"ready|loading"}}))', role)


HEALTH = [
    stat("Firing alerts", "Critical alerts and warnings that are firing, for this run or for no run in particular. See docs/runbook.md.",
         PLAIN,
         query(f"count({firing(LOUD)}) or vector(0)", "alerts"),
         levels=thresholds(GREEN, (1, RED))),
    stat("Rollout workers", "Rollout workers that the trainer can use: ready, or taking the newest adapter.", PLAIN, usable("rollout"),
         levels=thresholds(RED, (1, GREEN))),
    stat("Teacher workers", "Teacher workers that the trainer can use: ready, or taking the newest snapshot.", PLAIN, usable("teacher"),
         levels=thresholds(RED, (1, GREEN))),
    stat("Since the last step", "Time since the last optimizer step ended. Evaluations and checkpoints count as well.", SECONDS,
         query(f"time() - max(dapd_trainer_last_step_timestamp_seconds{{{RUN}}})", "age")),
    stat("Steps since a checkpoint", "What would have to be done again if the trainer died now.", PLAIN,
         query(f"max(dapd_trainer_policy_version{{{RUN}}}) - max(dapd_checkpoint_last_step{{{RUN}}})", "steps")),
    stat("Plaintext listeners", "Listeners of processes, gRPC or metrics, that other machines can reach in plain text.", PLAIN,
         query(f"sum(dapd_insecure{{{RUN}}})", "listeners"), levels=thresholds(GREEN, (1, YELLOW))),
]

PROGRESS = [
    gauge("Progress", "Optimizer steps taken, of those planned.",
          query(f"max(dapd_trainer_policy_version{{{RUN}}}) / max(dapd_trainer_planned_steps{{{RUN}}})", "done")),
    stat("Step", "Optimizer steps taken so far: the version of the live adapter.", PLAIN,
         query(f"max(dapd_trainer_policy_version{{{RUN}}})", "step")),
    stat("Time left", "Steps still to take, at the mean step time of the chosen window. Evaluation comes on top.", SECONDS,
         query(f"(max(dapd_trainer_planned_steps{{{RUN}}}) - max(dapd_trainer_policy_version{{{RUN}}})) * {STEP_SECONDS}", "left")),
    stat("Step time", "Mean over the chosen window.", SECONDS, query(STEP_SECONDS, "step"), decimals=2),
    stat("Answer tokens/s", "Tokens that all rollout workers sample together.", PER_SECOND,
         query(f"sum(rate(dapd_rollout_generated_tokens_total{{{RUN}}}[$window]))", "tokens")),
    stat("Loss", "Weighted sum of the clipped divergences, in the last step.", PLAIN,
         query(f"max(dapd_trainer_total_loss{{{RUN}}})", "loss"), decimals=4),
]

CURVES = [
    graph("Loss", "Weighted sum of the clipped divergences, step by step.", PLAIN,
          query(f"dapd_trainer_total_loss{{{RUN}}}", "loss"), low=None),
    graph("Where a step's time goes", "Mean seconds per step by phase. `rollout` and `score` are waits for the workers; scoring goes on "
          "while answers are still sampled, so a small `score` means that the teachers keep up.", SECONDS,
          query(f"sum by (phase) (rate(dapd_trainer_step_duration_seconds_sum{{{RUN}}}[$window])) / ignoring (phase) group_left "
                f"sum(rate(dapd_trainer_step_seconds_count{{{RUN}}}[$window]))", "{{phase}}"), stack=True),
    graph("Throughput", "Tokens sampled by the rollout workers and scored by the teachers.", PER_SECOND,
          query(f"sum(rate(dapd_rollout_generated_tokens_total{{{RUN}}}[$__rate_interval]))", "sampled"),
          query(f"sum(rate(dapd_teacher_scored_tokens_total{{{RUN}}}[$__rate_interval]))", "scored")),
    timeline("What the trainer does", "A bar wherever the trainer was in that phase when it was scraped.",
             query(f"max by (phase) (dapd_trainer_phase{{{RUN}}})", "{{phase}}"), colour="blue", height=7),
]

RESOURCES = [
    graph("Processor", "Cores in use by service, all its processes together.", COUNT,
          query(f"sum by (service) (rate(process_cpu_seconds_total{{{RUN}}}[$__rate_interval]))", "{{service}}"), stack=True),
    graph("Memory", "Resident memory by service, all its processes together.", BYTES,
          query(f"sum by (service) (process_resident_memory_bytes{{{RUN}}})", "{{service}}"), stack=True),
    bars("Versions", "Processes by service and version of the program: two versions of a service are a rolling update.", PLAIN,
         query(f"count by (service, version) (dapd_build_info{{{RUN}}})", "{{service}} {{version}}")),
]

DASHBOARD = dashboard(
    "dapd-overview", "DAPD / Overview", "One run at a glance: is it healthy, how fast is it, how far has it come?",
    [("Is it healthy?", HEALTH), ("How far, how fast?", PROGRESS), ("Curves", CURVES), ("Resources", RESOURCES)])
