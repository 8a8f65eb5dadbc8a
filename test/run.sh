#!/usr/bin/env bash
# run.sh runs targets of the Makefile that test, all of them or those that are named, some beside others, and says how each
# went: run.sh [TARGET…]
#
# Most of the lab's time is spent waiting, most of the images' on building: beside one another they take half as long.
# Within a stream one target comes after another, in the order of the list below. A target that fails stops no other.
# In the end stand the time of each, the slowest tests, and what the failed tests printed. AGENT_INIT_TEST_LOGS names a
# directory that keeps all of what was printed.
set -euo pipefail
cd "$(dirname "$0")/.."

# Each stream with containers has an engine of its own, whose network has room for one internet.
streams=(
  "test-race"
  "test-lab-xtables-nft test-lab-up test-lab-sidecar test-lab-xtables-legacy"
  "lint test-gvisor"
  "test-container test-images test-agents"
  "test-places scorecard"
)

for target; do
  case " ${streams[*]} " in *" $target "*) ;; *)
    echo "run.sh: no such target: $target; there is: ${streams[*]}" >&2
    exit 64
    ;;
  esac
done
[ $# -gt 0 ] || set -- "${streams[@]}"
wanted=" $* "

began=$SECONDS
engine=${AGENT_INIT_TEST_RUN:-/run/agent-init-test}
logs=${AGENT_INIT_TEST_LOGS:-}
[ -n "$logs" ] || logs=$(mktemp -d)
mkdir -p "$logs"
rm -f "$logs"/*.{log,pid,times,result}

# Each target is a process group of its own, so that all of it can be ended.
finish() {
  trap '' HUP INT TERM
  streaming=$(jobs -p)
  # shellcheck disable=SC2086 # a list
  [ -z "$streaming" ] || kill $streaming 2>/dev/null || true
  groups=$(cat "$logs"/*.pid 2>/dev/null || true)
  for signal in TERM KILL; do
    for group in $groups; do kill "-$signal" -- "-$group" 2>/dev/null || true; done
    for group in $groups; do
      for _ in {1..300}; do
        kill -0 -- "-$group" 2>/dev/null || break
        sleep 0.1
      done
    done
  done
  wait
  for n in "${!streams[@]}"; do AGENT_INIT_TEST_RUN=$engine-$n test/engine.sh stop >&2 || true; done
  [ -n "${AGENT_INIT_TEST_LOGS:-}" ] || rm -rf "$logs"
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

say() { printf '[%4d s] %s\n' "$((SECONDS - began))" "$*"; }

# run TARGET: its output is kept, its time and its end are noted.
run() {
  local from=$SECONDS rc=0
  say "$1 begins"
  setsid make --no-print-directory "$1" </dev/null >"$logs/$1.log" 2>&1 &
  echo $! >"$logs/$1.pid"
  wait $! || rc=$?
  rm "$logs/$1.pid"
  # The processor's time of what was started, and of what that has waited for. A pipe would be a shell without children.
  local cpu
  times >"$logs/$1.times"
  cpu=$(awk 'NR == 2 {for (i = 1; i <= 2; i++) {split($i, t, /[ms]/); sum += t[1] * 60 + t[2]}; printf "%.0f", sum}' "$logs/$1.times")
  echo "$rc $((SECONDS - from)) $cpu" >"$logs/$1.result"
  if [ "$rc" -eq 0 ]; then say "$1 passed, $((SECONDS - from)) s"; else say "$1 FAILED ($rc), $((SECONDS - from)) s"; fi
}

# What several of them need is made once, before.
KEEP_ENGINE=1 AGENT_INIT_BIN=$PWD/bin/agent-init
# The same all the time, so that none of them builds the program again while others run it.
VERSION=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
export KEEP_ENGINE AGENT_INIT_BIN VERSION
(run test-prepare) &
(run build) &
wait

for n in "${!streams[@]}"; do
  for target in ${streams[n]}; do
    # In a shell of its own, whose children's time is this target's.
    case $wanted in *" $target "*) (AGENT_INIT_TEST_RUN=$engine-$n && export AGENT_INIT_TEST_RUN && run "$target") ;; esac
  done &
done
wait

echo
echo "seconds  processor's  target"
failed=()
for target in test-prepare build $wanted; do
  read -r rc took cpu <"$logs/$target.result" || rc=none took=0 cpu=0
  verdict=
  if [ "$rc" != 0 ]; then
    verdict=": FAILED ($rc)"
    failed+=("$target")
  fi
  printf '%7d  %11d  %s%s\n' "$took" "$cpu" "$target" "$verdict"
done
say "all of them"
awk -f test/report.awk "$logs"/*.log
for target in ${failed[@]+"${failed[@]}"}; do
  printf '\n== the end of %s:\n' "$target"
  tail -n 60 "$logs/$target.log"
done
[ ${#failed[@]} -eq 0 ]
