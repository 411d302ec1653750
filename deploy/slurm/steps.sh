# Shared functions of the jobs of this folder: what a task of a step does, how a step is
# started and ended, and how the run learns of its workers. The jobs source this file;
# it is not a program.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2317  # read and called by the jobs and by the steps' shells

export DAPD_BIN=${DAPD_BIN:-build/bin}
export DAPD_LISTEN_HOST=${DAPD_LISTEN_HOST:-0.0.0.0}
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
# srun does not inherit this from sbatch by itself.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# srun does inherit these: each step would wait for all GPUs of the job or of its nodes,
# be refused, or lack the variables that this script has exported (sbatch --export).
unset SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_GPU SLURM_GPUS SLURM_GPUS_PER_NODE SLURM_EXPORT_ENV
# A number of tasks for dapd.sbatch; the programs would read it as their key `teachers`.
export -n DAPD_TEACHERS
# A step that asks for no memory takes all memory of a node (--mem), and the next step
# would wait for it. With 0 the steps share it.
if [ -n "${SLURM_MEM_PER_NODE-}" ]; then export SLURM_MEM_PER_NODE=0; fi
# A task of an array is identified by array and index: the number of the last task is
# the number of the whole array.
slurm_job=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_JOB_ID-}" ]; then slurm_job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
# Two jobs on a node get different ports, below the ports that the kernel assigns,
# unless their numbers differ by a multiple of 100: then set another port for one of
# them.
export DAPD_FIRST_PORT=${DAPD_FIRST_PORT:-$((20000 + SLURM_JOB_ID % 100 * 100))}

# The tasks of a role on one node count their ports up from the role's first port; a
# task's metrics port is 10 higher.
most_on_a_node=10
check_ports() {  # ROLE TASKS
  local here
  here=$(tr ',' '\n' <<<"${SLURM_TASKS_PER_NODE:-1}" | sed 's/(.*//' | sort -n | tail -n 1)
  if [ "$here" -gt "$2" ]; then here=$2; fi
  if [ "$here" -gt "$most_on_a_node" ]; then
    echo "$here tasks of the role $1 may land on one node, which has ports for" \
      "$most_on_a_node: ask for fewer with --ntasks-per-node" >&2
    exit 2
  fi
}

# --- What a task does ---------------------------------------------------------
# Publishes the task's address; the file is written aside, then renamed.
announce() {  # NAME PORT
  local file=$DAPD_ANNOUNCEMENTS/$1
  echo "$SLURMD_NODENAME:$2" >"$file.part"
  mv "$file.part" "$file"
}

# Every task starts here. The number lets the job signal the step.
announce_step() {  # NAME COMMAND...
  local file=$DAPD_ANNOUNCEMENTS/step-$1
  shift
  if [ "$SLURM_PROCID" -eq 0 ]; then
    echo "$SLURM_STEP_ID" >"$file.part"
    mv "$file.part" "$file"
  fi
  "$@"
}

# Waits for a child and returns its exit code. A trapped signal ends bash's own wait,
# not the child.
result_of() {  # PROCESS
  while kill -0 "$1" 2>/dev/null; do wait "$1" || true; done
  wait "$1"
}

# Prints the name of the signal by which a program crashed through its own fault; prints
# nothing if the program was killed or ended by itself.
crash_of() {  # CODE
  case $1 in
    132) echo SIGILL ;;
    133) echo SIGTRAP ;;
    134) echo SIGABRT ;;
    135) echo SIGBUS ;;
    136) echo SIGFPE ;;
    139) echo SIGSEGV ;;
  esac
}

# Prints how far a program has come (common/base/work_mark.h).
mark_of() {  # FILE
  local mark=0
  if [ -s "$1" ]; then read -r mark <"$1" || true; fi
  echo "${mark:-0}"
}

# Sleeps until a signal or the time ends it.
rest() {  # MILLISECONDS
  sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" &
  wait $! || true
}

