#!/bin/sh
# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Makes the stand-ins' packages in a directory with checksums, as roles/enroot takes it. Needs dpkg-deb.
# Usage: packages.sh DIRECTORY. Prints the checksum of the list last.
set -eu
# The same bytes on every node, so that one checksum fits all.
export SOURCE_DATE_EPOCH=0

here=$(cd "$(dirname "$0")" && pwd)
target=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
rm -rf "$target"
mkdir -p "$target"

package() { # NAME DEPENDS
  mkdir -p "$tree/$1/DEBIAN"
  printf '%s\n' "Package: $1" "Version: 4.1.2-1" "Architecture: all" "Depends: $2" \
    "Maintainer: nobody <nobody@example.org>" "Description: stand-in for $1 in the virtual pod" \
    > "$tree/$1/DEBIAN/control"
}

package enroot squashfs-tools
install -D -m 0755 "$here/enroot/enroot" "$tree/enroot/usr/bin/enroot"
mkdir -p "$tree/enroot/etc/enroot/enroot.conf.d" "$tree/enroot/etc/enroot/hooks.d"
for hook in 50-slurm-pmi.sh 50-slurm-pytorch.sh; do
  printf '#!/bin/sh\nexit 0\n' > "$tree/hook"
  install -D -m 0755 "$tree/hook" "$tree/enroot/usr/share/enroot/hooks.d/$hook"
done
package "enroot+caps" "enroot (= 4.1.2-1)"
for name in enroot "enroot+caps"; do
  dpkg-deb --root-owner-group -b "$tree/$name" "$target/${name}_4.1.2-1_all.deb" > /dev/null
done
cd "$target"
sums=$(find . -type f ! -name SHA256SUMS | sort | xargs sha256sum)
printf '%s\n' "$sums" > SHA256SUMS
sha256sum SHA256SUMS | cut -d' ' -f1
