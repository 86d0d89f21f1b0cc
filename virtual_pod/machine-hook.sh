#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Customize hook of mmdebstrap, after image-hook.sh: makes the file system in $1 one that boots by itself, with GRUB.
set -eu
root=$1

# Of what containers do without, a machine needs all that has to do with devices.
chroot "$root" systemctl unmask -q systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket \
  systemd-udev-trigger.service systemd-modules-load.service systemd-remount-fs.service sys-kernel-debug.mount \
  sys-kernel-tracing.mount
# It notes in /boot what GRUB is never asked here.
chroot "$root" systemctl mask -q grub-common.service
chroot "$root" systemctl enable -q systemd-networkd.service
cat > "$root"/etc/systemd/system/pod-first-boot.service << 'END'
[Unit]
Description=What makes this image one node of the pod
ConditionPathExists=!/var/lib/pod-node
DefaultDependencies=no
After=systemd-remount-fs.service
Before=systemd-networkd.service sysinit.target
[Service]
Type=oneshot
ExecStartPre=/sbin/modprobe qemu_fw_cfg
ExecStart=/bin/sh /sys/firmware/qemu_fw_cfg/by_name/opt/baremetal-dgx/boot/raw
[Install]
WantedBy=sysinit.target
END
chroot "$root" systemctl enable -q pod-first-boot.service

echo 'LABEL=root / ext4 defaults 0 1' > "$root"/etc/fstab
# tsc=reliable: the kernel would take the emulated clock for a broken one, and perftest needs it.
cat > "$root"/etc/default/grub << 'END'
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_CMDLINE_LINUX_DEFAULT=""
GRUB_CMDLINE_LINUX="console=ttyS0 net.ifnames=0 mitigations=off tsc=reliable"
GRUB_TERMINAL=serial
GRUB_DISABLE_OS_PROBER=true
END
# By hand, and only this first one: update-grub knows no device of / in a folder.
mkdir -p "$root"/boot/grub/i386-pc
cp "$root"/usr/lib/grub/i386-pc/*.mod "$root"/usr/lib/grub/i386-pc/*.lst "$root"/boot/grub/i386-pc/
cat > "$root"/boot/grub/grub.cfg << 'END'
serial --unit=0 --speed=115200
search --no-floppy --label root --set=root
linux /vmlinuz root=LABEL=root ro console=ttyS0 net.ifnames=0 mitigations=off tsc=reliable
initrd /initrd.img
boot
END
chroot "$root" grub-mkimage -O i386-pc -p '(hd0,msdos1)/boot/grub' -o /boot/grub/core.img biosdisk part_msdos ext2 \
  normal configfile linux search search_fs_uuid search_label serial test echo
