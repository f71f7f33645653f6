#!/bin/sh
# The image of tools/container, from this build's packages: it runs `ndparallel`, which trains the job of the quickstart inside.
for tool in cpack dpkg-shlibdeps mmdebstrap buildah; do
    command -v $tool >/dev/null || { echo "skipped: no $tool; tools/install-deps packages"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: a root takes root"; exit 77; }
[ -z "$NDP_SANITIZE" ] || { echo "skipped: a sanitizer is not for installing"; exit 77; }
. "$(dirname "$0")/../cli/cases.sh"
timeout 20 bash -c ': </dev/tcp/deb.debian.org/80' 2>/dev/null || { echo "skipped: Debian cannot be reached"; exit 77; }
version=$(sed -n 's/.*define NDP_VERSION "\(.*\)"/\1/p' "$NDP_SOURCE_DIR/include/ndparallel/ndparallel.h")

case_of tools/container
cpack --config "$NDP_BUILD_DIR/CPackConfig.cmake" -B "$work/packages" >out 2>err || fail "no packages"
"$NDP_SOURCE_DIR/tools/container" "$work/packages" "$work/image.tar" >out 2>err || { fail "no image"; end_of_cases; }
says out "ndparallel:$version, [0-9]+ MB: .*libndparallel0 ndparallel.* openmpi-bin"
cat out

image() { buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" "$@"; }
# within_image COMMAND...: with this folder as /work. chroot takes the fewest rights of the ways that buildah has.
within_image() { image run --isolation chroot --volume "$work/job:/work" "$container" -- "$@" >out 2>err; }

mkdir -p job/build/quickstart
cp -r "$NDP_SOURCE_DIR/examples" job/
cp "$NDP_SOURCE_DIR/README.md" job/build/quickstart/text.txt
case_of "a container of it"
container=$(image from "docker-archive:$work/image.tar" 2>err) || fail "it does not load"
image inspect --type container "$container" >out 2>err
says out '"Entrypoint": \[' '"WorkingDir": "/work"'
within_image ndparallel --version || fail "no version"
says out "^ndparallel $version"

case_of "a job in it"
for transport in shm mpi; do
    rm -rf job/build/quickstart/run
    within_image ndparallel train examples/quickstart.yaml --transport $transport --set train.steps=5 --set train.threads=1 \
        --set train.force_memory=true || fail "it does not train by $transport"
    [ "$(wc -l <job/build/quickstart/run/metrics.jsonl)" = 5 ] || fail "no 5 steps by $transport"
done
end_of_cases
