# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of Slurm's commands about four nodes, in the form of 22.05 and 24.11."""

from __future__ import annotations

# ruff: noqa: E501

PING = "Slurmctld(primary) at head-01 is UP\n"
PING_BOTH = "Slurmctld(primary) at head-01 is DOWN\nSlurmctld(backup1) at head-02 is UP\n"


def node(name: str, state: str, tail: str = "", used: str = "", **other: str) -> str:
    """A line of `scontrol show node -o`."""
    values = {
        "CPUAlloc": "0", "AllocMem": "0", "FreeMem": "1990000", "Gres": "gpu:h100:8(S:0-1)",
        "CfgTRES": "cpu=224,mem=2000000M,billing=224,gres/gpu=8", **other,
    }  # fmt: skip
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=56  CPUAlloc={values['CPUAlloc']} CPUEfctv=224 CPUTot=224 "
        f"CPULoad=5.52 AvailableFeatures=(null) ActiveFeatures=(null) Gres={values['Gres']} NodeAddr={name} "
        f"NodeHostName={name} Version=24.11.5 OS=Linux 6.8.0-60 #63 SMP CPUTot=1 RealMemory=2000000 "
        f"AllocMem={values['AllocMem']} FreeMem={values['FreeMem']} Sockets=2 Boards=1 State={state} ThreadsPerCore=2 "
        f"TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=batch,debug  BootTime=2026-11-21T01:36:10 "
        f"SlurmdStartTime=2026-11-21T11:11:39 LastBusyTime=2026-11-21T11:11:59 ResumeAfterTime=None "
        f"CfgTRES={values['CfgTRES']} AllocTRES={used} CapWatts=n/a CurrentWatts=0 AveWatts=0 {tail}\n"
    )


NODES = (
    node("dgx-01", "MIXED", used="cpu=56,mem=500000M,gres/gpu=4", CPUAlloc="56", AllocMem="500000")
    + node("dgx-02", "ALLOCATED+DRAIN", "Reason=dgx-gate: gpu3 ecc [root@2026-11-21T11:12:01]",
           "cpu=224,gres/gpu=8", CPUAlloc="224")
    + node("dgx-03", "IDLE+DRAIN", 'Reason=fan|noise "x", ask Ann [ann@2026-11-21T11:12:01]', FreeMem="N/A")
    + node("dgx-04", "DOWN*", "Reason=Not responding [slurm@2026-11-21T11:12:01]")
)  # fmt: skip
JOBS = """\
6_[0-9,20,25,30%2]|alice|research|batch|PENDING|ReqNodeNotAvail, UnavailableNodes:dgx-03|2026-11-21T11:13:48|cpu=56,mem=100M,node=1,billing=1,gres/gpu=8||1|
7|bob|(null)|batch,debug|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority \
partitions|2026-11-21T11:13:48|cpu=1,mem=2000000M,node=1,billing=1||1-1|
8|alice|research|batch|PENDING|Priority|2026-11-21T11:00:00|cpu=8,mem=1G,node=1,billing=8||1|
9|alice|research|batch|PENDING|JobHeldUser|2026-11-20T11:00:00|cpu=8,mem=1G,node=1,billing=8||1|
1|alice|research|batch|RUNNING|None|2026-11-21T11:13:48|cpu=112,mem=100M,node=2,billing=8,gres/gpu=12,gres/gpu:h100=12|dgx-[01-02]|2|
2|bob|teaching|debug|COMPLETED|None|2026-11-21T11:13:48|cpu=8,mem=100M,node=1,billing=8|dgx-01|1|
3|bob|teaching|debug|NODE_FAIL|None|2026-11-21T11:13:48|cpu=8,mem=100M,node=1,billing=8|dgx-04|1|
"""
SDIAG = """\
*******************************************************
sdiag output at Sat Nov 21 11:12:02 2026 (1795259522)
Data since      Sat Nov 21 00:00:00 2026 (1795219200)
*******************************************************
Server thread count:  3
Agent queue size:     2
Agent count:          0
Agent thread count:   0
DBD Agent queue size: 41

Jobs submitted: 105
Jobs started:   17
Jobs completed: 12
Jobs canceled:  1
Jobs failed:    0

Job states ts:  Sat Nov 21 11:11:36 2026 (1795259496)
Jobs pending:   3
Jobs running:   1

Main schedule statistics (microseconds):
\tLast cycle:   1631
\tMax cycle:    9631
\tTotal cycles: 2
\tMean cycle:   824
\tMean depth cycle:  0
\tLast queue length: 4

Backfilling stats
\tTotal backfilled jobs (since last slurm start): 90
\tTotal backfilled jobs (since last stats cycle start): 7
\tTotal backfilled heterogeneous job components: 0
\tTotal cycles: 0
\tLast cycle when: N/A
\tLast cycle: 5120
\tMax cycle:  5120
\tMean cycle: 2000
\tLast depth cycle: 0
\tLast queue length: 5

Latency for 1000 calls to gettimeofday(): 22 microseconds

Remote Procedure Call statistics by message type
\tREQUEST_PARTITION_INFO                  ( 2009) count:6      ave_time:114    total_time:688
\tLast cycle: 99999
"""
SHARES = """\
root|||164608
 research||10|123456
  research|alice|1|123456
 teaching||1|41152
"""
ANSWERS = {
    "scontrol ping": PING,
    "scontrol show": NODES,
    "squeue": JOBS,
    "sdiag": SDIAG,
    "sacctmgr": "demo\n",
    "sshare": SHARES,
}
