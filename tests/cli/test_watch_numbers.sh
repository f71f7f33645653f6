#!/bin/sh
# watch --http: Prometheus' own reader of OpenMetrics takes /metrics, with names of runs that need escapes, and finds the numbers
# of metrics.jsonl. $NDP_DUMP_PYTHON has the package (tools/test-python dump).
python=${NDP_DUMP_PYTHON:-$NDP_SOURCE_DIR/build/dump-python/bin/python}
"$python" -c "import prometheus_client" 2>/dev/null ||
    { echo "skipped: no NDP_DUMP_PYTHON, a Python with prometheus-client (tools/test-python dump)"; exit 77; }
[ -e "${NDP_PLUGIN_DIR:-$(dirname "$NDP_PROGRAM")}/ndp_http.so" ] || { echo "skipped: no ndp_http.so"; exit 77; }
. "$(dirname "$0")/cases.sh"
make_job
name='a "run" \ of <b>'
run train job.yaml --set train.output_dir=run --transport local
code_is 0
mv run "$name"
case_of the parser of prometheus-client
"$NDP_PROGRAM" watch "$name" --http 0 >out 2>err &
server=$!
within grep -q '^metrics: ' out || fail 'it does not serve'
"$python" - "$(sed -n 's/^metrics: //p' out)" "$name" >read 2>>err <<'END' || fail 'it is not read'
import json, sys, urllib.request
from prometheus_client.openmetrics.parser import text_string_to_metric_families

url, name = sys.argv[1:]
lines = [json.loads(line) for line in open(name + "/metrics.jsonl")]
families = {f.name: f for f in text_string_to_metric_families(urllib.request.urlopen(url).read().decode())}
value = {s.name: s.value for f in families.values() for s in f.samples}
assert all(s.labels["run"] == name for f in families.values() for s in f.samples)
for key in ("step", "loss", "grad_norm", "lr", "tokens_per_second"):
    assert value["ndparallel_" + key] == lines[-1][key], key
assert value["ndparallel_tokens_total"] == lines[-1]["tokens_total"]
assert abs(value["ndparallel_compute_seconds_total"] - sum(line["compute_seconds"] for line in lines)) < 1e-9
assert value["ndparallel_peak_memory_bytes"] == lines[-1]["peak_memory_bytes"]
assert families["ndparallel_peak_memory_bytes"].unit == "bytes" and families["ndparallel_tokens"].type == "counter"
states = {s.labels["ndparallel_run_state"]: s.value for s in families["ndparallel_run_state"].samples}
assert [state for state, on in states.items() if on] == ["done"], states
END
kill -TERM $server
wait $server
end_of_cases
