#!/usr/bin/env bash
# Installs header, libraries and pkg-config file on Linux.
#   cargo build --release -p qkv-rope-capi && crates/capi/install.sh PREFIX [FOLDER_OF_THE_BUILT_LIBRARIES]
# The shared library's soname is libqkv_rope.so.MAJOR: programs keep working until the major version changes. While it
# is 0, QKV_ROPE_ABI_VERSION says whether header and library fit.
set -euo pipefail
prefix=${1:?usage: install.sh PREFIX [FOLDER]}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
built=${2:-${CARGO_TARGET_DIR:-$root/target}/release}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
major=${version%%.*}

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
prefix=$(cd "$prefix" && pwd)
install -m 644 "$here/include/qkv_rope.h" "$prefix/include/"
install -m 755 "$built/libqkv_rope_capi.so" "$prefix/lib/libqkv_rope.so.$version"
install -m 644 "$built/libqkv_rope_capi.a" "$prefix/lib/libqkv_rope.a"
ln -sf "libqkv_rope.so.$version" "$prefix/lib/libqkv_rope.so.$major"
ln -sf "libqkv_rope.so.$major" "$prefix/lib/libqkv_rope.so"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/qkv_rope.pc.in" >"$prefix/lib/pkgconfig/qkv_rope.pc"
