# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small valid cluster as the files of an inventory, and its way to a plan."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager
from checkout import ROOT

from ansible_collections.baremetal.dgx.plugins.module_utils._core.schema import RoleSpec
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.collect import collect
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.refusals import Refusals
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.role_specs import load_roles
from ansible_collections.baremetal.dgx.plugins.plugin_utils._inventory.values import Inventory
from ansible_collections.baremetal.dgx.plugins.plugin_utils._plan.plan import Plan, make_plan

HOSTS = """\
cluster:
  children:
    slurm_controllers:
      hosts:
        head-01:
    slurm_databases:
      hosts:
        head-01:
    subnet_managers:
      hosts:
        head-01:
    login_nodes:
      hosts:
        login-[01:02]:
    gpu_nodes:
      hosts:
        dgx-01: {node_rack: r01, node_rack_unit: 1}
        dgx-02: {node_rack: r01, node_rack_unit: 9}
        dgx-03: {node_rack: r02, node_rack_unit: 1}
        dgx-04: {node_rack: r02, node_rack_unit: 9}
"""

CLUSTER = """\
cluster_name: small
cluster_domain: small.example.org
cluster_networks:
  management:
    cidr: 10.1.0.0/24
    gateway: 10.1.0.1
  storage:
    cidr: 10.2.0.0/24
    mtu: 9000
    vlan: 20
cluster_fabric:
  topology: basepod
  leaf_switches: [leaf-01, leaf-02]
"""

GPU_NODES = """\
node_profile: dgx_h100
node_first_address:
  management: 10.1.0.101
  storage: 10.2.0.101
node_features: [h100]
"""

SLURM = """\
slurm_base_version: "24.11"
"""

CONTROLLER = """\
slurm_controller_node_sets:
  - name: first
    nodes: ["dgx-[01-02]"]
slurm_controller_partitions:
  - name: batch
    nodes: [ALL]
    default: true
    max_time: "1-00:00:00"
  - name: debug
    nodes: [first, dgx-04]
    max_time: "00:30:00"
"""

FILES = {
    "hosts.yml": HOSTS,
    "group_vars/all/cluster.yml": CLUSTER,
    "group_vars/all/slurm_base.yml": SLURM,
    "group_vars/cluster/node.yml": 'ansible_host: "{{ inventory_hostname }}"\n',
    "group_vars/slurm_controllers/node.yml": (
        "node_first_address: {management: 10.1.0.11, storage: 10.2.0.11}\n"
    ),
    "group_vars/slurm_controllers/slurm_controller.yml": CONTROLLER,
    "group_vars/login_nodes/node.yml": "node_first_address: {management: 10.1.0.21}\n",
    "group_vars/gpu_nodes/node.yml": GPU_NODES,
}

# Roles of the tests' own, so that a line expected here changes only with the checks.
COLLECTION = {
    "roles/slurm_base/meta/argument_specs.yml": """\
argument_specs:
  main:
    options:
      slurm_base_version: {type: str, required: true, choices: ["23.11", "24.11"]}
      slurm_base_key: {type: str, no_log: true, default: "{{ lookup('made') }}"}
      slurm_base_uid: {type: int, default: 64030}
""",
    "roles/slurm_base/defaults/main.yml": """\
slurm_base_uid: 64030
slurm_base_key: "{{ lookup('made') }}"
""",
    "roles/slurm_controller/meta/argument_specs.yml": """\
argument_specs:
  main:
    options:
      slurm_controller_hosts: {type: list, elements: str, required: true}
      slurm_controller_configless: {type: bool, default: true}
      slurm_controller_state_save_location: {type: path, default: /var/lib/slurmctld}
      slurm_controller_options: {type: dict, default: {}}
      slurm_controller_accounts: {type: list, elements: dict, default: []}
      slurm_controller_qos: {type: list, elements: dict, default: []}
      slurm_controller_node_sets:
        type: list
        elements: dict
        default: []
        options:
          name: {type: str, required: true}
          nodes: {type: list, elements: str}
          feature: {type: str}
      slurm_controller_partitions:
        type: list
        elements: dict
        default: []
        options:
          name: {type: str, required: true}
          nodes: {type: list, elements: str, required: true}
          default: {type: bool, default: false}
          state: {type: str, choices: [UP, DOWN, DRAIN]}
          max_time: {type: str}
          max_nodes: {type: int}
""",
    "roles/node_base/meta/argument_specs.yml": """\
argument_specs:
  main:
    options:
      node_base_users:
        type: list
        elements: dict
        default: []
        options:
          name: {type: str, required: true}
          uid: {type: int}
          password: {type: str, no_log: true}
""",
    "roles/prometheus/meta/argument_specs.yml": """\
argument_specs:
  main:
    options:
      prometheus_enabled: {type: bool, default: false}
""",
    "playbooks/configure.yml": """\
- hosts: "slurm_controllers:{{ target | default('gpu_nodes:cpu_nodes') }}"
  roles:
    - role: baremetal.dgx.slurm_base
- hosts: slurm_controllers
  roles:
    - role: baremetal.dgx.slurm_controller
""",
}


