#!/bin/sh
# What chat templates make of generated conversations, each third one (templates_property.py). Skipped without Jinja.
python=${NDP_PYTHON:-/usr/bin/python3}
"$python" -c 'import jinja2' 2>/dev/null || { echo "skipped: $python has no Jinja"; exit 77; }
exec "$python" "$NDP_SOURCE_DIR/tests/text/templates_property.py" "$NDP_SOURCE_DIR" 3
