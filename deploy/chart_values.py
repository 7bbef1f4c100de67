"""Makes ``chart/values.schema.json``, and the tables of values and settings: ``make manifests``.

    python -m deploy.chart_values

Names, defaults and descriptions come from ``chart/values.yaml``: the comment above a value describes it. A
mapping whose members have comments is a group; every other mapping is one value, which Kubernetes defines.
The table is in ``chart/README.md``. Webhooks and pools have the schema of the custom resources.
``configuration`` has that of the fields that the gateway declares, of which the tables in
docs/configuration.md are made too.

Source: helm.sh "Charts", Schema Files; json-schema.org draft 7.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from deploy import crds
from deploy.monitoring import ROOT, table, with_tables
from gateway.config.kinds import namespace, policy_exception, webhook_configuration
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.matching import FAILURE_POLICIES
from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.yaml.documents import PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.crds import Schema
    from gateway.config.kinds.declare import Row

CHART: Final = ROOT / "deploy" / "chart"
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
README: Final = CHART / "README.md"
CONFIGURATION_PAGE: Final = ROOT / "docs" / "configuration.md"

SET_BY_THE_CHART: Final = re.compile(r"(listen|adminListen|tls|kubernetes)\b")
"""Fields of the GatewayConfiguration that other values set."""

_NAME: Final = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
_SUBDOMAIN: Final = {"pattern": "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", "maxLength": 253}
_PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
_NUMBER_OR_NONE: Final = {"type": ["integer", "null"], "minimum": 0}
_SHARE: Final = {"type": ["integer", "string", "null"], "minimum": 0, "pattern": "^[0-9]+%$"}
_DIGEST: Final = {"pattern": "^(sha256:[0-9a-f]{64})?$"}
_PULL_POLICY: Final = {"enum": ["Always", "IfNotPresent", "Never"]}
_DURATION: Final = {"pattern": "^([0-9]+(ms|s|m|h))+$"}
_TEXTS: Final = {"items": {"type": "string"}}
_TEXTS_BY_NAME: Final = {"additionalProperties": {"type": "string"}}
_OBJECTS: Final = {"items": {"type": "object"}}
_SECRETS: Final = {"items": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["name"]}]}}

_TYPES: Final[dict[str, dict[str, Any]]] = {
    r".*[lL]abels|.*[aA]nnotations|.*nodeSelector": _TEXTS_BY_NAME,
    r"(.*\.)?imagePullSecrets": _SECRETS,
    r"(.*\.)?image": {
        "properties": {
            **{name: {"type": "string"} for name in ("registry", "repository", "tag")},
            "digest": {"type": "string", **_DIGEST},
            "pullPolicy": _PULL_POLICY,
        },
        "additionalProperties": False,
    },
    r"image\.digest": _DIGEST,
    r"image\.pullPolicy": _PULL_POLICY,
    r"ports\..*|service\.port|.*\.port": _PORT,
    r"workerDefaults\.metricsPort": {**_PORT, "type": ["integer", "null"]},
    r"(.*\.)?terminationGracePeriodSeconds": _NUMBER_OR_NONE,
    r"hooks\.timeoutSeconds": {"minimum": 30},
    r"audit\.(interval|maxAge)": _DURATION,
    r"audit\.kinds": {"minItems": 1, "items": {"type": "string", "pattern": "^[a-z0-9]+(\\.[-.a-z0-9]+)?$"}},
    r"audit\.(requestsPerSecond|timeoutSeconds)": {"minimum": 1},
    r"audit\.maxCpu": {"type": ["number", "string", "null"], "pattern": "^[0-9.]+$"},
    r"podDisruptionBudget\.m.*": _SHARE,
    r"podDisruptionBudget\.unhealthy.*": {"enum": ["", "AlwaysAllow", "IfHealthyBudget"]},
    r"(.*\.)?(extraArgs|args|command)|registration\.excludeNamespaces|tls\.clientCA\.names": _TEXTS,
    r"registration\.include": {"items": {"enum": ["kube-system", "events", "leases.coordination.k8s.io"]}},
    r"(.*\.)?(tolerations|topologySpreadConstraints|env|envFrom|volumes|volumeMounts|egress)": _OBJECTS,
    r"extra(Env|EnvFrom|Volumes|VolumeMounts|Containers|Documents)": _OBJECTS,
    r"networkPolicy\.(callers|monitoring|dns|extra.*)": _OBJECTS,
    r".*\.(extraMetrics|extraGroups|.*[rR]elabelings|extraRules)": _OBJECTS,
    r"networkPolicy\..*Ports": {"items": _PORT},
    r"extraObjects": {"items": {"type": ["object", "string"]}},
    r"watchdog\.mode": {"enum": ["Alert", "Exempt", "Ignore"]},
    r"watchdog\.apiServer": {"pattern": r"^(.+:[0-9]+)?$"},
    r"watchdog\.probe": {
        "anyOf": [
            {"maxProperties": 0},
            {
                "required": ["apiVersion", "kind", "metadata"],
                "properties": {"metadata": {"required": ["name", "namespace"]}},
            },
        ]
    },
    r"tls\.mode": {"enum": ["SelfManaged", "CertManager", "Secret"]},
    r"tls\.certManager\..*(duration|Duration|Before)": _DURATION,
    r"service\.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    r"autoscaling\.(min|max)Replicas|autoscaling\.cpu\.averageUtilization": {"minimum": 1},
    r"(audit\.)?flowSchema\.matchingPrecedence": {"minimum": 1, "maximum": 10000},
    r"allowEmpty": {"type": ["boolean", "null"]},
    r"engines\..*\.documents": {"enum": ["Cluster", "Values"]},
    r"engines\.kubewarden\.modules": {"type": "object"},
    r"engines\..*\.failurePolicy": {"enum": ["", *FAILURE_POLICIES]},
    r"engines\..*\.timeoutSeconds": {"type": ["integer", "null"], "minimum": 1, "maximum": 30},
    r"(.*\.)?dnsPolicy": {"enum": ["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]},
    r"listenAddress": {"enum": ["0.0.0.0", "[::]"]},  # noqa: S104
}
"""What the default of a value does not say about its type, by patterns of its path."""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the chart, or a group of values."""

    path: str
    """With dots."""
    default: Any
    description: str
    group: tuple[Value, ...] = ()
    """The values in a group."""


