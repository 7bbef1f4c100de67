"""Validate rules in Kyverno's own language, and operations under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.e2e.cluster import ALICE
from tests.e2e.compare import Operation
from tests.e2e.engine_scenarios import DRY, PODS, labelled, patch, post, workload
from tests.e2e.kyverno_rules import (
    ALWAYS,
    MAPS,
    NO_AUTOGEN,
    RBAC,
    condition,
    container,
    delete,
    deny,
    exception,
    limited,
    made_of,
    policy,
    rule,
    scenario,
    validate,
)
from tests.e2e.objects import config_map, deployment, deployments, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.kyverno_rules import WorkerScenario

    Json = dict[str, Any]


def _patterns() -> Iterator[WorkerScenario]:
    yield scenario(
        "wildcards",
        [
            policy(
                "labels",
                validate("owner", message="owner", pattern={"metadata": {"labels": {"owner": "?*"}}}),
            ),
            policy(
                "image",
                validate("tag", message="no tag", pattern={"spec": {"containers": [{"image": "*:*"}]}}),
                validate(
                    "latest", message="latest", pattern={"spec": {"containers": [{"image": "!*:latest"}]}}
                ),
            ),
            policy("keys", validate("key", pattern={"metadata": {"labels": {"o*": "team-?"}}})),
        ],
        *(post(labelled("a", owner=owner), dry=True) for owner in ("team-a", "", "x", "team-aa")),
        post(pod("a")),
        post(labelled("b", other="team-b")),
        post(
            made_of("many", container("a", "a"), container("b", "b:latest"), container("c", "c:1")),
        ),
    )
    operators = {
        "range": ("2-5", "!2-5"),
        "more": (">2", "<=2"),
        "not": ("!3", "3"),
        "or": ("1 | 4-6", "!1 & !4"),
        "number": (3, 4),
        "and": (">1 & <5", "<2 | >4"),
    }
    yield scenario(
        "numbers",
        [
            policy(
                name,
                *(
                    validate(
                        f"r{number}", "Deployment", message=str(text), pattern={"spec": {"replicas": text}}
                    )
                    for number, text in enumerate(texts)
                ),
            )
            for name, texts in operators.items()
        ],
        *(post(deployment("web", replicas=replicas), dry=True) for replicas in range(8)),
    )
    yield scenario(
        "quantities",
        [
            policy(
                "memory",
                validate(
                    "range",
                    message="memory",
                    pattern={"spec": {"containers": [{"resources": {"limits": {"memory": "64Mi-1Gi"}}}]}},
                ),
                validate(
                    "less",
                    pattern={"spec": {"containers": [{"resources": {"limits": {"cpu": "<=500m"}}}]}},
                ),
            ),
        ],
        *(
            post(limited("a", memory=memory, cpu=cpu), dry=True)
            for memory, cpu in (
                ("64Mi", "0.5"),
                ("63Mi", "501m"),
                ("1024Mi", "1"),
                ("2Gi", "1m"),
                ("1G", "2"),
            )
        ),
        post(limited("a", memory="100Mi")),
        post(pod("none")),
    )
    yield scenario(
        "types",
        [
            policy(
                "types",
                validate("false", message="host", pattern={"spec": {"=(hostNetwork)": False}}),
                validate("text", message="host", pattern={"spec": {"=(hostPID)": "false"}}),
                validate("null", message="name", pattern={"spec": {"hostname": None}}),
                validate("user", pattern={"spec": {"=(securityContext)": {"=(runAsUser)": ">0"}}}),
                validate("seconds", pattern={"spec": {"terminationGracePeriodSeconds": "<= 30"}}),
            )
        ],
        post(pod("a"), dry=True),
        post(pod("b", hostNetwork=True), dry=True),
        post(pod("c", hostPID=True), dry=True),
        post(pod("d", hostname="d"), dry=True),
        post(pod("e", securityContext={"runAsUser": 0}), dry=True),
        post(pod("f", securityContext={"runAsUser": 1}), dry=True),
        post(pod("g", terminationGracePeriodSeconds=31), dry=True),
    )
    yield scenario(
        "any-pattern",
        [
            policy(
                "one",
                validate(
                    "user",
                    message="set runAsNonRoot",
                    anyPattern=[
                        {"spec": {"securityContext": {"runAsNonRoot": True}}},
                        {"spec": {"containers": [{"securityContext": {"runAsNonRoot": True}}]}},
                    ],
                ),
                validate(
                    "plain",
                    anyPattern=[
                        {"metadata": {"labels": {"a": "1"}}},
                        {"metadata": {"(name)": "x*", "labels": {"a": "2"}}},
                    ],
                ),
            )
        ],
        post(labelled("a", a="1"), dry=True),
        post(labelled("xa", a="2"), dry=True),
        post(labelled("xb", a="3"), dry=True),
        post(
            made_of("c", container(securityContext={"runAsNonRoot": True}), container("b", "b:1")), dry=True
        ),
        post(made_of("d", container(securityContext={"runAsNonRoot": True})), dry=True),
        post(pod("e", securityContext={"runAsNonRoot": True}), dry=True),
    )


def _anchors() -> Iterator[WorkerScenario]:
    privileged: Json = {"securityContext": {"privileged": True}}
    volumes = [{"name": "a", "hostPath": {"path": "/"}}]
    yield scenario(
        "anchors",
        [
            policy(
                "conditional",
                validate(
                    "pull",
                    message="latest has to be pulled",
                    pattern={"spec": {"containers": [{"(image)": "*:latest", "imagePullPolicy": "Always"}]}},
                ),
            ),
            policy(
                "equality",
                validate(
                    "privileged",
                    message="privileged",
                    pattern={
                        "spec": {
                            "=(initContainers)": [{"=(securityContext)": {"=(privileged)": "false"}}],
                            "containers": [{"=(securityContext)": {"=(privileged)": "false"}}],
                        }
                    },
                ),
            ),
            policy(
                "existence",
                validate(
                    "one",
                    message="no container is the main one",
                    pattern={"spec": {"^(containers)": [{"name": "main"}]}},
                ),
            ),
            policy(
                "negation",
                validate(
                    "path", message="hostPath", pattern={"spec": {"=(volumes)": [{"X(hostPath)": "null"}]}}
                ),
            ),
            policy(
                "global",
                validate(
                    "secret",
                    message="imagePullSecrets",
                    pattern={
                        "spec": {
                            "containers": [{"<(image)": "private.test/*"}],
                            "imagePullSecrets": [{"name": "private"}],
                        }
                    },
                ),
            ),
            policy(
                "nested",
                validate(
                    "nested",
                    message="nested",
                    pattern={
                        "metadata": {"=(labels)": {"(tier)": "web", "=(owner)": "team-*"}},
                        "spec": {"(hostNetwork)": True, "=(hostPID)": False},
                    },
                ),
            ),
        ],
        post(made_of("a", container(image="a:latest")), dry=True),
        post(made_of("b", container(image="a:latest", imagePullPolicy="IfNotPresent")), dry=True),
        post(made_of("c", container(), container("b", **privileged)), dry=True),
        post(made_of("d", container(), initContainers=[container("i", **privileged)]), dry=True),
        post(made_of("e", container("other")), dry=True),
        post(made_of("f", container(), volumes=volumes), dry=True),
        post(made_of("g", container(), volumes=[{"name": "a", "emptyDir": {}}]), dry=True),
        post(made_of("h", container(image="private.test/a:1")), dry=True),
        post(
            made_of("i", container(image="private.test/a:1"), imagePullSecrets=[{"name": "private"}]),
            dry=True,
        ),
        post(made_of("j", container(), container("b", "private.test/a:1")), dry=True),
        *(
            post(
                {
                    **labelled("k", **labels),
                    "spec": {**pod()["spec"], "hostNetwork": True, "hostPID": pid},
                },
                dry=True,
            )
            for labels in ({"tier": "web", "owner": "x"}, {"tier": "db"}, {"tier": "web", "owner": "team-a"})
            for pid in (True, False)
        ),
    )


def _conditions() -> Iterator[WorkerScenario]:
    name, labels = "{{ request.object.metadata.name }}", "request.object.metadata.labels"
    images = "{{ request.object.spec.containers[].image }}"
    operators = (
        (name, "Equals", "equal*"),
        (name, "NotEquals", "*"),
        (images, "AnyIn", ["a:1", "b:*"]),
        (images, "AllIn", ["c:1", "d:1"]),
        (images, "AnyNotIn", ["?:1", "?:2", "a*", "registry.test/*"]),
        (images, "AllNotIn", ["?:*", "registry.test/*", "a"]),
        ("{{ length(request.object.spec.containers) }}", "GreaterThan", 3),
        ("{{ request.object.spec.priority || `0` }}", "LessThan", 0),
        ("{{ request.object.spec.terminationGracePeriodSeconds }}", "GreaterThanOrEquals", "1m"),
        (f"{{{{ {labels}.age || '1h' }}}}", "DurationGreaterThan", "24h"),
        (f"{{{{ {labels}.memory || '1Mi' }}}}", "GreaterThan", "1Gi"),
        (f"{{{{ {labels}.version || '1.0.0' }}}}", "LessThan", "0.9.1"),
    )
    yield scenario(
        "operators",
        [
            policy(
                f"p{number}",
                validate(
                    operator.lower(),
                    message=f"{operator} {number}: {{{{ request.object.metadata.name }}}}",
                    deny=deny(condition(key, operator, value, message=f"condition {number}")),
                ),
            )
            for number, (key, operator, value) in enumerate(operators)
        ],
        post(pod("equals"), dry=True),
        post(made_of("a", container(image="a:1"), container("b", "e:3")), dry=True),
        post(made_of("b", container(image="b:7")), dry=True),
        post(made_of("c", container(image="c:1"), container("b", "d:1")), dry=True),
        post(made_of("d", container(image="other.test/a")), dry=True),
        post(made_of("e", *(container(f"c{index}") for index in range(4))), dry=True),
        post(made_of("f", container(), terminationGracePeriodSeconds=60), dry=True),
        post(labelled("g", age="25h"), dry=True),
        post(labelled("h", memory="2Gi"), dry=True),
        post(labelled("i", version="0.9.0"), dry=True),
    )
    yield scenario(
        "any-and-all",
        [
            policy(
                "deny",
                validate(
                    "all",
                    deny={
                        "conditions": {
                            "all": [
                                condition(f"{{{{ {labels}.a || '' }}}}", "Equals", "1"),
                                condition(f"{{{{ {labels}.b || '' }}}}", "Equals", "1"),
                            ],
                            "any": [
                                condition(f"{{{{ {labels}.c || '' }}}}", "Equals", "1"),
                                condition(name, "Equals", "x*"),
                            ],
                        }
                    },
                ),
            ),
            policy(
                "conditional",
                validate(
                    "pre",
                    message="{{ request.operation }} by {{ request.userInfo.username }}",
                    preconditions={
                        "all": [condition(f"{{{{ {labels}.pre || 'no' }}}}", "Equals", "yes")],
                        "any": [condition("{{ request.operation }}", "AnyIn", ["CREATE", "DELETE"])],
                    },
                    deny=ALWAYS,
                ),
            ),
        ],
        *(
            post(labelled(of, **dict.fromkeys(given, "1")), dry=True)
            for of, given in (("n", "ab"), ("n", "abc"), ("x", "ab"), ("x", "a"), ("n", ""))
        ),
        post(labelled("p", pre="yes"), dry=True, user=ALICE),
        post(labelled("p", pre="no")),
        patch(f"{PODS}/p", {"metadata": {"labels": {"pre": "yes"}}}),
    )
    functions = (
        f"to_upper({name[3:-3]})",
        "join('+', request.object.spec.containers[].name)",
        "length(request.object.spec.containers)",
        "truncate('abcdef', `3`)",
        "split('a,b', ',')[1]",
        "replace_all('aaa', 'a', 'b')",
        "regex_match('^w.*', request.object.metadata.name)",
        "regex_replace_all('([a-z]+)', 'web', 'x$1')",
        "pattern_match('w*', request.object.metadata.name)",
        "add('1Gi', '512Mi')",
        "subtract(`5`, `3`)",
        "multiply('2', `3`)",
        "divide('10s', '5s')",
        "modulo(`7`, `4`)",
        "sum([`1`, `2`])",
        "base64_encode('a')",
        "base64_decode('YQ==')",
        "label_match(request.object.spec.containers[0], request.object.spec.containers[0])",
        "semver_compare('1.2.3', '>1.0.0')",
        "time_add('2026-01-01T00:00:00Z', '1h')",
        "time_diff('2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z')",
        "path_canonicalize('/a/../b')",
        "parse_json('{\"a\": 1}').a",
        "parse_yaml('a: [1, 2]').a[1]",
        "items(request.object.spec.containers[0], 'k', 'v')[0].k",
        "object_from_lists(['a'], ['b']).a",
        "to_string(lookup(request.object.metadata, 'name'))",
        "sha256('a')",
        "trim_prefix('abc', 'a')",
        "round(`1.26`, `1`)",
        "is_external_url('http://127.0.0.1')",
        "images.containers.main.registry",
        "images.containers.main.tag",
        "request.namespace",
        "request.object.spec.absent || 'absent'",
        "not_null(request.object.spec.absent, 'none')",
        "sort(keys(request.object.metadata))",
        "max([`1`, `3`])",
        "reverse('abc')",
        "to_number('3')",
        "type(request.object.spec)",
    )
    shown = " ".join(f"{{{{ {each} }}}}" for each in functions)
    yield scenario(
        "functions",
        [policy("all", validate("shown", message=shown, deny=ALWAYS), annotations=NO_AUTOGEN)],
        post(pod("web")),
        post(labelled("other", z="1", a="2")),
    )


def _loops() -> Iterator[WorkerScenario]:
    containers = "request.object.spec.containers"
    yield scenario(
        "foreach",
        [
            policy(
                "deny",
                validate(
                    "registry",
                    message="registries",
                    foreach=[
                        {
                            "list": containers,
                            "preconditions": {"all": [condition("{{ element.name }}", "NotEquals", "free")]},
                            "deny": deny(
                                condition(
                                    "{{ element.image }}", "NotEquals", "registry.test/*", message="bad"
                                )
                            ),
                        },
                        {
                            "list": "request.object.spec.initContainers",
                            "deny": deny(condition("{{ elementIndex }}", "GreaterThan", 0)),
                        },
                    ],
                ),
            ),
            policy(
                "pattern",
                validate(
                    "pull",
                    message="pull",
                    foreach=[
                        {
                            "list": containers,
                            "pattern": {"=(imagePullPolicy)": "!Never"},
                            "elementScope": True,
                        },
                        {"list": containers, "anyPattern": [{"name": "?*"}, {"image": "a"}]},
                        {
                            "list": containers,
                            "context": [
                                {
                                    "name": "memory",
                                    "variable": {
                                        "jmesPath": "element.resources.limits.memory",
                                        "default": "1Mi",
                                    },
                                }
                            ],
                            "deny": deny(condition("{{ memory }}", "GreaterThan", "1Gi")),
                        },
                    ],
                ),
            ),
            policy(
                "nested",
                validate(
                    "ports",
                    message="ports",
                    foreach=[
                        {
                            "list": containers,
                            "foreach": [
                                {
                                    "list": "element.ports",
                                    "deny": deny(condition("{{ element.containerPort }}", "LessThan", 1024)),
                                }
                            ],
                        }
                    ],
                ),
            ),
        ],
        post(pod("a"), dry=True),
        post(made_of("b", container(image="a:1")), dry=True),
        post(made_of("c", container("free", "a:1")), dry=True),
        post(made_of("d", container(), initContainers=[container("i"), container("j")]), dry=True),
        post(made_of("e", container(imagePullPolicy="Never")), dry=True),
        post(made_of("e", container(resources={"limits": {"memory": "2Gi"}})), dry=True),
        post(made_of("f", container(ports=[{"containerPort": 8080}, {"containerPort": 80}])), dry=True),
        post(workload("Deployment", "g", containers=[container(image="a:1")]), dry=True),
        post(workload("CronJob", "h", containers=[container(imagePullPolicy="Never")]), dry=True),
    )
    yield scenario(
        "pod-security",
        [
            policy(
                "baseline",
                validate("baseline", message="b", podSecurity={"level": "baseline", "version": "latest"}),
            ),
            policy(
                "restricted",
                validate(
                    "restricted",
                    podSecurity={
                        "level": "restricted",
                        "version": "v1.29",
                        "exclude": [
                            {"controlName": "Capabilities", "images": ["free.test/*"]},
                            {
                                "controlName": "Seccomp",
                                "restrictedField": "spec.securityContext.seccompProfile.type",
                                "values": ["Unconfined"],
                            },
                            {"controlName": "Seccomp"},
                            {"controlName": "Running as Non-root"},
                        ],
                    },
                ),
            ),
        ],
        post(pod("a"), dry=True),
        post(pod("b", hostNetwork=True), dry=True),
        post(made_of("c", container(securityContext={"privileged": True})), dry=True),
        post(made_of("d", container(image="free.test/a:1", securityContext=RESTRICTED)), dry=True),
        post(
            made_of("e", container(securityContext={**RESTRICTED, "capabilities": {"drop": ["ALL"]}})),
            dry=True,
        ),
        post(workload("Deployment", "f", hostPID=True), dry=True),
        post(workload("CronJob", "g", hostPID=True), dry=True),
    )


RESTRICTED: Final = {"allowPrivilegeEscalation": False}


def _matching() -> Iterator[WorkerScenario]:
    def maps(**resources: Any) -> Json:
        return {"resources": {"kinds": ["ConfigMap"], **resources}}

    def refuses(name: str, match: Json, **more: Any) -> Json:
        return policy(name, validate("no", match=match, message=f"{name} matches", deny=ALWAYS, **more))

    team = {"matchLabels": {"team": "a"}}
    user = {"kind": "User", "name": ALICE, "apiGroup": RBAC}
    group = {"kind": "Group", "name": "system:masters", "apiGroup": RBAC}
    yield scenario(
        "matching",
        [
            refuses("names", {"any": [maps(names=["n-*", "exact"])]}),
            refuses("selector", {"any": [maps(selector={"matchLabels": {"te*": "*"}})]}),
            refuses("annotations", {"any": [maps(annotations={"note*": "a?"})]}),
            refuses("every", {"all": [maps(names=["all-*"]), maps(selector=team)]}),
            refuses("operations", {"any": [maps(operations=["UPDATE"], names=["op-*"])]}),
            refuses("user", {"any": [{**maps(names=["by-user*"]), "subjects": [user]}]}),
            refuses("group", {"any": [{**maps(names=["by-group*"]), "subjects": [group]}]}),
            refuses("role", {"any": [{**maps(names=["by-role*"]), "roles": ["matching:readers"]}]}),
            refuses(
                "cluster-role", {"any": [{**maps(names=["by-cluster*"]), "clusterRoles": ["matching-all"]}]}
            ),
            refuses(
                "exclude",
                {"any": [maps(names=["ex-*"])]},
                exclude={"any": [maps(names=["ex-a*"]), {"subjects": [user]}]},
            ),
            refuses(
                "exclude-all",
                {"any": [maps(names=["both-*"])]},
                exclude={"all": [maps(names=["both-a*"]), {"subjects": [user]}]},
            ),
            policy(
                "inside",
                validate("no", match={"any": [maps(names=["own-*"])]}, message="own", deny=ALWAYS),
                inside="matching",
            ),
            policy(
                "everything",
                validate(
                    "kinds",
                    match={"any": [{"resources": {"kinds": ["*"], "names": ["all-kinds"]}}]},
                    deny=ALWAYS,
                ),
            ),
            policy(
                "versions",
                validate(
                    "no",
                    match={"any": [{"resources": {"kinds": ["apps/v1/Deployment", "batch/*/Job"]}}]},
                    deny=ALWAYS,
                ),
            ),
        ],
        *(
            post(config_map(name, labels), dry=True)
            for name, labels in (
                ("n-1", {}),
                ("exact", {}),
                ("exactly", {}),
                ("a", {"team": "x"}),
                ("a", {"tea": ""}),
                ("all-a", {"team": "a"}),
                ("all-a", {"other": "a"}),
                ("all-kinds", {}),
                ("own-a", {}),
            )
        ),
        post({**config_map(), "metadata": {"name": "a", "annotations": {"note": "ab"}}}, dry=True),
        post({**config_map(), "metadata": {"name": "a", "annotations": {"note": "abc"}}}, dry=True),
        *(
            post(config_map(f"{name}-a"), dry=True, user=user_name)
            for name in (
                "by-user",
                "by-group",
                "by-role",
                "by-cluster",
                "ex",
                "ex-a",
                "ex-b",
                "both",
                "both-a",
                "both-b",
            )
            for user_name in ("admin", ALICE)
        ),
        post(config_map("op-a")),
        patch(f"{MAPS}/op-a", {"data": {"a": "b"}}),
        post(deployment(), dry=True),
        post(workload("Job", "job"), dry=True),
        post(workload("StatefulSet", "all-kinds"), dry=True),
        objects=[
            _binding("RoleBinding", "readers", {"kind": "Role", "name": "readers"}, user, "matching"),
            _binding("ClusterRoleBinding", "all", {"kind": "ClusterRole", "name": "matching-all"}, user),
        ],
    )
    selects = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web", "db"]}]}
    yield scenario(
        "selected",
        [
            refuses("yes", {"any": [maps(namespaceSelector=selects, names=["a*"])]}),
            refuses("no", {"any": [maps(namespaceSelector={"matchLabels": {"tier": "x"}})]}),
            refuses(
                "excluded",
                {"any": [maps()]},
                exclude={"any": [{"resources": {"namespaceSelector": selects}}]},
            ),
        ],
        post(config_map("a"), dry=True),
        post(config_map("b"), dry=True),
        labels={"tier": "web"},
    )


def _binding(kind: str, name: str, role: Json, subject: Json, namespace: str = "") -> Json:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": f"matching-{name}", **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": RBAC, **role},
        "subjects": [subject],
    }


def _actions() -> Iterator[WorkerScenario]:
    def named(label: str) -> Json:
        return {"any": [{"resources": {"kinds": ["ConfigMap"], "selector": {"matchLabels": {label: "1"}}}}]}

    def failing(label: str, **members: Any) -> Json:
        return validate(label, match=named(label), message=f"{label} fails", deny=ALWAYS, **members)

    def inherited(label: str) -> Json:
        return rule(label, match=named(label), validate={"message": f"{label} fails", "deny": ALWAYS})

    here = {"action": "Enforce", "namespaces": ["act*"]}
    elsewhere = {"action": "Enforce", "namespaces": ["other"]}
    selected = {"action": "Enforce", "namespaceSelector": {"matchLabels": {"tier": "web"}}}
    audit = {"failureAction": "Audit"}
    yield scenario(
        "actions",
        [
            policy("audit", failing("a", **audit)),
            policy("warn", failing("b", **audit), emitWarning=True),
            policy("enforce-warn", failing("c"), emitWarning=True),
            policy("mixed", failing("d"), failing("e", **audit), emitWarning=True),
            policy("override", failing("f", **audit, failureActionOverrides=[elsewhere, here])),
            policy("override-selector", failing("g", **audit, failureActionOverrides=[selected])),
            policy("not-override", failing("h", failureActionOverrides=[{**here, "action": "Audit"}])),
            policy("old", inherited("i"), validationFailureAction="Enforce"),
            policy(
                "old-override",
                inherited("j"),
                validationFailureAction="Audit",
                validationFailureActionOverrides=[here],
            ),
            policy("old-audit", inherited("k"), validationFailureAction="Audit", emitWarning=True),
            policy("one", failing("l"), failing("m"), applyRules="One"),
            policy("both", failing("l"), failing("m")),
            policy("ignore", failing("p"), failurePolicy="Ignore"),
            policy("off", failing("o"), admission=False, background=True),
        ],
        *(post(config_map("a", {label: "1"}), dry=True) for label in "abcdefghijklmop"),
        *(
            post(config_map("a", dict.fromkeys(labels, "1")), dry=True)
            for labels in ("ab", "de", "ce", "lm", "bd", "bce", "fghij", "ak", "abcdefghijklmo")
        ),
        post(config_map("a", dict.fromkeys("abk", "1"))),
        patch(f"{MAPS}/a", {"metadata": {"labels": {"d": "1", "e": "1"}}}),
        patch(f"{MAPS}/a{DRY}", {"metadata": {"labels": {"e": "1"}}}),
        labels={"tier": "web"},
    )
    bad = labelled("old", bad="1")
    bad["metadata"]["namespace"] = "existing"
    not_bad = {"metadata": {"=(labels)": {"X(bad)": "null"}}}
    yield scenario(
        "existing",
        [
            policy("allow", validate("allowed", message="bad", pattern=not_bad)),
            policy(
                "deny", validate("always", allowExistingViolations=False, message="worse", pattern=not_bad)
            ),
        ],
        patch(f"{PODS}/old", {"metadata": {"labels": {"other": "1"}}}),
        patch(f"{PODS}/old{DRY}", {"metadata": {"labels": {"bad": "2"}}}),
        patch(f"{PODS}/old", {"metadata": {"labels": {"bad": None}}}),
        patch(f"{PODS}/old", {"metadata": {"labels": {"bad": "3"}}}),
        post(labelled("new", bad="1")),
        objects=[bad],
    )
    yield scenario(
        "existing-allowed",
        [policy("allow", validate("allowed", message="bad", pattern=not_bad))],
        patch(f"{PODS}/old", {"metadata": {"labels": {"other": "1"}}}),
        patch(f"{PODS}/old", {"metadata": {"labels": {"bad": "2"}}}),
        patch(f"{PODS}/old", {"metadata": {"labels": {"bad": None}}}),
        patch(f"{PODS}/old", {"metadata": {"labels": {"bad": "3"}}}),
        post(labelled("new", bad="1")),
        objects=[{**bad, "metadata": {**bad["metadata"], "namespace": "existing-allowed"}}],
    )
    is_true = condition("{{ request.object.metadata.labels.free || 'no' }}", "Equals", "yes")
    yield scenario(
        "excepted",
        [
            policy(
                "first",
                validate("one", message="one", deny=ALWAYS),
                validate("two", message="two", deny=ALWAYS),
            ),
            policy("second", validate("three", message="three", deny=ALWAYS)),
            policy("third", validate("baseline", podSecurity={"level": "baseline"})),
            exception("whole", "first", "*"),
            exception("conditional", "second", "three", "autogen-three", conditions={"any": [is_true]}),
            exception("control", "third", "baseline", podSecurity=[{"controlName": "Host Namespaces"}]),
        ],
        post(labelled("excepted"), dry=True),
        post(labelled("excepted", free="yes"), dry=True),
        post(labelled("other", free="yes"), dry=True),
        post(workload("Deployment", "excepted"), dry=True),
        post(pod("excepted-host", {"free": "yes"}, hostNetwork=True), dry=True),
        post(made_of("excepted-c", container(securityContext={"privileged": True})), dry=True),
    )


def _requests() -> Iterator[WorkerScenario]:
    yield scenario(
        "deletion",
        [
            policy(
                "kept",
                validate(
                    "keep",
                    match={"any": [{"resources": {"kinds": ["ConfigMap"], "operations": ["DELETE"]}}]},
                    message="{{ request.oldObject.metadata.name }} and {{ request.userInfo.username }}",
                    deny=deny(
                        condition("{{ request.oldObject.metadata.labels.keep || '' }}", "Equals", "yes")
                    ),
                ),
            ),
            policy(
                "always",
                validate("owner", "ConfigMap", message="owner", pattern={"metadata": {"name": "?*"}}),
            ),
        ],
        *(post(config_map(name, {"keep": keep})) for name, keep in (("a", "yes"), ("b", "no"))),
        delete(f"{MAPS}/a{DRY}"),
        delete(f"{MAPS}/a"),
        delete(f"{MAPS}/b"),
        Operation("DELETE", f"{MAPS}/a", user=ALICE),
    )
    subresources = {"any": [{"resources": {"kinds": ["Deployment/scale"]}}]}
    debug = {"any": [{"resources": {"kinds": ["Pod/ephemeralcontainers"]}}]}
    yield scenario(
        "subresources",
        [
            policy(
                "scale",
                validate("few", match=subresources, message="few", pattern={"spec": {"replicas": "<=3"}}),
            ),
            policy(
                "deployment",
                validate("few", "Deployment", message="few too", pattern={"spec": {"replicas": "<=4"}}),
            ),
            policy(
                "debug",
                validate(
                    "none",
                    match=debug,
                    message="{{ request.subResource }} of {{ request.object.metadata.name }}",
                    deny=deny(
                        condition(
                            "{{ request.object.spec.ephemeralContainers[].image }}", "AnyIn", ["debug:2"]
                        )
                    ),
                ),
            ),
            policy(
                "pods",
                validate(
                    "images",
                    message="images",
                    pattern={"spec": {"=(ephemeralContainers)": [{"image": "debug:*"}]}},
                ),
            ),
        ],
        post(deployment()),
        patch(deployments("shop/scale"), {"spec": {"replicas": 2}}),
        patch(deployments("shop/scale"), {"spec": {"replicas": 4}}),
        patch(deployments("shop"), {"spec": {"replicas": 4}}),
        patch(deployments("shop"), {"spec": {"replicas": 5}}),
        post(pod()),
        *(
            patch(
                f"{PODS}/web/ephemeralcontainers",
                {"spec": {"ephemeralContainers": [{"name": f"d{number}", "image": image}]}},
            )
            for number, image in enumerate(("other:1", "debug:2", "debug:1"))
        ),
    )
    updated = config_map(name="a", b="c")
    yield scenario(
        "updates",
        [
            policy(
                "fixed",
                validate(
                    "fixed",
                    match={"any": [{"resources": {"kinds": ["ConfigMap"], "operations": ["UPDATE"]}}]},
                    message="{{ request.oldObject.data.fixed }} to {{ request.object.data.fixed || 'none' }}",
                    deny=deny(
                        condition(
                            "{{ request.object.data.fixed || '' }}",
                            "NotEquals",
                            "{{ request.oldObject.data.fixed }}",
                        )
                    ),
                ),
            )
        ],
        post(config_map("a", fixed="1")),
        patch(f"{MAPS}/a", {"data": {"free": "2"}}),
        patch(f"{MAPS}/a", {"data": {"fixed": "2"}}),
        Operation("PUT", f"{MAPS}/a", updated),
        Operation("PUT", f"{MAPS}/a{DRY}", {**updated, "data": {"fixed": "1"}}),
    )
    yield scenario(
        "autogen",
        [
            policy("all", validate("host", message="host", pattern={"spec": {"=(hostNetwork)": False}})),
            policy(
                "some",
                validate("pid", message="pid", pattern={"spec": {"=(hostPID)": False}}),
                annotations={"pod-policies.kyverno.io/autogen-controllers": "Deployment,CronJob"},
            ),
            policy(
                "none",
                validate("ipc", message="ipc", pattern={"spec": {"=(hostIPC)": False}}),
                annotations=NO_AUTOGEN,
            ),
            policy(
                "conditional",
                validate(
                    "name",
                    message="{{ request.object.metadata.labels.app || 'no app' }}",
                    preconditions={
                        "all": [condition("{{ request.object.spec.hostname || '' }}", "Equals", "x")]
                    },
                    deny=ALWAYS,
                ),
            ),
        ],
        *(
            post(workload(kind, kind.lower(), **spec), dry=True)
            for kind in ("Deployment", "StatefulSet", "Job", "CronJob")
            for spec in ({"hostNetwork": True}, {"hostPID": True}, {"hostIPC": True}, {"hostname": "x"}, {})
        ),
        post(pod(hostNetwork=True, hostPID=True, hostIPC=True, hostname="x"), dry=True),
    )


def _contexts() -> Iterator[WorkerScenario]:
    name = "contexts"
    allowed = {**config_map("allowed"), "data": {"names": '["a", "b"]', "one": "a", "list": "c\nd"}}
    allowed["metadata"]["namespace"] = name
    others = [config_map(f"other-{index}", {"counted": "yes"}) for index in range(2)]
    for each in others:
        each["metadata"]["namespace"] = name
    path = f"/api/v1/namespaces/{name}/configmaps"
    entry = {"name": "allowed", "configMap": {"name": "allowed", "namespace": name}}
    object_name = "{{ request.object.metadata.name }}"
    yield scenario(
        name,
        [
            policy(
                "map",
                validate(
                    "names",
                    context=[entry],
                    message="not one of {{ allowed.data.names }}",
                    deny=deny(condition(object_name, "AnyNotIn", "{{ allowed.data.names | parse_json(@) }}")),
                ),
            ),
            policy(
                "variable",
                validate(
                    "value",
                    context=[
                        {"name": "fixed", "variable": {"value": {"x": ["y", 1]}}},
                        {
                            "name": "given",
                            "variable": {"jmesPath": "request.object.metadata.labels.given", "default": "d"},
                        },
                        {"name": "both", "variable": {"value": "{{ fixed.x[0] }}-{{ given }}"}},
                    ],
                    message="{{ both }} {{ fixed.x[1] }}",
                    deny=deny(condition("{{ both }}", "Equals", "y-d")),
                ),
            ),
            policy(
                "call",
                validate(
                    "count",
                    context=[
                        {
                            "name": "count",
                            "apiCall": {
                                "urlPath": f"{path}?labelSelector=counted=yes",
                                "jmesPath": "length(items)",
                            },
                        },
                        {"name": "one", "apiCall": {"urlPath": f"{path}/allowed", "jmesPath": "data.one"}},
                        {
                            "name": "none",
                            "apiCall": {
                                "urlPath": f"{path}/absent",
                                "jmesPath": "data",
                                "default": "nothing",
                            },
                        },
                    ],
                    message="{{ count }} {{ one }} {{ none }}",
                    deny=deny(condition("{{ request.object.metadata.labels.call || '' }}", "Equals", "yes")),
                ),
            ),
            policy(
                "inside",
                validate(
                    "own",
                    context=[entry],
                    message="{{ allowed.data.one }}",
                    deny=deny(condition(object_name, "Equals", "{{ allowed.data.one }}")),
                ),
                inside=name,
            ),
        ],
        *(
            post(labelled(of, **labels), dry=True)
            for of in "acd"
            for labels in ({}, {"given": "x"}, {"call": "yes"})
        ),
        post(workload("Deployment", "a"), dry=True),
        post(workload("CronJob", "e"), dry=True),
        objects=[allowed, *others],
    )
    missing = {"name": "missing", "configMap": {"name": "missing", "namespace": name}}
    absent = deny(condition("{{ request.object.data.absent }}", "Equals", "a"))
    yield scenario(
        "errors",
        [
            *(
                policy(
                    of.lower(),
                    validate("variable", match=_named(f"{of.lower()}-variable*"), message="m", deny=absent),
                    validate(
                        "entry",
                        match=_named(f"{of.lower()}-entry*"),
                        context=[missing],
                        message="{{ missing.data.a }}",
                        deny=ALWAYS,
                    ),
                    failurePolicy=of,
                )
                for of in ("Fail", "Ignore")
            ),
            policy(
                "message",
                validate(
                    "text", match=_named("text*"), message="{{ request.object.data.absent }}", deny=ALWAYS
                ),
            ),
            policy(
                "both",
                validate("variable", match=_named("both*"), message="m", deny=absent),
                validate("fails", match=_named("both*"), message="fails", deny=ALWAYS),
            ),
            policy(
                "audit",
                validate("variable", match=_named("audit*"), failureAction="Audit", message="m", deny=absent),
                emitWarning=True,
            ),
        ],
        *(
            post(config_map(f"{of}-a"), dry=True)
            for of in (
                "fail-variable",
                "fail-entry",
                "ignore-variable",
                "ignore-entry",
                "text",
                "both",
                "audit",
            )
        ),
        post(config_map("fail-variable-b", absent="a"), dry=True),
        post(config_map("fail-variable-b", absent="b"), dry=True),
    )


def _named(name: str) -> Json:
    return {"any": [{"resources": {"kinds": ["ConfigMap"], "names": [name]}}]}


VALIDATING: Final = (
    *_patterns(),
    *_anchors(),
    *_conditions(),
    *_loops(),
    *_matching(),
    *_actions(),
    *_requests(),
    *_contexts(),
)
