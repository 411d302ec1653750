"""Shows what fails and whether the run recovers: workers, retries, staleness, checkpoints, resources, safety, alerts."""

from grafana import (BYTES, COUNT, GREEN, PER_SECOND, PLAIN, PROCESS, RATIO, RED, RUN, SECONDS, YELLOW, dashboard, firing, graph, quantiles,
                     query, stat, table, thresholds, timeline)



def by_state(role):
    # Every trainer rank counts for itself.
    return query(f'max by (state) (dapd_trainer_workers{{{RUN}, role="{role}"}})', "{{state}}")


def share_of_attempts(outcomes):
    return (f'sum by (role) (rate(dapd_trainer_tasks_total{{{RUN}, outcome=~"{outcomes}"}}[$window])) / '
            f'sum by (role) (rate(dapd_trainer_tasks_total{{{RUN}, outcome!="hedged"}}[$window]))')


WORKERS = [
    graph("Rollout workers", "As the trainer sees them. `loading`: taking the newest adapter; `lost`: to be dialled again.", PLAIN,
          by_state("rollout"), stack=True),
    graph("Teacher workers", "As the trainer sees them.", PLAIN, by_state("teacher"), stack=True),
    graph("Starts of processes", "Restarts of processes over the chosen window.", PLAIN,
          query(f"sum by (service) (changes(process_start_time_seconds{{{PROCESS}}}[$window]))", "{{service}}")),
]

TASKS = [
    graph("Attempts that failed", "Attempts at rollouts and scores without a usable result. All but `failed` and `duplicate` are done "
          "again.", PER_SECOND,
          query(f'sum by (role, outcome) (rate(dapd_trainer_tasks_total{{{RUN}, outcome!~"accepted|hedged"}}[$window]))', "{{role}} {{outcome}}")),
    graph("Retried share", "The share of all attempts that were lost, too late, or for other weights.", RATIO,
          query(share_of_attempts("lost|timeout|stale"), "{{role}}")),
    graph("Work done twice", "`hedged`: tasks that took long and were given to a second worker as well; `duplicate`: answers to tasks that "
          "already had one, which are dropped. Both as a share of all attempts.", RATIO,
          query(share_of_attempts("hedged"), "{{role}} hedged"), query(share_of_attempts("duplicate"), "{{role}} duplicate")),
]

POLICY = [
    graph("Policy lag", "Versions by which a rollout worker is behind what it is to serve: 0, or 1 during an update.", PLAIN,
          query(f"clamp_min(max by (namespace, run) (dapd_trainer_rollout_policy_version{{{RUN}}}) - on (namespace, run) group_right dapd_rollout_policy_version{{{PROCESS}}}, 0)",
                "{{instance}}"), width=12),
    graph("Time to load an adapter", "From the first chunk to the checked probe, by role.", SECONDS,
          *quantiles("dapd_trainer_adapter_push_duration_seconds", RUN, by="role"), width=12),
]

CHECKPOINTS = [
    stat("Newest checkpoint", "Its step.", PLAIN, query(f"max(dapd_checkpoint_last_step{{{RUN}}})", "step"), width=3),
    stat("Its age", "Time since it was saved.", SECONDS,
         query(f"time() - max(dapd_checkpoint_last_saved_timestamp_seconds{{{RUN}}})", "age"), width=3),
    stat("Failed writes", "Over the chosen window: of checkpoints, and of the run's other files. The previous checkpoint stays what it was.", PLAIN,
         query(f"sum(increase(dapd_checkpoint_failures_total{{{RUN}}}[$window]))", "failures"), levels=thresholds(GREEN, (0.5, RED)), decimals=0,
         width=3),
    stat("Waiting for the disk", "1 while training waits for a write to succeed (checkpoint.on_write_error).", PLAIN,
         query(f"max(dapd_trainer_paused_for_disk{{{RUN}}})", "waits"), levels=thresholds(GREEN, (1, RED)), width=3),
    stat("Resumes", "1 if this trainer process resumed a run that an earlier one had started.", PLAIN,
         query(f"sum(dapd_resumes_total{{{RUN}}})", "resumes"), levels=thresholds(GREEN, (1, YELLOW)), width=3),
    stat("Answers recalled", "Answers that this process took from the ledger instead of sampling them again.", PLAIN,
         query(f"sum(dapd_trainer_recalled_answers_total{{{RUN}}})", "answers"), width=3),
    stat("Free disk", "Of the file system that holds the run folder.", BYTES, query(f"min(dapd_trainer_disk_free_bytes{{{RUN}}})", "free"), width=3),
    stat("Free share", "Of the file system that holds the run folder.", RATIO,
         query(f"min(dapd_trainer_disk_free_bytes{{{RUN}}} / dapd_trainer_disk_size_bytes{{{RUN}}})", "free"),
         levels=thresholds(RED, (0.1, YELLOW), (0.2, GREEN)), decimals=0, width=3),
    graph("Steps since a checkpoint", "What a crash would cost, and the interval that is set.", PLAIN,
          query(f"max(dapd_trainer_policy_version{{{RUN}}}) - max(dapd_checkpoint_last_step{{{RUN}}})", "steps"),
          query(f"max(dapd_trainer_checkpoint_interval_steps{{{RUN}}})", "interval")),
    graph("Time to save a checkpoint", "Written, synced and verified.", SECONDS, *quantiles("dapd_checkpoint_seconds", RUN)),
    graph("Checkpoints", "Saved, and failed to save, over the chosen window.", PLAIN,
          query(f"sum(increase(dapd_checkpoint_saved_total{{{RUN}}}[$window]))", "saved"),
          query(f"sum(increase(dapd_checkpoint_failures_total{{{RUN}}}[$window]))", "failed")),
]