def read_values(text: str) -> tuple[Value, ...]:
    """Return the values in *text*, a values.yaml."""
    return tuple(_values(yaml.compose(text), text.splitlines(), ""))


def _values(node: yaml.Node | None, lines: list[str], prefix: str) -> Iterator[Value]:
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        return
    for key, content in node.value:
        description = " ".join(_comment(lines, key.start_mark.line, key.start_mark.column))
        path = f"{prefix}{key.value}"
        default = yaml.SafeLoader("").construct_document(content)
        group = tuple(_values(content, lines, f"{path}."))
        yield Value(path, default, description, group if any(one.description for one in group) else ())


def _comment(lines: list[str], line: int, column: int) -> list[str]:
    """Return the lines of the comment above *line*, which begin in *column* too."""
    found: list[str] = []
    begin = f"{' ' * column}# "
    while line and lines[line - 1].startswith(begin):
        line -= 1
        found.insert(0, lines[line].removeprefix(begin).strip())
    return found


def leaves(values: Iterable[Value]) -> Iterator[Value]:
    """Yield *values* with the values of groups in place of the groups."""
    for value in values:
        if value.group:
            yield from leaves(value.group)
        else:
            yield value


def schema(values: tuple[Value, ...]) -> Schema:
    """Return the JSON schema of *values*."""
    made = _group("Values of the chart.", values)
    own = made["properties"]
    own["enabled"] = {
        "description": "For the condition of a parent chart; without effect here.",
        "type": "boolean",
    }
    own["global"]["additionalProperties"] = True
    own["workers"] |= {"propertyNames": _NAME, "additionalProperties": own["workerDefaults"]}
    for engine in own["engines"]["properties"].values():
        fields = engine["properties"]
        about = fields["worker"]["description"]
        fields["worker"] = {**own["workerDefaults"], "description": about}
    own["configuration"] |= _configuration()
    own["pools"] |= {"propertyNames": _SUBDOMAIN, "additionalProperties": _strict(WorkerPool.schema())}
    for kind in ("Mutating", "Validating"):
        hooks = _strict(webhook_configuration.schema(PHASES[f"{kind}WebhookConfiguration"]))
        del hooks["description"], hooks["maxItems"]
        own[f"{kind.lower()}WebhookConfigurations"]["additionalProperties"] = hooks
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "admission-gateway", **made}


