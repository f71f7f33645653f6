# Read by scripts that plan for published models without having them: a tiny config.json of the type of a published name.
src=$NDP_SOURCE_DIR/src

# "type pattern..." and "type class text_type" a line: the tables of published names, and of models of several parts.
rows() { tr '\n' ' ' <"$1" | sed 's/" *"//g' | grep -oE "$2"; }
rows "$src/import/import_model.c" '\{"[^"]+", *"[a-z0-9_]+"' | sed -E 's/^\{"([^"]+)", *"(.*)"$/\2 \1/' >names
rows "$src/model/composites.c" '\{"[a-z0-9_]+", "[^"]+"[^}]*\.text = "[a-z0-9_]+"' |
    sed -E 's/^\{"([^"]+)", "([^"]+)".*"([^"]+)"$/\1 \2 \3/' >parts

# type_of MODEL: its model_type, by its published name.
type_of() {
    set -f
    while read -r type patterns; do
        for pattern in $patterns; do
            # shellcheck disable=SC2254 # a pattern
            case $1 in $pattern) echo "$type"; set +f; return ;; esac
        done
    done <names
    set +f
}

# config_of TYPE: a tiny config.json.
config_of() {
    text=$(awk -v t="$1" '$1 == t { print $3 }' parts)
    golden=${text:-$1}
    case $golden in qwen2*_vl_text) golden=qwen2 ;; gemma4_unified_text) golden=gemma4_text ;; esac
    tiny=$(grep -lE "\"model_type\": \"$golden\"" "$NDP_SOURCE_DIR"/tests/golden/*/config.json | grep -v /gqa-bias | head -n 1)
    [ -n "$tiny" ] || return
    if [ -n "$text" ]; then
        echo "{\"model_type\": \"$1\", \"architectures\": [\"$(awk -v t="$1" '$1 == t { print $2 }' parts)\"], \"text_config\":"
        tr '\n' ' ' <"$tiny" | sed -E "s/\"architectures\": \[[^]]*\],//; s/\"model_type\": \"[^\"]*\"/\"model_type\": \"$text\"/" |
            case $text in # heads of their real sizes: sections of positions, and blocks of nf4, go by them
            qwen*) sed -E 's/"hidden_size": [0-9]+/"hidden_size": 512/; s/"(linear_[a-z]*_)head_dim": [0-9]+/"\1head_dim": 64/g' ;;
            *) cat ;;
            esac
        echo '}'
    else
        cat "$tiny"
    fi
}
