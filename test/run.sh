#!/usr/bin/env bash
# run.sh runs targets of the Makefile that test, and says how each went: run.sh N STREAM…
#
# A stream is a list of targets, which come one after another. N streams are under way at once: when one has ended, the next
# begins, so that no processor is idle while there is something to do. Those with containers come first, and the longest of
# them: Linux shares processors out by session (sched(7), autogroup), of which a test of the lab has dozens, and beside two
# streams of those a container gets a tenth. A target that fails stops no other. In the end stand the slowest tests, how busy
# processors were, the peak of memory, the time of each target, and last, of each test that failed, its own words, and how to
# run it alone: of a long log often only the end is kept. All that was printed is kept if something failed.
# AGENT_INIT_TEST_LOGS names a directory that keeps it always.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $# -gt 1 && $1 =~ ^[1-9]$ ]] || { echo "usage: run.sh N STREAM…" >&2; exit 64; }
at_once=$1
shift
streams=("$@")
module=$(sed -n 's/^module //p' go.mod)
read -ra targets <<<"$*"

began=$SECONDS
table=
engine=${AGENT_INIT_TEST_RUN:-/run/agent-init-test}
logs=${AGENT_INIT_TEST_LOGS:-}
[ -n "$logs" ] || logs=$(mktemp -d "${TMPDIR:-/tmp}/agent-init-test.XXXXXX")
mkdir -p "$logs"
rm -f "$logs"/*.{log,pid,times,result,progress} "$logs"/{memory,taken,failures}
keep=${AGENT_INIT_TEST_LOGS:-}

# Each target is a process group of its own, so that all of it can be ended.
finish() {
  trap '' HUP INT TERM
  streaming=$(jobs -p) # and what watches memory
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
  for ((n = 0; n < at_once; n++)); do AGENT_INIT_TEST_RUN=$engine-$n test/engine.sh stop >&2 || true; done
  [ -n "$keep" ] || rm -rf "$logs"
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

say() { printf '[%4d s] %s\n' "$((SECONDS - began))" "$*"; }

# ticks is what all processors of this machine have worked and had, in hundredths of a second (proc_stat(5)).
ticks() { awk '/^cpu / {for (i = 2; i <= 9; i++) all += $i; print all - $5 - $6, all}' /proc/stat; }
before=$(ticks)

# Targets, and before them the build and what is installed.
of=$((${#targets[@]} + 2))

# watch notes the peak of memory in use, in MiB, and tells each minute what is under way.
watch() {
  local peak=0 used last=$SECONDS running pid target how
  while sleep 1; do
    used=$(awk '/^MemTotal:/ {t = $2} /^MemAvailable:/ {printf "%d", (t - $2) / 1024}' /proc/meminfo)
    if [ "$used" -gt "$peak" ]; then
      peak=$used
      echo "$peak" >"$logs/memory"
    fi
    [ $((SECONDS - last)) -ge 60 ] || continue
    last=$SECONDS
    running=
    for pid in "$logs"/*.pid; do
      [ -e "$pid" ] || continue
      target=$(basename "$pid" .pid)
      how=$(progress "$target")
      running+="; $target: $how"
    done
    say "under way${running#;}"
  done
}

# progress TARGET: how many of its tests have passed, and what runs. Of scripts, the log says it.
progress() {
  if [ -s "$logs/$1.progress" ]; then
    head -n 1 "$logs/$1.progress" || true # a test's end may take it away
    return
  fi
  awk '
    /^ *--- PASS: / { passed++ }
    /^ *--- FAIL: / { failed = failed " " $3 }
    /^=== (RUN|CONT) / { test = $3 }
    /^(ok|FAIL)\t/ { test = "" }
    NF { last = $0 }
    END {
      printf "%d tests passed", passed
      if (failed != "") printf ", FAILED:%s", failed
      if (test != "") printf ", runs %s", test
      else printf ", says: %s", substr(last, 1, 100)
    }' "$logs/$1.log" || true
}

# reasons VERDICT LOG: a line that names what failed in there.
reasons() {
  awk -v said="$1" '
    /^ *--- FAIL: / || /^scorecard FAILED: / || /^(FAILED|panic|leftovers\.sh): / || /^[a-z][a-z\/_-]*\.(go|sh):[0-9]+:/ || /^In .* line / {
      sub(/^ *(--- FAIL: )?/, "")
      if (++n <= 12) said = said "; " $0
    }
    END { print said }' "$2"
}

# run TARGET: its output is kept, its time and its end are noted.
run() {
  local from=$SECONDS rc=0 verdict results
  say "$1 begins"
  # What nohup, or a script's &, has this ignore would be ignored by all tests.
  AGENT_INIT_TEST_PROGRESS=$logs/$1.progress setsid env --default-signal make --no-print-directory "$1" </dev/null >"$logs/$1.log" 2>&1 &
  echo $! >"$logs/$1.pid"
  wait $! || rc=$?
  rm "$logs/$1.pid"
  # The processor's time of what was started, and of what that has waited for. A pipe would be a shell without children.
  local cpu
  times >"$logs/$1.times"
  cpu=$(awk 'NR == 2 {for (i = 1; i <= 2; i++) {split($i, t, /[ms]/); sum += t[1] * 60 + t[2]}; printf "%.0f", sum}' "$logs/$1.times")
  echo "$rc $((SECONDS - from)) $cpu" >"$logs/$1.result"
  if [ "$rc" -eq 0 ]; then verdict=passed; else verdict=$(reasons "FAILED ($rc)" "$logs/$1.log"); fi
  results=("$logs"/*.result)
  say "$1 $verdict, $((SECONDS - from)) s: ${#results[@]} of $of have ended"
}

# What several of them need is made once, before.
KEEP_ENGINE=1 AGENT_INIT_BIN=$PWD/bin/agent-init
# The same all the time, so that none of them builds the program again while others run it.
VERSION=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
# -v is for the list of the slowest.
GOFLAGS="$(go env GOFLAGS) -v"
# It says how many of how many tests have ended.
GOTEST="go run ./internal/lab/cmd/gotest"
export KEEP_ENGINE AGENT_INIT_BIN VERSION GOFLAGS GOTEST
watch &
watching=$!
(run test-prepare) &
preparing=$!
(run build) &
wait $preparing $!

# take has stream be the next one, and no other's; empty if all were taken.
take() {
  exec 9>>"$logs/taken"
  flock 9
  stream=$(wc -l <"$logs/taken")
  echo "$BASHPID" >&9
  exec 9>&-
  stream=${streams[stream]-}
}

# Those with containers need an engine, whose network has room for one internet.
streaming=()
for ((n = 0; n < at_once; n++)); do
  take
  while [ -n "$stream" ]; do
    for target in $stream; do
      # In a shell of its own, whose children's time is this target's.
      (AGENT_INIT_TEST_RUN=$engine-$n && export AGENT_INIT_TEST_RUN && run "$target")
    done
    take
  done &
  streaming+=($!)
done
wait "${streaming[@]}"

kill $watching
wait $watching || true

failed=()
for target in test-prepare build "${targets[@]}"; do
  read -r rc took cpu <"$logs/$target.result" || rc=none took=0 cpu=0
  verdict=
  if [ "$rc" != 0 ]; then
    verdict=": FAILED ($rc)"
    failed+=("$target")
  fi
  printf -v line '%7d  %11d  %s%s' "$took" "$cpu" "$target" "$verdict"
  table+=$'\n'$line
done

awk -f test/report.awk "$logs"/*.log
after=$(ticks)
read -r worked had working having <<<"$before $after"
say "all of them; processors at work: $((100 * (working - worked) / (having - had))) %; memory in use, at most: $(cat "$logs/memory" || true) MiB"
printf "\nseconds  processor's  target%s\n" "$table"

# alone TARGET TEST PACKAGE: the command that runs it by itself. What is no test of Go's is made again.
alone() {
  local environment='CGO_ENABLED=0 ' run="go test -C .${3#"$module"} -count=1 -v" only="'^${2//\//\$/^}\$'" where=' .'
  case $1 in
    test-race) environment='CGO_ENABLED=1 ' run+=' -race' ;;
    test-lab-up | test-lab-sidecar) environment+="AGENT_INIT_TEST_MODE=${1#test-lab-} " ;;
    test-lab-xtables-legacy) environment+="AGENT_INIT_TEST_BACKEND=${1#test-lab-} " ;;
    test-container | test-claude) run='test/container.sh -v' where='' ;;
    test-attack | test-checks | test-unit | test-spine) ;;
    *) echo "make $1"; return ;;
  esac
  # The tests above its own are named as well. A package is named by its folder, which may be in
  # a module of its own.
  echo "make build && ${environment}AGENT_INIT_BIN=\$PWD/bin/agent-init $run -run $only$where"
}

# words TARGET LOG: of each test that failed in there, what it said, and how to run it alone; else the end of the log.
words() {
  local test package listed
  listed=$(awk -v list=1 -f test/words.awk "$2")
  while IFS=$'\t' read -r test package; do
    [ -n "$test" ] || continue
    printf '\n== FAILED: %s %s\n' "$1" "$test"
    awk -v only="$test" -f test/words.awk "$2"
    echo -n "alone: "
    alone "$1" "$test" "$package"
  done <<<"$listed"
  if [ -z "$listed" ] || grep -qE '^(panic|leftovers\.sh): ' "$2"; then
    printf '\n== the end of %s:\n' "$1"
    awk '/^(panic|leftovers\.sh): / && !n { n = 1 } n && n++ <= 60' "$2"
    tail -n 40 "$2"
    echo "alone: make $1"
  fi
}

# summary stands last, and in a file: of a long log often only the end is kept.
summary() {
  local target
  for target in "${failed[@]}"; do reasons "$target FAILED" "$logs/$target.log"; done
  echo "all that was printed: $logs/*.log; this again: $logs/failures"
  for target in "${failed[@]}"; do words "$target" "$logs/$target.log"; done
}
if [ ${#failed[@]} -gt 0 ]; then
  keep=yes
  summary | tee "$logs/failures"
  exit 1
fi
