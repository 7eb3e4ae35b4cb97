#!/usr/bin/env bash
# The benchmark's other side: what one would write by hand instead of longshore. A `docker run` for each story, N at a
# time, each cloning from a bare repo and pushing its branch back; then one merge after the other. No retries, no record,
# no resume. Image and limits are those that scripts/bench.sh gives longshore.
#
# usage: scripts/baseline.sh REPO IMAGE STORIES PARALLEL [CHECK]
#   REPO   a git repo whose current branch is the base; ends up with a branch `feature` that has every story
#   CHECK  a shell command that each story's branch must pass, in a second container; by default nothing is checked
#
# Prints the seconds from the first `docker run` to the last merge.
set -euo pipefail
if [ $# -lt 4 ] || [ $# -gt 5 ]; then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p;}' "$0" >&2
  exit 2
fi
cd "$1"
export image=$2
stories=$3 parallel=$4
export check=${5:-}

export hub="$PWD.hub.git"
trap 'rm -rf "$hub"' EXIT
git clone -q --bare . "$hub"
# The sandboxes' user is not ours.
chmod -R a+rwX "$hub"
git remote add hub "$hub"

container() {
  docker run --rm --network none --user 1000:1000 --cap-drop ALL --security-opt no-new-privileges \
    --memory 512m --memory-swap 512m --cpus 1 --pids-limit 512 --tmpfs /tmp:exec,mode=1777 \
    --volume "$hub:/hub.git" --env HOME=/tmp --env N="$1" --env CHECK="$check" "$image" sh -euc "$2"
}
sandbox() {
  container "$1" '
      git config --global safe.directory "*"
      git config --global user.name bench
      git config --global user.email bench@localhost
      git clone -q --shared /hub.git /tmp/work
      cd /tmp/work
      git checkout -q -b "story-$N"
      echo "$N" > "story-$N.txt"
      git add --all
      git commit -q -m "Story $N"
      git push -q origin "story-$N"'
  [ -z "$check" ] || container "$1" '
      git config --global safe.directory "*"
      git clone -q --shared --branch "story-$N" /hub.git /tmp/work
      cd /tmp/work
      sh -c "$CHECK"'
}
export -f container sandbox

began=$(date +%s%N)
# shellcheck disable=SC2016 # the inner shell expands it
seq "$stories" | xargs -P "$parallel" -n 1 bash -euc 'sandbox "$1"' bash
git fetch -q hub
git checkout -q -b feature
for story in $(seq "$stories"); do
  git merge -q --no-edit "hub/story-$story" >/dev/null
done
ended=$(date +%s%N)
awk -v ns="$((ended - began))" 'BEGIN { printf "%.2f\n", ns / 1e9 }'
