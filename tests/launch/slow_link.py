"""What kernels without netem and filters lack: a link that delays and loses packets, and checksums that are computed.

    slow_link.py relay DEVICE DEVICE SECONDS SHARE    carries frames between two devices, each later by SECONDS, and
                                                      loses a SHARE of them; until it is killed. Says "relays" once it does
    slow_link.py plain DEVICE                         frames leave the device with a checksum, one packet each
"""

import array
import fcntl
import heapq
import random
import select
import socket
import struct
import sys
import time

SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC, PACKET_OUTGOING = 263, 1, 1, 4
SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17
EVERY_PROTOCOL, LARGEST = 3, 1 << 16


def plain(device):
    value = array.array("B", struct.pack("II", ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP", device.encode(), value.buffer_info()[0])
    fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), SIOCETHTOOL, request)


def end_of(device):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERY_PROTOCOL))
    end.bind((device, 0))
    all_of_it = struct.pack("IHH8s", socket.if_nametoindex(device), PACKET_MR_PROMISC, 0, b"")
    end.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, all_of_it)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    return end


def relay(first, second, delay, share):
    ends = [end_of(first), end_of(second)]
    under_way, number = [], 0
    print("relays", flush=True)
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, to, frame = heapq.heappop(under_way)
            try:
                ends[to].send(frame)
            except OSError:  # the link is down, or the frame too long: it is lost
                pass
        left = under_way[0][0] - now if under_way else None
        for end in select.select(ends, [], [], left)[0]:
            frame, source = end.recvfrom(LARGEST)
            if source[2] != PACKET_OUTGOING and random.random() >= share:
                number += 1
                heapq.heappush(under_way, (time.monotonic() + delay, number, 1 - ends.index(end), frame))


if sys.argv[1] == "plain":
    plain(sys.argv[2])
else:
    relay(sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5]))
