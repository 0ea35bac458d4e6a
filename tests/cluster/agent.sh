#!/bin/sh
# In place of ssh: drop ssh's options, take the node's name, run the rest on that node.
# Lies in the directory of a running cluster, which has the cluster's tag as its name.
while :; do
    case $1 in
        -[BbcDEeFIiJLlmOopQRSWw]) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
node=$1
shift
here=$(dirname "$0")
exec ip netns exec "$(basename "$here")-$node" unshare --uts --ipc --mount sh -ec '
    echo "$1" >/proc/sys/kernel/hostname
    mount -t tmpfs tmpfs /dev/shm
    mount --bind "$2" /etc/hosts
    shift 2
    exec sh -c "$*"
' agent "$node" "$here/hosts" "$@"