# Tells the job what crashed and where its log is; the job prints this at its end.
announce_crash() {  # WHO SIGNAL TIMES LOG
  local file=$DAPD_ANNOUNCEMENTS/crash-${1// /-}.txt why='' row='' level
  if [ "$2" = SIGILL ]; then
    level=$("$DAPD_BIN/dapd" --version 2>/dev/null | sed -n 's/^kernels  CPU: \([^;]*\).*/\1/p' || true)
    why=" (an instruction that its processor lacks${level:+; it has $level})"
  fi
  if [ "$3" -gt 1 ]; then row=", $3 times in a row with no work done in between"; fi
  echo "$1 crashed by $2$why$row; please report it with its stack, at the end of $4" >"$file.part"
  mv "$file.part" "$file"
}

# Runs one worker of the role, rollout, teacher or teacher-NAME, and restarts it whenever it dies, after pauses that double from 0.2 s
# to 10 s until it has served something. Errors of usage, configuration and model (2, 3,
# 4) are lasting, so the worker is not restarted after them, nor after three crashes in
# a row before it has served.
worker() {  # ROLE PORT [ARGUMENT]...
  local role=$1 program=${1%%-*} port=$(($2 + SLURM_LOCALID)) code
  local metrics=$((port + 10)) stopping='' crashes=0 pause=200 mark=0 before crash
  shift 2
  export DAPD_WORK_MARK=$DAPD_ANNOUNCEMENTS/work-$role-$SLURM_PROCID
  # Slurm signals the task's process group, so the program has the signal, too.
  trap 'stopping=yes' TERM
  announce "metrics-$role-$SLURM_PROCID" "$metrics"
  announce "$role-$SLURM_PROCID" "$port"
  until [ -n "$stopping" ]; do
    "$DAPD_BIN/dapd-$program" "$@" --listen "$DAPD_LISTEN_HOST:$port" \
      --set "metrics.${program}_listen=\"$DAPD_LISTEN_HOST:$metrics\"" &
    result_of $! && code=0 || code=$?
    case $code in 0 | 2 | 3 | 4) return "$code" ;; esac
    if [ -n "$stopping" ]; then return 0; fi
    before=$mark
    mark=$(mark_of "$DAPD_WORK_MARK")
    if [ "$mark" -gt "$before" ]; then crashes=0 pause=200; fi
    crash=$(crash_of "$code")
    if [ -n "$crash" ]; then
      crashes=$((crashes + 1))
      echo "$role $SLURM_PROCID crashed by $crash" >&2
    fi
    if [ "$crashes" -ge 3 ]; then
      announce_crash "$role $SLURM_PROCID" "$crash" "$crashes" "${DAPD_STEP_LOG-}-$SLURM_PROCID.log"
      return 1
    fi
    echo "$role $SLURM_PROCID ended with code $code; restarting it in $pause ms" >&2
    rest "$pause"
    pause=$((pause < 5000 ? 2 * pause : 10000))
  done
}
# The functions are passed as text, because not every srun passes exported functions on.
functions=$(declare -f announce announce_step result_of crash_of mark_of rest announce_crash worker)

# --- Steps --------------------------------------------------------------------
declare -A process  # srun of each step

# Starts a step on as few of the job's nodes as have room; its tasks run COMMAND and
# announce their step. If gpus_of_task is set, each task has that many GPUs instead of
# the job's number per task; with gpu_mask it may use the GPUs of all the step's tasks
# on its node.
gpus_of_task=
gpu_mask=
step() {  # NAME TASKS LOG COMMAND...
  local name=$1 tasks=$2 log=$3
  shift 3
  rm -f "$DAPD_ANNOUNCEMENTS/step-$name"
  export DAPD_STEP_LOG=$DAPD_JOB_FOLDER/$log
  srun --exact --ntasks="$tasks" --job-name="$name" --kill-on-bad-exit=0 \
    --nodes="1-$SLURM_JOB_NUM_NODES" --distribution=block,pack \
    ${gpus_of_task:+--gpus-per-task="$gpus_of_task"} ${gpu_mask:+--gpu-bind=mask_gpu:"$gpu_mask"} \
    --output="$DAPD_JOB_FOLDER/$log-%t.log" --open-mode=append \
    bash -euo pipefail -c "$functions"$'\n"$@"' task announce_step "$name" "$@" &
  process[$name]=$!
}

is_running() { kill -0 "${process[$1]-}" 2>/dev/null; }  # NAME

# Sends SIGTERM to the tasks; srun itself would kill them. As long as no task has begun
# there is only srun, which waits for room.
terminate() {  # NAME
  is_running "$1" || return 0
  if [ -e "$DAPD_ANNOUNCEMENTS/step-$1" ]; then
    scancel --signal=TERM "$slurm_job.$(cat "$DAPD_ANNOUNCEMENTS/step-$1")" || true
  else
    kill "${process[$1]}" || true
  fi
}

stop_steps() {
  local name
  for name in "${!process[@]}"; do terminate "$name"; done
  for name in "${!process[@]}"; do result_of "${process[$name]}" || true; done
}

