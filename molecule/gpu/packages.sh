#!/bin/sh
# Packages with the names and versions of NVIDIA's, and nothing in them but the names of the driver's libraries. The last
# line is the checksum of their list.
set -eu
folder=$1
rm -rf "$folder"
mkdir -p "$folder"

# NAME VERSION [DEPENDS]
make() {
    tree=$(mktemp -d)
    mkdir "$tree/DEBIAN"
    {
        echo "Package: $1"
        echo "Version: $2"
        echo "Architecture: all"
        echo "Maintainer: nobody <nobody@example.org>"
        test -z "${3-}" || echo "Depends: $3"
        echo "Description: a stand-in of a test"
    } > "$tree/DEBIAN/control"
    case $1 in
        libcuda1)
            mkdir -p "$tree/usr/lib/x86_64-linux-gnu"
            : > "$tree/usr/lib/x86_64-linux-gnu/libcuda.so.${2%-*}"
            : > "$tree/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.${2%-*}"
            ;;
    esac
    dpkg-deb --root-owner-group -b "$tree" "$folder" > /dev/null
    rm -r "$tree"
}

for version in 580.126.20-1 580.173.01-1; do
    make nvidia-open "$version" "libcuda1 (= $version)"
    make libcuda1 "$version"
    make nvidia-persistenced "$version"
    make nvidia-fabricmanager "$version"
    make libnvidia-nscq "$version"
done
make libnccl2 2.30.4-1+cuda13.0
for name in core proprietary cuda13 proprietary-cuda13; do
    make "datacenter-gpu-manager-4-$name" 1:4.6.0-1
done
for name in nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1; do
    make "$name" 1.20.0-1
done
cd "$folder"
sha256sum ./*.deb > SHA256SUMS
sha256sum SHA256SUMS | cut -d ' ' -f 1
