"""Parses the telemetry of the executor strictly with the official libraries, and prints it as JSON.

Argument: `traces`, `metrics` or `prometheus`. Standard input: the text to parse.
"""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

kind, text = sys.argv[1], sys.stdin.read()


def with_base64_ids(value):
    """Converts ids: OTLP JSON has them in hexadecimal, the JSON of protobuf in base64."""
    if isinstance(value, list):
        return [with_base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in ids else with_base64_ids(item)
        for key, item in value.items()
    }


if kind == "prometheus":
    families = text_string_to_metric_families(text)
    read = {f.name: {"type": f.type, "samples": [[s.name, s.labels, s.value] for s in f.samples]} for f in families}
elif kind == "traces":
    message = json_format.ParseDict(with_base64_ids(json.loads(text)), ExportTraceServiceRequest())
    read = [
        {"name": s.name, "trace": s.trace_id.hex(), "id": s.span_id.hex(), "parent": s.parent_span_id.hex(),
         "nanoseconds": s.end_time_unix_nano - s.start_time_unix_nano, "status": s.status.code}
        for r in message.resource_spans for scope in r.scope_spans for s in scope.spans
    ]
else:
    message = json_format.Parse(text, ExportMetricsServiceRequest())
    read = {
        m.name: {"kind": m.WhichOneof("data"), "points": len(getattr(m, m.WhichOneof("data")).data_points)}
        for r in message.resource_metrics for scope in r.scope_metrics for m in scope.metrics
    }
print(json.dumps(read))
