"""Shows the rollout workers: what they sample, how busy they are, which policy they serve."""

from grafana import (BYTES, BYTES_PER_SECOND, COUNT, PER_SECOND, PLAIN, PROCESS, RATIO, RUN, SECONDS, dashboard, graph, heatmap, quantiles,
                     query)

THROUGHPUT = [
    graph("Tokens sampled", "By worker. A worker that stays behind the others is slow or gets less work.", PER_SECOND,
          query(f"sum by (instance) (rate(dapd_rollout_generated_tokens_total{{{PROCESS}}}[$__rate_interval]))", "{{instance}}"), stack=True),
    graph("Prompt tokens", "Tokens of the prompts that were answered, by worker.", PER_SECOND,
          query(f"sum by (instance) (rate(dapd_rollout_prompt_tokens_total{{{PROCESS}}}[$__rate_interval]))", "{{instance}}"), stack=True),
    graph("Answers by how they ended", "`eos`: the model ended; `length`: cut off at rollout.max_new_tokens; `failed`: the policy changed "
          "meanwhile, the worker was stopping, or the model could not take it.", PER_SECOND,
          query(f"sum by (outcome) (rate(dapd_rollout_requests_total{{{PROCESS}}}[$__rate_interval]))", "{{outcome}}")),
]

LOAD = [
    graph("Slots in use", "Requests being decoded, of those that can be (rollout.slots). Low while much is pending at the trainer: the "
          "workers wait for an adapter, or cannot be reached.", RATIO,
          query(f"dapd_rollout_requests_running{{{PROCESS}}} / dapd_rollout_slots{{{PROCESS}}}", "{{instance}}"), high=1),
    graph("Waiting in the worker", "Requests that wait for a slot. A trainer rank sends no more than there are slots, so it stays near 0 "
          "with one rank and may be as many as the slots for each further one.", COUNT,
          query(f"dapd_rollout_requests_waiting{{{PROCESS}}}", "{{instance}}")),
    graph("Tasks at the trainer", "Rollouts that no worker has yet, and rollouts that one has. Always pending and never idle: more workers "
          "would shorten the step.", COUNT,
          query(f'sum(dapd_trainer_tasks_pending{{{RUN}, role="rollout"}})', "pending"),
          query(f'sum(dapd_trainer_tasks_in_flight{{{RUN}, role="rollout"}})', "in flight")),
    graph("Memory for keys and values", "What the answers being decoded hold, of what they may (rollout.kv_memory_mib). Full: the "
          "youngest wait, or give theirs back to older ones.", RATIO,
          query(f"dapd_rollout_kv_memory_bytes{{{PROCESS}}} / dapd_rollout_kv_memory_limit_bytes{{{PROCESS}}}", "{{instance}}"), width=12, high=1),
    graph("Answers put back", "Answers that gave up their memory to older ones, to be continued later: moved to the host's memory, or computed "
          "again. If they are often computed again, more memory or fewer slots would be faster.", PER_SECOND,
          query(f"sum by (instance) (rate(dapd_rollout_swaps_total{{{PROCESS}}}[$__rate_interval]))", "{{instance}}: moved"),
          query(f"sum by (instance) (rate(dapd_rollout_restarts_total{{{PROCESS}}}[$__rate_interval]))", "{{instance}}: again"), width=12),
]

LATENCY = [
    graph("Time to the first token", "From a request's arrival, waiting for a slot included.", SECONDS,
          *quantiles("dapd_rollout_time_to_first_token_seconds", PROCESS)),
    graph("Time of an answer", "From a request's arrival to its last token.", SECONDS,
          *quantiles("dapd_rollout_request_duration_seconds", PROCESS)),
    graph("Decode step", "One token for every running request, prefills of new prompts included.", SECONDS,
          *quantiles("dapd_rollout_decode_step_duration_seconds", PROCESS)),
    heatmap("Answer length", "Distribution of the answers' lengths in tokens.", PLAIN, "dapd_rollout_answer_tokens", PROCESS, width=12),
    heatmap("Decode steps", "Distribution of the decode steps' durations: a second band is a worker slower than the rest.", SECONDS,
            "dapd_rollout_decode_step_duration_seconds", PROCESS, width=12),
]

POLICY = [
    graph("Policy version", "What the trainer published, and what each worker serves: one line if all is well.", PLAIN,
          query(f"dapd_rollout_policy_version{{{PROCESS}}}", "{{instance}}"),
          query(f"max(dapd_trainer_rollout_policy_version{{{RUN}}})", "trainer")),
    graph("Time to load an adapter", "From the first chunk to the checked probe, as the trainer sees it.", SECONDS,
          *quantiles("dapd_trainer_adapter_push_duration_seconds", f'{RUN}, role="rollout"')),
    graph("Adapter traffic", "Bytes of adapters sent to rollout workers.", BYTES_PER_SECOND,
          query(f'sum(rate(dapd_trainer_adapter_push_bytes_total{{{RUN}, role="rollout"}}[$__rate_interval]))', "sent")),
]

PROCESSES = [
    graph("Processor", "Cores in use by worker.", COUNT,
          query(f'sum by (instance) (rate(process_cpu_seconds_total{{{PROCESS}, service="rollout"}}[$__rate_interval]))', "{{instance}}")),
    graph("Memory", "Resident memory by worker.", BYTES,
          query(f'process_resident_memory_bytes{{{PROCESS}, service="rollout"}}', "{{instance}}")),
    graph("Uptime", "Falls to 0 where a worker was started again.", SECONDS,
          query(f'time() - process_start_time_seconds{{{PROCESS}, service="rollout"}}', "{{instance}}")),
]

DASHBOARD = dashboard(
    "dapd-rollout", "DAPD / Rollout", "The rollout workers: what they sample, how busy they are, which policy they serve.",
    [("Throughput", THROUGHPUT), ("Load", LOAD), ("Latency and length", LATENCY), ("Policy", POLICY), ("Processes", PROCESSES)])
