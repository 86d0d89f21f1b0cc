#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# First process of a container, after node-identity.sh (GPU: 1 or 0); ends as systemd.
# shellcheck shell=sh
set -eu
gpu=$1

# Most of /proc/sys is the host's own. Only net stays; of the rest a node gets copies that it may
# write and read back, so that neither a role nor systemd changes the host's kernel.
keep=/run/pod-sysctl
mkdir -p $keep/net $keep/kernel $keep/core
cp -r /proc/sys/vm /proc/sys/fs $keep/ 2>/dev/null || true
mount --bind /proc/sys/net $keep/net
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount --bind $keep/net /proc/sys/net
umount $keep/net
mount --bind $keep/vm /proc/sys/vm
mount --bind $keep/fs /proc/sys/fs
for key in core_uses_pid dmesg_restrict hung_task_timeout_secs kptr_restrict nmi_watchdog numa_balancing panic \
  panic_on_oops perf_event_paranoid pid_max randomize_va_space sched_autogroup_enabled softlockup_panic sysrq \
  threads-max unprivileged_userns_clone watchdog; do
  if [ -e /proc/sys/kernel/$key ] && cat /proc/sys/kernel/$key > $keep/kernel/$key 2>/dev/null; then
    mount --bind $keep/kernel/$key /proc/sys/kernel/$key
  fi
done
# Visible in a network namespace, but only the host can set them.
for key in rmem_default rmem_max wmem_default wmem_max; do
  if [ -e /proc/sys/net/core/$key ] && cat /proc/sys/net/core/$key > $keep/core/$key; then
    mount --bind $keep/core/$key /proc/sys/net/core/$key
  fi
done

if [ "$gpu" = 1 ]; then
  for i in 0 1 2 3 4 5 6 7; do
    [ -e /dev/nvidia$i ] || mknod -m 666 /dev/nvidia$i c 195 $i
  done
fi
exec /lib/systemd/systemd
