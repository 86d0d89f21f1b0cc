# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of the InfiniBand tools on a fabric of two leaves and two nodes, as those tools print."""

from __future__ import annotations

# ruff: noqa: E501

DISCOVERY = """\
#
# Topology file: generated on Sat Nov 21 05:07:47 2026
#
# Initiated from node 946dae0300001000 port 946dae0300001001

vendid=0x2c9
devid=0xd2f2
sysimgguid=0xfc6a1c0301000001
switchguid=0xfc6a1c0301000001(fc6a1c0301000001)
Switch\t64 "S-fc6a1c0301000001"\t\t# "MF0;leaf-02:MQM9700/U1" enhanced port 0 lid 3 lmc 0
[1]\t"H-946dae0300001010"[1](946dae0300001011) \t\t# "dgx-01 mlx5_3" lid 5 4xNDR
[2]\t"H-946dae0300002010"[1](946dae0300002011) \t\t# "dgx-02 mlx5_3" lid 6 1xHDR
[33]\t"S-fc6a1c0301000000"[33]\t\t# "leaf-01" lid 2 4xNDR

vendid=0x2c9
devid=0xd2f2
sysimgguid=0xfc6a1c0301000000
switchguid=0xfc6a1c0301000000(fc6a1c0301000000)
Switch\t64 "S-fc6a1c0301000000"\t\t# "leaf-01" enhanced port 0 lid 2 lmc 0
[1]\t"H-946dae0300001000"[1](946dae0300001001) \t\t# "dgx-01 mlx5_0" lid 1 4xNDR
[2]\t"H-046dae0300002000"[1](46dae0300002001) \t\t# "dgx-02 mlx5_0" lid 4 4xNDR
[33]\t"S-fc6a1c0301000001"[33]\t\t# "MF0;leaf-02:MQM9700/U1" lid 3 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x946dae0300002010
caguid=0x946dae0300002010
Ca\t1 "H-946dae0300002010"\t\t# "dgx-02 mlx5_3"
[1](946dae0300002011) \t"S-fc6a1c0301000001"[2]\t\t# lid 6 lmc 0 "MF0;leaf-02:MQM9700/U1" lid 3 1xHDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x946dae0300001010
caguid=0x946dae0300001010
Ca\t1 "H-946dae0300001010"\t\t# "dgx-01 mlx5_3"
[1](946dae0300001011) \t"S-fc6a1c0301000001"[1]\t\t# lid 5 lmc 0 "MF0;leaf-02:MQM9700/U1" lid 3 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x46dae0300002000
caguid=0x46dae0300002000
Ca\t1 "H-046dae0300002000"\t\t# "dgx-02 mlx5_0"
[1](46dae0300002001) \t"S-fc6a1c0301000000"[2]\t\t# lid 4 lmc 0 "leaf-01" lid 2 4xNDR

vendid=0x2c9
devid=0x1021
sysimgguid=0x946dae0300001000
caguid=0x946dae0300001000
Ca\t1 "H-946dae0300001000"\t\t# "dgx-01 mlx5_0"
[1](946dae0300001001) \t"S-fc6a1c0301000000"[1]\t\t# lid 1 lmc 0 "leaf-01" lid 2 4xNDR
"""

ROWS = """\
CA     6  1 0x946dae0300002011 1x HDR - SW     3  2 0xfc6a1c0301000001 ( 'dgx-02 mlx5_3' - 'MF0;leaf-02:MQM9700/U1' )
SW     3  2 0xfc6a1c0301000001 1x HDR - CA     6  1 0x946dae0300002011 ( 'MF0;leaf-02:MQM9700/U1' - 'dgx-02 mlx5_3' )
SW     3 64 0xfc6a1c0301000001 4x SDR                                    'MF0;leaf-02:MQM9700/U1'
SW     3 63 0xfc6a1c0301000001 4x ???                                    'MF0;leaf-02:MQM9700/U1'
SW    25 1 0x946dae0300618c83 4x SDR                                    ' spine with blanks '
SW    26 9 0x46dae0300618c84 4x SDR                                    no quotes at all
"""

_GAP = " " * 16
STATES = f"""\
0x946dae0300002011 "                 dgx-02 mlx5_3"      6    1[  ] ==( 1X        53.125 Gbps Active/  LinkUp)==>  \
0xfc6a1c0301000001      3    2[  ] "MF0;leaf-02:MQM9700/U1" (Could be 12X Could be 106.25 Gbps)
0x46dae0300002001 "                 dgx-02 mlx5_0"      4    1[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>  \
0xfc6a1c0301000000      2    2[  ] "leaf-01" (Could be 12X )
0xfc6a1c0301000001 "        MF0;leaf-02:MQM9700/U1"      3    3[  ] ==({_GAP}Down/ Polling)==>             [  ] "" ( )
0xfc6a1c0301000001 "        MF0;leaf-02:MQM9700/U1"      3    4[  ] ==({_GAP}Down/Disabled)==>             [  ] "" ( )
0xfc6a1c0301000000 "                       leaf-01"      2    7[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>      "Port not available"
"""

ERRORS = """\
Errors for 0xfc6a1c0301000000 "leaf-01"
   GUID 0xfc6a1c0301000000 port ALL: [SymbolErrorCounter == 412] [PortXmitDiscards == 255]
   GUID 0xfc6a1c0301000000 port 1: [SymbolErrorCounter == 412]
   GUID 0xfc6a1c0301000000 port 33: [PortXmitDiscards == 65535]
Errors for "dgx-02 mlx5_0"
   GUID 0x46dae0300002001 port 1: [PortRcvErrors == 65535] [PortXmitWait == 5000]

## Summary: 6 nodes checked, 2 bad nodes found
##          133 ports checked, 3 ports have errors beyond threshold
## Thresholds:\x20
## Suppressed:
"""

GREETING = 'ibwarn: [12092] sim_connect: attached as client 1 at node "H-946dae0300001000"\n'
UNREAD = """\
ibwarn: [5478] mad_rpc: _do_madrpc failed; dport (Lid 6)
ibwarn: [5478] query_cap_mask: classportinfo query failed on dgx-02 mlx5_3, Lid 6 port 1
ibwarn: [5478] print_data_cnts: IB_GSI_PORT_COUNTERS query failed on dgx-02 mlx5_3, Lid 6 port 1
"""
DUPLICATE = """\
./libibnetdisc/ibnetdisc.c:667; Duplicate Port: Port with guid 0x946dae0300001011 already exists in ports DB
./libibnetdisc/ibnetdisc.c:379; Error Occurred when trying to insert new port guid 0x946dae0300001011 to DB
"""
SILENT = (
    "./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,33,7 Attr 0x11:0) "
    "bad status 110; Connection timed out\n"
)

SMINFO = (
    "sminfo: sm lid 1 sm guid 0x946dae0300001001, activity count 218 priority 0 state 3 "
    "SMINFO_MASTER\n"
)
SAQUERY = """\
IsSM ports
PortInfoRecord dump:
\t\tEndPortLid..............1
\t\tPortNum.................1
\t\tbase_lid................1
PortInfoRecord dump:
\t\tEndPortLid..............4
\t\tPortNum.................1

IsSMdisabled ports
PortInfoRecord dump:
\t\tEndPortLid..............6
"""
STANDBY = (
    "sminfo: sm lid 4 sm guid 0x46dae0300002001, activity count 9 priority 1 state 2 "
    "SMINFO_STANDBY\n"
)
