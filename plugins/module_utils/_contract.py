# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""The inventory contract as data: the groups, and the variables that describe cluster and nodes.

docs/inventory.md is made from this, and a test compares the two.
"""

from __future__ import annotations

from ansible_collections.baremetal.dgx.plugins.module_utils._contract_types import Option
from ansible_collections.baremetal.dgx.plugins.module_utils._contract_validation import (
    GROUP_TESTS,
    VALIDATION,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._plan_fabric import (
    CABLING_SOURCES,
    COMPUTED,
    RAIL_GROUPS,
)
from ansible_collections.baremetal.dgx.plugins.module_utils._profiles import PROFILE_OPTION

CLUSTER_GROUP = "cluster"

# In the order in which a host's type is looked for: the type is the group that errors name it by.
GROUPS: dict[str, str] = {
    "gpu_nodes": "DGX and HGX machines that run jobs; each needs a profile",
    "cpu_nodes": "machines without GPUs that run jobs; each needs a profile of the site's own",
    "slurm_controllers": "run slurmctld; the first is the primary, the others stand by",
    "slurm_databases": "run slurmdbd; the first is in charge, a second one stands by",
    "login_nodes": "where users log in and submit jobs",
    "storage_nodes": "serve the file systems; one with `cephfs_admin: true` lets clients in",
    "monitoring_nodes": "collect metrics and raise alarms",
    "subnet_managers": "run the InfiniBand subnet manager; the first is the master",
}

# Hosts of these groups run slurmd and stand in slurm.conf.
COMPUTE_GROUPS: tuple[str, ...] = ("gpu_nodes", "cpu_nodes")

_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME_PATTERN = _NAME
HOST_NAME_WORDS = "lower-case letters, digits and hyphens, at most 63, without a domain"

_NETWORK_NAME = r"[a-z][a-z0-9_-]*"
_NETWORK_WORDS = "a network name of lower-case letters, digits, _ and -"
_SWITCH_PATTERN = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_SWITCH = Option(pattern=_SWITCH_PATTERN, pattern_words="a switch name")
_GUID = Option(
    pattern=r"(0x)?[0-9A-Fa-f]{16}|([0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4}",
    pattern_words="16 hexadecimal digits in quotes, like '0x946dae0300a1b2c3'",
)
_RACK = Option(
    pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]*",
    pattern_words="a rack name of letters, digits, _, . and -",
    description="Name of the rack",
)

_NETWORK = Option(
    type="dict",
    options={
        "cidr": Option(
            required=True,
            pattern_words="the network as ADDRESS/BITS",
            description="Address and prefix length, C(10.1.0.0/24)",
        ),
        "gateway": Option(description="Address of the router in it"),
        # 68 would be legal for IPv4, but IPv6 asks for 1280. 65520 is the most of IPoIB, in
        # connected mode; what Ethernet carries is checked where the kind is known.
        "mtu": Option(type="int", minimum=1280, maximum=65520, description="Bytes of a packet"),
        "vlan": Option(type="int", minimum=1, maximum=4094, description="VLAN tag"),
        "kind": Option(
            choices=("ethernet", "infiniband"), default="ethernet", description="What it runs on"
        ),
    },
)

_FABRIC = Option(
    type="dict",
    options={
        "topology": Option(
            choices=("none", "basepod", "superpod"),
            default="none",
            description="How the rails meet the leaf switches",
        ),
        "leaf_switches": Option(
            type="list",
            each=_SWITCH,
            default=[],
            description="Names, in the order of scalable unit and rail",
        ),
        "spine_switches": Option(type="list", each=_SWITCH, default=[], description="Names"),
        "core_switches": Option(
            type="list", each=_SWITCH, default=[], description="Names; beyond 8 scalable units"
        ),
        "radix": Option(
            type="int", minimum=2, maximum=512, default=64, description="Ports of a switch"
        ),
        "rails": Option(
            type="int", minimum=1, maximum=16, default=8, description="Compute ports of a node"
        ),
        "rate_gbps": Option(
            type="int",
            choices=(100, 200, 400, 800),
            default=400,
            description="Rate of a port in Gb/s",
        ),
        "ufm_unit": Option(
            type="int",
            minimum=1,
            maximum=64,
            description="Scalable unit whose leaves give up one node's ports to UFM",
        ),
        "counter_interval_s": Option(
            type="int",
            minimum=0,
            maximum=86400,
            default=60,
            description="Seconds between the two readings of error counters in validate_fabric",
        ),
        "pair_tests": Option(
            type="dict",
            options={
                "transport": Option(
                    choices=("none", "ssh", "slurm"),
                    default="none",
                    description="How validate_fabric reaches the nodes for pair tests, which load "
                    "the fabric fully: V(slurm) takes all nodes in one job, V(ssh) asks nobody",
                ),
                "memory": Option(
                    choices=("host", "cuda", "cuda_dmabuf"),
                    default="host",
                    description="Memory that the data goes from and to",
                ),
                "duration_s": Option(
                    type="int", minimum=3, maximum=3600, default=10, description="Of one test"
                ),
                "pairs_per_link": Option(
                    type="int",
                    minimum=1,
                    maximum=32,
                    default=3,
                    description="Different pairs that load each link in each direction",
                ),
                "exclude": Option(
                    type="list",
                    each=Option(),
                    default=[],
                    description="Nodes and rails (C(dgx-01/rail3)) that take no part",
                ),
                "arguments": Option(
                    type="list",
                    each=Option(),
                    default=[],
                    description="More arguments for ib_write_bw",
                ),
                "slurm_options": Option(
                    type="list",
                    each=Option(),
                    default=[],
                    description="More arguments for salloc, a partition or a reservation",
                ),
                "slurm_gres": Option(
                    default="", description="Generic resources of each node, C(gpu:8) for GPUDirect"
                ),
            },
            default={},
            description="Pair tests of validate_fabric",
        ),
        "group_tests": GROUP_TESTS,
        "rail_groups": Option(
            choices=RAIL_GROUPS,
            default=RAIL_GROUPS[0],
            description="With basepod, the rails of the first switch: the first half, or the even",
        ),
        "cabling": Option(
            type="dict",
            options={
                "source": Option(
                    choices=CABLING_SOURCES,
                    default=COMPUTED,
                    description="Who says which cable goes where: the reference design, a list, "
                    "or the list that fabric_verify made of an earlier sweep",
                ),
                "file": Option(
                    type="path",
                    pattern=r".*\S",
                    pattern_words="the path of a CSV file",
                    nullable=True,
                    description="The list, C(group_vars/all/cables.csv) for example: a path in the "
                    "inventory's directory, or an absolute one",
                ),
            },
            default={},
            description="Where the cable plan comes from",
        ),
        "switch_guids": Option(
            type="dict",
            each=_GUID,
            key_pattern=_SWITCH_PATTERN,
            key_words="the name of a switch",
            default={},
            description="GUID of each switch by its name, where it is known",
        ),
        "switch_places": Option(
            type="dict",
            each=Option(
                type="dict",
                options={
                    "rack": _RACK,
                    "rack_unit": Option(
                        type="int", minimum=1, maximum=60, description="Its rack unit"
                    ),
                },
            ),
            key_pattern=_SWITCH_PATTERN,
            key_words="the name of a switch",
            default={},
            description="Where each switch stands, for the labels of the cables",
        ),
        "reserved_ports": Option(
            type="dict",
            each=Option(type="list", each=Option(type="int", minimum=1, maximum=512)),
            key_pattern=_SWITCH_PATTERN,
            key_words="the name of a switch",
            default={},
            description="By switch, ports for what is not planned: the adapter of a subnet manager",
        ),
    },
)

_GATE = Option(
    type="dict",
    options={
        "enabled": Option(
            type="bool",
            default=False,
            description="Whether new nodes start drained, until admit_nodes lets them in",
        ),
        "share": Option(
            type="float",
            minimum=0,
            maximum=1,
            default=0.1,
            description="Share of the nodes that may be out at once by the gate's hand, one at "
            "least; 0 lets it take out none",
        ),
        "level": Option(
            choices=("quick", "standard", "burn_in"),
            default="standard",
            description="Least level of validate_nodes that lets a node in",
        ),
        "evidence_days": Option(
            type="int",
            minimum=1,
            maximum=3650,
            default=14,
            description="How old evidence may be to let a node in, or to take it out",
        ),
        "fabric": Option(
            type="bool",
            default=True,
            description="Whether a node's cables must pass, too, where an InfiniBand fabric is "
            "declared",
        ),
        "unmeasured": Option(
            choices=("leave", "drain"),
            default="leave",
            description="What becomes of a node in service that could not be measured",
        ),
        "spares": Option(
            type="list",
            each=Option(pattern=_NAME, pattern_words="the name of a host"),
            default=[],
            description="Nodes that are held as spares, in the order in which they are put in",
        ),
        "spares_in_service": Option(
            type="int",
            minimum=0,
            maximum=1000,
            default=0,
            description="How many of them may be in service at once",
        ),
    },
)

_REPORT: dict[str, Option] = {
    "marks": Option(
        type="dict", default={}, description="New marks by check; operator and unit stay"
    ),
    "fleet_failing": Option(
        type="list",
        each=Option(),
        default=[],
        description="Checks whose outliers among their like fail, though they reach their marks",
    ),
    "most_share": Option(
        type="float",
        minimum=0,
        maximum=1,
        default=0.2,
        description="Share of the nodes above which a common failure is asked of the checker",
    ),
}

CLUSTER_VARIABLES: dict[str, Option] = {
    "cluster_name": Option(
        required=True,
        pattern=r"[a-z][a-z0-9_-]{0,39}",
        pattern_words="a lower-case letter, then letters, digits, _ and -, 40 at most",
        description="Name of the cluster, in Slurm too",
    ),
    "cluster_domain": Option(
        pattern=rf"{_NAME}(\.{_NAME})+",
        pattern_words="a domain like cluster.example.org",
        description="Domain of the nodes' full names",
    ),
    "cluster_state_dir": Option(
        type="path",
        pattern=r"/.+",
        pattern_words="an absolute path on the controller",
        default="{{ inventory_dir }}/.dgx",
        description="Where the controller keeps the cluster's secrets and plan",
    ),
    "cluster_networks": Option(
        type="dict",
        required=True,
        each=_NETWORK,
        description="The networks by name",
        key_pattern=_NETWORK_NAME,
        key_words=_NETWORK_WORDS,
    ),
    "cluster_access_network": Option(
        default="management",
        description="The network that SSH and Slurm use; its addresses carry the host names",
    ),
    "cluster_fabric": Option(
        type="dict",
        options=_FABRIC.options,
        default={},
        description="The compute fabric",
    ),
    "cluster_validation": Option(
        type="dict",
        options=VALIDATION.options,
        default={},
        description="What validate_nodes asks of a node",
    ),
    "cluster_gate": Option(
        type="dict",
        options=_GATE.options,
        default={},
        description="What lets nodes into Slurm and takes them out; see acceptance.md",
    ),
    "cluster_report": Option(
        type="dict",
        options=_REPORT,
        default={},
        description="How records are judged for the report; see acceptance.md",
    ),
    "cluster_profiles": Option(
        type="dict",
        each=PROFILE_OPTION,
        key_pattern=r"[a-z][a-z0-9_]*",
        key_words="a profile name of lower-case letters, digits and _",
        default={},
        description="The site's own profiles, or changes to built-in ones",
    ),
}

NODE_VARIABLES: dict[str, Option] = {
    "node_profile": Option(
        description="The model: a built-in profile or one of O(cluster_profiles)",
    ),
    "node_number": Option(
        type="int",
        minimum=1,
        maximum=99999,
        default="the number the host name ends in",
        description="Place in the group, from 1",
    ),
    "node_first_address": Option(
        type="dict",
        each=Option(),
        default={},
        description="Address of node number 1 by network; the others are counted from it",
        key_pattern=_NETWORK_NAME,
        key_words=_NETWORK_WORDS,
    ),
    "node_address": Option(
        type="dict",
        each=Option(),
        default={},
        description="The node's own address by network; wins over the counted one",
        key_pattern=_NETWORK_NAME,
        key_words=_NETWORK_WORDS,
    ),
    "node_rack": _RACK,
    "node_rack_unit": Option(
        type="int", minimum=1, maximum=60, description="Lowest rack unit that the node fills"
    ),
    "node_su": Option(
        type="int",
        minimum=1,
        maximum=64,
        default="with superpod, counted from the node number",
        description="Scalable unit of a SuperPOD",
    ),
    "node_leaf_place": Option(
        type="int",
        minimum=1,
        maximum=512,
        default="counted from the node number, with superpod within the scalable unit",
        description="Place on the leaf switches, from 1: with superpod, the port of each of them",
    ),
    "node_features": Option(
        type="list",
        each=Option(pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]*", pattern_words="one word"),
        default=[],
        description="Features of the node in Slurm",
    ),
    "node_serial": Option(
        pattern=r"\S(.*\S)?", pattern_words="the serial number", description="Serial number"
    ),
    "node_hca_guids": Option(
        type="dict",
        each=_GUID,
        key_pattern=r"[0-9]{1,2}",
        key_words="the number of a rail, from 0",
        default={},
        description="GUID of the adapter on each rail, by rail number",
    ),
    "node_state": Option(
        choices=("present", "absent"),
        default="present",
        description="V(absent) lets remove_nodes take the node out of the cluster",
    ),
}

VARIABLES: dict[str, Option] = {**CLUSTER_VARIABLES, **NODE_VARIABLES}