def _write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def small_cluster() -> Mapping[str, str]:
    """The inventory of the small cluster, by file."""
    return MappingProxyType(FILES)


@pytest.fixture
def small_files(small_cluster: Mapping[str, str]) -> dict[str, str]:
    """The inventory of the small cluster, by file, for the test to edit."""
    return dict(small_cluster)


@pytest.fixture(scope="session")
def small_collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the roles and playbooks that the small cluster is checked against."""
    return _write(tmp_path_factory.mktemp("collection"), COLLECTION)


@pytest.fixture(scope="session")
def collected(
    tmp_path_factory: pytest.TempPathFactory, small_collection: Path
) -> Callable[..., Inventory]:
    """Write an inventory and read it with Ansible: `collected(files, extra_vars={})`."""
    numbers = itertools.count()
    own = load_roles(str(small_collection)), small_collection

    def read(
        files: Mapping[str, str],
        extra_vars: Mapping[str, object] | None = None,
        against: tuple[dict[str, RoleSpec], Path] = own,
    ) -> Inventory:
        # A folder for each, since Ansible remembers which variable files a folder has.
        folder = _write(tmp_path_factory.mktemp(f"inventory{next(numbers)}"), files)
        loader = DataLoader()
        loader.set_basedir(str(folder.parent))
        inventory = InventoryManager(loader=loader, sources=[str(folder)])
        manager = VariableManager(loader=loader, inventory=inventory)
        manager._extra_vars = dict(extra_vars or {})
        return collect(loader, inventory, manager, against[0], str(against[1]))

    return read


@pytest.fixture(scope="session")
def planned(collected: Callable[..., Inventory], small_collection: Path) -> Callable[..., Plan]:
    """The plan that an inventory leads to: `planned(files, extra_vars={})`."""
    roles = load_roles(str(small_collection))

    def plan(files: Mapping[str, str], extra_vars: Mapping[str, object] | None = None) -> Plan:
        return make_plan(collected(files, extra_vars), roles)

    return plan


@pytest.fixture(scope="session")
def planned_by_roles(collected: Callable[..., Inventory]) -> Callable[..., Plan]:
    """The same against the collection's own roles, and what they refuse."""
    roles = load_roles(str(ROOT))
    refuse = Refusals(DataLoader(), roles, str(ROOT)).find

    def plan(files: Mapping[str, str], extra_vars: Mapping[str, object] | None = None) -> Plan:
        return make_plan(collected(files, extra_vars, (roles, ROOT)), roles, refuse)

    return plan


HARDWARE = ROOT / "virtual_pod" / "hardware"


@pytest.fixture(scope="session")
def nvml_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the simulated libnvidia-ml.so.1, and in `old` that of an older driver."""
    out = tmp_path_factory.mktemp("libraries")
    names = [f"{out}/libnvidia-ml.so.1", f"{out}/old/libnvidia-ml.so.1"]
    subprocess.run(["make", "-s", "-C", str(HARDWARE), f"OUT={out}", *names], check=True)
    return out


_PCI_KEYS = re.compile(r"absent|pcie_|numa|kernel_driver|driver_|module_version|nouveau|nvswitches")


@functools.cache
def _sysfs() -> Any:
    """The pod's script that makes the PCI side of a node, as a module."""
    spec = importlib.util.spec_from_file_location("simulated_sysfs", HARDWARE / "sysfs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class SimulatedNode:
    """A DGX H100 as its simulated hardware shows it: what the virtual pod has on each GPU node."""

    def __init__(self, folder: Path, libraries: Path) -> None:
        self.folder = folder
        self.library = str(libraries / "libnvidia-ml.so.1")
        self.old_library = str(libraries / "old" / "libnvidia-ml.so.1")
        self.fabric_manager = str(HARDWARE / "nv-fabricmanager")
        self.sysfs, self.proc = str(folder / "sys"), str(folder / "proc")
        self.kernel_log = folder / "kernel.log"
        self._pci: object = None
        self.state("")

    def state(self, text: str, log: str = "", gpus: Mapping[str, Any] | None = None) -> None:
        """Put a state in force, with a kernel log and the GPUs of a profile."""
        (self.folder / "state").write_text(text)
        self.kernel_log.write_text(log)
        # Hundreds of files are only written again for what PCI shows.
        pci = [line for line in text.splitlines() if _PCI_KEYS.search(line)], gpus
        if pci == self._pci:
            return
        self._pci = pci
        sysfs = _sysfs()
        addresses, numa = sysfs.GPUS.split(","), [0, 0, 0, 0, 1, 1, 1, 1]
        if gpus is not None:
            addresses, numa = gpus["pci"], gpus["numa"]
        sysfs.make(self.folder, sysfs.State(self.folder / "state"), addresses, numa)

    def inject(self, *faults: str) -> None:
        """Put faults in by the tool that the pod has for it."""
        self._pci = None
        subprocess.run([HARDWARE / "inject", *faults], check=True)


@pytest.fixture
def simulated_node(
    tmp_path: Path, nvml_libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> SimulatedNode:
    """A node whose GPUs are well."""
    monkeypatch.setenv("SIMULATED_HARDWARE", str(tmp_path / "state"))
    return SimulatedNode(tmp_path, nvml_libraries)
