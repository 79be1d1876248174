#!/bin/sh
# Runs a program in namespaces of its own; see sandbox.rs, which contains this file.
#   sh sandbox.sh enter PROGRAM [ARG..]    from outside, as root: makes the namespaces and comes back with "inside"
#   sh sandbox.sh inside PROGRAM [ARG..]   as process 1 of new namespaces, whose mounts are private
# Neither touches anything outside: every mount below ends with the namespace.
set -e
mode=$1
shift
if [ "$mode" = enter ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "sandbox.sh: namespaces need root; run it with sudo" >&2
    exit 2
  fi
  NASGAUGE_SANDBOX="$(readlink /proc/self/ns/net) $(readlink /proc/self/ns/mnt) $(readlink /proc/self/ns/pid)"
  export NASGAUGE_SANDBOX
  exec setpriv --pdeathsig KILL unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc \
    -- sh "$0" inside "$@"
fi

mount -t tmpfs -o mode=755,size=75% tmpfs /run
mkdir /run/nasgauge /run/tgtd /run/lock
# /sys shows the network of whoever mounted it.
mount -t sysfs sysfs /sys 2> /dev/null || true
# Where servers keep things whatever their configuration says.
for kept in /var/lib/nfs /var/lib/samba /var/cache/samba; do
  if [ -d "$kept" ]; then mount -t tmpfs -o mode=755 tmpfs "$kept"; fi
done
cp /etc/passwd /etc/group /run/nasgauge/
id=61000
while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd /etc/group; do id=$((id + 1)); done
grep -q '^bench:' /etc/passwd || echo "bench:x:$id:$id::/nonexistent:/usr/sbin/nologin" >> /run/nasgauge/passwd
grep -q '^bench:' /etc/group || echo "bench:x:$id:" >> /run/nasgauge/group
mount --bind /run/nasgauge/passwd /etc/passwd
mount --bind /run/nasgauge/group /etc/group
ip link set lo up
# A session of its own: what is meant for the program must not reach it.
if command -v rpcbind > /dev/null; then setsid rpcbind -f < /dev/null > /run/nasgauge/rpcbind.log 2>&1 & fi
set +e
"$@"
exit $?
