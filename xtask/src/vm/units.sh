#!/bin/sh
# Runs in the guest once systemd has come up. Each check prints "CHECK ok NAME" or
# "CHECK FAILED NAME: why".
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
# The node has an address, as every node.
ip link add uplink type dummy && ip addr add 192.0.2.1/24 dev uplink && ip link set uplink up
echo '{"cniVersion":"1.0.0","name":"berth","type":"berth"}' >/run/conf

cni() {
    CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS=/run/netns/$2 CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin \
        /opt/cni/bin/berth </run/conf
}
pod() { ip netns add "$1" && cni ADD "$1" >/run/out."$1" 2>&1; }
address() { sed -n 's/.*"address":"\([0-9.]*\)\/32".*/\1/p' /run/out."$1"; }
pid() { systemctl show -p MainPID --value berthd.service; }
active() { [ "$(systemctl is-active berthd.service)" = active ]; }
within() { # seconds, command...
    limit=$1; shift
    for second in $(seq "$limit"); do "$@" && return 0; sleep 1; done
    return 1
}
check() { # name, command...
    name=$1; shift
    if "$@" >/run/check 2>&1; then
        echo "CHECK ok $name"
    else
        echo "CHECK FAILED $name: $(tail -n 3 /run/check | tr '\n' ' ')"
        journalctl -u berthd.service -n 15 --no-pager -o cat | sed 's/^/LOG /'
    fi
}

starts() { within 60 active && berthctl status; }
installed() { [ "$(stat -c %a /run/berth/berth.sock)" = 600 ] && grep -q '"berth"' /etc/cni/net.d/10-berth.conflist; }
notifies() {
    # Ready before the process said so would be before it serves.
    [ "$(systemctl show -p Type --value berthd.service)" = notify ] &&
        [ "$(systemctl show -p WatchdogUSec --value berthd.service)" = 30s ] &&
        journalctl -u berthd.service --no-pager -o cat | grep -q 'Started\|serving'
}
attaches() { pod one && ping -c 1 -W 5 "$(address one)"; }
masquerades() { nft list ruleset | grep -q masquerade; }
detaches() { pod two && cni DEL two && ! ping -c 1 -W 1 "$(address two)"; }

# Twenty pods one after the other; none may fail while the daemon restarts under them.
churn() {
    for n in $(seq 20); do
        pod churn$n || { cat /run/out.churn$n; return 1; }
        cni DEL churn$n || return 1
    done
}
restarts() {
    churn & churning=$!
    for n in 1 2 3; do sleep 1; systemctl restart berthd.service || return 1; done
    wait $churning
}
killed() {
    old=$(pid); kill -9 "$old"
    pod killed && within 20 active && [ "$(pid)" != "$old" ] && [ "$(systemctl show -p NRestarts --value berthd.service)" -ge 1 ]
}
activated() {
    systemctl stop berthd.service && ! active && pod activated && active
}
stuck() {
    old=$(pid); kill -STOP "$old"
    # It comes while the daemon is stuck, and waits in the socket's queue.
    pod stuck & waiting=$!
    other() { active && [ "$(pid)" != "$old" ]; }
    within 100 other && wait $waiting &&
        journalctl -u berthd.service --no-pager -o cat | grep -q 'Watchdog timeout'
}
kept() {
    for id in one killed activated stuck; do berthctl pods | grep -q "$id" || { echo "no $id"; return 1; }; done
    ping -c 1 -W 5 "$(address one)"
}
hardened() { systemd-analyze security --no-pager --threshold=20 berthd.service; }
clean() { ! journalctl -u berthd.service --no-pager -o cat | grep -E 'panicked|not permitted|Read-only'; }

check "the service starts" starts
check "socket and network list are where they belong" installed
check "it says that it is ready, and is watched" notifies
check "a pod gets its network under the unit's restrictions" attaches
check "the masquerade stands" masquerades
check "a pod is detached" detaches
check "no call fails while the daemon is restarted three times" restarts
check "killed, it is back, and a call waits for it" killed
check "stopped, the socket starts it" activated
check "stuck, the watchdog restarts it, and a call waits for it" stuck
check "what was attached before is attached still" kept
check "systemd-analyze security is at most 2.0" hardened
tail -n 1 /run/check | sed 's/^/LOG /'
check "nothing was denied to it" clean
echo "CHECK-END"
systemctl poweroff --force --force
