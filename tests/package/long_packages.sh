#!/bin/sh
# The Debian packages of `make packages`: what lintian says; then, in a fresh root of this system's release, they are installed,
# train the job of the quickstart, are upgraded to a newer version, and are removed. NDP_PACKAGES: a folder with packages of
# NDP_SUITE (trixie), to be tried instead of this build's.
for tool in cpack dpkg-shlibdeps mmdebstrap lintian; do
    command -v $tool >/dev/null || { echo "skipped: no $tool; tools/install-deps packages"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: a root takes root"; exit 77; }
[ -z "$NDP_SANITIZE" ] || { echo "skipped: a sanitizer is not for installing"; exit 77; }
. "$(dirname "$0")/../cli/cases.sh"
suite=${NDP_SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
mirror=${NDP_MIRROR:-http://deb.debian.org/debian}
timeout 20 bash -c ': </dev/tcp/deb.debian.org/80' 2>/dev/null || { echo "skipped: no $mirror"; exit 77; }
version=$(sed -n 's/.*define NDP_VERSION "\(.*\)"/\1/p' "$NDP_SOURCE_DIR/include/ndparallel/ndparallel.h")

# ---- the packages, of this version and of a newer one ----

if [ -n "${NDP_PACKAGES-}" ]; then
    cp -r "$NDP_PACKAGES/." packages
else
    for made in $version $version.1; do
        case_of "cpack -R $made"
        cpack --config "$NDP_BUILD_DIR/CPackConfig.cmake" -R "$made" -B "$work/packages" >out 2>err || fail "no packages"
        rm -rf packages/_CPack_Packages
    done
fi
case_of lintian
lintian packages/*_"$version"_*.deb >out 2>err
grep '^E:' out >errors && fail "lintian has errors"
cat out
for package in packages/*_"$version"_*.deb; do
    dpkg-deb -f "$package" Package Version Installed-Size Depends Recommends
    echo "Size: $(wc -c <"$package")"
done

# ---- in a fresh root ----

mkdir -p files/build/quickstart files/examples
cp -r packages files/
cp -r "$NDP_SOURCE_DIR/examples/quickstart" "$NDP_SOURCE_DIR/examples/quickstart.yaml" files/examples
cp "$NDP_SOURCE_DIR/README.md" files/build/quickstart/text.txt
cat >files/inside <<'END'
set -eu
cd /files
export HOME=/files DEBIAN_FRONTEND=noninteractive
ours() { find / -xdev \( -path /files -o -path /dev -o -path /proc -o -path /sys -o -path /tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/apt \) -prune -o -name '*ndp*arallel*' -print -o -path '*/lib/ndparallel/*' -print; }
apt_get() { apt-get -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >>apt.log 2>&1 || { tail -n 30 apt.log; exit 1; }; }
version_of() { dpkg-query -W -f '${Version}' "$1"; }
train() {
    rm -rf build/quickstart/run
    ndparallel train examples/quickstart.yaml --set train.steps=5 --set train.threads=1 --set train.force_memory=true "$@" >log 2>&1
}
trains() {
    train "$@" || { cat log; exit 1; }
    [ "$(wc -l <build/quickstart/run/metrics.jsonl)" = 5 ]
}
apt_get install ./packages/*_"$1"_*.deb
ndparallel env | sed -n 's/^transports */transports: /p; s/^GPUs */GPUs: /p'
ndparallel help train >/dev/null
for file in bin/ndparallel lib/ndparallel/ndp_mpi.so include/ndparallel/ndparallel.h share/bash-completion/completions/ndparallel; do [ -e /usr/$file ]; done
names=$(cd packages && echo *_"$1"_*.deb | sed 's/_[^ ]*//g')
for name in $names; do
    [ "$(version_of $name)" = "$1" ]
    # Images of containers leave documentation out, but for the copyright.
    [ -s /usr/share/doc/$name/copyright ]
done
trains
# Open MPI is only recommended, and is not here: ranks are threads or processes, and a run that asks for MPI says what it lacks.
! command -v mpirun && [ -z "$(find / -xdev -name 'libmpi.so*')" ]
for transport in local shm; do trains --set parallelism.dp_replicate_size=1 --transport $transport; done
! train --transport mpi
sed 's/^/by mpi: /' log
echo installed
apt_get install ./packages/*_"$2"_*.deb
for name in $names; do [ "$(version_of $name)" = "$2" ]; done
trains
echo upgraded
apt_get remove $names
[ -z "$(ours)" ] || { ours; exit 1; }
[ -s build/quickstart/run/metrics.jsonl ]
echo removed
END
case_of "a root of $suite"
mmdebstrap --quiet --variant=apt --customize-hook="cp -r $work/files \"\$1\"/files" \
    --customize-hook="chroot \"\$1\" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh /files/inside $version $version.1" \
    "$suite" /dev/null "$mirror" >out 2>&1 || fail "it does not end"
says out '^transports: self, local, shm; no MPI: .*libmpi.so' '^by mpi: .*mpirun is not installed: install it' \
    '^installed$' '^upgraded$' '^removed$'
# The plugin for GPUs is installed where no driver is: it says so.
! ls packages/ndparallel-cuda_* >/dev/null 2>&1 || says out '^GPUs: no CUDA: this machine has no NVIDIA driver'
cat out

end_of_cases
