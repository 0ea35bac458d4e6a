#!/bin/sh
# Replaces ssh: skips the options of ssh, takes the node's name, and runs the rest on that node.
# A running cluster has a copy in its directory, which is named after the cluster's tag.
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
