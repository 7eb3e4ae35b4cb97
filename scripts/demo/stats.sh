#!/bin/sh
# stats: counts things in text. A command is a file in commands/.
# usage: stats.sh COMMAND [FILE]
set -eu
here=$(dirname "$0")
name=${1:-help}
if [ "$name" = help ]; then
    echo "usage: stats.sh COMMAND [FILE]"
    for command in "$here"/commands/*.sh; do echo "  $(basename "$command" .sh)"; done
    exit 0
fi
file=${2:--}
. "$here/commands/$name.sh"
