#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Customize hook of mmdebstrap: makes a node's image of the file system in $1.
set -eu
root=$1

# What cannot work without a device manager and a console, or would change packages by itself.
chroot "$root" systemctl mask -q systemd-udevd.service systemd-udevd-kernel.socket \
  systemd-udevd-control.socket systemd-udev-trigger.service systemd-modules-load.service \
  sys-kernel-debug.mount sys-kernel-tracing.mount getty.target console-getty.service \
  systemd-remount-fs.service e2scrub_reap.service e2scrub_all.timer apt-daily.timer \
  apt-daily-upgrade.timer dpkg-db-backup.timer nvmf-autoconnect.service

# A node makes its own at its first boot: two machines with one host key would hide mistakes.
rm -f "$root"/etc/ssh/ssh_host_*
: > "$root"/etc/machine-id
rm -f "$root"/var/lib/dbus/machine-id
chroot "$root" systemctl enable -q ssh.service

# Image building leaves no trace of how its packages came here; the lists and apt's own index of
# them stay, so that a node's first install needs no update.
rm -f "$root"/var/cache/apt/archives/*.deb "$root"/usr/sbin/policy-rc.d "$root"/etc/apt/apt.conf.d/99pod-proxy
rm -f "$root"/etc/resolv.conf "$root"/etc/hostname
: > "$root"/etc/resolv.conf
: > "$root"/etc/hostname
chroot "$root" apt-cache gencaches -q >/dev/null
