# Sourced first, by scripts that need several hosts: makes them of namespaces. Each host has a network, a name,
# processes and /dev/shm of its own; mpirun starts its daemons there by a script in place of ssh, from a host that has
# no ranks. Files are shared, as on a cluster. Takes root, and a kernel that allows it; else the script is skipped.
#
#     make_hosts 4           node-1 .. node-4 on one bridge; each has a link to it
#     make_hosts 4 2         node-1, node-2 on one bridge, the others on a second; a trunk joins the two
#     shape 200mbit          the rate of every host's link, in each direction; `shape off` takes the limit away
#     slow_host node-3 50mbit
#     shape_trunk 200mbit
#     run_on 1221 train JOB.YAML
#     sent node-2, received node-2, trunk_up, trunk_down
#                            bytes that the kernel has counted on a link so far, headers included
#
#     head ---+-- ndp0 ======= trunk ======= ndp1 --+
#             |    |  \                     /  |
#             | node-1 node-2          node-3 node-4
#
# Ends of a link: eth0 inside the host, veth1 (of node-1) on the bridge. The end that sends is the one that is shaped,
# so a link needs both. A packet has 9000 bytes, as in clusters: the headers of TCP and IP, 66 bytes, are 0.7% of it
# (4.5% of a packet of 1500).
if [ "${1:-}" != inside ]; then
    for tool in unshare nsenter ip tc mpirun; do
        command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
    done
    unshare --net --mount --uts --ipc --pid --fork --mount-proc ip link add ndp0 type bridge 2>/dev/null ||
        { echo "skipped: making hosts out of namespaces takes root and a kernel that lets it"; exit 77; }
    # When this ends so does all that was made in it.
    exec unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc sh "$0" inside
fi

mtu=9000

# on NODE COMMAND...: runs it there, in all of the host's namespaces.
on() (
    node=$1
    shift
    exec nsenter -t "$(cat "$work/$node")" --net --mount --uts --ipc --pid -- "$@"
)

# The numbers of all hosts.
each_host() { seq "$hosts_made"; }

add_bridge() {
    ip link add "$1" type bridge
    ip link set "$1" mtu $mtu up
}

# add_host I BRIDGE
add_host() {
    unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc \
        sh -c "hostname node-$1; mount -t tmpfs tmpfs /dev/shm; ip link set lo up; sleep 100000 & wait" 2>"$work/node-$1.log" &
    above=$!
    until [ -s "$work/node-$1" ]; do tr -d ' ' <"/proc/$above/task/$above/children" >"$work/node-$1"; done
    pid=$(cat "$work/node-$1")
    ip link add "veth$1" type veth peer name eth0 netns "$pid"
    ip link set "veth$1" master "$2" mtu $mtu up
    nsenter -t "$pid" -n ip addr add "10.77.0.$1/24" dev eth0
    nsenter -t "$pid" -n ip link set eth0 mtu $mtu up
    until [ "$(nsenter -t "$pid" -u hostname)" = "node-$1" ]; do sleep 0.1; done
}

# kill_host NODE, and revive_host NODE: another one of that name and address, on the first bridge.
kill_host() {
    kill -KILL "$(cat "$work/$1")"
    rm "$work/$1"
}
revive_host() {
    add_host "${1#node-}" ndp0
    ip neigh flush all
    for other in $(each_host); do on "node-$other" ip neigh flush all; done
}

