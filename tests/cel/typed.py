"""Expressions over values that have Go types in the API server, and the values."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from typing import Any, Final

_KIND: Final = {"group": "", "version": "v1", "kind": "Pod"}
_RESOURCE: Final = {"group": "", "version": "v1", "resource": "pods"}
_REFERENCE: Final = {"name": "n", "key": "k"}
POD: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "shop",
        "labels": {"app": "web"},
        "managedFields": [
            {
                "manager": "m",
                "operation": "Update",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {}},
            }
        ],
    },
    "spec": {
        "containers": [
            {
                "name": "a",
                "image": "i",
                "args": ["x"],
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "securityContext": {"runAsNonRoot": True},
                "env": [
                    {"name": "A", "valueFrom": {"configMapKeyRef": _REFERENCE}},
                    {"name": "B", "valueFrom": {"secretKeyRef": _REFERENCE}},
                ],
                "livenessProbe": {"periodSeconds": 3},
                "readinessProbe": {"periodSeconds": 3},
            }
        ],
        "securityContext": {"runAsNonRoot": True},
        "volumes": [{"name": "v", "emptyDir": {}}],
        "nodeSelector": {"disk": "ssd"},
    },
    "status": {},
}
"""All parts that the API server writes are in it."""
TYPED_REQUEST: Final[dict[str, Any]] = {
    "uid": "0",
    "kind": _KIND,
    "resource": _RESOURCE,
    "requestKind": _KIND,
    "requestResource": _RESOURCE,
    "name": "web",
    "namespace": "shop",
    "operation": "UPDATE",
    "userInfo": {"username": "alice", "uid": "7", "groups": ["dev"], "extra": {"s": ["a"]}},
    "dryRun": False,
    "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions", "fieldManager": "me"},
    "object": POD,
    "oldObject": POD,
}
PARAMS: Final = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}, "data": {"a": "1"}}
NAMESPACE: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "labels": {"team": "x"}},
    "spec": {"finalizers": ["kubernetes"]},
}

TYPED_EXPRESSIONS: Final = tuple(
    r"""
