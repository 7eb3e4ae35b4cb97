#!/usr/bin/env bash
# Makes this machine ready to build and run longshore, and says in one line what it did. Called by the other scripts;
# run again, it only looks.
#
# usage: scripts/setup.sh [--dry-run] [--tests]
#   --dry-run   say what is missing and what would be done; change nothing
#   --tests     also what only the tests need: libfaketime
#
# As root on Debian or Ubuntu it installs what is missing with apt-get: a C compiler, git, Docker. It starts the daemon
# if none answers. Anywhere else it says what to install and exits 3. The image of the sandboxes is built from
# images/sandbox; its base is Debian's public slim image, or, where no registry answers, a root filesystem made by
# debootstrap.
#
# Environment: SANDBOX_TAG, BASE_TAG: other names for the two images. DOCKER_HOST, docker contexts: as docker has them.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH:/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin"

readonly sandbox_tag=${SANDBOX_TAG:-longshore/sandbox:latest}
readonly base_tag=${BASE_TAG:-longshore/base:bookworm}
readonly public_base=debian:bookworm-slim
readonly rust_wanted=1.90 git_wanted=2.38
readonly dockerfile=images/sandbox/Dockerfile

dry_run=false for_tests=false
for option in "$@"; do
  case "$option" in
    --dry-run) dry_run=true ;;
    --tests) for_tests=true ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" >&2; exit 2 ;;
  esac
done

log=$(mktemp "${TMPDIR:-/tmp}/longshore-setup.XXXXXX")
scratch=
clean_up() {
  rm -f "$log"
  if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
}
trap clean_up EXIT