def _group(description: str, values: tuple[Value, ...]) -> Schema:
    properties = {one.path.rpartition(".")[2]: _schema(one) for one in values}
    return {**crds.mapping(description, (), **properties), "additionalProperties": False}


def _schema(value: Value) -> Schema:
    if value.group:
        return _group(value.description, value.group)
    names = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    made: Schema = {"description": value.description}
    if value.default is not None:
        made["type"] = names[type(value.default)]
    if made.get("type") == "integer":
        made["minimum"] = 0
    for pattern, more in _TYPES.items():
        if re.fullmatch(pattern, value.path):
            made |= more
    return made


def _configuration() -> Schema:
    """Return the schema of a GatewayConfiguration, without the fields that other values set."""
    made = GatewaySettings.schema()
    fields = made["properties"].items()
    own = {name: one for name, one in fields if not SET_BY_THE_CHART.match(name)}
    return _strict({**made, "properties": own})


def _strict(found: Schema) -> Schema:
    """Return a schema of a custom resource as JSON schema that refuses unknown fields."""
    made = {
        name: _strict(part) if name in ("items", "additionalProperties") else part
        for name, part in found.items()
        if not name.startswith("x-kubernetes-") and name != "format"
    }
    if "properties" in found:
        made["properties"] = {name: _strict(part) for name, part in found["properties"].items()}
        made["additionalProperties"] = False
    # Patterns of other dialects, and bounds of the API server.
    if str(made.get("pattern", "")).startswith("^(?i"):
        del made["pattern"]
    if made.get("exclusiveMinimum") is True:
        made["exclusiveMinimum"] = made.pop("minimum")
    return made


def _row(value: Value) -> tuple[str, str, str]:
    default = json.dumps(value.default, ensure_ascii=False).replace("|", "\\|")
    return f"`{value.path}`", f"`{default}`", value.description


def _fields_table(fields: Iterable[Row]) -> str:
    cells = ((f"`{path}`", *others) for path, *others in fields)
    return table(("field", "type, unit", "default", "meaning"), cells)


def outputs() -> dict[Any, str]:
    """Return the files that are made here, each with its content."""
    values = read_values(VALUES.read_text())
    rows = (_row(value) for value in leaves(values))
    fields = {
        "settings": GatewaySettings.rows(),
        "pools": WorkerPool.rows("spec."),
        "webhooks": webhook_configuration.rows(),
        "exceptions": policy_exception.rows(),
        "namespaces": namespace.rows(),
    }
    tables = {name: _fields_table(rows) for name, rows in fields.items()}
    return {
        CONFIGURATION_PAGE: with_tables(CONFIGURATION_PAGE.read_text(), tables, "manifests"),
        SCHEMA: json.dumps(schema(values), indent=1, ensure_ascii=False) + "\n",
        README: with_tables(
            README.read_text(), {"values": table(("value", "default", "meaning"), rows)}, "manifests"
        ),
    }


if __name__ == "__main__":
    for file, content in outputs().items():
        file.write_text(content)