object.metadata.labels == ''
'' == object.metadata.labels
1 in object.spec
1 in object.metadata.labels
object.spec.containers.exists(c, c == 1)
object[0] == 1
object[?0].hasValue()
object.metadata.labels[?0].hasValue()
object[1.5] == 1
object[true] == 1
optional.of(object.spec) == optional.of('')
[object.spec] == ['']
([object.spec] + [1]) == ['', 1]
object.metadata.labels == null
object.metadata.labels != ''
object.spec == {'a': 1}
object.spec.containers[0.0].name == 'a'
object.spec.containers[0u].name == 'a'
object.spec.containers[?0u].value().name == 'a'
object.spec.securityContext == object.spec.containers[0].securityContext
object.spec.containers[0].env[0].valueFrom.configMapKeyRef == object.spec.containers[0].env[1].valueFrom.secretKeyRef
[object.spec.containers[0].env[0].valueFrom.configMapKeyRef] == [object.spec.containers[0].env[1].valueFrom.secretKeyRef]
object.spec.containers[0].livenessProbe == object.spec.containers[0].readinessProbe
object.spec.containers[0].resources.limits == object.spec.containers[0].resources.requests
object.spec == oldObject.spec
optional.ofNonZeroValue(object.spec.volumes[0].emptyDir).hasValue()
object.spec.volumes[0].emptyDir == {}
{} == object.spec.volumes[0].emptyDir
object.metadata.managedFields[0].fieldsV1 == ''
string(object.spec) == ''
string(object.metadata.labels) == ''
string(object.spec.containers) == ''
int(object.spec) == 1
bool(object.spec.containers)
type(object.spec) == map
dyn(request.options) == ''
dyn(request) == ''
dyn(request).object == null
dyn(request.userInfo) == ''
dyn(request.userInfo.extra) == ''
dyn(request.userInfo.groups) == ''
dyn(request.dryRun) == ''
dyn(namespaceObject) == ''
dyn(namespaceObject.metadata.labels) == ''
params == ''
params.data == ''
params.data == {'a': '1'}
{'a': '1'} == params.data
object[object.spec] == 1
object[object.metadata.labels] == 1
object[object.spec.containers] == 1
[1][object.spec] == 1
{1: 2} == object.spec.volumes[0].emptyDir
{1: 'x'} == dyn(object.spec.nodeSelector)
{1: object.spec} == object.spec.containers[0].livenessProbe
{1: object.spec} == object.spec.nodeSelector
{1: 5} == object.spec.containers[0].livenessProbe
object.spec in [1]
object.spec in ['', object.spec]
[object.spec].indexOf('') == 0
[object.spec, 1].distinct().size() == 2
sets.contains([object.spec], [''])
sets.equivalent(object.spec.containers, [1])
object.spec.containers.map(c, c.name) == ['a']
object.spec.containers.filter(c, true) == ''
([] + object.spec.containers) == ''
(object.spec.containers + []) == ''
(object.spec.containers + object.spec.containers) == ''
object.spec.containers + 1 == ''
{'a': object.spec} == {'a': 1}
object.spec.containers[0] == {'name': 'a', 'image': 'i', 'args': 'x', 'resources': 1, 'securityContext': 1, 'env': 1, 'livenessProbe': 1, 'readinessProbe': 1}
'%s'.format([object.metadata.labels]) == '{"app":"web"}'
'%d'.format([object.metadata.labels]) == '{"app":"web"}'
object.metadata.labels < 1
object.metadata.labels + 1 == 1
-object.metadata.labels == 1
!object.metadata.labels
object.metadata.labels.size() == 1
object.size() == 3
object.all(k, v, k != '')
object.spec.containers.all(i, v, v.name == 'a')
object.metadata.labels.transformMap(k, v, v) == {'app': 'web'}
object.metadata.labels.exists(k, k == 'app')
object.spec.containers.sort() == []
object.spec.containers.min() == 1
object.spec.containers.isSorted()
object.spec.containers.sum() == 1
[object.spec.containers].flatten() == object.spec.containers
object.spec.containers.flatten() == object.spec.containers
object.spec.containers.slice(0, 1) == ''
object.spec.containers.join() == ''
object.spec.containers[0].args.join() == 'x'
object.spec.containers[0].args == ['x']
object.spec.containers[0].args == [1]
object.spec.containers[5].args == [1]
object.spec.containers['a'] == 1
has(object.spec.containers.x)
has(object.spec.containers[0].args.x)
has(object.metadata.labels.x)
quantity(object.metadata.labels).asInteger() == 1
object.matches('a')
object.metadata.labels ? true : false
timestamp(object.spec) == timestamp('2020-01-01T00:00:00Z')
object.spec.containers.first() == optional.of('')
object == object
object == oldObject
object.spec.containers in [object.spec.containers]
[object.metadata.labels] == [object.metadata.labels]
object.spec.containers.sortBy(c, c.name) == ''
object.spec.containers.map(c, c) == object.spec.containers
object.spec.containers == object.spec.containers.map(c, c)
object.spec.containers[0] == {'name': 'a'}
object.metadata.managedFields == ''
object.spec.containers[0].resources == {'limits': {'cpu': '1'}, 'requests': ''}
object.spec.containers[0].resources == {'limits': {'cpu': '1'}, 'requests': {'cpu': '1'}}
{'limits': {'cpu': '1'}, 'requests': {'cpu': '1'}} == object.spec.containers[0].resources
object.spec.containers[0].resources == {'limits': {'cpu': '1'}, 'requests': null}
object.spec.containers[0].resources.limits == {'cpu': 1}
object.spec.containers == [dyn(1)]
object.spec.containers == []
[] == object.spec.containers
object.spec.containers != [dyn(1)]
[object.spec.containers] == [[dyn(1)]]
[object.spec.containers] == [dyn(1)]
[optional.of(object.spec)] == [optional.of(1)]
{'a': optional.of(object.spec)} == {'a': optional.of(dyn(1))}
object.spec.containers.map(c, c.resources) == [dyn(1)]
object.spec.containers.exists(c, c.resources == params.data)
object.spec.containers.exists(c, c == object.spec)
object.spec.containers.exists_one(c, c == '')
object.spec.containers.all(c, c != '')
object.metadata.labels.all(k, object.metadata.labels[k] != 1)
object.metadata.labels == params.data
params.data == object.metadata.labels
params.metadata == object.metadata
dyn(request.kind) == dyn(request.requestKind)
dyn(request.kind) == dyn(request.resource)
dyn(request.kind) == {'group': '', 'version': 'v1', 'kind': 'Pod'}
dyn(request.userInfo.groups) == ['dev']
'dev' in request.userInfo.groups
dyn(1) in request.userInfo.groups
request.userInfo.extra['s'] == ['a']
dyn(request.userInfo.extra)[0] == 1
1 in dyn(namespaceObject.metadata.labels)
1 in params.data
'a' in params.data
true in params
null in object.spec
null in object.spec.containers
object.spec in object.spec.containers
object.spec.containers[0] in object.spec.containers
object.spec.containers[0] in [object.spec.containers[0]]
[object.spec.containers[0]].indexOf(object.spec.containers[0]) == 0
object.spec.containers.indexOf(object.spec) == -1
object.spec.containers.includes(object.spec)
object.spec.includes(object.spec)
object.spec.includes('')
sets.intersects(object.spec.containers, [object.spec])
sets.equivalent([object.metadata.labels], [params.data])
object.spec.containers.distinct().size() == 1
(object.spec.containers + object.spec.containers).distinct().size() == 1
dyn([] + object.spec.containers) == ''
dyn(object.spec.containers + []) == ''
dyn(object.spec.containers.filter(c, true)) == ''
dyn(object.spec.containers.slice(0, 1)) == ''
dyn(object.spec.containers.reverse()) == ''
dyn(object.spec.containers.map(c, c)) == ''
dyn(object.spec.?containers).orValue('') == ''
object.?spec.?containers == optional.of('')
object.?spec.?none == optional.of(object.spec)
optional.of('') == object.?spec
optional.ofNonZeroValue(object.status).hasValue()
optional.ofNonZeroValue(object.metadata.labels).hasValue()
optional.ofNonZeroValue(dyn(request.options)).hasValue()
(true ? object.spec : object.metadata) == ''
(object.spec == '') || true
true || (object.spec == '')
(object.spec == '') && false
[1, 2].exists(i, object.spec == i || i == 2)
[object.spec, object.metadata] == [object.spec, object.metadata]
[object.spec, object.metadata] == ['', '']
[object.metadata, object.spec] == [object.spec, object.metadata]
{'a': object.spec} == {'a': object.spec}
{'a': object.spec}.a == ''
{'a': object.spec} == ''
[[object.spec]] == [['']]
[{'a': object.spec}] == [{'a': ''}]
object == ''
object == params
oldObject == ''
oldObject.spec == object.spec
object.metadata.labels == oldObject.metadata.labels
object.spec.nodeSelector == object.metadata.labels
object.spec.volumes[0].emptyDir == object.status
object.spec.volumes[0] == {'name': 'v', 'emptyDir': {}}
object.spec.volumes[0] == {'name': 'v', 'emptyDir': ''}
{'name': 'v', 'emptyDir': ''} == object.spec.volumes[0]
object.metadata.managedFields[0].fieldsV1 == {'f:spec': {}}
object.metadata.managedFields[0].fieldsV1[0] == 1
1 in object.metadata.managedFields[0].fieldsV1
object.spec.containers[true].name == 'a'
object.spec[?true].hasValue()
object[?'spec'].hasValue()
object['spec']['containers'][0]['name'] == 'a'
dyn(object.spec.containers)[dyn(0)].name == 'a'
dyn(object.spec.containers)[dyn(0u)].name == 'a'
object.spec.containers.transformList(i, c, c) == object.spec.containers
object.spec.containers.transformList(i, c, c == 1) == [false]
object.metadata.labels.transformMap(k, v, v == 1) == {'app': false}
object.spec.containers.sortBy(c, c.name) == object.spec.containers
object.spec.containers.flatten() == ['']
dyn(object.metadata.labels).matches('a')
'%s'.format([object.spec.containers[0].args]) == '["x"]'
{object.metadata.name: object.spec}['web'] == ''
{'web': object.spec} == {'web': object.spec.containers}
object.spec.containers.map(c, c == 1, c).size() == 0
object.spec.containers.first().value() == ''
object.spec.containers.first() == optional.of(object.spec.containers[0])
cel.bind(s, object.spec, s == '')
cel.bind(s, object.spec, [s] == [''])
""".strip().splitlines()
)
