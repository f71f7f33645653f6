#!/bin/sh
# The placement check shares no code with what it judges: its objects need no symbol of parallel/, nor of the files of
# step/ that emit communication, nor the functions by which slices are cut into pieces.
set -u
build=${NDP_BUILD_DIR:?}
emitters='reduce gather messages own step_update projections'
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
command -v nm >/dev/null || exit 77

# defined ARCHIVE [MEMBERS]: the global symbols that it defines, all or those members of it.
defined() {
    nm -A --defined-only --extern-only "$build/$1" | sed -n "s/^[^:]*:\(${2:-[a-z_]*}\)\.c\.o:[0-9a-f]* [A-Z] //p"
}

{
    defined libndp_parallel.a
    for file in $emitters; do
        defined libndp_step.a "$file" >"$work/one"
        [ -s "$work/one" ] || { echo "step/$file.c defines nothing: was it renamed?"; exit 1; }
        cat "$work/one"
    done
    printf '%s\n' ndp_segments_piece ndp_segments_run ndp_pieces_fill ndp_pieces_count
} | sort -u >"$work/judged"
nm -u "$build/libndp_placement.a" | sed -n 's/^ *U //p' | sort -u >"$work/used"
grep -qx ndp_parallel_apply "$work/judged" && grep -qx ndp_program_input "$work/judged" && grep -qx ndp_mesh_group "$work/used" ||
    { echo "nm shows no symbols as expected"; exit 1; }
if shared=$(comm -12 "$work/judged" "$work/used") && [ -n "$shared" ]; then
    echo "src/placement uses what it judges:"
    echo "$shared"
    nm -A -u "$build/libndp_placement.a" | grep -F "$shared"
    exit 1
fi
echo "$(wc -l <"$work/used") symbols used, none of the $(wc -l <"$work/judged") that it judges"
