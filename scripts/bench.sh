#!/usr/bin/env bash
# Measures longshore against scripts/baseline.sh: the same stories of one small file each, the same image, the same
# limits, in turn, each in a fresh repo with 200 files. Prints the seconds of each run, their ratio, and the median.
#
# usage: scripts/bench.sh [--verify CMD] [PAIRS [STORIES [PARALLEL]]]     (5 pairs of 24 stories, 8 at a time)
#   --verify CMD  a command that each story must pass: longshore checks the merged tree, the baseline each story
#
# longshore's time is that of the whole program, from its start to its exit; the baseline's is from its first sandbox
# to its last merge. Below 1.0 longshore is faster, with verification, journal and hardening, which the baseline lacks.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/bin"
check=
if [ "${1:-}" = --verify ] && [ $# -gt 1 ]; then
  check=$2
  shift 2
fi
for number in "$@"; do
  case "$number" in
    '' | *[!0-9]* | 0)
      sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" >&2
      exit 2
      ;;
  esac
done
pairs=${1:-5} stories=${2:-24} parallel=${3:-8}
image=longshore/sandbox:latest

./scripts/setup.sh
./scripts/build.sh
source=$PWD

objects_volumes() { docker volume ls -q --filter label=dev.longshore.role=objects | sort; }
volumes_before=$(objects_volumes)
work=$(mktemp -d "${TMPDIR:-/tmp}/longshore-bench.XXXXXX")
clean_up() {
  rm -rf "$work"
  for volume in $(comm -13 <(echo "$volumes_before") <(objects_volumes)); do
    docker volume rm "$volume" >/dev/null 2>&1 || true
  done
}
trap clean_up EXIT

# The tasks file: STORIES stories that know nothing of each other.
{
  printf '{"schemaVersion": "3.0", "metadata": {"title": "Bench", "type": "feat", "branchName": "feature", '
  printf '"createdAt": "2026-01-01"}, "userStories": ['
  for n in $(seq "$stories"); do
    if [ "$n" -gt 1 ]; then printf ', '; fi
    printf '{"id": "US-%03d", "title": "Story %d", "description": "One file.", "acceptanceCriteria": [], ' "$n" "$n"
    printf '"priority": 1, "status": "pending", "dependsOn": [], "notes": "", '
    printf '"command": "echo %d > story-%d.txt"}' "$n" "$n"
  done
  printf ']}\n'
} >"$work/tasks.json"

fresh_repo() {
  git init -q -b main "$1"
  git -C "$1" config user.name bench
  git -C "$1" config user.email bench@localhost
  mkdir "$1/src"
  for n in $(seq 200); do seq 100 >"$1/src/file$n.txt"; done
  git -C "$1" add --all
  git -C "$1" commit -q -m base
}

# A time counts only if every story is on the branch.
all_there() {
  local found
  found=$(git -C "$1" ls-tree --name-only feature | grep -c '^story-') || true
  if [ "$found" != "$stories" ]; then
    echo "bench: error: $found of $stories stories are on the branch in $1" >&2
    return 1
  fi
}

time_longshore() {
  local repo=$1 began ended
  began=$(date +%s%N)
  if ! "$source/target/dist/longshore" -C "$repo" run "$work/tasks.json" --yes --max "$parallel" --image "$image" \
    --memory 512m --cpus 1 ${check:+--verify "$check"} >"$work/log" 2>&1 </dev/null; then
    tail -n 30 "$work/log" >&2
    return 1
  fi
  ended=$(date +%s%N)
  awk -v ns="$((ended - began))" 'BEGIN { printf "%.2f\n", ns / 1e9 }'
}

printf '%s stories, %s at a time\n' "$stories" "$parallel"
printf '%-5s %12s %12s %8s\n' pair longshore baseline ratio
for pair in $(seq "$pairs"); do
  fresh_repo "$work/longshore-$pair"
  ours=$(time_longshore "$work/longshore-$pair")
  all_there "$work/longshore-$pair"
  fresh_repo "$work/baseline-$pair"
  theirs=$("$source/scripts/baseline.sh" "$work/baseline-$pair" "$image" "$stories" "$parallel" ${check:+"$check"})
  all_there "$work/baseline-$pair"
  ratio=$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.3f", a / b }')
  echo "$ratio" >>"$work/ratios"
  printf '%-5s %10s s %10s s %8s\n' "$pair" "$ours" "$theirs" "$ratio"
  rm -rf "$work/longshore-$pair" "$work/baseline-$pair"
done
sort -n "$work/ratios" | awk '{ r[NR] = $1 } END {
  m = NR % 2 ? r[(NR + 1) / 2] : (r[NR / 2] + r[NR / 2 + 1]) / 2
  printf "median ratio of %d pairs: %.3f (longshore / baseline; lower is better)\n", NR, m
}'
