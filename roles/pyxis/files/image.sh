#!/bin/sh
# Managed by Ansible: baremetal.dgx. Local changes will be overwritten.
# Makes a small image that has a shell and says that it is an image. Usage: image.sh FILE TOKEN
set -eu
# Users start it: what is in it is theirs to read, whatever a hardened host gives root.
umask 022

target=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree" "$target.new"' EXIT
mkdir -p "$tree/bin" "$tree/dev" "$tree/etc" "$tree/proc" "$tree/root" "$tree/run" "$tree/sys" "$tree/tmp" \
  "$tree/usr/bin" "$tree/var/tmp" "$(dirname "$target")"
chmod 755 "$tree"
# Hooks of enroot write users and names into these.
for name in passwd group hosts hostname resolv.conf; do : > "$tree/etc/$name"; done
echo "$2" > "$tree/etc/baremetal-dgx-image"
shell=$(readlink -f /bin/sh)
cp "$shell" "$tree/bin/sh"
# `libc.so.6 => /lib/…/libc.so.6 (0x…)`, and the loader without an arrow
ldd "$shell" | grep -o '/[^ ]*' | while read -r library; do
  mkdir -p "$tree$(dirname "$library")"
  cp -L "$library" "$tree$library"
done
rm -f "$target.new"
mksquashfs "$tree" "$target.new" -all-root -no-progress -no-xattrs > /dev/null
chmod 644 "$target.new"
mv "$target.new" "$target"
