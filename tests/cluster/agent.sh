#!/bin/sh
# What MPI launchers take for ssh: runs a command on another node, which needs no password, daemon or key when the node
# is a set of namespaces. Joins its arguments and has a shell read them, as ssh does. The environment goes along.
# usage: agent.sh [OPTION]... NODE COMMAND...
set -eu
while :; do
  case $1 in
    -l) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
node=$1
shift
read -r pid <"$MOETAX_CLUSTER/nodes/$node"
exec nsenter --target "$pid" --net --uts --mount --ipc --pid -- sh -c "cd '$PWD' && $*"