# make_hosts N [FIRST]: N hosts; with FIRST, only so many on the first bridge. This process becomes the host `head`.
make_hosts() {
    hosts_made=$1
    printf '127.0.0.1 localhost\n10.77.0.100 head\n' >"$work/hosts"
    for i in $(each_host); do echo "10.77.0.$i node-$i" >>"$work/hosts"; done
    mount --bind "$work/hosts" /etc/hosts
    hostname head
    ip link set lo up
    add_bridge ndp0
    ip addr add 10.77.0.100/24 dev ndp0
    [ -z "${2:-}" ] || add_trunk
    for i in $(each_host); do
        if [ "$i" -gt "${2:-$1}" ]; then add_host "$i" ndp1; else add_host "$i" ndp0; fi
    done
    cat >"$work/agent" <<END
#!/bin/sh
host=\${1#*@}
case \$host in
10.77.0.*) host=node-\${host##*.} ;;
*) host=\${host%%.*} ;;
esac
# As ssh, it needs the network: a host that can be reached refuses this.
timeout 4 bash -c ": </dev/tcp/\$host/1" 2>&1 | grep -q refused || exit 255
pid=\$(cat "$work/\$host")
shift
exec nsenter -t "\$pid" --net --mount --uts --ipc --pid -- sh -c "\$*"
END
    chmod +x "$work/agent"
    # Hosts of several tests have the same names and process numbers, by which Open MPI names its folders.
    export TMPDIR="$work" OMPI_MCA_plm_rsh_agent="$work/agent"
}

# A second bridge, and the link between the two.
add_trunk() {
    add_bridge ndp1
    ip link add trunk0 type veth peer name trunk1
    ip link set trunk0 master ndp0 mtu $mtu up
    ip link set trunk1 master ndp1 mtu $mtu up
}

# unmake_hosts: so that others can be made.
unmake_hosts() {
    for i in $(each_host); do
        kill -KILL "$(cat "$work/node-$i")"
        rm "$work/node-$i"
    done
    ip link del ndp0
    ip link del trunk0 2>/dev/null
    ip link del ndp1 2>/dev/null
    umount /etc/hosts
}

# ---- runs ----

# layout_words "dp_shard 2 tp 2": the program's options for these axes and no others.
layout_words() (
    for axis in pp dp_replicate dp_shard cp sp tp; do
        echo "--set parallelism.${axis}_size=$(echo "$1 1" | sed -n "s/.*\b$axis \([0-9]*\).*/\1/p;t;s/.*/1/p")"
    done
)

# run_on 1221 ARGUMENT...: as `run` of cases.sh, by mpirun, with the host of each rank as a digit.
run_on() {
    places=$1
    shift
    case_of "on hosts $places: ndparallel $*"
    echo "$places" | sed 's/./node-&\n/g' | sed '/^$/d' >"$work/places"
    timeout $patience mpirun --allow-run-as-root --bind-to none --oversubscribe --map-by seq --hostfile "$work/places" \
        --mca btl_base_warn_component_unused 0 -n "${#places}" "$NDP_PROGRAM" "$@" >out 2>err </dev/null
    code=$?
}

# ---- rates ----

# limit DEVICE RATE [COMMAND...]: COMMAND runs `tc` where the device is. 64 KiB may be sent at once: 1 ms at 500 Mbit/s,
# what a delay of the timer may cost without lost rate. A longer GSO packet is cut into packets of the MTU. The queue is
# long enough that none is dropped.
limit() (
    device=$1
    rate=$2
    shift 2
    if [ "$rate" = off ]; then
        "$@" tc qdisc del dev "$device" root 2>/dev/null
    else
        "$@" tc qdisc replace dev "$device" root tbf rate "$rate" burst 64kb limit 64mb
    fi
    true
)

# slow_host NODE RATE: both directions of its link.
slow_host() {
    limit "veth${1#node-}" "$2"
    limit eth0 "$2" on "$1"
}

shape() {
    for i in $(each_host); do slow_host "node-$i" "$1"; done
}

shape_trunk() {
    limit trunk0 "$1"
    limit trunk1 "$1"
}

# ---- what the kernel has counted ----

# counted DEVICE 1|9: bytes that it has received, or sent.
counted() { awk -v device="$1:" -v field="$2" '$1 == device { print $(field + 1) }' /proc/net/dev; }
# From a host, and to it.
sent() { counted "veth${1#node-}" 1; }
received() { counted "veth${1#node-}" 9; }
# From the first bridge to the second, and back.
trunk_up() { counted trunk0 9; }
trunk_down() { counted trunk1 9; }
