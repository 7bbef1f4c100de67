"""Requests to Kyverno for workloads in which it looks for Pod templates.

Kyverno takes the fields of an object in a random order: in no case do two templates fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.recorded.other_engines.cases import (
    FOLDER,
    NAMESPACES,
    Case,
    check,
    create,
    delete,
    exception,
    matching,
    named,
    pod,
    pod_spec,
    request,
    rule,
    thing,
    update,
    validating,
    workload,
)

if TYPE_CHECKING:
    Json = dict[str, Any]

FILE: Final = FOLDER / "extraction.json"
CASES: Final[list[Case]] = []
TAGGED: Final = check("object.spec.containers.all(c, c.image.contains(':'))", "an image has no tag")
SHOWN: Final = (
    "object.?metadata.orValue('none'), object.?spec.?containers[?0].?image.orValue('none'), "
    "oldObject == null, object == null, request"
)
WIDGETS: Final = "widgets.v1.example.io"


def template(*images: str, **metadata: Any) -> Json:
    made = {"spec": pod_spec(*images)}
    return {**made, "metadata": metadata} if metadata else made


def widget(spec: Json | None = None, **metadata: Any) -> Json:
    """Return a custom workload, by default with one template that fails."""
    return thing("Widget", {"template": template("nginx")} if spec is None else spec, **metadata)


GOOD: Final = widget({"template": template("nginx:1")})


def case(
    name: str,
    shows: str,
    *validations: Json,
    on: Json,
    names: tuple[str, ...] = (WIDGETS,),
    exceptions: tuple[Json, ...] = (),
    **spec: Any,
) -> None:
    """Add a case of a policy on Pods whose controllers are *names*."""
    autogen = {"podControllers": {"controllers": list(names)}}
    policy = validating(*(validations or [TAGGED]), **{"autogen": autogen, **spec})
    question: Json = {"policies": [policy], "namespaces": NAMESPACES, "request": on}
    if exceptions:
        question["exceptions"] = list(exceptions)
    CASES.append(Case(name, shows, question))


def seen(name: str, shows: str, expression: str, on: Json | None = None, **spec: Any) -> None:
    """Add a case whose denial has the JSON of the value of *expression*."""
    case(name, shows, check("false", by=f"json.marshal({expression})"), on=on or create(widget()), **spec)


# -- which workloads ------------------------------------------------------------------------------

case("named", "RESOURCE.VERSION.GROUP is a custom workload.", on=create(widget()))
case("passes", "A workload whose templates pass is allowed.", on=create(GOOD))
case("not-named", "A workload that is not named is allowed.", on=create(widget()), names=("jobs",))
case("other-version", "The version counts.", on=create(widget()), names=("widgets.v2.example.io",))
case("other-group", "The group counts.", on=create(widget()), names=("widgets.v1.example.com",))
case("any-resource", "The resource may be any of a group.", on=create(widget()), names=("*.v1.example.io",))
case("two-parts", "A name of two parts is none.", on=create(widget()), names=("widgets.v1",))
case("pods-stay", "The policy is for Pods, too.", on=create(pod("nginx")))
for each in ("ReplicationController", "Deployment"):
    plural = f"{each.lower()}s"
    case(
        f"core-{each}",
        "A name alone is looked up in the cluster, unless Kyverno has it in its code.",
        on=create(workload(each, pod_spec("nginx"))),
        names=(plural,),
    )
    case(
        f"kind-{each}",
        "The name of a kind matches nothing.",
        on=create(workload(each, pod_spec("nginx"))),
        names=(each,),
    )
case(
    "built-in",
    "A built-in workload may be named in full, too.",
    on=create(workload("Deployment", pod_spec("nginx"))),
    names=("deployments.v1.apps",),
)
case(
    "built-in-cron-job",
    "The path is that of the template.",
    on=create(workload("CronJob", pod_spec("nginx"))),
    names=("cronjobs.v1.batch",),
)
case(
    "built-in-twice",
    "Named in both ways, a workload is reviewed twice.",
    on=create(workload("Job", pod_spec("nginx"))),
    names=("jobs", "jobs.v1.batch"),
)
case("pods", "A Pod has no template.", on=create(pod()), names=("pods",))
case("no-spec", "A ConfigMap has none either.", on=create(thing("ConfigMap")), names=("configmaps",))
case(
    "namespace-selector",
    "A namespaceSelector is that of custom workloads too.",
    on=create(widget()),
    matchConstraints=matching(namespaceSelector={"matchLabels": {"team": "blue"}}),
)
case(
    "operations",
    "Operations are those of the policy.",
    on=create(widget()),
    matchConstraints=matching(rule("pods", operations=["DELETE"])),
)
case("namespaced", "A namespaced policy has custom workloads.", on=create(widget()), inside="default")
case("namespaced-other", "In its namespace only.", on=create(widget()), inside="prod")

# -- which templates ------------------------------------------------------------------------------

SPECS: Final[dict[str, Json]] = {
    "deep": {"a": [{"b": {"c": template("nginx")}}]},
    "several": {"a": template("nginx:1"), "b": [template("nginx:1"), template("nginx")]},
    "spec-itself": {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec("nginx")},
    "inside-another": {"a": {"spec": {**pod_spec("nginx:1"), "b": template("nginx")}}},
    "odd-names": {"a.b": {"c d[0]": template("nginx")}, "": [[template("nginx:1")]]},
    "metadata-null": {"a": {**template("nginx"), "metadata": None}},
    "metadata-text": {"a": {**template("nginx"), "metadata": "x"}},
    "no-containers": {"a": {"spec": {"containers": []}}},
    "container-null": {"a": {"spec": {"containers": [None]}}},
    "container-no-name": {"a": {"spec": {"containers": [{"image": "nginx"}]}}},
    "container-empty-name": {"a": {"spec": {"containers": [{"name": "", "image": "nginx"}]}}},
    "container-no-image": {"a": {"spec": {"containers": [{"name": "a"}]}}},
    "container-empty-image": {"a": {"spec": {"containers": [{"name": "a", "image": ""}]}}},
    "one-bad-container": {"a": {"spec": {"containers": [*pod_spec("nginx")["containers"], {"name": "a"}]}}},
    "none": {"replicas": 1},
}
for name, spec in SPECS.items():
    case(f"template-{name}", "What looks like a Pod template is one.", on=create(widget(spec)))
case(
    "status",
    "Only the spec is looked at.",
    on=create({**GOOD, "status": {"template": template("nginx")}, "template": template("nginx")}),
)
case("spec-list", "A spec that is a list has none.", on=create({**GOOD, "spec": [template("nginx")]}))
case("no-spec-widget", "An object without a spec has none.", on=create(thing("Widget")))
case(
    "connect",
    "The object of CONNECT has none.",
    on=request("CONNECT", {**GOOD, "spec": {}}, "proxy"),
    matchConstraints=matching(rule("pods", operations=["CONNECT"])),
    names=("widgets/proxy.v1.example.io",),
)

# -- what expressions see -------------------------------------------------------------------------

NAMES: Final = widget({"a": template("nginx", name="y", namespace="other", labels={"b": "c"})})
for name, on in {
    "create": create(widget()),
    "names": create(NAMES),
    "name-number": create(widget({"a": template("nginx", name=1, namespace=True)})),
    "generated": create(widget(name=None, generateName="x-")),
    "cluster-scoped": create(widget(namespace=None)),
    "update": update(GOOD, widget()),
    "update-other-path": update(GOOD, widget({"b": template("nginx")})),
    "update-deeper": update(widget({"a": {"b": template("x")}}), widget({"a": {"b": {"b": template("y")}}})),
    "update-higher": update(widget({"a": {"b": template("x")}}), widget({"a": template("y")})),
    "update-no-old-spec": update(GOOD, thing("Widget")),
    "delete": delete(widget()),
    "subresource": request("UPDATE", widget(), "scale", oldObject=widget()),
}.items():
    names = ("widgets/scale.v1.example.io",) if name == "subresource" else (WIDGETS,)
    seen(f"sees-{name}", "Expressions see a Pod, and a request for it.", f"[{SHOWN}]", on, names=names)
seen(
    "sees-namespace",
    "namespaceObject is that of the request.",
    "namespaceObject.metadata.name",
    create(NAMES),
)
seen("sees-kind", "The kind is Pod.", "object.kind + object.apiVersion")
case(
    "see-whole",
    "A Pod has what the template has in metadata and spec.",
    check("false", by="json.marshal(object)"),
    on=create(widget({"a": {**template("nginx", labels={"b": "c"}), "replicas": 1}})),
)

# -- the verdict ----------------------------------------------------------------------------------

case("default-message", "The default message has the path.", check("false"), on=create(widget()))
case("not-rewritten", "Messages stay.", check("false", "object.spec"), on=create(widget()))
case("error", "An error has the path.", check("object.spec.absent == 1"), on=create(widget()))
case(
    "error-ignore",
    "Under failurePolicy Ignore, too.",
    check("object.spec.absent == 1"),
    on=create(widget()),
    failurePolicy="Ignore",
)
for policy in ("Fail", "Ignore"):
    case(
        f"condition-error-{policy}",
        "An error of matchConditions has the path before it.",
        on=create(widget()),
        matchConditions=named(a="object.spec.absent == 1"),
        failurePolicy=policy,
    )
case(
    "annotation-error",
    "So has one of audit annotations.",
    check("true"),
    on=create(widget()),
    auditAnnotations=[{"key": "k", "valueExpression": "object.spec.absent"}],
)
case(
    "annotation-error-of-failure",
    "After a failure the path comes last.",
    on=create(widget()),
    auditAnnotations=[{"key": "k", "valueExpression": "object.spec.absent"}],
)
case("warn", "Warnings have the path, too.", on=create(widget()), validationActions=["Warn"])
case(
    "warn-none", "The lack of templates can be a warning.", on=create(widget({})), validationActions=["Warn"]
)
case("audit", "An audit refuses nothing.", on=create(widget()), validationActions=["Audit"])
case(
    "condition",
    "A template whose matchConditions are false is skipped, the others are not.",
    on=create(widget({"a": template("nginx", labels={"skip": "me"}), "b": template("nginx")})),
    matchConditions=named(a="!has(object.metadata.labels)"),
)
case(
    "condition-all",
    "If all are skipped, so is the policy.",
    on=create(widget()),
    matchConditions=named(a="object.metadata.name != 'x'"),
)
OF_ONE: Final = exception("object.metadata.?labels.?skip.orValue('') == 'me'")
case("exception", "An exception is for a Pod.", on=create(widget()), exceptions=(exception(),))
case(
    "exception-of-one",
    "An exception for one template leaves the others.",
    on=create(widget({"a": template("nginx", labels={"skip": "me"}), "b": template("nginx")})),
    exceptions=(OF_ONE,),
)
case(
    "exception-and-pass",
    "A template that passes beside it is a pass.",
    on=create(widget({"a": template("nginx", labels={"skip": "me"}), "b": template("nginx:1")})),
    exceptions=(OF_ONE,),
)
case(
    "exception-and-condition",
    "Of templates that are left out, the exception counts.",
    on=create(widget({"a": template("nginx", labels={"skip": "me"}), "b": template("nginx", name="b")})),
    exceptions=(OF_ONE,),
    matchConditions=named(a="object.metadata.name != 'b'"),
)
case(
    "exception-error",
    "An error of an exception has the path before it.",
    on=create(widget()),
    exceptions=(exception("object.spec.absent == 1"),),
)
case(
    "exception-values",
    "What an exception allows is known.",
    check("object.spec.containers[0].image in exceptions.allowedImages", "no"),
    on=create(widget()),
    exceptions=(exception(images=["nginx"]),),
)
case(
    "variables",
    "Variables are those of each template.",
    check("variables.n == 1", by="string(variables.n)"),
    on=create(widget({"a": template("x"), "b": template("x", "y")})),
    variables=named(n="object.spec.containers.size()"),
)
