#!/bin/sh
# Runs one rank with its standard error in a file of its own, which stays whatever becomes of the launcher.
# usage: rank.sh COMMAND...
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:?the launcher tells neither OMPI_COMM_WORLD_RANK nor PMI_RANK}}
exec "$@" 2>"$MOETAX_CLUSTER_JOB/rank-$rank.err"
