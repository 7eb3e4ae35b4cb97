#!/usr/bin/env bash
# Builds longshore and the shim into target/dist/, side by side, and says how large they are.
#
# usage: scripts/build.sh [--shim-only]
#
# The shim runs inside any image, so it is static: it needs nothing there, not even a C library.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

shim_only=false
case "${1:-}" in
  '') ;;
  --shim-only) shim_only=true ;;
  *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" >&2; exit 2 ;;
esac

host=$(rustc -vV | sed -n 's/^host: //p')
case "$host" in
  *-linux-*) ;;
  *)
    echo "build: error: the shim is a Linux program and cannot be built for \`$host\`" >&2
    echo "build:   build in a Linux machine or container of the engine's architecture" >&2
    exit 3
    ;;
esac
target=${CARGO_TARGET_DIR:-target}
dist=target/dist
mkdir -p "$dist"

# Replaced by a rename, so that a program that runs keeps its own.
install_as() {
  cp "$1" "$2.new"
  mv "$2.new" "$2"
  printf 'build: %s, %s KB\n' "$2" "$(($(wc -c <"$2") / 1024))"
}

if ! [ -e "$dist/acp-shim" ]; then echo 'build: compiling (the first time takes some minutes)'; fi

# What makes the shim small, where the linker and the C library can: equal functions are one, there are no tables for unwinding
# (both need lld, which is rustc's own on x86_64), and relocations are packed (understood by a static program's start from glibc
# 2.36 on). A panic ends the shim with its message and unwinds nothing; only backtraces would need the tables, and say nothing.
small=(-C 'link-arg=-Wl,--no-eh-frame-hdr')
case "$host" in x86_64-*) small+=(-C 'link-arg=-Wl,--icf=all' -C 'link-arg=-Wl,-T,scripts/shim.ld') ;; esac
case "$(getconf GNU_LIBC_VERSION 2>/dev/null)" in
  "glibc 2."3[6-9] | "glibc 2."[4-9][0-9]) small+=(-C 'link-arg=-Wl,-z,pack-relative-relocs') ;;
esac

# `--target` is named although it is the host's: without it the flag would reach proc-macros, which cannot be static.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static ${small[*]}" \
  cargo build --quiet --locked --profile shim --bin acp-shim --no-default-features --features shim --target "$host"
install_as "$target/$host/shim/acp-shim" "$dist/acp-shim"

if ! $shim_only; then
  cargo build --quiet --locked --release --bin longshore
  install_as "$target/release/longshore" "$dist/longshore"
fi
