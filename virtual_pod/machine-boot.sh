#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# First boot of a machine, after node-identity.sh and before its network (IP); the unit that runs it is in machine-hook.sh.
# shellcheck shell=sh
set -eu
ip=$1
hostname -F /etc/hostname
# Of the weakest name: what a role declares for the interface comes before it.
cat > /etc/systemd/network/99-pod.network << END
[Match]
Name=eth0
[Network]
Address=$ip/24
LinkLocalAddressing=no
IPv6AcceptRA=no
END
# One user manager for as long as the machine runs: to start it for each connection takes an emulated processor 20 s.
mkdir -p /var/lib/systemd/linger
touch /var/lib/systemd/linger/root
