# The scripts of this repository source this file.
#
# phase NAME LOG COMMAND...   runs COMMAND with its output in LOG and prints one
#   line with the seconds it took; on a terminal the line is updated while the
#   command runs. After a failure it prints the end of the log and returns the
#   code of COMMAND. COMMAND may be a function; join its steps by &&, since
#   errexit does not apply within it.

phase() {
  local name=$1 log=$2 start=$SECONDS code=0 ticker=
  shift 2
  mkdir -p "$(dirname "$log")"
  : >"$log"
  if [ -t 1 ]; then
    show_progress "$name" "$log" &
    ticker=$!
  fi
  "$@" >"$log" 2>&1 </dev/null || code=$?
  if [ -n "$ticker" ]; then
    kill "$ticker"
    wait "$ticker" 2>/dev/null || true
    printf '\r\033[K'
  fi
  printf '%-44s %4d s\n' "$name" $((SECONDS - start))
  if [ "$code" -ne 0 ]; then
    tail -n 40 "$log" | cut -c 1-400 >&2
    echo "$name failed with code $code; the whole log: $log" >&2
  fi
  return "$code"
}

# Rewrites one terminal line every second, for as long as the script lives.
show_progress() {
  local name=$1 log=$2 start=$SECONDS
  while kill -0 $$ 2>/dev/null; do
    printf '\r\033[K%-44s %4d s  %s' "$name" $((SECONDS - start)) \
      "$(tail -n 1 "$log" | tr -cd '[:print:]' | cut -c 1-28)"
    sleep 1
  done
}
