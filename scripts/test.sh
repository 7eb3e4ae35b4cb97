#!/usr/bin/env bash
# All checks and all tests, those with real Docker sandboxes included; sets this machine up first.
#
# usage: scripts/test.sh [TEST FILTER...]
#   with filters: only the tests whose names contain one of them, without the other checks
#
# The last line says how many tests passed and failed. Exits 0 only if every step succeeded.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/bin"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
exec </dev/null

started=$SECONDS
output=$(mktemp "${TMPDIR:-/tmp}/longshore-test.XXXXXX")
trap 'rm -f "$output"' EXIT

failed_steps=()
# step NAME COMMAND...: runs it; a failure is remembered, and the next step goes on.
step() {
  local name=$1 code=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || code=$?
  if [ "$code" != 0 ]; then
    printf '== %s: FAILED (%s)\n' "$name" "$code"
    failed_steps+=("$name")
  fi
}

# Nothing here may run for ever, whatever a test does.
bounded() {
  local minutes=$1
  shift
  if command -v timeout >/dev/null; then timeout --kill-after=30 "${minutes}m" "$@"; else "$@"; fi
}

containers() { docker ps -aq --no-trunc --filter label=dev.longshore.swarm | sort; }
volumes() { docker volume ls -q --filter label=dev.longshore.swarm | sort; }

# What there is now and was not there before; $1 lists, $2 is the list of before.
fresh() { comm -13 <(printf '%s\n' "$2") <("$1") | sed '/^$/d'; }

nothing_left() {
  local wait left_containers left_volumes
  # A removal that was asked for may take a moment.
  for wait in 1 2 3 4 5 0; do
    left_containers=$(fresh containers "$containers_before")
    left_volumes=$(fresh volumes "$volumes_before")
    if [ -z "$left_containers$left_volumes" ]; then
      echo 'no container and no volume was left behind'
      return 0
    fi
    sleep "$wait"
  done
  echo 'the tests left these behind:'
  local id
  for id in $left_containers; do docker ps -a --filter "id=$id" --format 'container {{.Names}} ({{.Status}})'; done
  for id in $left_volumes; do echo "volume $id"; done
  return 1
}

shim_size() {
  local size limit=$((3 * 1024 * 1024))
  size=$(wc -c <target/dist/acp-shim)
  echo "acp-shim: $size bytes, $limit allowed"
  [ "$size" -lt "$limit" ]
}

# Where there is a release build, it must not have what tests end the program with.
no_test_hooks() {
  local program found=0
  for program in target/dist/longshore target/release/longshore; do
    if [ -e "$program" ] && grep -q LONGSHORE_TEST_ "$program"; then
      echo "$program knows the hooks for tests (LONGSHORE_TEST_...)"
      found=1
    fi
  done
  return "$found"
}

shellcheck_scripts() { shellcheck scripts/*.sh .ci/run; }

run_tests() {
  if command -v cargo-nextest >/dev/null; then
    bounded 40 cargo nextest run --locked --no-fail-fast "$@"
  elif [ $# -gt 1 ]; then
    echo 'without cargo-nextest, give one filter at most' >&2
    return 2
  else
    bounded 40 cargo test --locked --no-fail-fast --lib --bins --tests "$@"
  fi
}

doc_tests() { logged bounded 20 cargo test --quiet --locked --doc; }

# Shows what a command says, and keeps it to be counted.
logged() { "$@" 2>&1 | tee -a "$output"; }

# "12 passed, 0 failed", summed up over the runners' closing lines. A test that timed out has failed.
counted() {
  sed 's/\x1b\[[0-9;]*m//g' "$output" | awk '
    /^ *Summary \[/ || /^test result:/ {
      for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) passed += $(i - 1)
        if ($i ~ /^failed/ || $i ~ /^timed/) failed += $(i - 1)
      }
    }
    END { printf "%d passed, %d failed\n", passed, failed }'
}

./scripts/setup.sh --tests
containers_before=$(containers)
volumes_before=$(volumes)

if [ $# = 0 ]; then
  step 'format' cargo fmt --check
  step 'lints' bounded 30 cargo clippy --quiet --locked --all-targets -- -D warnings
  step 'lints of the shim alone' bounded 30 cargo clippy --quiet --locked --no-default-features --features shim \
    --lib --bin acp-shim -- -D warnings
  if command -v shellcheck >/dev/null; then step 'lints of the scripts' shellcheck_scripts; fi
  if command -v cargo-deny >/dev/null; then
    step 'licences and sources of dependencies' cargo deny --offline check bans licenses sources
  fi
fi
step 'shim' bounded 30 ./scripts/build.sh --shim-only
if [ $# = 0 ]; then
  step 'size of the shim' shim_size
  step 'no hooks for tests in release builds' no_test_hooks
fi

# The tests that run sandboxes take the shim from here.
export LONGSHORE_SHIM=$PWD/target/dist/acp-shim
step 'tests' logged run_tests "$@"
if [ $# = 0 ]; then
  step 'tests in the documentation' doc_tests
fi
step 'what is left behind' nothing_left

count=$(counted)
printf '\n== %s s\n' "$((SECONDS - started))"
if [ "${count%% *}" = 0 ]; then failed_steps+=('no test ran'); fi
if [ ${#failed_steps[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed_steps[@]}"
  echo "tests: $count"
  exit 1
fi
echo 'every step succeeded'
echo "tests: $count"
