#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# What makes an image one node (NAME IP PROXY KEY BARE), at its first boot. A container goes on with node-boot.sh, a
# machine with machine-boot.sh, in the same shell.
# shellcheck shell=sh
set -eu
name=$1 ip=$2 proxy=$3 key=$4 bare=$5
shift 5
# Present from the second boot on: what the node was given at the first one belongs to it since.
done=/var/lib/pod-node

# podman binds its own files over these three; nothing could replace them by rename.
for file in hostname hosts resolv.conf; do
  if mountpoint -q /etc/$file; then umount /etc/$file; fi
done
if [ ! -e $done ]; then
  gateway=${proxy#http://}
  gateway=${gateway%:*}
  echo "$name" > /etc/hostname
  printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n%s %s\n' "$ip" "$name" > /etc/hosts
  echo "nameserver $gateway" > /etc/resolv.conf
  # What the host itself serves, such as a site's mirror, is asked without the package cache.
  printf 'Acquire::http::Proxy "%s";\nAcquire::http::Proxy::%s "DIRECT";\n' "$proxy" "$gateway" \
    > /etc/apt/apt.conf.d/99pod-proxy
  [ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N '' -C "root@$name" -f /etc/ssh/ssh_host_ed25519_key
  mkdir -p /root/.ssh
  chmod 700 /root/.ssh
  if [ "$bare" = 1 ]; then
    # A machine as it comes: password only.
    sed -i 's/^#*PermitRootLogin.*/PermitRootLogin yes/; s/^#*PasswordAuthentication.*/PasswordAuthentication yes/' /etc/ssh/sshd_config
  else
    (umask 077; echo "$key" > /root/.ssh/authorized_keys)
  fi
  touch $done
fi
