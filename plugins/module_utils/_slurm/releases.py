# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What differs between releases of Slurm, as tables. Pure.

The tables of keys were measured: each key was given to the parsers of 22.05.8, 23.11.4, 24.11.5,
25.11.2 and 26.05.5, alone and in a node and a partition line. The releases in between were not at
hand; a key counts as known there as soon as the next measured release knows it, so that nothing
legal is refused. What slips through is refused by Slurm itself, before a file is replaced.
"""

from __future__ import annotations

import difflib
from typing import Mapping

VERSIONS = ("22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")

# First release with a feature.
FEATURES: Mapping[str, str] = {
    # exists since 23.11; recommended for new clusters from 24.11 on
    "auth/slurm": "24.11",
    # every daemon starts again in place and keeps the old one when the new one fails (scontrol man
    # page, reconfigure); before it, a changed set of nodes ends slurmctld (tried with 22.05.8)
    "reconfigure takes all": "23.11",
    # scontrol show config numbers them (24.11.5); 23.11.4 keeps the last one without a word
    "several prolog lines": "24.11",
    # a way to say that there are no cgroups; before it slurmd wants one to be named (tried: 22.05)
    "cgroup disabled": "24.05",
    # gres.conf man page, AutoDetect
    "autodetect nvidia": "24.11",
    "topology block": "23.11",
    # replaced BlockLevels (topology.conf man pages of 23.11 and 24.11)
    "block sizes": "24.05",
    # slurmctld 23.11.4 ends with "children count no equal bblock_node_cnt"; 24.11.5 does not
    "unequal blocks": "24.05",
    # release notes of 25.05, gaps within the block definitions; by its source, slurmctld before it
    # ends with "children count lower than bblock_node_cnt" (neither was tried)
    "incomplete blocks": "25.05",
    "topology.yaml": "25.05",
    # cgroup.conf man page: v1 is deprecated
    "cgroup v1 deprecated": "25.05",
}

# First release that knows a value of a key that this collection writes or checks.
VALUES: Mapping[str, Mapping[str, str]] = {
    "LaunchParameters": {"ulimit_pam_adopt": "23.11"},
    "SlurmctldParameters": {"reconfig_on_restart": "25.11"},
    "HealthCheckNodeState": {
        "NONDRAINED_IDLE": "23.02",
        "START_ONLY": "25.05",
        "REBOOT_ONLY": "26.05",
    },
    "PrologFlags": {"ForceRequeueOnFail": "23.02", "RunInJob": "24.05"},
    "CommunicationParameters": {"disable_http": "25.11"},
}

# Before "reconfigure takes all", a change of these is taken by a restart of slurmctld only
# (slurm.conf man page of 22.05, "A restart of slurmctld is required"). Nodes and their GPUs: tried.
RESTART_KEYS = (
    "AccountingStorageEnforce",
    "AccountingStorageType",
    "AuthType",
    "ClusterName",
    "CredType",
    "GresTypes",
    "JobAcctGatherType",
    "JobCompType",
    "JobContainerType",
    "MaxJobCount",
    "MaxNodeCount",
    "NodeName",
    "PluginDir",
    "PriorityType",
    "ProctrackType",
    "SchedulerType",
    "SelectType",
    "SelectTypeParameters",
    "SlurmUser",
    "SlurmctldHost",
    "SlurmctldParameters",
    "SlurmctldPort",
    "SlurmdPort",
    "StateSaveLocation",
    "TaskPlugin",
    "TopologyPlugin",
)

# After it, only what the daemons hold on to: listening ports and the way of authentication.
RESTART_KEYS_EVER = ("AuthAltTypes", "SlurmctldPort", "SlurmdPort")

_EVER = """
AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost
AccountingStorageHost AccountingStorageParameters AccountingStoragePass AccountingStoragePort
AccountingStorageTRES AccountingStorageType AccountingStorageUser AccountingStoreFlags
AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInterconnectType AcctGatherNodeFreq
AcctGatherProfileType AllowSpecResourcesUsage AuthAltParameters AuthAltTypes AuthInfo AuthType
BatchStartTimeout BcastExclude BcastParameters BurstBufferParameters BurstBufferType
CliFilterPlugins ClusterName CommunicationParameters CompleteWait CoreSpecPlugin CpuFreqDef
CpuFreqGovernors CredType DebugFlags DefCpuPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode
DependencyParameters DisableRootJobs DownNodes EioTimeout EnforcePartLimits Epilog EpilogMsgTime
EpilogSlurmctld FairShareDampeningFactor FederationParameters FirstJobId GetEnvTimeout GpuFreqDef
GresTypes GroupUpdateForce GroupUpdateTime HealthCheckInterval HealthCheckNodeState
HealthCheckProgram InactiveLimit InteractiveStepOptions JobAcctGatherFrequency
JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPort
JobCompType JobCompUser JobContainerType
JobCredentialPrivateKey JobCredentialPublicCertificate JobFileAppend JobRequeue JobSubmitPlugins
KeepAliveTime
KillOnBadExit KillWait LaunchParameters Licenses LogTimeFormat MCSParameters MCSPlugin MailDomain
MailProg MaxArraySize MaxDBDMsgs MaxJobCount MaxJobId MaxMemPerCPU MaxMemPerNode MaxNodeCount
MaxStepCount MaxTasksPerNode MessageTimeout MinJobAge MpiDefault MpiParams NodeFeaturesPlugins
NodeName NodeSet OverTimeLimit PartitionName PlugStackConfig PluginDir PowerParameters PowerPlugin
PrEpParameters PrEpPlugins PreemptExemptTime PreemptMode PreemptType PriorityCalcPeriod
PriorityDecayHalfLife PriorityFavorSmall PriorityFlags PriorityMaxAge PriorityParameters
PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod
PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize
PriorityWeightPartition PriorityWeightQOS PriorityWeightTRES PrivateData ProctrackType Prolog
PrologEpilogTimeout PrologFlags PrologSlurmctld PropagatePrioProcess PropagateResourceLimits
PropagateResourceLimitsExcept RebootProgram ReconfigFlags RequeueExit RequeueExitHold
ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout ResvEpilog ResvOverRun ResvProlog
ReturnToService RoutePlugin SbcastParameters SchedulerParameters SchedulerTimeSlice SchedulerType
ScronParameters SelectType SelectTypeParameters SlurmSchedLogFile SlurmSchedLogLevel SlurmUser
SlurmctldAddr SlurmctldDebug SlurmctldHost SlurmctldLogFile SlurmctldParameters SlurmctldPidFile
SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmctldTimeout
SlurmdDebug SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir
SlurmdSyslogDebug SlurmdTimeout SlurmdUser SrunEpilog SrunPortRange SrunProlog StateSaveLocation
SuspendExcNodes SuspendExcParts SuspendProgram SuspendRate SuspendTime SuspendTimeout
SwitchParameters SwitchType TCPTimeout TaskEpilog TaskPlugin TaskPluginParam TaskProlog TmpFS
TopologyParam TopologyPlugin TrackWCKey TreeWidth UnkillableStepProgram UnkillableStepTimeout
UsePAM VSizeFactor WaitTime X11Parameters
"""

_PARTITION_EVER = """
AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind DefCpuPerGPU DefMemPerCPU
DefMemPerGPU DefMemPerNode Default DefaultTime DenyAccounts DenyQos DisableRootJobs ExclusiveUser
GraceTime Hidden LLN MaxCPUsPerNode MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime MinNodes Nodes
OverSubscribe OverTimeLimit PreemptMode PriorityJobFactor PriorityTier QOS ReqResv ResumeTimeout
RootOnly SelectTypeParameters State SuspendTime SuspendTimeout TRESBillingWeights
"""

# Key → (first release that may know it, first release that no longer does; "" for none).
_SOMETIMES: Mapping[str, tuple[str, str]] = {
    "CertgenParameters": ("25.05", ""),
    "CertgenType": ("25.05", ""),
    "CertmgrParameters": ("24.05", ""),
    "CertmgrType": ("24.05", ""),
    "CliFilterParameters": ("25.05", ""),
    "DataParserParameters": ("24.05", ""),
    "EpilogTimeout": ("25.05", ""),
    "HashPlugin": ("24.05", ""),
    "HealthCheckTimeout": ("26.05", ""),
    "HttpParserType": ("25.05", ""),
    "JobCompPassScript": ("25.05", ""),
    "LicenseParameters": ("26.05", ""),
    "MaxBatchRequeue": ("23.02", ""),
    "MetricsAuthUsers": ("26.05", ""),
    "MetricsParameters": ("26.05", ""),
    "MetricsType": ("25.11", ""),
    "NamespaceType": ("25.11", ""),
    "PowerAction": ("26.05", ""),
    "PreemptParameters": ("23.02", ""),
    "PrologTimeout": ("25.05", ""),
    "SlurmctldHttpAuthParameters": ("26.05", ""),
    "SlurmctldPlugstack": ("", "23.11"),
    "SlurmdHttpAuthParameters": ("26.05", ""),
    "SuspendExcStates": ("23.02", ""),
    "TLSParameters": ("24.05", ""),
    "TLSType": ("24.05", ""),
    "UrlParserType": ("25.05", ""),
}
_PARTITION_SOMETIMES: Mapping[str, tuple[str, str]] = {
    "Exclusive": ("26.05", ""),
    "ExclusiveTopo": ("24.05", ""),
    "MaxCPUsPerSocket": ("23.02", ""),
    "PowerDownOnIdle": ("23.02", ""),
    "Topology": ("25.05", ""),
}

# Still read by some release, but renamed or without effect: key → what to write instead.
RENAMED: Mapping[str, str] = {
    "accountingstorageloc": "nothing, the database is slurmdbd's affair",
    "accountingstorejobcomment": "AccountingStoreFlags",
    "acctgatherinfinibandtype": "AcctGatherInterconnectType",
    "backupaddr": "SlurmctldHost",
    "backupcontroller": "SlurmctldHost",
    "cgroupautomount": "nothing, Slurm mounts no cgroups any more",
    "controladdr": "SlurmctldHost",
    "controlmachine": "SlurmctldHost",
    "cryptotype": "CredType",
    "extsensorsfreq": "nothing, there is no plug-in for it",
    "extsensorstype": "nothing, there is no plug-in for it",
    "fastschedule": "SlurmdParameters=config_overrides",
    "frontendname": "nothing, front ends are gone",
    "launchtype": "nothing, there is only one",
    "sallocdefaultcommand": "LaunchParameters=use_interactive_step",
    "schedulerauth": "nothing, there is no plug-in for it",
}
_PARTITION_RENAMED: Mapping[str, str] = {"priority": "PriorityTier", "shared": "OverSubscribe"}

_KEYS = {key.lower(): (key, "", "") for key in _EVER.split()}
_KEYS.update({key.lower(): (key, *span) for key, span in _SOMETIMES.items()})
_PARTITION_KEYS = {key.lower(): (key, "", "") for key in _PARTITION_EVER.split()}
_PARTITION_KEYS.update({key.lower(): (key, *span) for key, span in _PARTITION_SOMETIMES.items()})


def release(version: str) -> tuple[int, int]:
    """Return MAJOR.MINOR as numbers that compare; ValueError for anything else."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def is_since(version: str, first: str) -> bool:
    """Return whether the version is that release or a later one; each has what "" names."""
    return not first or release(version) >= release(first)


