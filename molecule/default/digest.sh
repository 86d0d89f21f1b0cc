#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# What a role could change on a node, one line each.
set -eu
find /etc /boot /home /srv /usr/local /var/lib/dpkg/status /var/lib/baremetal-dgx /root/.ssh -xdev \
  ! -path '/etc/*-' -printf '%p %y %M %u %g %l\n' 2>/dev/null | sort
find /etc /boot /var/lib/dpkg/status /root/.ssh -xdev -type f -exec sha256sum {} + | sort -k 2
sysctl -a 2>/dev/null | grep -E '^(vm\.swappiness|net\.ipv4\.conf\.(all|default)\.arp)' || true
hostname
systemctl show --property=DefaultLimitMEMLOCK
systemctl list-units --type=service --state=running --no-legend --plain | awk '{ print $1 }' |
  grep -Ev '^(systemd-|user@)'
