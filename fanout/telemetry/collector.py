"""From OpenTelemetry's own environment variables to spans that arrive at a collector."""

import math
from collections.abc import Mapping

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, TraceIdRatioBased

from fanout.telemetry.exporting import Exporting
from fanout.telemetry.spans import Tracing

_SAMPLER, _RATIO = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PARENT_BASED = "parentbased_"
_UNNAMED = "unknown_service"

_log = structlog.get_logger()


def connect(role: str, environ: Mapping[str, str]) -> tuple[Tracing, Exporting]:
    """Tracing of this process and what exports its spans, by OTLP over HTTP. Connects to nothing yet, so a collector may come later.

    Of the variables that the exporter itself reads (endpoint, headers, certificate, timeout, compression) all are understood.
    """
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        _log.warning(
            "spans are sent as http/protobuf", asked=protocol, mend="name the collector's OTLP/HTTP port (4318)"
        )
    sampler, honours_flag = sampler_of(environ)
    exporting = Exporting(OTLPSpanExporter())
    return Tracing(exporting.put, sampler, _resource(role), honours_flag=honours_flag), exporting


def sampler_of(environ: Mapping[str, str]) -> tuple[Sampler, bool]:
    """The sampler of OTEL_TRACES_SAMPLER, and whether it honours a publisher's sampled flag (``parentbased_…``, the default).

    What is not understood is told, and the default is taken: everything that a publisher has not excluded.
    """
    name = environ.get(_SAMPLER, "").strip().lower() or "parentbased_always_on"
    match name.removeprefix(_PARENT_BASED):
        case "always_on":
            sampler: Sampler = ALWAYS_ON
        case "always_off":
            sampler = ALWAYS_OFF
        case "traceidratio":
            sampler = TraceIdRatioBased(_ratio_of(environ.get(_RATIO, "")))
        case _:
            known = "always_on, always_off, traceidratio, each also with parentbased_ before it"
            _log.warning("sampler not known, parentbased_always_on is used", variable=_SAMPLER, value=name, known=known)
            return ALWAYS_ON, True
    return sampler, name.startswith(_PARENT_BASED)


def _ratio_of(text: str) -> float:
    try:
        ratio = float(text or 1)
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio <= 1:  # also for NaN
        _log.warning("ratio not usable, 1 is used", variable=_RATIO, value=text, right="a number from 0 to 1")
        return 1.0
    return ratio


def _resource(role: str) -> Resource:
    """Named ``fanout-<role>`` where OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES do not say otherwise."""
    resource = Resource.create()
    if str(resource.attributes.get("service.name", _UNNAMED)).startswith(_UNNAMED):
        resource = resource.merge(Resource({"service.name": f"fanout-{role}"}))
    return resource