def has(version: str, feature: str) -> bool:
    """Return whether the version has a feature of FEATURES."""
    return is_since(version, FEATURES[feature])


def spell(key: str, partition: bool = False) -> str:
    """Return the key as the man page writes it, as given when it is not known."""
    known = _PARTITION_KEYS if partition else _KEYS
    return known.get(key.lower(), (key,))[0]


def judge_key(version: str, key: str, partition: bool = False) -> str:
    """Return what is wrong with a key in that release, `what; what to write`; "" for nothing."""
    known = _PARTITION_KEYS if partition else _KEYS
    instead = (_PARTITION_RENAMED if partition else RENAMED).get(key.lower())
    if instead:
        return f"is a name of old; write {instead}"
    if key.lower() not in known:
        where = "a PartitionName line" if partition else "slurm.conf"
        near = difflib.get_close_matches(key.lower(), list(known), n=1)
        remedy = f"write {known[near[0]][0]}" if near else "look into the man page of slurm.conf"
        return f"is not a key of {where}; {remedy}"
    _spelling, first, gone = known[key.lower()]
    if not is_since(version, first):
        return f"exists from {first} on, version is {version}; leave it out"
    if gone and is_since(version, gone):
        return f"is gone since {gone}, version is {version}; leave it out"
    return ""


def judge_values(version: str, key: str, values: list[str]) -> list[str]:
    """Return what is wrong with the values of a key in that release."""
    spans = {value.lower(): first for value, first in VALUES.get(key, {}).items()}
    return [
        f"{value} exists from {spans[value.lower()]} on, version is {version}; leave it out"
        for value in values
        if not is_since(version, spans.get(value.lower(), ""))
    ]