# Returns whether the job has to make room for another. Slurm signals its steps, but not
# the job. A job that ends within its grace time has to queue again by itself, otherwise
# it counts as failed.
is_preempted() { [[ $(scontrol show job "$slurm_job") == *PreemptTime=[0-9]* ]]; }

# Returns whether the signal before the time limit comes because the limit is shorter
# than the notice (--signal): Slurm looks twice a minute, and signals such a job at its
# first look, every time it is started. A job that has to make room may be signalled as
# early.
is_told_at_once() {
  local age
  if is_preempted || ! [[ $(scontrol show job "$slurm_job") =~ \ StartTime=([0-9T:-]+) ]]; then
    return 1
  fi
  age=$(($(date +%s) - $(date +%s -d "${BASH_REMATCH[1]}")))
  if [ "$age" -ge 60 ]; then return 1; fi
  echo "Slurm announces the end of the job $age s after its start: it runs until its time limit" \
    "and is not queued again. Ask for more time (--time), or for a shorter notice (--signal)" >&2
}

# --- The lists of workers -----------------------------------------------------
# The trainer reads DAPD_JOB_FOLDER/ROLE.addresses, and reads it again while it trains.
# Several jobs write the file; the comment of a line names its job.
own_line="# job $SLURM_JOB_ID\$"
change_list() {  # ROLE: this job's lines become those on standard input
  local list=$DAPD_JOB_FOLDER/$1.addresses
  (
    flock 9
    {
      if [ -e "$list" ]; then grep -v "$own_line" "$list" || true; fi
      cat
    } >"$list.part"
    mv "$list.part" "$list"
  ) 9>"$DAPD_JOB_FOLDER/.$1.lock"
}

# Returns whether a task was given up because it crashes, and prints which task and
# which signal.
has_crashed() { compgen -G "$DAPD_ANNOUNCEMENTS/crash-*.txt" >/dev/null; }
tell_crashes() { has_crashed && cat "$DAPD_ANNOUNCEMENTS"/crash-*.txt >&2; }

# Names the steps that wait, because srun waits for room silently.
name_waiting_steps() {
  local name
  for name in "${!process[@]}"; do
    if [ -e "$DAPD_ANNOUNCEMENTS/step-$name" ]; then continue; fi
    echo "the $name step has waited a minute for processors, memory or GPUs that the job's other" \
      "steps have; where a core has two threads, --cpus-per-task has to be even" >&2
  done
}

# Waits until every task of the role has announced itself; gives up if the job or one of
# its steps ends before.
ending=  # why the job ends; empty while it does not
join_run() {  # ROLE TASKS
  local files=() name looks=0
  while [ ${#files[@]} -lt "$2" ]; do
    if [ -n "$ending" ]; then return 1; fi
    for name in "${!process[@]}"; do
      if ! is_running "$name"; then
        echo "the $name step ended before the $1 workers served; see $DAPD_JOB_FOLDER/*.log" >&2
        return 1
      fi
    done
    sleep 0.2
    if [ $((looks += 1)) -eq 300 ]; then name_waiting_steps; fi
    mapfile -t files < <(find "$DAPD_ANNOUNCEMENTS" -name "$1-*" ! -name '*.part')
  done
  sed "s/\$/  # job $SLURM_JOB_ID/" "${files[@]}" | change_list "$1"
}

# A list that the run has removed stays removed.
leave_run() {  # ROLE
  if [ -e "$DAPD_JOB_FOLDER/$1.addresses" ]; then change_list "$1" </dev/null; fi
}

# Writes the file for Prometheus's file_sd_configs. As on Kubernetes, rules and
# dashboards tell runs of one name apart by `namespace`, which is here the name of the
# job folder.
write_targets() {  # FILE
  local role file namespace=${DAPD_JOB_FOLDER##*/} separator=
  namespace=${namespace//\\/\\\\}  # escaped for a JSON string
  namespace=${namespace//\"/\\\"}
  {
    echo '['
    for role in rollout teacher trainer; do
      for file in "$DAPD_ANNOUNCEMENTS/metrics-$role"-*[0-9]; do
        [ -e "$file" ] || continue
        printf '%s{"targets": ["%s"], "labels": {"job": "dapd-%s", "namespace": "%s"}}' \
          "$separator" "$(cat "$file")" "$role" "$namespace"
        separator=$',\n'
      done
    done
    printf '\n]\n'
  } >"$1.part"
  mv "$1.part" "$1"
}
