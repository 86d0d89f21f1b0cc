#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Makes a node a whole Ceph cluster (sh -s IP NETWORK FSID FILE_SYSTEM): one of each daemon, on a sparse file. Run again,
# it starts what does not run, and begins again what a killed run left half made.
# shellcheck shell=sh
set -eu
ip=$1 network=$2 fsid=$3 fs=$4
name=$(hostname -s)
# Written last of all.
done=/var/lib/ceph/pod-cluster
units="ceph-mon@$name ceph-mgr@$name ceph-osd@0 ceph-mds@$name"

if ! dpkg -s ceph-mon ceph-mgr ceph-osd ceph-mds ceph-common > /dev/null 2>&1; then
  export DEBIAN_FRONTEND=noninteractive
  # It asks the cluster again and again for what no pod needs.
  systemctl mask -q ceph-crash.service
  set -- ceph-mon ceph-mgr ceph-osd ceph-mds ceph-common
  apt-get install -y -qq --no-install-recommends "$@" > /dev/null 2>&1 || {
    # What the baked lists name may be gone from the mirror.
    apt-get update -qq > /dev/null
    apt-get install -y -qq --no-install-recommends "$@" > /dev/null
  }
  echo installed
fi

if [ "$(cat $done 2> /dev/null)" = "$fsid" ]; then
  for unit in $units; do systemctl start "$unit"; done
else
  for unit in $units; do systemctl stop "$unit" 2> /dev/null || true; done
  for kind in mon mgr osd mds; do rm -rf /var/lib/ceph/$kind/ceph-*; done
  rm -f $done /etc/ceph/ceph.client.admin.keyring
  cat > /etc/ceph/ceph.conf << CONF
[global]
fsid = $fsid
mon_initial_members = $name
mon_host = [v2:$ip:3300,v1:$ip:6789]
public_network = $network
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_warn_on_pool_no_redundancy = false
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_data_avail_warn = 2
mon_data_avail_crit = 1
[osd]
osd_objectstore = bluestore
bluestore_block_size = 4294967296
bluestore_block_db_create = false
bluestore_block_wal_create = false
osd_memory_target = 939524096
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
[mds]
mds_cache_memory_limit = 268435456
CONF
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  admin=/etc/ceph/ceph.client.admin.keyring boot=/var/lib/ceph/bootstrap-osd/ceph.keyring
  mkdir -p /var/lib/ceph/bootstrap-osd
  ceph-authtool -C "$work/mon" --gen-key -n mon. --cap mon 'allow *' > /dev/null
  ceph-authtool -C $admin --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' \
    --cap mgr 'allow *' > /dev/null
  ceph-authtool -C $boot --gen-key -n client.bootstrap-osd --cap mon 'profile bootstrap-osd' --cap mgr 'allow r' > /dev/null
  ceph-authtool "$work/mon" --import-keyring $admin > /dev/null
  ceph-authtool "$work/mon" --import-keyring $boot > /dev/null
  monmaptool --create --addv "$name" "[v2:$ip:3300,v1:$ip:6789]" --fsid "$fsid" "$work/monmap" > /dev/null
  chown -R ceph: "$work"
  for kind in mon mgr mds; do install -d -o ceph -g ceph "/var/lib/ceph/$kind/ceph-$name"; done
  su ceph -s /bin/sh -c "ceph-mon --mkfs -i $name --monmap $work/monmap --keyring $work/mon"
  systemctl start "ceph-mon@$name"
  # While no client has asked yet: what it remembers of addresses would be version 1 alone.
  ceph mon enable-msgr2 2> /dev/null || true
  ceph auth get-or-create "mgr.$name" mon 'allow profile mgr' osd 'allow *' mds 'allow *' \
    -o "/var/lib/ceph/mgr/ceph-$name/keyring" 2> /dev/null
  ceph auth get-or-create "mds.$name" mon 'profile mds' mgr 'profile mds' mds 'allow *' osd 'allow *' \
    -o "/var/lib/ceph/mds/ceph-$name/keyring" 2> /dev/null
  chown -R ceph: /var/lib/ceph/mgr /var/lib/ceph/mds
  systemctl start "ceph-mgr@$name"
  uuid=$(cat /proc/sys/kernel/random/uuid) secret=$(ceph-authtool --gen-print-key)
  osd=$(echo "{\"cephx_secret\": \"$secret\"}" | ceph osd new "$uuid" -i - -n client.bootstrap-osd -k $boot 2> /dev/null)
  [ "$osd" = 0 ]
  install -d -o ceph -g ceph /var/lib/ceph/osd/ceph-0
  printf '[osd.0]\n\tkey = %s\n' "$secret" > /var/lib/ceph/osd/ceph-0/keyring
  chown -R ceph: /var/lib/ceph/osd/ceph-0
  su ceph -s /bin/sh -c "ceph-osd -i 0 --mkfs --osd-uuid $uuid" 2> "$work/osd" || { cat "$work/osd" >&2; exit 1; }
  systemctl start "ceph-osd@0" "ceph-mds@$name"
  ceph osd pool create "${fs}_meta" 8 > /dev/null 2>&1
  ceph osd pool create "${fs}_data" 8 > /dev/null 2>&1
  ceph fs new "$fs" "${fs}_meta" "${fs}_data" > /dev/null 2>&1
  # They come back after a reboot of the node.
  for unit in $units; do systemctl enable -q "$unit" 2> /dev/null; done
  echo made
fi

for _ in $(seq 300); do
  if timeout 20 ceph mds stat 2> /dev/null | grep -q 'up:active' \
    && timeout 20 ceph pg stat 2> /dev/null | grep -qE '^([0-9]+) pgs: \1 active\+clean;'; then
    echo "$fsid" > $done
    exit 0
  fi
  sleep 0.2
done
timeout 20 ceph -s >&2 || true
exit 1