COPIES = [
    graph("Copy behind", "Steps by which the copy of the run (checkpoint.copy_to) is behind the newest checkpoint: 0, and an interval while one "
          "is on its way.", PLAIN,
          query(f"max(dapd_checkpoint_last_step{{{RUN}}}) - max(dapd_checkpoint_copied_step{{{RUN}}})", "steps"),
          query(f"max(dapd_trainer_checkpoint_interval_steps{{{RUN}}})", "interval")),
    graph("Copies", "Over the chosen window: checkpoints copied, attempts that failed and are made again, and checkpoints that newer ones "
          "overtook.", PLAIN,
          query(f"sum(increase(dapd_checkpoint_copied_total{{{RUN}}}[$window]))", "copied"),
          query(f"sum(increase(dapd_checkpoint_copy_failures_total{{{RUN}}}[$window]))", "failed"),
          query(f"sum(increase(dapd_checkpoint_copy_left_out_total{{{RUN}}}[$window]))", "left out")),
    graph("Time to copy a checkpoint", "Sent, read back, and older copies thinned.", SECONDS,
          *quantiles("dapd_checkpoint_copy_seconds", RUN)),
]

RESOURCES = [
    graph("Memory", "Resident memory by process. A line that only rises is a leak.", BYTES,
          query(f"process_resident_memory_bytes{{{PROCESS}}}", "{{service}} {{instance}}")),
    graph("Open files", "File descriptors by process.", COUNT, query(f"process_open_fds{{{PROCESS}}}", "{{service}} {{instance}}")),
    graph("Scrapes", "Time that Prometheus needs to scrape a process; a gap means that it could not reach it.", SECONDS,
          query('scrape_duration_seconds{job=~"dapd-.+", namespace="$namespace", instance=~"$instance"} '
                f"and on (job, namespace, instance) dapd_build_info{{{PROCESS}}}", "{{job}} {{instance}}")),
]

# These metrics are dcgm-exporter's, which knows no runs, so they are of all GPUs that Prometheus scrapes. The queries
# use the names until 4.8 and the names since, some of which are in other units; `Hostname` became `hostname` in 4.8.3,
# and a missing label leaves nothing in a legend.
GPU = "{{Hostname}}{{hostname}} {{gpu}}"

GPUS = [
    graph("GPU busy", "Share of time in which any kernel ran. Of all GPUs that dcgm-exporter watches, like the panels beside it.", RATIO,
          query("DCGM_FI_DEV_GPU_UTIL / 100 or DCGM_FI_DEV_GPU_UTIL_RATIO", GPU), high=1),
    graph("Tensor cores busy", "Share of cycles in which the matrix units worked: how much of the GPU's speed is used.", RATIO,
          query("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE or DCGM_FI_PROF_TENSOR_UTIL_RATIO", GPU), high=1),
    graph("GPU memory", "Memory in use, with what libraries keep for later.", BYTES,
          query("DCGM_FI_DEV_FB_USED * 1048576 or DCGM_FI_DEV_FB_USED_BYTES", GPU)),
    graph("GPU power", "In watts; near the limit the clock falls.", "watt",
          query("DCGM_FI_DEV_POWER_USAGE or DCGM_FI_DEV_BOARD_POWER_WATTS", GPU)),
    graph("GPU temperature", "In degrees Celsius; one that is hotter than its neighbours slows a step of all ranks.", "celsius",
          query("DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_CELSIUS", GPU)),
    graph("GPU errors", "NVIDIA's number (XID) of the last error; 0: none. It stays until the exporter starts again.", PLAIN,
          query("DCGM_FI_DEV_XID_ERRORS or DCGM_FI_DEV_XID_ERROR", GPU)),
]

SAFETY = [
    stat("Plaintext listeners", "Listeners of processes, gRPC or metrics, that other machines can reach in plain text.", PLAIN,
         query(f"sum(dapd_insecure{{{RUN}}})", "listeners"), levels=thresholds(GREEN, (1, YELLOW)), height=8),
    graph("Refused calls", "Calls refused before any handler saw them: without a valid certificate or token, with one whose role is not "
          "allowed to, or of an unknown method.", PER_SECOND,
          query(f"sum by (reason) (rate(dapd_rpc_refused_total{{{PROCESS}}}[$window]))", "{{reason}}"), width=10),
    graph("Calls that an exception ended", "The caller gets INTERNAL, the process lives on; its log has the reason.", PER_SECOND,
          query(f"sum by (instance) (rate(dapd_rpc_exceptions_total{{{PROCESS}}}[$window]))", "{{instance}}"), width=10),
]

ALERTS = [
    timeline("Alerts over time", "A bar while an alert fired.",
             query(f"max by (alertname) ({firing()})", "{{alertname}}"),
             colour=RED, height=8),
    table("Firing alerts", "The dashboard DAPD / Runbook says what to do about each.",
          query(firing(), "{{alertname}}", instant=True), ("alertstate", "system", "job")),
]

DASHBOARD = dashboard(
    "dapd-reliability", "DAPD / Reliability", "What goes wrong, and whether the run recovers from it.",
    [("Workers", WORKERS), ("Attempts", TASKS), ("Policy", POLICY), ("Checkpoints", CHECKPOINTS), ("Copies", COPIES),
     ("Resources", RESOURCES), ("GPUs", GPUS),
     ("Safety", SAFETY), ("Alerts", ALERTS)])
