"""Manifests with drawn changes of mutating webhooks, as questions to Argo CD's own code (``oracle``).

``argocd.jsonl`` has its answers, one a line. ``python -m tests.e2e.argocd`` makes it anew.
"""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.tools.preview.argocd import ignore_differences

if TYPE_CHECKING:
    from collections.abc import Callable

    Json = dict[str, Any]

FILE: Final = Path(__file__).with_name("argocd.jsonl")
RECORDED: Final = range(120)
"""The seeds of the recorded answers."""
_KEYS: Final = ("containerPort", "port", "mountPath")
"""Keys of elements other than their names. The API server accepts no element without its key."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def _pod_spec() -> Json:
    return {
        "containers": [
            {
                "name": "app",
                "image": "shop/app:1",
                "args": ["--port", "80"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80, "name": "http"}],
                "resources": {"limits": {"memory": "64Mi"}},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "log", "image": "shop/log:1"},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
    }


def _template() -> Json:
    return {"metadata": {"labels": {"app": "web"}}, "spec": _pod_spec()}


def _object(api_version: str, kind: str, **rest: Any) -> Json:
    metadata = {"name": "web", "namespace": "shop", "labels": {"app": "web", "a.b/c": "d"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def manifests() -> list[Json]:
    """Return one manifest of each kind, as in Git."""
    selector = {"matchLabels": {"app": "web"}}
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return [
        _object("v1", "Pod", spec=_pod_spec()),
        _object("apps/v1", "Deployment", spec={"replicas": 2, "selector": selector, "template": _template()}),
        _object(
            "apps/v1",
            "StatefulSet",
            spec={
                "serviceName": "web",
                "selector": selector,
                "template": _template(),
                "volumeClaimTemplates": [claim],
            },
        ),
        _object(
            "batch/v1",
            "CronJob",
            spec={"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _template()}}},
        ),
        _object("v1", "Service", spec={"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}),
        _object("v1", "ConfigMap", data={"a": "1", "b": "2"}),
        _object("v1", "Secret", stringData={"a": "1", "b": "2"}, data={"c": "Mw=="}),
        _object(
            "networking.k8s.io/v1",
            "Ingress",
            spec={
                "rules": [
                    {
                        "host": "a.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "web", "port": {"number": 80}}},
                                }
                            ]
                        },
                    }
                ]
            },
        ),
        _object(
            "example.io/v1",
            "Widget",
            spec={
                "size": 3,
                "parts": [{"name": "a", "tags": ["x"]}, {"name": "b"}],
                "options": {"a": 1},
                "template": _template(),
            },
        ),
    ]


def _holders(found: object) -> list[Any]:
    """Return the maps and lists in *found*, itself included."""
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    own = [found] if isinstance(found, dict | list) else []
    return own + [each for one in inner for each in _holders(one)]


def _add(draw: random.Random, holder: Any) -> None:
    if isinstance(holder, dict):
        holder.setdefault("added", "by-webhook")
    elif holder and isinstance(holder[0], dict):
        key = next((each for each in _KEYS if each in holder[0]), next(iter(holder[0])))
        value: object = 8080 if isinstance(holder[0][key], int) else "added"
        if all(each.get(key) != value for each in holder):
            holder.insert(draw.randint(0, len(holder)), {key: value})
    elif holder:
        holder.insert(draw.randint(0, len(holder)), "added")


def _change(draw: random.Random, holder: Any) -> None:
    members = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    scalars = [each for each in members if isinstance(holder[each], str | int)]
    if scalars:
        chosen = draw.choice(scalars)
        holder[chosen] = holder[chosen] + 1 if isinstance(holder[chosen], int) else f"{holder[chosen]}-new"


def _remove(draw: random.Random, holder: Any) -> None:
    if isinstance(holder, dict):
        kept = [name for name in holder if name not in ("name", "containers", "template", "spec", *_KEYS)]
        if kept:
            del holder[draw.choice(kept)]
    elif len(holder) > 1:
        del holder[draw.randrange(len(holder))]


def _reverse(draw: random.Random, holder: Any) -> None:
    del draw
    if isinstance(holder, list):
        holder.reverse()


_CHANGES: Final[tuple[Callable[[random.Random, Any], None], ...]] = (_add, _add, _change, _remove, _reverse)


def question(seed: int) -> Json:
    """Return the line for the oracle with *seed*, without ``ignoreDifferences``."""
    draw = random.Random(seed)
    manifest = draw.choice(manifests())
    live = copy.deepcopy(manifest)
    for _ in range(draw.randint(1, 3)):
        members = [name for name in live if name not in ("apiVersion", "kind")]
        of_metadata = live["metadata"]["labels"]
        holder = of_metadata if draw.random() < 0.2 else None
        if holder is None:
            body = {name: live[name] for name in members if name != "metadata"}
            holder = draw.choice([each for one in body.values() for each in _holders(one)])
        draw.choice(_CHANGES)(draw, holder)
    annotations = {LAST_APPLIED: json.dumps(manifest)}
    live["metadata"] = {**live["metadata"], "annotations": annotations, "uid": "u", "generation": 1}
    return {"desired": manifest, "live": live}


def with_ignored(asked: Json) -> Json:
    """Return the question *asked* with what the gateway would have Argo CD ignore."""
    found = ignore_differences(asked["desired"], asked["live"])
    return {**asked, "ignoreDifferences": [] if found is None else [found]}
