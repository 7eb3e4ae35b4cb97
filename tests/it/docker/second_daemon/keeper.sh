# Keeps the namespaces of a second daemon ($1: its folder), and ends all of it when standard input ends: with the test, however
# that ends. `mod.rs` starts it.
dir=$1
read -r _

ours() {
    # The daemon, its containerd, and the shims: all have the folder in their command line.
    # The pattern comes through a pipe: grep must not find itself.
    printf '%s\n' "$dir/" | grep -lF -f - /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3
    # What ran in the containers, which outlives them.
    for id in $(ls "$dir/data/containers" 2>/dev/null); do
        grep -lF -e "$id" /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3
    done
}

tries=50
while [ $tries -gt 0 ]; do
    pids=$(ours)
    [ -z "$pids" ] && break
    kill -KILL $pids 2>/dev/null
    sleep 0.1
    tries=$((tries - 1))
done
for id in $(ls "$dir/data/containers" 2>/dev/null); do
    rmdir /sys/fs/cgroup/docker/"$id" /sys/fs/cgroup/*/docker/"$id" 2>/dev/null
done
cut -d' ' -f2 /proc/self/mounts | grep -F -e "$dir/" | sort -r | while read -r mount; do umount -l "$mount"; done
rm -rf "$dir"
