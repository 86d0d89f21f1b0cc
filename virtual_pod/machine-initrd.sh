#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
# Essential hook of mmdebstrap, before the kernel is installed: a short list of modules in the first RAM disk, since an
# emulated processor takes minutes to unpack all of them.
set -eu
mkdir -p "$1"/etc/initramfs-tools/conf.d "$1"/etc/initramfs-tools/hooks
printf 'MODULES=list\nCOMPRESS=lz4\n' > "$1"/etc/initramfs-tools/conf.d/pod
cat > "$1"/etc/initramfs-tools/hooks/pod << 'END'
#!/bin/sh
[ "$1" != prereqs ] || exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_blk ext4
END
chmod 755 "$1"/etc/initramfs-tools/hooks/pod
