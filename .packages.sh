# Sourced by ./demo and ./test: which Debian packages are needed, and how they are installed without starting a service.
# shellcheck shell=sh disable=SC2034

build_packages="gcc pkg-config libsmbclient-dev libiscsi-dev libclang-dev"
server_packages="nfs-ganesha nfs-ganesha-vfs rpcbind samba samba-common-bin tgt iproute2 util-linux mount"
test_packages="smbclient libiscsi-bin libnfs-utils nftables e2fsprogs btrfs-progs xfsprogs iperf3 iputils-ping openssh-server busybox"
assume_yes=no
needed=

# Notes those of the named packages that are not installed.
need() {
  for package do
    state=$(dpkg-query -W -f '${Status}' "$package" 2> /dev/null || true)
    case $state in "install ok installed") ;; *) needed="$needed $package" ;; esac
  done
}

# Asks and installs. Services of the new packages are neither started nor enabled: the build needs their files only,
# and the servers that nasgauge starts itself live in namespaces of their own.
install_needed() {
  if ! command -v cargo > /dev/null; then
    echo "A Rust toolchain (1.95 or newer) is needed: https://rustup.rs" >&2
    exit 2
  fi
  if [ -z "$needed" ]; then return 0; fi
  echo "These Debian packages will be installed:$needed" >&2
  if [ "$assume_yes" = no ] && [ -t 0 ]; then
    printf 'Go on? [Y/n] ' >&2
    read -r answer
    case $answer in n* | N*) exit 2 ;; esac
  fi
  as_root=
  if [ "$(id -u)" != 0 ]; then as_root=sudo; fi
  $as_root sh -s -- $needed <<'ROOT'
set -eu
export DEBIAN_FRONTEND=noninteractive
# A policy that forbids starting services, kept only for the length of this installation.
policy=/usr/sbin/policy-rc.d
own=no
if [ ! -e "$policy" ]; then
  own=yes
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod 755 "$policy"
fi
trap 'if [ "$own" = yes ]; then rm -f "$policy"; fi' EXIT
trap 'exit 130' INT TERM
starts() { ls -d /etc/systemd/system/*.wants/* /etc/rc[2-5].d/S* 2> /dev/null | sort || true; }
before=$(starts)
apt-get -q update
apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
# What a new package enabled by itself is disabled again, so that the next boot starts nothing new.
starts | while read -r link; do
  case "
$before
" in *"
$link
"*) continue ;; esac
  case $link in
    /etc/rc*) service=$(basename "$link"); update-rc.d "${service#S[0-9][0-9]}" disable > /dev/null ;;
    *) systemctl --quiet disable "$(basename "$link")" 2> /dev/null || rm -f "$link" ;;
  esac
done
ROOT
}
