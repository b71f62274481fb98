#!/bin/sh
# PID 1 of a guest whose power is about to be cut. $round is on the kernel's command line.
#
# It says what survived the cut before ("HELD id address", "HELD-END"), then attaches and detaches
# pods until it is gone. A line ("ADDED id", "DELETED id") follows what was acknowledged. Whether a
# pod is deleted again follows from its id: those that end in "d" are.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/berth
mount -t ext4 /dev/vdb /var/lib/berth || { echo "FAILED: no state disk"; poweroff -f; }
mkdir -p /var/lib/berth/state
ip link set lo up

if [ -d /var/lib/berth/state/db ]; then
    berthctl db --state-dir /var/lib/berth/state check >/run/check 2>&1
    status=$?
    # Said before it fails the round.
    [ $status = 0 ] || sed 's/^/LOG /' /run/check
    echo "DB-CHECK $status"
fi

cat >/run/berth.json <<'J'
{"state_dir": "/var/lib/berth/state", "gc_grace": "1000h", "cni_conf": {"path": ""},
 "ip_stack": "ipv4", "pod_cidrs": ["10.99.0.0/16"], "exclude": ["10.99.255.0/24"]}
J
echo '{"cniVersion":"1.0.0","name":"power","type":"berth"}' >/run/conf
berthd --config /run/berth.json >/run/berthd.log 2>&1 &
for try in $(seq 200); do
    berthctl status >/dev/null 2>&1 && break
    sleep 0.1
done
berthctl status >/dev/null || { sed 's/^/LOG /' /run/berthd.log; echo "FAILED: the daemon does not serve"; poweroff -f; }
grep -E 'WARN|ERROR' /run/berthd.log | sed 's/^/LOG /'

berthctl -o json pods >/run/pods || { echo "FAILED: no list of pods"; poweroff -f; }
sed -n 's/.*"container_id": *"\([^"]*\)".*/ID \1/p; s/.*"ipv4": *"\([^"]*\)".*/IP \1/p' /run/pods |
    while read -r kind text; do
        case $kind in
            ID) id=$text ;;
            IP) echo "HELD $id $text" ;;
        esac
    done
echo "HELD-END"
[ "$round" = last ] && { sync; poweroff -f; }

cni() {
    CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS=/run/netns/$2 CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin \
        /opt/cni/bin/berth </run/conf >/run/out.$2 2>&1 || { sed "s/^/LOG $1 $2 /" /run/out.$2; return 1; }
}

worker() {
    number=0
    while :; do
        number=$((number + 1))
        for fate in k d; do
            id=r$round-$1-$number$fate
            ip netns add "$id"
            cni ADD "$id" && echo "ADDED $id"
            if [ $fate = d ]; then
                cni DEL "$id" && echo "DELETED $id"
                ip netns delete "$id"
            fi
        done
    done
}
for name in a b c; do worker $name & done
wait