say() { printf 'setup: %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

# What is missing and what to do about it, a line each; exit code 3 is "the machinery is not there".
give_up() {
  printf 'setup: error: %s\n' "$1" >&2
  shift
  if [ $# -gt 0 ]; then printf 'setup:   %s\n' "$@" >&2; fi
  exit 3
}

# Runs a command into the log; what it said is shown only if it failed.
quietly() {
  if ! "$@" >>"$log" 2>&1 </dev/null; then
    tail -n 30 "$log" >&2
    return 1
  fi
}

# True if this script may install packages: root, and a system with apt-get.
may_install() { [ "$(id -u)" = 0 ] && have apt-get; }

apt_updated=false
apt_install() {
  say "installing $* (apt-get)"
  if $dry_run; then return; fi
  export DEBIAN_FRONTEND=noninteractive
  if ! $apt_updated; then
    # A third-party source that does not answer is no reason to stop: the install below decides.
    quietly timeout 300 apt-get update || true
    apt_updated=true
  fi
  quietly timeout 900 apt-get install -y --no-install-recommends "$@" ||
    give_up "apt-get could not install $*" "its last lines are above"
}

# at_least WANTED FOUND: compares the first two numbers.
at_least() {
  awk -v want="$1" -v found="$2" 'BEGIN {
    split(want, w, "."); split(found, f, ".")
    exit !(f[1] + 0 > w[1] + 0 || (f[1] + 0 == w[1] + 0 && f[2] + 0 >= w[2] + 0))
  }'
}

toolchain() {
  local missing=()
  have git || missing+=(git ca-certificates)
  have perl || missing+=(perl)
  # The linker, and the static C library for the shim.
  have cc || missing+=(gcc libc6-dev)
  if [ ${#missing[@]} -gt 0 ]; then
    may_install || give_up "these are missing: ${missing[*]}" "install them with your system's package manager"
    apt_install "${missing[@]}"
  fi
  if have git; then
    local git_found
    git_found=$(git version | awk '{ print $3 }')
    at_least "$git_wanted" "$git_found" ||
      give_up "git $git_found is too old: longshore merges with \`git merge-tree --write-tree\`" \
        "install git $git_wanted or newer"
  fi
  local rust_found
  if ! rust_found=$(cargo --version 2>/dev/null | awk '{ print $2 }') || [ -z "$rust_found" ]; then
    give_up "no Rust toolchain: \`cargo\` is not there, or has no default toolchain" \
      "install one: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y" \
      "or, where the system packages rustup: apt-get install rustup && rustup default stable" \
      "then run this again (\$HOME/.cargo/bin is looked at by itself)"
  fi
  at_least "$rust_wanted" "$rust_found" ||
    give_up "Rust $rust_found is too old" "install $rust_wanted or newer: rustup update stable"
}

# The version of the engine that DOCKER_HOST or the current context names, if it answers.
engine_version() {
  have docker || return 1
  # No `timeout` on macOS; there the client's own patience is the bound.
  local bound=()
  if have timeout; then bound=(timeout 20); fi
  ${bound[@]+"${bound[@]}"} docker version --format '{{.Server.Version}}' 2>>"$log" </dev/null
}

# Waits until the engine answers, at most $1 seconds.
await_engine() {
  local end=$((SECONDS + $1))
  while [ "$SECONDS" -lt "$end" ]; do
    if engine_version >/dev/null; then return 0; fi
    sleep 0.5
  done
  return 1
}

dockerd_runs() {
  local pid
  pid=$(cat /var/run/docker.pid 2>/dev/null) && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null
}

start_daemon() {
  if [ -d /run/systemd/system ]; then
    say "starting docker (systemctl)"
    if $dry_run; then return; fi
    quietly systemctl start docker || give_up "systemctl could not start docker" "see: journalctl -u docker"
    await_engine 60 || give_up "docker was started but does not answer" "see: journalctl -u docker"
    return
  fi
  # A package's init script may have started it a moment ago.
  if dockerd_runs && await_engine 20; then return; fi
  local daemon_log=/var/log/longshore-dockerd.log
  say "starting dockerd (its log: $daemon_log)"
  if $dry_run; then return; fi
  if ! grep -q cgroup /proc/mounts; then
    have cgroupfs-mount || apt_install cgroupfs-mount
    quietly cgroupfs-mount || true
  fi
  # Its own session, and none of our descriptors: whoever waits for the end of our output must not wait for the daemon.
  setsid nohup dockerd </dev/null >>"$daemon_log" 2>&1 &
  if ! await_engine 60; then
    tail -n 30 "$daemon_log" >&2
    give_up "dockerd did not answer within 60 s" "the end of its log ($daemon_log) is above"
  fi
}

engine() {
  local found why context
  if found=$(engine_version) && [ -n "$found" ]; then
    say "docker $found answers"
    return
  fi
  why=$(tail -n 1 "$log")
  case "${DOCKER_HOST:-}" in
    '' | unix:///var/run/docker.sock | unix:///run/docker.sock) ;;
    *) give_up "no engine answers at DOCKER_HOST=\`$DOCKER_HOST\`${why:+: $why}" "start it, or unset DOCKER_HOST" ;;
  esac
  if have docker; then
    context=$(docker context show 2>/dev/null || echo default)
    [ "$context" = default ] ||
      give_up "no engine answers in docker's context \`$context\`${why:+: $why}" \
        "start it, or: docker context use default"
    case "$why" in
      *'permission denied'*)
        give_up "the docker daemon runs, but you may not use it" \
          "add yourself to its group: sudo usermod -aG docker \"\$USER\", then log in again" ;;
    esac
  fi
  if [ "$(uname -s)" = Darwin ]; then
    give_up "no docker engine answers" "install and start Docker Desktop (https://docs.docker.com/desktop/) or Colima"
  fi
  if ! may_install; then
    if have dockerd; then
      give_up "no docker engine answers" "start it: sudo systemctl start docker (or: sudo dockerd)"
    fi
    give_up "no docker engine answers" \
      "install Docker Engine (https://docs.docker.com/engine/install/) and start it;" \
      "on Debian or Ubuntu this script does that when it is run as root"
  fi
  local packages=()
  have dockerd || packages+=(docker.io)
  have iptables || packages+=(iptables)
  if [ ${#packages[@]} -gt 0 ]; then apt_install "${packages[@]}"; fi
  # Newer Debian has the client in a package of its own.
  if ! $dry_run && ! have docker; then
    if apt-cache show docker-cli >/dev/null 2>&1; then apt_install docker-cli; else apt_install docker.io; fi
  fi
  if $dry_run || ! engine_version >/dev/null; then start_daemon; fi
  $dry_run || say "docker $(engine_version) answers"
}

image_exists() { docker image inspect "$1" >/dev/null 2>&1 </dev/null; }

dockerfile_hash() {
  if have sha256sum; then sha256sum "$dockerfile"; else shasum -a 256 "$dockerfile"; fi | cut -c 1-16
}

# Leaves the name of the image to build on in $base.
base_image() {
  if image_exists "$base_tag"; then
    base=$base_tag
    return
  fi
  if image_exists "$public_base"; then
    base=$public_base
    return
  fi
  # The daemon gives up on a registry that does not answer by itself, after 15 s or so.
  say "pulling $public_base"
  local bound=()
  if have timeout; then bound=(timeout 120); fi
  if ! $dry_run && ${bound[@]+"${bound[@]}"} docker pull -q "$public_base" >>"$log" 2>&1 </dev/null; then
    base=$public_base
    return
  fi
  base=$base_tag
  say "no registry answers: making $base_tag with debootstrap (a minute or two)"
  if $dry_run; then return; fi
  if ! have debootstrap; then
    may_install || give_up "no registry answers, and there is no base image" \
      "let docker reach one, or import any Debian root filesystem: docker import rootfs.tar $base_tag"
    apt_install debootstrap
  fi
  [ "$(id -u)" = 0 ] || give_up "no registry answers, and debootstrap needs root" "run this script as root once"
  # On Ubuntu the keys of Debian's archive are a package.
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || apt_install debian-archive-keyring
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/longshore-base.XXXXXX")
  quietly timeout 1200 debootstrap --variant=minbase --include=git,ca-certificates bookworm "$scratch/root" ||
    give_up "debootstrap failed" "its last lines are above"
  # What a sandbox never reads: package caches, manuals, translations. Licences stay.
  find "$scratch/root/usr/share/doc" -type f ! -name copyright -delete
  rm -rf "$scratch"/root/var/cache/apt/* "$scratch"/root/var/lib/apt/lists/* \
    "$scratch"/root/usr/share/man/* "$scratch"/root/usr/share/locale/*
  tar -C "$scratch/root" --numeric-owner -c . |
    docker import --change 'CMD ["sh"]' --message 'debootstrap --variant=minbase bookworm' - "$base_tag" >>"$log" 2>&1 ||
    give_up "docker could not import the base image" "$(tail -n 1 "$log")"
  rm -rf "$scratch"
  scratch=
}

sandbox_image() {
  local wanted found base
  wanted=$(dockerfile_hash)
  found=$(docker image inspect --format '{{index .Config.Labels "dev.longshore.dockerfile"}}' "$sandbox_tag" \
    2>/dev/null </dev/null) || true
  if [ "$found" = "$wanted" ]; then
    say "image $sandbox_tag is there"
    return
  fi
  base_image
  say "building $sandbox_tag on $base"
  if $dry_run; then return; fi
  quietly docker build --build-arg "BASE=$base" --label "dev.longshore.dockerfile=$wanted" \
    --label dev.longshore.role=image -t "$sandbox_tag" "$(dirname "$dockerfile")" ||
    give_up "docker could not build \`$dockerfile\`" "its last lines are above"
  # The one that this replaces, where nothing runs on it.
  docker image prune --force --filter label=dev.longshore.dockerfile >>"$log" 2>&1 </dev/null || true
}

# What is put in front of the program to step its clock.
test_tools() {
  local library
  for library in /usr/lib/*/faketime /usr/lib/faketime /usr/lib64/faketime /usr/local/lib/faketime; do
    if [ -e "$library/libfaketimeMT.so.1" ]; then return; fi
  done
  may_install || give_up "libfaketime is missing, which a test steps the clock with" \
    "install it with your system's package manager"
  apt_install libfaketime
}

toolchain
if $for_tests; then test_tools; fi
engine
sandbox_image
