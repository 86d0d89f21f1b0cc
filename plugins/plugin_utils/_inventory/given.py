# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""What the plan gives to roles, and which of it the inventory may say instead. Data."""

from __future__ import annotations

from ...module_utils._core.schema import Option

# The inventory's own value wins: the plan writes none where there is one.
YIELDING = frozenset(
    {
        "dcgm_exporter_address",
        "dcgm_exporter_dcgm_release",
        "dcgm_exporter_host_engine",
        "enroot_importer",
        "enroot_prolog",
        "grafana_prometheus",
        "infiniband_health_required",
        "local_storage_disks",
        "login_environment_banner",
        "login_environment_banner_title",
        "node_exporter_address",
        "node_health_bmc",
        "node_health_nvme",
        "prometheus_alertmanagers",
        "prometheus_external_labels",
        "pyxis_builder",
        "pyxis_submit_host",
        "pyxis_trial_user",
        "slurm_exporter_controller_port",
        "slurm_rest_address",
    }
)
# The plan begins with what the inventory says, and adds to it, or switches off.
EXTENDED = frozenset(
    {
        "alertmanager_enabled",
        "fabric_exporter_enabled",
        "grafana_enabled",
        "login_environment_environment",
        "node_health_mounts",
        "prometheus_enabled",
        "slurm_controller_health_check",
        "slurm_controller_plugstack",
        "slurm_exporter_enabled",
    }
)
GIVEN = (
    YIELDING
    | EXTENDED
    | frozenset(
        {
            "backup_first_job_id",
            "backup_cluster_name",
            "backup_database",
            "backup_database_password",
            "backup_kinds",
            "backup_prometheus_dir",
            "backup_secrets_dir",
            "backup_state_dir",
            "backup_tidies",
            "dcgm_gpus",
            "fabric_exporter_environment",
            "fabric_exporter_other_hosts",
            "fabric_exporter_plan_file",
            "fabric_exporter_subnet_manager_guids",
            "fabric_exporter_subnet_manager_provider",
            "fabric_exporter_subnet_managers",
            "fabric_exporter_switch_health",
            "identity_local_groups",
            "identity_local_users",
            "infiniband_addresses",
            "infiniband_gpus",
            "infiniband_link_layer",
            "infiniband_ports",
            "infiniband_rails",
            "node_health_profile",
            "node_health_rails",
            "node_network_interfaces",
            "nvidia_driver_gpu",
            "nvidia_driver_gpudirect",
            "nvidia_driver_nvswitches",
            "prometheus_collectors",
            "prometheus_jobs",
            "pyxis_configless_logins",
            "pyxis_holds_files",
            "pyxis_nodes",
            "pyxis_other_lines",
            "pyxis_parts",
            "pyxis_slurm_release",
            "pyxis_slurm_source",
            "pyxis_state_dir",
            "roce_hardware",
            "roce_rails",
            "slurm_base_cluster_name",
            "slurm_base_controllers",
            "slurm_base_jwt",
            "slurm_base_plugins",
            "slurm_base_secrets_dir",
            "slurm_base_slurmd_port",
            "slurm_base_state_dir",
            "slurm_compute_config_dir",
            "slurm_compute_configless",
            "slurm_compute_controllers",
            "slurm_compute_hardware",
            "slurm_controller_build_dir",
            "slurm_controller_cluster_name",
            "slurm_controller_database_port",
            "slurm_controller_databases",
            "slurm_controller_first_job_id",
            "slurm_controller_former_host",
            "slurm_controller_hosts",
            "slurm_controller_new_nodes_drained",
            "slurm_controller_nodes",
            "slurm_controller_topology",
            "slurm_database_cluster_name",
            "slurm_database_former_host",
            "slurm_database_hosts",
            "slurm_database_secrets_dir",
            "slurm_exporter_accounting",
            "slurm_exporter_controller_address",
            "slurm_login_config_dir",
            "slurm_login_configless",
            "slurm_login_controllers",
            "slurm_login_manage_config",
            "subnet_manager_hosts",
            "subnet_manager_node_names_file",
            "subnet_manager_root_guids",
            "subnet_manager_topology",
        }
    )
)

_TEXT = Option(nullable=True)
_SECRET = Option(nullable=True, no_log=True)

# What the plan reads for monitoring_nodes, and no role takes.
READ: dict[str, Option] = {
    "monitoring_access": Option(
        type="dict",
        nullable=True,
        options={
            "username": _TEXT,
            "password": _SECRET,
            "ca": _TEXT,
            "certificate": _TEXT,
            "key": _SECRET,
        },
    ),
    "monitoring_ceph": Option(type="list", each=Option(), nullable=True),
    # Roles check what is in a job; it may hold a password.
    "monitoring_jobs": Option(type="list", each=Option(type="dict", no_log=True), nullable=True),
}
