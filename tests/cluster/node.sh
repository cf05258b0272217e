#!/bin/sh
# The first process of a node, in fresh namespaces: gives it its name, its own /sys, /proc and /dev/shm and the names of
# the other nodes, prints its process id as the machine sees it, and becomes the holder, whose end is the node's end.
# usage: node.sh NAME CLUSTER_DIR HOLDER...
set -eu
name=$1 cluster=$2
shift 2
read -r pid _ </proc/self/stat

mount --bind "$cluster/hosts" /etc/hosts
# A fresh /sys shows this node's links. It hides the control groups, so they are carried over.
mount --rbind /sys/fs/cgroup "$cluster/cgroup"
mount -t sysfs sysfs /sys
mount --move "$cluster/cgroup" /sys/fs/cgroup
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
echo "$name" >/proc/sys/kernel/hostname

# The same on every machine: no IPv6 chatter in the counters, the congestion control that every namespace may choose,
# and nothing remembered of an earlier, slower link.
for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do
  [ ! -e "$file" ] || echo 1 >"$file"
done
echo reno >/proc/sys/net/ipv4/tcp_congestion_control
echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save

echo "$pid"
# Orphans of the node are the holder's; ignoring their end is what lets the kernel bury them.
exec env --ignore-signal=CHLD "$@"
