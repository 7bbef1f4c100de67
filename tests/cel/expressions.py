"""The expressions of ``vectors.json``, which has their results from the API server's own evaluator."""

# ruff: noqa: E501, RUF001 - what users might write

from __future__ import annotations

from typing import Any, Final

REQUEST: Final[dict[str, Any]] = {
    "uid": "0",
    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
    "subResource": "scale",
    "requestKind": {"group": "apps", "version": "v1beta1", "kind": "Deployment"},
    "requestResource": {"group": "apps", "version": "v1beta1", "resource": "deployments"},
    "requestSubResource": "scale",
    "name": "web",
    "namespace": "shop",
    "operation": "UPDATE",
    "userInfo": {
        "username": "alice",
        "uid": "7",
        "groups": ["dev", "system:authenticated"],
        "extra": {"scopes": ["a", "b"]},
    },
    "dryRun": False,
    "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions", "fieldManager": "me"},
    "object": {
        "apiVersion": "example.com/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web", "tier": "gold"}, "creationTimestamp": None},
        "spec": {
            "replicas": 3,
            "ratio": 1.5,
            "paused": False,
            "text": "héllo wörld",
            "empty": "",
            "none": None,
            "numbers": [3, 1, 2],
            "names": ["b", "a", "c", "a"],
            "mixed": [1, "a", None, True, 1.5],
            "nested": [[1, 2], [3], []],
            "pairs": {"x": 1, "y": 2},
            "containers": [
                {"name": "web", "image": "web:1.2", "limits": {"cpu": "500m", "memory": "1Gi"}},
                {"name": "log", "image": "log:latest"},
            ],
        },
    },
    "oldObject": {
        "apiVersion": "example.com/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"replicas": 2, "numbers": [3, 1, 2]},
    },
}

LANGUAGE: Final = r"""
true
1
'true'
object.spec.paused
object.spec.paused == false
dyn(true)
!true
1 == 1
1 == 1.0
1 == 1u
1 == '1'
dyn(1) == '1'
1 < 1.5
1u < 2
-1 < 1u
1.5 >= 1
dyn(1) < 1.5
dyn(1) < 'a'
object.spec.replicas > 2
object.spec.replicas > 2.5
object.spec.replicas == 3u
object.spec.ratio > 1
object.spec.ratio == 1.5
'a' < 'b'
b'a' < b'b'
true > false
[1] == [1.0]
[1, 2] == [1]
[1, 'a'] == [1]
{'a': 1} == {'a': 1.0}
{'a': 1, 1: 2} == {}
{'a': [1, {'b': 2}]} == {'a': [1, {'b': 2}]}
object.spec.numbers == [3, 1, 2]
object.spec == oldObject.spec
object.metadata == oldObject.metadata
null == null
object.spec.none == null
object.spec.missing == null
oldObject == null
namespaceObject == null
namespaceObject.metadata.name == 'a'
namespaceObject.status.conditions.exists(c, c.type + c.status + c.reason + c.message == '')
[].all(x, has(x.a) && x == 1 && x == 'a')
has(object.spec)
has(object.spec.missing)
has(object.spec.none)
has(object.missing.field)
has(object)
has(request.subResource)
has(request.nothing)
has(request.dryRun)
request.uid == '0'
request.object == null
request.kind.version == 'v1'
request.requestKind.version == 'v1beta1'
request.resource.version == 'v1beta1'
request.resource.resource == 'deployments'
request.operation in ['CREATE', 'UPDATE']
request.userInfo.groups.exists(g, g == 'dev')
request.userInfo.extra['scopes'].size() == 2
request.userInfo.extra.scopes == ['a', 'b']
'nothing' in request.userInfo.extra
request.userInfo.extra['nothing'] == []
request.options.fieldManager == 'me'
request.dryRun
request.name + request.namespace == 'webshop'
params == null
variables.a == 1
1 + 1 == 2
1 + 1.0 == 2.0
1 + 1u == 2u
dyn(1) + 1.0 == 2.0
'a' + 'b' == 'ab'
[1] + [2] == [1, 2]
[1] + ['a'] == []
b'a' + b'b' == b'ab'
2 - 3 == -1
2u - 3u == 0u
2 * 3 == 6
7 / 2 == 3
-7 / 2 == -3
-7 % 3 == -1
7 % -3 == 1
1 / 0 == 1
1 % 0 == 1
1.0 / 0.0 > 1.0
9223372036854775807 + 1 > 0
-9223372036854775808 - 1 < 0
9223372036854775807 * 2 > 0
-(-9223372036854775808) > 0
9223372036854775808 > 0
18446744073709551615u + 1u > 0u
-9223372036854775808 / -1 > 0
1 > 0 || 1 / 0 == 0
1 / 0 == 0 || 1 > 0
1 > 0 && 1 / 0 == 0
1 / 0 == 0 && 1 < 0
1 / 0 == 0 || 1 < 0
true ? true : 1 / 0 == 0
false ? true : 1 / 0 == 0
true ? 1 : 'a'
(true ? dyn(1) : dyn('a')) == 1
(true ? dyn(1) : 2) == 'a'
object.spec.mixed[1] == 'a'
object.spec.numbers[0] == 3
object.spec.numbers[5] == 3
object.spec.numbers[-1] == 3
object.spec.numbers[0.0] == 3
object.spec.numbers['a'] == 3
object.spec.numbers[1u] == 1
object.spec.pairs['x'] == 1
object.spec.pairs['z'] == 1
object.spec.pairs.x == 1
object.spec.pairs[1] == 1
{1: 'a'}[1.0] == 'a'
{1: 'a'}[1u] == 'a'
{true: 'a'}[true] == 'a'
{'a': 1}['b'] == 1
{1: 2, 1: 3} == {}
{'a': 1, 'a': 2}.size() == 1
2 in [1, 2]
1 / 0 in []
2.0 in [1, 2]
'2' in [1, 2]
dyn('2') in [1, 2]
dyn(0u) in [0, 1]
'x' in object.spec.pairs
1 in object.spec.pairs
null in object.spec.mixed
'a' in 'abc'
'a' in dyn('abc')
size('héllo') == 5
'héllo'.size() == 5
size(b'h\xc3\xa9') == 3
size([1, 2]) == 2
size({'a': 1}) == 1
size(1) == 1
size(dyn(1)) == 1
object.spec.text.size() == 11
object.spec.text.startsWith('hé')
object.spec.text.endsWith('rld')
object.spec.text.contains('lo w')
object.spec.text.contains(1)
object.spec.replicas.contains('a')
'abc'.matches('^a.c$')
'abc'.matches('b')
'abc'.matches('(')
object.spec.text.matches(object.spec.text)
'a('.matches('a' + '(')
matches('abc', 'b')
'aé'.matches('^a.$')
'abc'.matches('\\C')
'abc'.matches('(?i)ABC')
'abc'.matches('a(?=b)')
'ab\nc'.matches('^c')
'ab\nc'.matches('(?m)^c')
int('12') == 12
int('a') == 1
int('0x1') == 1
int(' 1') == 1
int('+1') == 1
int('-9223372036854775809') == 1
int(1.9) == 1
int(-1.9) == -1
int(1e19) == 1
int(3u) == 3
int(18446744073709551615u) == 3
int(true) == 1
uint(-1) == 1u
uint('1') == 1u
uint(1.5) == 1u
double('1.5') == 1.5
double('a') == 1.5
double('1e400') == 1.5
double(1) == 1.0
double('NaN') == double('NaN')
double('inf') > 1.0
string(1) == '1'
string(1u) == '1'
string(1.5) == '1.5'
string(1.0) == '1'
string(1e21) == '1e+21'
string(1234567.0) == '1.234567e+06'
string(0.00001) == '1e-05'
string(true) == 'true'
string(b'abc') == 'abc'
string(b'\xff') == 'a'
string(null) == 'null'
string([1]) == '1'
string(timestamp('2024-01-02T03:04:05.600Z')) == '2024-01-02T03:04:05.6Z'
string(duration('90m')) == '5400s'
string(duration('1.5s')) == '1.5s'
string(duration('-1.5s')) == '-1.5s'
bytes('é') == b'\xc3\xa9'
bool('true')
bool('t')
bool('True')
bool('yes')
bool('1')
type(1) == int
type(1u) == uint
type('a') == string
type(null) == null_type
type([]) == list
type({}) == map
type(object.spec.replicas) == int
type(object.spec.ratio) == double
type(type(1)) == type
type(timestamp('2024-01-01T00:00:00Z')) == google.protobuf.Timestamp
type(duration('1s')) == google.protobuf.Duration
timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-01T00:00:01Z')
timestamp('2024-01-01T00:00:00+01:00') == timestamp('2023-12-31T23:00:00Z')
timestamp('2024-01-01') < timestamp('2024-01-01T00:00:01Z')
timestamp('2024-13-01T00:00:00Z') < timestamp('2024-01-01T00:00:01Z')
timestamp(object.spec.text) < timestamp('2024-01-01T00:00:01Z')
timestamp('2024-01-01T00:00:00Z') + duration('1h') == timestamp('2024-01-01T01:00:00Z')
timestamp('2024-01-01T01:00:00Z') - timestamp('2024-01-01T00:00:00Z') == duration('1h')
timestamp('9999-12-31T23:59:59Z') + duration('1s') > timestamp('2024-01-01T00:00:00Z')
timestamp('2024-02-29T12:00:00Z').getHours('2:0') == 14
timestamp('2024-02-29T12:00:00Z').getHours('24:00') == 12
timestamp('2024-02-29T12:00:00Z').getHours('02:100') == 15
timestamp('2024-02-29T12:00:00Z').getMinutes('-1:-30') == 30
timestamp('2024-02-29T12:00:00Z').getMinutes('-0:30') == 30
timestamp('2024-02-29T12:00:00Z').getHours(':30') == 12
timestamp('2024-02-29T12:00:00Z').getHours('Etc/UTCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC') == 12
timestamp('0001-01-01T00:00:00Z').getFullYear('-01:00') == 0
timestamp('0001-01-01T00:00:00Z').getDayOfWeek('America/New_York') == 0
timestamp('9999-12-31T23:59:59Z').getFullYear('Asia/Tokyo') == 10000
timestamp('9999-12-31T23:59:59Z').getDayOfWeek('+05:00') == 6
double('1_0.0_1e1_0') > 1.0
double('0x1_fp4') == 496.0
double('1__0') > 1.0
double('0x_.8p4') > 1.0
dyn(9007199254740993) == dyn(9007199254740992.0)
9007199254740993 > 9007199254740992.0
18446744073709551616.0 > 18446744073709551615u
dyn(request).uid == '' && dyn(request).object == null && has(dyn(request).oldObject)
{0: 'a', 1: 'b'}[dyn(true)] == 'b'
object.spec.numbers.all(x, x in object.spec.numbers)
timestamp('2024-02-29T12:34:56.789Z').getFullYear() == 2024
timestamp('2024-02-29T12:34:56.789Z').getMonth() == 1
timestamp('2024-02-29T12:34:56.789Z').getDate() == 29
timestamp('2024-02-29T12:34:56.789Z').getDayOfMonth() == 28
timestamp('2024-02-29T12:34:56.789Z').getDayOfWeek() == 4
timestamp('2024-02-29T12:34:56.789Z').getDayOfYear() == 59
timestamp('2024-02-29T12:34:56.789Z').getHours() == 12
timestamp('2024-02-29T12:34:56.789Z').getHours('Europe/Berlin') == 13
timestamp('2024-02-29T12:34:56.789Z').getHours('+05:30') == 18
timestamp('2024-02-29T12:34:56.789Z').getHours('-02:00') == 10
timestamp('2024-02-29T12:34:56.789Z').getHours('nowhere') == 10
timestamp('2024-02-29T12:34:56.789Z').getHours('/UTC') == 12
timestamp('2024-02-29T12:34:56.789Z').getMinutes() == 34
timestamp('2024-02-29T12:34:56.789Z').getSeconds() == 56
timestamp('2024-02-29T12:34:56.789Z').getMilliseconds() == 789
int(timestamp('2024-01-01T00:00:00Z')) == 1704067200
timestamp(0) == timestamp('1970-01-01T00:00:00Z')
duration('1h30m') == duration('90m')
duration('1h').getMinutes() == 60
duration('1500ms').getSeconds() == 1
duration('1500ms').getMilliseconds() == 500
duration('-1s') < duration('0')
duration('1d') > duration('1s')
duration(object.spec.text) > duration('1s')
duration('300000000h') > duration('1s')
duration('2540400h') + duration('2540400h') > duration('1s')
duration('1s') == 1
[1, 2, 3].all(x, x > 0)
[1, 2, 3].all(x, x > 1)
[].all(x, x > 1)
[1, 0].all(x, 1 / x > 0)
[0, 2].exists(x, 1 / x == 0)
[0, 0].exists(x, 1 / x == 0)
[1, 2].exists_one(x, x == 1)
[1, 1].exists_one(x, x == 1)
[1, 0].exists_one(x, 1 / x == 1)
[1, 2].existsOne(x, x == 1)
[1, 2].map(x, x * 2) == [2, 4]
[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]
[1, 2, 3].filter(x, x > 1) == [2, 3]
{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])
{'a': 1}.map(k, k) == ['a']
object.spec.pairs.filter(k, object.spec.pairs[k] > 1) == ['y']
object.spec.containers.all(c, c.image.contains(':'))
object.spec.containers.all(c, has(c.limits))
object.spec.containers.all(c, c.limits.cpu == '500m')
object.spec.containers.exists(c, c.limits.cpu == '500m')
object.spec.replicas.all(x, x)
object.spec.text.all(x, true)
[1, 2].all(1, true)
[1, 2].all(x.y, true)
[[1], [2]].all(x, x.all(y, y > 0))
[1, 2].all(i, v, i < v)
['a', 'b'].exists(i, v, i == 1 && v == 'b')
['a', 'b'].exists_one(i, v, i == 1)
['a', 'b'].existsOne(i, v, v == 'b')
{'a': 1}.all(k, v, k == 'a' && v == 1)
[1, 2].transformList(i, v, i + v) == [1, 3]
[1, 2].transformList(i, v, v > 1, i + v) == [3]
{'a': 1}.transformList(k, v, k) == ['a']
{'a': 1, 'b': 2}.transformMap(k, v, v * 2) == {'a': 2, 'b': 4}
{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 2) == {'b': 4}
[1, 2].transformMap(i, v, v) == {0: 1, 1: 2}
{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}
[1, 1].transformMapEntry(i, v, {v: i}) == {}
object.spec.pairs.all(k, v, v > 0)
object.spec.numbers.all(i, v, v > i - 3)
optional.of(1).value() == 1
optional.none().value() == 1
optional.of(1).hasValue()
optional.none().hasValue()
optional.of(1).or(optional.of(2)).value() == 1
optional.none().or(optional.of(2)).value() == 2
optional.of(1).orValue(2) == 1
optional.none().orValue(2) == 2
optional.ofNonZeroValue('').hasValue()
optional.ofNonZeroValue(0).hasValue()
optional.ofNonZeroValue([0]).hasValue()
object.?spec.replicas.orValue(0) == 3
object.?missing.field.orValue(0) == 0
object.spec.?missing.hasValue()
object.spec.numbers[?0].orValue(0) == 3
object.spec.numbers[?9].orValue(0) == 0
{'a': 1}[?'b'].orValue(5) == 5
object.spec.?replicas.optMap(x, x + 1).orValue(0) == 4
object.spec.?missing.optMap(x, x + 1).orValue(0) == 0
object.spec.?replicas.optFlatMap(x, optional.of(x)).orValue(0) == 3
[1, ?object.spec.?missing] == [1]
{?'a': object.spec.?missing, 'b': 1} == {'b': 1}
optional.of(1) == optional.of(1)
optional.none() == optional.none()
optional.unwrap([optional.of(1), optional.none()]) == [1]
optional.unwrap(dyn([1])) == [2]
[optional.of(1), optional.none()].unwrapOpt() == [1]
[1, 2].first().value() == 1
[].last().hasValue()
object.spec.names.last() == optional.of('a')
cel.bind(x, 1, x == 1)
math.greatest(1, 2) == 2
base64.encode(b'a') == 'YQ=='
jsonpatch.escapeKey('a/b') == 'a~1b'
google.protobuf.Duration{seconds: 1} == duration('1s')
kubernetes.Quantity{} == quantity('0')
unknown == 1
object.unknown()
unknown(1)
1 +
(
'a
'\q' == 'a'
'\u00e9' == 'é'
r'\n' == '\\n'
"\x41" == 'A'
'\101' == 'A'
0x10 == 16
0x10u == 16u
1e3 == 1000.0
.5 == 0.5
1. == 1.0
object.spec.if == 1
object.spec.`missing` == 1
if == 1
true == !false // and a comment
""".strip("\n")

LIBRARIES: Final = r"""
url('https://user:pass@example.com:80/path?query=val#fragment').getScheme() == 'https'
url('https://user:pass@example.com:80/path?query=val#fragment').getHost() == 'example.com:80'
url('https://user:pass@example.com:80/path').getHostname() == 'example.com'
url('https://[::1]:80/').getHost() == '[::1]:80'
url('https://[::1]:80/').getHostname() == '::1'
url('https://[::1%25en0]:80/').getHostname() == '::1%en0'
url('https://[fe80::1%25en%20x]/').getHostname() == 'fe80::1%en x'
url('https://[1.2.3.4]/').getHostname() == '1.2.3.4'
url('https://[::ffff:1.2.3.4]/').getHostname() == '::ffff:1.2.3.4'
url('https://example.com:80/').getPort() == '80'
url('https://example.com:/').getPort() == ''
url('/path').getHost() == ''
url('/path').getScheme() == ''
url('//host/path').getEscapedPath() == '//host/path'
url('///path').getEscapedPath() == '///path'
url('https://example.com/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'
url('https://example.com/a%2Fb').getEscapedPath() == '/a%2Fb'
url('https://example.com/a(b)!').getEscapedPath() == '/a(b)!'
url('https://example.com/é').getEscapedPath() == '/%C3%A9'
url('https://example.com/"x"').getEscapedPath() == '/%22x%22'
url('https://example.com/(é)').getEscapedPath() == '/%28%C3%A9%29'
url('https://example.com').getEscapedPath() == ''
url('https://example.com/path?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}
url('https://example.com/path?key with spaces=value+x%20y').getQuery() == {'key with spaces': ['value x y']}
url('https://example.com/path?').getQuery() == {}
url('https://example.com/path?a;b=1&c=%zz&d').getQuery() == {'d': ['']}
url('https://example.com/?a=é&=x').getQuery() == {'a': ['é'], '': ['x']}
url('HTTPS://Example.com/').getScheme() == 'https'
url('mailto:a@b').getScheme() == 'mailto'
url('mailto:a@b').getEscapedPath() == ''
url('https://example.com/') == url('https://example.com/')
url('https://example.com/a%20b') == url('https://example.com/a b')
url('https://example.com/#a b') == url('https://example.com/#a%20b')
url('https://example.com/?') == url('https://example.com/')
url('https://a@example.com/') == url('https://example.com/')
url('https://a:b:c/').getHost() == 'x'
url('../relative').getHost() == 'x'
url('').getHost() == ''
url('*').getEscapedPath() == '*'
url('https://exa mple.com/').getHost() == 'x'
url('https://ex%41mple.com/').getHost() == 'x'
url('https://ex%C3%A9.com/').getHost() == 'exé.com'
url('https://example.com:8o/').getHost() == 'x'
url('https://us er@example.com/').getHost() == 'x'
url('https://example.com/%zz').getHost() == 'x'
url('https://example.com/#%zz').getHost() == 'x'
url('tcp://a:b:1/').getHost() == 'a:b:1'
url(object.spec.text).getHost() == ''
url(1).getHost() == ''
isURL('https://user:pass@example.com:80/path?query=val#fragment')
isURL('/absolute-path')
isURL('https://a:b:c/')
isURL('../relative-path')
isURL('https://[::1')
isURL('https://[::1]x')
isURL('http://a\u0001b/')
isURL('http://a\u007fb/')
isURL('1http://a/')
isURL(':a')
isURL('a:')
isURL('http:///a')
isURL('http://%25/')
isURL('http://a<b>"/')
isURL('http://a|b/')
isURL('/a#%zz')
isURL('http://é/')
url('/a#b?c').getEscapedPath() == '/a'
'abc 123'.find('[0-9]*') == ''
'abc 123'.find('[0-9]+') == '123'
'abc 123'.find('xyz') == ''
'abc 123'.find('(') == ''
'abc'.find(object.spec.text) == ''
'a('.find('a' + '(') == ''
'123 abc 456'.findAll('[0-9]+') == ['123', '456']
'123 abc 456'.findAll('[0-9]*') == ['123', '', '', '', '456']
'123 abc 456'.findAll('[0-9]+', 1) == ['123']
'123 abc 456'.findAll('[0-9]+', 0) == []
'123 abc 456'.findAll('[0-9]+', -1) == ['123', '456']
'123 abc 456'.findAll('xyz') == []
'baab'.findAll('a*') == ['', 'aa', '']
'baab'.findAll('a*').size() == 3
'héé'.findAll('') == ['', '', '', '']
'aXbX'.findAll('(?i)x') == ['X', 'X']
'abab'.findAll('ab|a|b') == ['ab', 'ab']
'abc'.findAll('\\b') == ['', '']
'aaa'.findAll('^a') == ['a']
'foo'.find('o$') == 'o'
'é'.find('\\pL') == 'é'
'abc'.find('(?P<x>b)') == 'b'
'abc'.find('(?<x>b)') == 'b'
'aaaa'.find('a{2}') == 'aa'
'aaaa'.find('a{2000}') == 'aa'
'a'.find('a**') == 'a'
'a\\Cb'.find('\\Qa\\C\\Eb') == 'a\\Cb'
[1, 2, 3].isSorted()
[2.0, 1.0].isSorted()
['a', 'b', 'b'].isSorted()
[true, false].isSorted()
[].isSorted()
[duration('1s'), duration('2s')].isSorted()
[timestamp('2024-01-01T00:00:00Z'), timestamp('2023-01-01T00:00:00Z')].isSorted()
[[1]].isSorted()
[null].isSorted()
object.spec.numbers.isSorted()
object.spec.mixed.isSorted()
[dyn(1), dyn('a')].isSorted()
[dyn(2), dyn(1.5)].isSorted()
object.spec.nested.isSorted()
[1, 3].sum() == 4
[1.5, 3.0].sum() == 4.5
[1u, 2u].sum() == 3u
[duration('1m'), duration('1s')].sum() == duration('61s')
[].sum() == 0
['a'].sum() == 'a'
object.spec.numbers.sum() == 6
object.spec.mixed.sum() == 6
[dyn(1), dyn(1.5)].sum() == 2.5
[dyn(1.5), dyn(2.5)].sum() == 4.0
[9223372036854775807, 1].sum() > 0
[1u].map(x, x - 1u).sum() == 0u
[1, 3].min() == 1
[1, 3].max() == 3
['b', 'a'].max() == 'b'
[1.5, 0.5].min() == 0.5
[].min() == 1
object.spec.numbers.max() == 3
object.spec.names.min() == 'a'
object.spec.mixed.min() == 1
[dyn(1), dyn(0.5)].min() == 0.5
[duration('1s'), duration('2s')].max() == duration('2s')
[1, 2, 2, 3].indexOf(2) == 1
[1, 2, 2, 3].lastIndexOf(2) == 2
[1.0].indexOf(1.1) == -1
[].indexOf('string') == -1
['a'].indexOf(1) == -1
[1].indexOf(dyn(1.0)) == 0
object.spec.names.indexOf('a') == 1
object.spec.names.lastIndexOf('a') == 3
object.spec.mixed.indexOf(true) == 3
object.spec.mixed.indexOf(null) == 2
object.spec.nested.indexOf([3]) == 1
object.spec.mixed.includes('a')
[bytes(object.spec.text + object.spec.text)].includes(b'a')
object.spec.mixed.includes(1.0)
object.spec.mixed.includes(false)
object.spec.mixed.includes(null)
[1, 2].includes(2)
'model-a'.includes('model-a')
'model-a'.includes('model-b')
object.spec.replicas.includes(3)
object.spec.none.includes(null)
optional.of(1).includes(optional.of(1))
[optional.of(1)].includes(optional.of(1))
object.spec.pairs.includes({'x': 1, 'y': 2})
quantity('1') == quantity('1000m')
quantity('1Gi').isGreaterThan(quantity('1G'))
quantity('500m').isLessThan(quantity('1'))
quantity('1.5Ki').isInteger()
quantity('1Ki').isInteger()
quantity('1536').asInteger() == 1536
quantity('1.5Ki').asInteger() == 1536
quantity('1.5Ki') == quantity('1536')
quantity('1000m').isInteger()
quantity('1k').asInteger() == 1000
quantity('1E').asInteger() == 1000000000000000000
quantity('10E').isInteger()
quantity('1e3').asInteger() == 1000
quantity('1e-3') == quantity('1m')
quantity('1E3').asInteger() == 1000
quantity('9223372036854775807').isInteger()
quantity('999999999999999999').isInteger()
quantity('0.1n') == quantity('1n')
quantity('-0.1n') == quantity('-1n')
quantity('0.5n').asApproximateFloat() == 1e-9
quantity('10Ei') == quantity('9223372036854775807')
quantity('10E') == quantity('10000000000000000000')
quantity('0').isInteger()
quantity('-1').asInteger() == -1
quantity('+1').asInteger() == 1
quantity('.5') == quantity('500m')
quantity('1.') == quantity('1')
quantity('-') == quantity('0')
quantity('k') == quantity('0')
quantity('1.5').asApproximateFloat() == 1.5
quantity('100m').asApproximateFloat() == 0.1
quantity('3.3').asApproximateFloat() == 3.3
quantity('1e30').asApproximateFloat() == 1e30
quantity('1e33').asApproximateFloat() == 1e33
quantity('12345678901234567890').asApproximateFloat() == 12345678901234567890.0
sign(quantity('-5')) == -1
sign(quantity('0')) == 0
quantity('5').sign() == 1
quantity('1').compareTo(quantity('2')) == -1
quantity('1').compareTo(quantity('1000m')) == 0
quantity('50k').add(20) == quantity('50020')
quantity('50k').add(quantity('20')) == quantity('50020')
quantity('50020') == quantity('50k').add(20)
quantity('50k').add(20) == quantity('50k').add(20)
quantity('50020') != quantity('50k').add(20)
quantity('50k').sub(20) == quantity('49980')
quantity('50k').sub(quantity('1m')).isInteger()
quantity('1m').add(quantity('999m')).isInteger()
quantity('1m').add(quantity('999m')).asInteger() == 1
quantity('1.5Ki').add(1).asApproximateFloat() == 1537.0
quantity('9E').add(quantity('9E')).isInteger()
quantity('9E').add(quantity('9E')).asApproximateFloat() == 18e18
quantity('0').add(quantity('1m')).isInteger()
quantity('1').add(quantity('0m')).isInteger()
quantity('1') in [quantity('1000m')]
[quantity('1')] == [quantity('1000m')]
[quantity('1').add(1)] == [quantity('2')]
[quantity('2')] == [quantity('1').add(1)]
quantity('1') == dyn('1')
quantity('1') == '1'
dyn(quantity('1')) == 1
isQuantity('1.5Ki')
isQuantity('')
isQuantity('1 ')
isQuantity('1K')
isQuantity('1Ei')
isQuantity('1e')
isQuantity('1e+5')
isQuantity('1e5k')
isQuantity('1kk')
isQuantity('1e99999999999999999999')
isQuantity('1e10')
isQuantity('abc')
isQuantity('--1')
isQuantity('1_000')
isQuantity('\u0661')
isQuantity('1e0000000000000000000000001')
quantity('abc') == quantity('1')
quantity(object.spec.containers[0].limits.memory).isGreaterThan(quantity('500Mi'))
quantity(object.spec.containers[1].limits.memory).isGreaterThan(quantity('500Mi'))
type(quantity('1')) == kubernetes.Quantity
quantity('1').value
ip('127.0.0.1').family() == 4
ip('::1').family() == 6
ip('::1') == ip('0:0:0:0:0:0:0:1')
ip('127.0.0.1') == ip('127.0.0.01')
ip('1.2.3.4') == ip('::ffff:1.2.3.4')
ip('fe80::1%eth0').family() == 6
ip('::ffff:102:304').family() == 6
ip('::1.2.3.4').family() == 6
string(ip('::1.2.3.4')) == '::102:304'
string(ip('2001:DB8:0:0:1:0:0:1')) == '2001:db8::1:0:0:1'
string(ip('1:0:0:2:0:0:0:3')) == '1:0:0:2::3'
string(ip('1:2:3:4:5:6:0:8')) == '1:2:3:4:5:6:0:8'
isIP('1.2.3')
isIP('1.2.3.256')
isIP('1.2.3.4.5')
isIP('::')
isIP(':::')
isIP('1::2::3')
isIP('1:2:3:4:5:6:7::')
isIP('::1:2:3:4:5:6:7:8')
isIP('12345::')
isIP('::1.2.3.4.5')
isIP('')
isIP('1.2.3.4/8')
isIP(' 1.2.3.4')
isIP('\u0661.2.3.4')
ip.isCanonical('::1')
ip.isCanonical('0::1')
ip.isCanonical('::A')
ip.isCanonical('x')
ip('0.0.0.0').isUnspecified()
ip('::').isUnspecified()
ip('127.1.2.3').isLoopback()
ip('224.0.0.1').isLinkLocalMulticast()
ip('224.0.1.1').isLinkLocalMulticast()
ip('ff02::1').isLinkLocalMulticast()
ip('ff12::1').isLinkLocalMulticast()
ip('ff05::1').isLinkLocalMulticast()
ip('169.254.1.1').isLinkLocalUnicast()
ip('fe80::1').isLinkLocalUnicast()
ip('10.0.0.1').isGlobalUnicast()
ip('255.255.255.255').isGlobalUnicast()
ip('224.0.0.1').isGlobalUnicast()
ip('240.0.0.1').isGlobalUnicast()
ip('fc00::1').isGlobalUnicast()
type(ip('::1')) == net.IP
cidr('10.0.0.0/8').containsIP('10.1.2.3')
cidr('10.0.0.0/8').containsIP(ip('11.1.2.3'))
cidr('10.0.0.0/8').containsIP('x')
cidr('10.0.0.0/8').containsIP('::1')
cidr('::/0').containsIP('::1')
cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')
cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/7'))
cidr('10.0.0.0/8').containsCIDR('10.0.0.0/8')
cidr('10.0.0.0/8').containsCIDR('::/8')
cidr('10.1.2.3/8').ip() == ip('10.1.2.3')
cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')
cidr('10.1.2.3/8') == cidr('10.0.0.0/8')
cidr('10.1.2.3/8').prefixLength() == 8
string(cidr('10.1.2.3/8').masked()) == '10.0.0.0/8'
isCIDR('10.0.0.0/33')
isCIDR('10.0.0.0/08')
isCIDR('10.0.0.0/0')
isCIDR('10.0.0.0/-1')
isCIDR('10.0.0.0/+1')
isCIDR('10.0.0.0')
isCIDR('10.0.0.0/')
isCIDR('::ffff:1.2.3.4/96')
isCIDR('fe80::1%a/64')
isCIDR('::/128')
isCIDR('::/129')
cidr('x').prefixLength() == 1
format.dns1123Label().validate('my-name').hasValue()
format.dns1123Label().validate('My').value().size() == 1
format.dns1123Label().validate('a.b') == optional.of(['must not contain dots'])
format.dns1123Label().validate('').value() == ["a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"]
format.dns1123Label().validate('a-').hasValue()
format.dns1123LabelPrefix().validate('a-').hasValue()
format.dns1123LabelPrefix().validate('-').hasValue()
format.dns1123LabelPrefix().validate('A-').hasValue()
format.dns1123Subdomain().validate('a.b').hasValue()
format.dns1123Subdomain().validate('a..b').hasValue()
format.dns1123SubdomainPrefix().validate('a.b-').hasValue()
format.dns1035Label().validate('1a').hasValue()
format.dns1035LabelPrefix().validate('a-').hasValue()
format.qualifiedName().validate('example.com/My_name').hasValue()
format.qualifiedName().validate('/a').value() == ['prefix part must be non-empty']
format.qualifiedName().validate('a/b/c').value().size() == 1
format.qualifiedName().validate('a/').value().size() == 2
format.labelValue().validate('').hasValue()
format.labelValue().validate('a_b.c').hasValue()
format.labelValue().validate('-a').hasValue()
format.labelValue().validate(object.metadata.labels.app).hasValue()
format.uri().validate('http://a').hasValue()
format.uri().validate('a').hasValue()
format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()
format.uuid().validate('123E4567E89b12d3a456426614174000').hasValue()
format.uuid().validate('x').value() == ['does not match the UUID format']
format.byte().validate('aGk=').hasValue()
format.byte().validate('').hasValue()
format.byte().validate('aGk').hasValue()
format.date().validate('2024-02-29').hasValue()
format.date().validate('2023-02-29').hasValue()
format.date().validate('0000-01-01').hasValue()
format.date().validate('2024-1-01').hasValue()
format.datetime().validate('2024-02-29T12:00:00Z').hasValue()
format.datetime().validate('2024-02-29t12:00:00z').hasValue()
format.datetime().validate('2024-02-29T24:00:00Z').hasValue()
format.datetime().validate('2024-02-29T12:00:00,5+01:00').hasValue()
format.datetime().validate('2024-02-29 12:00:00Z').hasValue()
format.datetime().validate('2024-02-29T12:00:00').hasValue()
format.named('dns1123Label').hasValue()
format.named('nothing').hasValue()
format.named('uuid').value().validate('x').hasValue()
format.named('uuid') == optional.of(format.uuid())
format.uuid() == format.date()
format.nothing() == format.date()
semver('1.2.3').major() == 1
semver('1.2.3').minor() == 2
semver('1.2.3').patch() == 3
semver('1.2.3-alpha.1+build') == semver('1.2.3-alpha.1+other')
semver('1.2.3-alpha').isLessThan(semver('1.2.3'))
semver('1.2.3-alpha').isLessThan(semver('1.2.3-alpha.1'))
semver('1.2.3-2').isLessThan(semver('1.2.3-10'))
semver('1.2.3-10').isLessThan(semver('1.2.3-a'))
semver('1.2.3').isGreaterThan(semver('1.2.2'))
semver('1.2.3').compareTo(semver('1.3.0')) == -1
semver('1.2') == semver('1.2.0')
semver('v1.2', true) == semver('1.2.0')
semver('01.02.03', true) == semver('1.2.3')
semver('v1', true).minor() == 0
semver('1.2-a', true).minor() == 0
semver('00.0.0', true).major() == 0
semver('01.2.3') == semver('1.2.3')
semver('v1.2.3') == semver('1.2.3')
semver('18446744073709551615.0.0').major() == -1
isSemver('1.2.3')
isSemver('1.2')
isSemver('1.2', true)
isSemver('1.2', false)
isSemver('v1.2.3')
isSemver('v1.2.3', true)
isSemver('1.2.3-')
isSemver('1.2.3+')
isSemver('1.2.3-01')
isSemver('1.2.3-0a')
isSemver('1.2.3+01')
isSemver('1.2.3-a..b')
isSemver('1.2.3-é')
isSemver('18446744073709551616.0.0')
isSemver('1.2.3.4')
isSemver('')
isSemver('', true)
isSemver('.1.2', true)
sets.contains([1, 2, 3], [2, 3])
sets.contains([1, 2], [3])
sets.contains([1], [1.0, 1u])
sets.contains([], [])
sets.contains([[1]], [[1.0]])
sets.contains([dyn(1)], [dyn(true)])
sets.equivalent([1, 2, 2], [2, 1])
sets.equivalent([1], [])
sets.intersects([1, 2], [2, 3])
sets.intersects([], [1])
sets.intersects(object.spec.names, ['c'])
sets.contains(object.spec.mixed, [1.5, 'a'])
sets.contains(object.spec.mixed, [false])
sets.contains([1], ['a'])
'tacocat'.charAt(3) == 'o'
'abc'.charAt(3) == ''
'abc'.charAt(4) == ''
'abc'.charAt(-1) == ''
'hello mellow'.indexOf('') == 0
'hello mellow'.indexOf('ello') == 1
'hello mellow'.indexOf('jello') == -1
'hello mellow'.indexOf('ello', 2) == 7
'hello mellow'.indexOf('ello', 20) == -1
'hello mellow'.indexOf('', 20) == 12
'hello mellow'.indexOf('ello', -1) == -1
'hello mellow'.lastIndexOf('') == 12
'hello mellow'.lastIndexOf('ello') == 7
'hello mellow'.lastIndexOf('ello', 6) == 1
'hello mellow'.lastIndexOf('ello', 20) == -1
'hello mellow'.lastIndexOf('ello', -1) == -1
'hello mellow'.lastIndexOf('', 5) == 5
'a'.lastIndexOf('abc') == -1
'aaaaaaaaaaaaaaaaaaaab'.lastIndexOf('aaaaaaaaaaaaaaaaaa') == 2
'abc'.lastIndexOf('c', 2) == 2
'abc'.lastIndexOf('abcd', 2) == -1
['hello', 'mellow'].join() == 'hellomellow'
['hello', 'mellow'].join(' ') == 'hello mellow'
[].join() == ''
object.spec.names.join('-') == 'b-a-c-a'
object.spec.mixed.join('-') == ''
[1].join() == '1'
'TacoCat'.lowerAscii() == 'tacocat'
'TacoCÆt'.lowerAscii() == 'tacocÆt'
'tacoCæt'.upperAscii() == 'TACOCæT'
'hello hello'.replace('he', 'we') == 'wello wello'
'hello hello'.replace('he', 'we', -1) == 'wello wello'
'hello hello'.replace('he', 'we', 1) == 'wello hello'
'hello hello'.replace('he', 'we', 0) == 'hello hello'
'ab'.replace('', '_') == '_a_b_'
'ab'.replace('', '_', 2) == '_a_b'
'hello hello hello'.split(' ') == ['hello', 'hello', 'hello']
'hello hello hello'.split(' ', 0) == []
'hello hello hello'.split(' ', 1) == ['hello hello hello']
'hello hello hello'.split(' ', 2) == ['hello', 'hello hello']
'hello hello hello'.split(' ', -1) == ['hello', 'hello', 'hello']
'héa'.split('') == ['h', 'é', 'a']
'héa'.split('', 2) == ['h', 'éa']
''.split('') == []
''.split('', 2) == []
''.split(',') == ['']
'tacocat'.substring(4) == 'cat'
'tacocat'.substring(0, 4) == 'taco'
'tacocat'.substring(-1) == ''
'tacocat'.substring(2, 1) == ''
'tacocat'.substring(7) == ''
'tacocat'.substring(2, 8) == ''
'  \ttrim\n    '.trim() == 'trim'
'\u0085\u00a0\u2000x\u3000'.trim() == 'x'
'\u001cx\u200b'.trim() == 'x'
'abc'.reverse() == 'cba'
strings.quote('a"b\n\u0007') == '"a\\"b\\n\\a"'
strings.quote('é\u0000') == '"é\u0000"'
strings.quote('\r') == '"\\r"'
'%s %s'.format([1, 'a']) == '1 a'
'%s'.format([object.spec.mixed]) == '[1, "a", null, true, 1.500000]'
'%s'.format([object.spec.pairs]) == '{"x":1, "y":2}'
'%s'.format([object.spec.ratio]) == '1.5'
'%s'.format([[1.5, 'a', b'x', duration('1s'), {'a': 1}]]) == '[1.500000, "a", b"x", duration("1s"), {"a":1}]'
'%s'.format([timestamp('2020-01-01T00:00:00Z')]) == '2020-01-01T00:00:00Z'
'%s'.format([type(1)]) == 'int'
'%s'.format([null]) == 'null'
'%d%%'.format([12]) == '12%'
'%d'.format([1.5]) == '1'
'%d'.format([object.spec.ratio]) == '1'
'%f'.format([1234567.891]) == '1,234,567.891000'
'%.2f'.format([0.125]) == '0.12'
'%.0f'.format([2.5]) == '2'
'%f'.format(['NaN']) == 'NaN'
'%f'.format(['x']) == 'NaN'
'%f'.format([object.spec.text]) == 'NaN'
'%e'.format([1052.032911275]) == '1.052033×10⁰³'
'%.20e'.format([-1.5e-300]) == ' -1.500000×10⁻³⁰⁰'
'%f %e'.format(['Infinity', '-Infinity']) == '∞     -∞'
'%x %X'.format([-255, 'hi']) == '-ff 6869'
'%X'.format([255u]) == 'FF'
'%x'.format([b'\x00\xff']) == '00ff'
'%b %b %o'.format([-5, true, 8]) == '-101 1 10'
'%b'.format(['a']) == ''
'%s'.format([]) == ''
'%s'.format([1, 2]) == '1'
'%'.format([1]) == ''
'%q'.format([1]) == ''
'%.f'.format([1.0]) == ''
'%.3s'.format(['abcdef']) == 'abcdef'
'%s %d'.format(object.spec.mixed) == ''
object.spec.text.format([]) == 'héllo wörld'
'%s'.format([{'a': 1.5, 'b': [null]}]) == '{"a":1.500000, "b":[null]}'
'%s'.format([{1: 'x', true: b'y'}]) == '{1:"x", true:b"y"}'
'%s'.format([[1.0 / 0.0, -1.0 / 0.0]]) == '["+Inf", "-Inf"]'
'%s'.format(['é\n']) == 'é\n'
'%s'.format([['é\n\u0001']]) == '["é\\n\\x01"]'
[1, 2, 3].slice(1, 2) == [2]
[1, 2, 3].slice(2, 1) == []
[1, 2, 3].slice(-1, 1) == []
[1, 2, 3].slice(0, 4) == []
[[1, 2], [3]].flatten() == [1, 2, 3]
[[1, [2]], [[3]]].flatten() == [1, [2], [3]]
[[[1]], [[2]]].flatten() == [[1], [2]]
[[[1]], [[2]]].flatten(2) == [1, 2]
[[1]].flatten(0) == [[1]]
[[1]].flatten(-1) == [1]
[1].flatten() == [1]
object.spec.nested.flatten() == [1, 2, 3]
object.spec.numbers.flatten() == [3, 1, 2]
[3, 1, 2].sort() == [1, 2, 3]
['b', 'a'].sort() == ['a', 'b']
[true, false].sort() == [false, true]
[].sort() == []
object.spec.numbers.sort() == [1, 2, 3]
object.spec.mixed.sort() == []
object.spec.nested.sort() == []
[[1]].sort() == []
object.spec.containers.sortBy(c, c.name)[0].name == 'log'
[{'n': 2}, {'n': 1}].sortBy(x, x.n) == [{'n': 1}, {'n': 2}]
[3, 1].sortBy(x, -x) == [3, 1]
[3, 1].sortBy(x, [x]) == []
[3, 1].sortBy(x, dyn(x)) == [1, 3]
(true ? [3, 1] : []).sortBy(x, x) == [1, 3]
lists.range(3) == [0, 1, 2]
lists.range(0) == []
lists.range(-1) == []
[1, 2].reverse() == [2, 1]
[1, 2, 1, 1.0].distinct() == [1, 2]
[1, 2, 1].distinct() == [1, 2]
['a', 'b', 'a'].distinct() == ['a', 'b']
[[1], [1.0]].distinct() == [[1]]
object.spec.mixed.distinct().size() == 5
[dyn(1), dyn(1.0), dyn(true)].distinct().size() == 2
authorizer.path('/healthz').check('get').allowed()
authorizer.path('/healthz').check('post').allowed()
authorizer.path('/healthz').check('post').reason() == 'not granted'
authorizer.path('').check('get').allowed()
authorizer.path('/healthz').check('break').errored()
authorizer.path('/healthz').check('break').error() == 'broken'
authorizer.group('').resource('pods').namespace('shop').check('create').allowed()
authorizer.group('apps').resource('deployments').subresource('scale').namespace('shop').name('web').check('use').allowed()
authorizer.group('').resource('pods').check('list').reason() == 'granted'
authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a').check('list').allowed()
authorizer.group('').resource('pods').labelSelector('a in (b, c),!d').check('list').allowed()
authorizer.group('').resource('pods').labelSelector('a in').check('list').allowed()
authorizer.serviceAccount('shop', 'web').group('').resource('pods').check('get').allowed()
authorizer.serviceAccount('Shop', 'web').group('').resource('pods').check('get').allowed()
authorizer.requestResource.check('get').allowed()
authorizer.requestResource.check('delete').allowed()
authorizer.requestResource == authorizer.requestResource
[1, 2].all(x, authorizer.requestResource.check('get').allowed())
[1, 2, 3].all(x, authorizer.requestResource.check('get').allowed())
quantity('1') != dyn('1')
quantity('2') != quantity('1').add(1)
[quantity('1')] == [dyn('1')]
[quantity('1')] != [dyn('1')]
quantity('1').includes('1')
{'a': quantity('1')} == {'a': dyn('1')}
{'a': quantity('2')} == {'a': quantity('1').add(1)}
sets.contains([dyn(quantity('1'))], ['1'])
[dyn(quantity('1')), dyn('1')].distinct().size() == 2
optional.of(quantity('2')) == optional.of(quantity('1').add(1))
optional.of(quantity('1')) == optional.of(dyn('1'))
[optional.of(quantity('1'))] == [optional.of(dyn('1'))]
ip('::1') != dyn('::1')
authorizer.requestResource != authorizer.requestResource
authorizer.path('/a').check('get') == authorizer.path('/a').check('get')
quantity('50020') in [quantity('50k').add(20)]
[quantity('50k').add(20)].indexOf(quantity('50020')) == 0
[quantity('50020')].indexOf(quantity('50k').add(20)) == 0
[quantity('50020')].includes(quantity('50k').add(20))
sets.contains([quantity('50020')], [quantity('50k').add(20)])
sets.equivalent([quantity('50k').add(20)], [quantity('50020')])
[[quantity('50020')]] == [[quantity('50k').add(20)]]
[quantity('50020'), quantity('50k').add(20)].distinct().size() == 1
quantity('1') == dyn(null)
null == dyn(quantity('1'))
lists.range(999).all(x, x >= 0)
lists.range(1000).all(x, lists.range(1000).all(y, true))
lists.range(2000000).size() > 0
lists.range(700).distinct().size() == 700
lists.range(800).distinct().size() == 800
lists.range(100).all(x, lists.range(100).all(y, x + y >= 0))
""".strip("\n")

NAMES_AND_KEYS: Final = r"""
[1].all(object, .object.kind == 'Deployment')
[1].all(object, object == 1 && .object.kind == 'Deployment')
[1].all(x, .x == 1)
[1].all(x, [2].all(x, .x == 1))
[1].all(authorizer, .authorizer.requestResource.check('get').allowed())
[{'requestResource': 1}].all(authorizer, authorizer.requestResource == 1)
[{'requestResource': 1}].all(authorizer, .authorizer.requestResource == 1)
[1].all(object, .object.?kind.hasValue())
[1].all(object, has(.object.kind))
[1].map(object, .object.kind) == ['Deployment']
[1].filter(request, .request.name == 'web') == [1]
[1].exists_one(object, .object.kind == 'Deployment')
{'a': 1}.transformMap(object, v, .object.kind) == {'a': 'Deployment'}
{'a': 1}.transformMapEntry(k, object, {.object.kind: object}) == {'Deployment': 1}
[1].transformList(i, object, .object.kind) == ['Deployment']
optional.of(1).optMap(object, .object.kind) == optional.of('Deployment')
optional.of(1).optFlatMap(object, optional.of(.object.kind)) == optional.of('Deployment')
[2,1].sortBy(object, .object.spec.replicas - object) == [2, 1]
[1].all(optional, optional.of(1).hasValue())
[1].all(ip, ip.isCanonical('::1'))
[1].all(optional, optional == 1)
[1].all(sets, sets.contains([1], [1]))
[1].all(int, int == 1)
[1].all(int, int('1') == 1)
[1].all(int, .int == type(1))
[1].all(int, type(1) == .int)
[1].all(google, google.protobuf.Timestamp == 1)
[1].all(google, type(timestamp(0)) == .google.protobuf.Timestamp)
[{'IP': 2}].all(net, net.IP == 2)
.size([1]) == 1
.optional.of(1).hasValue()
.ip.isCanonical('::1')
.has(object.kind)
.object.kind == 'Deployment'
. object.kind == 'Deployment'
.int == int
.type(1) == int
.authorizer.requestResource.check('get').allowed()
.authorizer.path('/a').check('get').allowed()
[1].all(.x, true)
.format.dns1123Label().validate('a').hasValue()
.lists.range(2) == [0, 1]
[.object.kind].all(k, k == .object.kind)
[1].all(x, [2].all(object, .object.spec.replicas == 3 && x == 1))
[1].all(__result__, true)
[1].all(x, __result__)
[1].all(x, x == 1 && @result)
__result__ == 1
[1].all(x, y, .x == 0)
object.all(object, .object[object] == .object[object])
[1].all(namespaceObject, .namespaceObject == null)
[1].all(variables, .variables == 1)
[1].all(object, [1].all(object, .object.kind == 'Deployment' && object == 1))
optional.of({'a': 1}).optMap(object, object.a) == optional.of(1)
['%s'.format([[1, 'a'].map(x, x)])].size() == 1
'%s'.format([[[1, 'a']].map(x, [1, 'b', x])]) == ''
'%s'.format([true ? [1, 'a'] : []]) == '[1, "a"]'
'%s'.format([has({'a': [1, 'a']}.a)]) == 'true'
'%s'.format([{'a': [1, 'b']}.a]) == '[1, "b"]'
'%s'.format([[1, 'a'][0]]) == '1'
[1, 'a'].map(x, string(x)).join().format([]) == '1a'
['%s', 1][0].format(['a']) == 'a'
format([1, 'a']) == 1
[[1, 'a'], ['%s'.format(['a'])]].size() == 2
'%s'.format([[dyn(1), 'a'].all(x, [1, 'b'].size() == 2)]) == 'true'
[optional.of(1)].format([1, 'a']) == ''
'%s'.format([optional.of(1).optMap(x, [x, 'a']).value()]) == '[1, "a"]'
'%s'.format([['a'].sortBy(x, [1, 'b'].size())]) == '["a"]'
'%s'.format([[1].transformMap(i, v, {'a': 1, 2: v})]) == ''
optional.ofNonZeroValue(timestamp('0001-01-01T00:00:00Z')).hasValue()
optional.ofNonZeroValue(timestamp(0)).hasValue()
optional.ofNonZeroValue(duration('0s')).hasValue()
optional.ofNonZeroValue(quantity('0')).hasValue()
optional.ofNonZeroValue(ip('0.0.0.0')).hasValue()
optional.ofNonZeroValue(ip('::')).hasValue()
optional.ofNonZeroValue(cidr('0.0.0.0/0')).hasValue()
optional.ofNonZeroValue(semver('0.0.0')).hasValue()
optional.ofNonZeroValue(url('/')).hasValue()
optional.ofNonZeroValue([]).hasValue()
optional.ofNonZeroValue({}).hasValue()
optional.ofNonZeroValue(b'').hasValue()
optional.ofNonZeroValue(0u).hasValue()
optional.ofNonZeroValue(0.0).hasValue()
optional.ofNonZeroValue(-0.0).hasValue()
optional.ofNonZeroValue(false).hasValue()
optional.ofNonZeroValue(null).hasValue()
optional.ofNonZeroValue(optional.none()).hasValue()
optional.ofNonZeroValue(optional.of(0)).hasValue()
optional.ofNonZeroValue(type(1)).hasValue()
optional.ofNonZeroValue(int).hasValue()
optional.ofNonZeroValue(authorizer).hasValue()
optional.ofNonZeroValue(request).hasValue()
optional.ofNonZeroValue(object).hasValue()
optional.ofNonZeroValue(format.date()).hasValue()
optional.ofNonZeroValue(double('NaN')).hasValue()
optional.ofNonZeroValue([] + []).hasValue()
optional.ofNonZeroValue(namespaceObject).hasValue()
optional.ofNonZeroValue(oldObject.spec).hasValue()
{b'a': 1}[b'a'] == 1
{null: 1}[null] == 1
{b'a': 1}.size() == 1
{null: 1}.size() == 1
{1.0: 1}[1] == 1
{1.5: 1}[1.5] == 1
{[1]: 1}.size() == 1
{{}: 1}.size() == 1
{duration('1s'): 1}.size() == 1
{duration('1s'): 1}[duration('1s')] == 1
{timestamp(0): 1}[timestamp(0)] == 1
{int: 1}[int] == 1
{1: 'a'}[dyn(1.0)] == 'a'
{1: 'a'}[dyn(1u)] == 'a'
{1u: 'a'}[dyn(1)] == 'a'
{1.0: 'a'}[dyn(1)] == 'a'
{1: 'a'}[dyn('1')] == 'a'
{1: 'a'}[dyn(true)] == 'a'
{true: 'a'}[dyn(1)] == 'a'
{1: 'a'}[dyn(b'a')] == 'a'
{1: 'a'}[dyn(null)] == 'a'
{'a': 1}[dyn(b'a')] == 1
{'a': 1}[dyn(null)] == 1
{'a': 1}[dyn([1])] == 1
{'a': 1}[?dyn(b'a')].hasValue()
{'a': 1}[?dyn(null)].hasValue()
{'a': 1}[?dyn([1])].hasValue()
object.spec.pairs[dyn(b'x')] == 1
object.spec.pairs[dyn(null)] == 1
object.spec.pairs[null] == 1
object.spec.pairs[[1]] == 1
object.spec.pairs[{}] == 1
object.spec.pairs[b'x'] == 1
object.spec.pairs[1.5] == 1
object.spec.pairs[duration('1s')] == 1
object.spec.pairs[optional.of('x')] == 1
object.spec.pairs[int] == 1
object.spec.numbers[b'x'] == 1
object.spec.numbers[null] == 1
object.spec.numbers[true] == 1
object.spec.numbers[1.5] == 1
object.spec.numbers[1e30] == 1
object.spec.numbers[9223372036854775807] == 1
object.spec.numbers[18446744073709551615u] == 1
object.spec.numbers[?1.5].hasValue()
object.spec.numbers[?'a'].hasValue()
object.spec.numbers[?null].hasValue()
object.spec.numbers[?b'a'].hasValue()
object.spec.replicas[0] == 1
object.spec.replicas[?0].hasValue()
object.spec.replicas['a'] == 1
object.spec.text[0] == 'h'
object.spec.text[?0].hasValue()
object.spec.none[0] == 1
object.spec.none.a == 1
object.spec.none.?a.hasValue()
object.spec.replicas.?a.hasValue()
object.spec.numbers.?a.hasValue()
object.spec.numbers.a == 1
b'a' in {b'a': 1}
null in {null: 1}
dyn(b'a') in object.spec.pairs
dyn(null) in object.spec.pairs
dyn([1]) in object.spec.pairs
dyn({}) in object.spec.pairs
dyn(1.0) in {1: 2}
dyn(1u) in {1: 2}
dyn(true) in {1: 2}
dyn(1) in {true: 2}
dyn('1') in {1: 2}
null in {'a': 1}
dyn(1.5) in {1: 1}
1 in {1u: 1}
b'a' in [b'a', b'b']
null in [null]
[1] in [[1], [2]]
duration('1s') in [duration('1s')]
dyn(b'a') in ['a']
dyn([1]) in ['a']
dyn({}) in [1, 2]
dyn(null) in [1, 2]
dyn(1.0) in [1, 2]
dyn(1u) in [1, 2]
1 in [1.0, 2.0]
dyn(true) in [1, 2]
dyn(1) in [true]
9007199254740992 in [9007199254740993]
9007199254740992.0 in [9007199254740993]
dyn(9007199254740992.0) in [9007199254740993, 1]
dyn(9007199254740992) in [9007199254740993, 1]
9007199254740993 in [9007199254740992.0]
dyn(9223372036854775807) in [9223372036854775808.0]
dyn(optional.of(1)) in [1]
dyn(quantity('1')) in [1]
dyn(timestamp(0)) in [1]
'a' in object.spec.names
'x' in ['a', object.spec.text, 'x']
object.spec.none in [1, 2]
object.spec.missing in ['a']
""".strip("\n")

ERRORS: Final = r"""
ip(object.spec.text).family() == 4
ip('').family() == 4
ip('1.2.3').family() == 4
ip('1.2.3.4.5').family() == 4
ip('1.2.3.256').family() == 4
ip('1.2.3.a').family() == 4
ip('1..2.3').family() == 4
ip('.1.2.3').family() == 4
ip('1.2.3.').family() == 4
ip('1.2.3.0004').family() == 4
ip('01.2.3.4').family() == 4
ip('1.2.3.4 ').family() == 4
ip('1234.1.1.1').family() == 4
ip('::1::').family() == 4
ip(':::').family() == 4
ip(':1').family() == 4
ip('1:').family() == 4
ip('1:2:3:4:5:6:7').family() == 4
ip('1:2:3:4:5:6:7:8:9').family() == 4
ip('1:2:3:4:5:6:7::8').family() == 4
ip('12345::').family() == 4
ip('g::').family() == 4
ip('::1.2.3').family() == 4
ip('::1.2.3.400').family() == 4
ip('1:2:3:4:5:6:7:1.2.3.4').family() == 4
ip('::1%').family() == 4
ip('::1%a').family() == 4
ip('%a').family() == 4
ip('1.2.3.4%a').family() == 4
ip('::ffff:1.2.3.4').family() == 4
ip('1.2.3.4:80').family() == 4
ip('[::1]').family() == 4
ip('é').family() == 4
ip('"x\\').family() == 4
ip('a\nb').family() == 4
ip('1.2.3.é').family() == 4
ip('::é').family() == 4
ip('1:2:3:4:5:6:7:').family() == 4
ip('::1:').family() == 4
ip('1:2').family() == 4
cidr('').prefixLength() == 1
cidr('x/8').prefixLength() == 1
cidr('1.2.3.4').prefixLength() == 1
cidr('1.2.3.4/').prefixLength() == 1
cidr('1.2.3.4/a').prefixLength() == 1
cidr('1.2.3.4/33').prefixLength() == 1
cidr('1.2.3.4/08').prefixLength() == 1
cidr('1.2.3.4/+8').prefixLength() == 1
cidr('1.2.3.4/-1').prefixLength() == 1
cidr('1.2.3.4/1000').prefixLength() == 1
cidr('::1%a/8').prefixLength() == 1
cidr('::/129').prefixLength() == 1
cidr('::ffff:1.2.3.4/96').prefixLength() == 1
cidr('1.2.3/8').prefixLength() == 1
cidr('1.2.3.04/8').prefixLength() == 1
cidr('1.2.3.4/8/8').prefixLength() == 1
cidr('10.0.0.0/8').containsIP(object.spec.text)
cidr('10.0.0.0/8').containsIP('::ffff:1.2.3.4')
cidr('10.0.0.0/8').containsCIDR(object.spec.text)
cidr('10.0.0.0/8').containsCIDR('x')
cidr('10.0.0.0/8').containsCIDR('::ffff:1.2.3.4/96')
ip.isCanonical('1.2.3.04')
quantity('').isInteger()
quantity('1x').isInteger()
quantity('.').isInteger()
quantity('1.1.1').isInteger()
quantity('1e').isInteger()
quantity('Ki').isInteger()
quantity('1Kii').isInteger()
quantity('+').isInteger()
quantity('1 ').isInteger()
quantity(' 1').isInteger()
quantity('--1').isInteger()
quantity('1e99999999999999999999').isInteger()
quantity('1EE').isInteger()
quantity('é').isInteger()
quantity(object.spec.text).isInteger()
quantity('0.5').asInteger() == 1
quantity('9223372036854775808').asInteger() == 1
semver('').major() == 1
semver('1').major() == 1
semver('1.2').major() == 1
semver('1.2.3.4').major() == 1
semver('a.2.3').major() == 1
semver('1.a.3').major() == 1
semver('1.2.a').major() == 1
semver('01.2.3').major() == 1
semver('1.02.3').major() == 1
semver('1.2.03').major() == 1
semver('1.2.3-').major() == 1
semver('1.2.3-01').major() == 1
semver('1.2.3-a..b').major() == 1
semver('1.2.3-é').major() == 1
semver('1.2.3-a_b').major() == 1
semver('1.2.3+').major() == 1
semver('1.2.3+a..b').major() == 1
semver('1.2.3+é').major() == 1
semver('1.2.3+a_b').major() == 1
semver('..').major() == 1
semver('1..3').major() == 1
semver('99999999999999999999.2.3').major() == 1
semver('1.99999999999999999999.3').major() == 1
semver('1.2.99999999999999999999').major() == 1
semver('1.2.3-99999999999999999999').major() == 1
semver('-1.2.3').major() == 1
semver('1.-2.3').major() == 1
semver('v1.2', true).major() == 1
semver('va.2', true).major() == 1
semver('', true).major() == 1
semver('v', true).major() == 1
semver('1.2-a', true).major() == 1
semver('1+a', true).major() == 1
semver('a', true).major() == 1
semver('1.2.3.4', true).major() == 1
int(9.3e18) == 1
int(-9.3e18) == 1
int(object.spec.ratio * 1e300) == 1
int(object.spec.text) == 1
int(string(object.spec.text)) == 1
uint(object.spec.text) == 1u
uint(object.spec.replicas - 5) == 1u
uint(object.spec.ratio - 5.0) == 1u
uint(object.spec.ratio * 1e300) == 1u
int(18446744073709551615u - uint(object.spec.replicas)) == 1
double(object.spec.text) == 1.0
bool(object.spec.text)
int(object.spec.none) == 1
int(object.spec.names) == 1
string(object.spec.none) == ''
string(object.spec.names) == ''
string(object.spec) == ''
bytes(object.spec.replicas) == b''
double(object.spec.none) == 1.0
bool(object.spec.replicas)
timestamp(object.spec.replicas).getFullYear() == 1970
timestamp(object.spec.replicas * 999999999999).getFullYear() == 1970
timestamp(-62135596801 + object.spec.replicas - 3) == timestamp(0)
timestamp(object.spec.none) == timestamp(0)
timestamp(object.spec.ratio) == timestamp(0)
duration(object.spec.replicas) == duration('1s')
duration(object.spec.none) == duration('1s')
type(object.spec.missing) == int
object.spec.replicas + 9223372036854775807 > 0
object.spec.replicas - 9223372036854775807 - 9223372036854775807 > 0
object.spec.replicas * 9223372036854775807 > 0
-(object.spec.replicas - 9223372036854775807 - 4) > 0
object.spec.replicas / 0 == 1
object.spec.replicas % 0 == 1
uint(object.spec.replicas) / 0u == 1u
uint(object.spec.replicas) % 0u == 1u
uint(object.spec.replicas) - 5u == 1u
uint(object.spec.replicas) * 18446744073709551615u == 1u
uint(object.spec.replicas) + 18446744073709551615u == 1u
object.spec.ratio / 0.0 > 1.0
object.spec.ratio % 2 == 1
object.spec.text + 1 == ''
object.spec.text - 'a' == ''
object.spec.text * 2 == ''
object.spec.text / 2 == ''
-object.spec.text == 1
!object.spec.text
object.spec.text && true
object.spec.text || false
object.spec.text ? true : false
object.spec.none ? true : false
object.spec.replicas < 'a'
object.spec.text < 1
object.spec.none < 1
object.spec.names < object.spec.names
object.spec.pairs < 1
object.spec.ratio * 1e308 * 1e308 < 0.0 / 0.0
duration('9223372036s') + duration('9223372036s') > duration('1s')
duration('-9223372036s') - duration('9223372036s') > duration('1s')
-duration('1s') == duration('1s')
timestamp('9999-12-31T23:59:59Z') + duration('1s') > timestamp(0)
timestamp('0001-01-01T00:00:00Z') - duration('1s') > timestamp(0)
timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z') > duration('1s')
timestamp('2024-02-29T12:00:00Z').getHours(object.spec.text) == 1
timestamp('2024-02-29T12:00:00Z').getHours('a:b') == 1
timestamp('2024-02-29T12:00:00Z').getHours('1:b') == 1
timestamp('2024-02-29T12:00:00Z').getHours('+') == 1
timestamp('2024-02-29T12:00:00Z').getHours('../x') == 1
timestamp('2024-02-29T12:00:00Z').getHours('europe/berlin') == 13
timestamp('2024-02-29T12:00:00Z').getHours('99999999999999999999:00') == 13
timestamp('2024-02-29T12:00:00Z').getHours('1:2:3') == 13
timestamp('2024-02-29T12:00:00Z').getHours('25:00') == 13
object.spec.replicas.getHours() == 1
duration('1s').getFullYear() == 1
dyn(duration('1s')).getFullYear() == 1
dyn(1).getHours() == 1
dyn('a').startsWith(1)
object.spec.replicas.startsWith('a')
object.spec.text.startsWith(object.spec.replicas)
object.spec.replicas.matches('a')
object.spec.text.matches('(')
object.spec.text.matches('[' + 'a')
object.spec.text.matches('a' + '**')
object.spec.text.matches('a{' + '1001}')
object.spec.text.matches('\\' + 'C')
object.spec.text.matches('(?P<' + 'n')
object.spec.text.matches('*' + 'a')
object.spec.text.matches('a' + ')')
object.spec.text.matches('(?z' + ')')
object.spec.text.matches('[z-' + 'a]')
object.spec.text.matches('\\' + '8')
object.spec.text.matches('a\\' + '')
object.spec.text.matches('[[:foo:' + ']]')
object.spec.text.matches('\\p{' + 'Foo}')
object.spec.text.find('a' + '(') == ''
object.spec.text.findAll('a' + '(') == []
size(object.spec.replicas) == 1
object.spec.replicas.size() == 1
size(object.spec.none) == 1
object.spec.text.charAt(99) == ''
object.spec.text.charAt('a') == ''
object.spec.text.charAt(object.spec.text) == ''
object.spec.replicas.charAt(1) == ''
object.spec.text.indexOf('a', 99) == 1
object.spec.text.indexOf('a', -1) == 1
object.spec.text.indexOf(1) == 1
object.spec.text.indexOf(object.spec.replicas) == 1
object.spec.replicas.indexOf('a') == 1
object.spec.text.lastIndexOf('a', 99) == 1
object.spec.text.lastIndexOf('a', -1) == 1
object.spec.text.substring(99) == ''
object.spec.text.substring(-1) == ''
object.spec.text.substring(3, 1) == ''
object.spec.text.substring(3, 99) == ''
object.spec.text.substring(-1, 3) == ''
object.spec.replicas.substring(1) == ''
object.spec.replicas.lowerAscii() == ''
object.spec.replicas.trim() == ''
object.spec.replicas.replace('a', 'b') == ''
object.spec.text.replace(object.spec.replicas, 'b') == ''
object.spec.replicas.split('a') == []
object.spec.replicas.join() == ''
object.spec.numbers.join() == ''
object.spec.numbers.join(',') == ''
object.spec.names.join(object.spec.replicas) == ''
object.spec.replicas.format([]) == ''
object.spec.text.format(object.spec.replicas) == ''
strings.quote(object.spec.replicas) == ''
'%d'.format([object.spec.text]) == ''
'%s'.format(object.spec.nothing) == ''
'%x'.format([object.spec.ratio]) == ''
'%b'.format([object.spec.text]) == ''
'%o'.format([object.spec.text]) == ''
'%e'.format([object.spec.text]) == ''
object.spec.names.map(x, '%s %s').map(f, f.format(['a'])) == []
object.spec.names.map(x, '%z').map(f, f.format(['a'])) == []
object.spec.names.map(x, '%.').map(f, f.format(['a'])) == []
object.spec.names.map(x, '%').map(f, f.format(['a'])) == []
object.spec.names.map(x, '%.1a').map(f, f.format(['a'])) == []
object.spec.names.map(x, 'a').map(f, f.format(['a'])) == ['a', 'a', 'a', 'a']
object.spec.replicas.sum() == 1
object.spec.replicas.isSorted()
object.spec.pairs.max() == 1
object.spec.names.sum() == 1
object.spec.replicas.min() == 1
object.spec.text.min() == 1
object.spec.replicas.sort() == []
object.spec.text.sort() == []
object.spec.replicas.reverse() == []
object.spec.replicas.distinct() == []
object.spec.replicas.flatten() == []
object.spec.replicas.slice(0, 1) == []
object.spec.numbers.slice(0, 'a') == []
object.spec.numbers.slice(object.spec.text, 1) == []
object.spec.replicas.first().hasValue()
object.spec.replicas.last().hasValue()
object.spec.replicas.sortBy(x, x) == []
object.spec.mixed.sortBy(x, x) == []
object.spec.containers.sortBy(x, x.missing) == []
object.spec.containers.sortBy(x, x) == []
lists.range(object.spec.text).size() == 1
sets.contains(object.spec.text, [1])
sets.contains(object.spec.replicas, object.spec.text)
object.spec.numbers.flatten(object.spec.text) == []
object.spec.replicas.map(x, x) == []
object.spec.replicas.filter(x, true) == []
object.spec.replicas.exists(x, true)
object.spec.replicas.exists_one(x, true)
object.spec.replicas.all(k, v, true)
object.spec.none.all(k, true)
object.spec.ratio.transformMap(k, v, v) == {}
object.spec.text.transformList(k, v, v) == []
object.spec.names.transformMapEntry(k, v, {v: k}) == {}
object.spec.names.transformMapEntry(k, v, object.spec.text) == {}
object.spec.numbers.filter(x, object.spec.text) == []
object.spec.numbers.all(x, object.spec.text)
object.spec.numbers.map(x, object.spec.text, x) == []
object.spec.numbers.exists_one(x, x)
object.spec.text.hasValue()
object.spec.text.value() == 1
object.spec.text.orValue(1) == 1
object.spec.text.or(optional.of(1)) == optional.of(1)
object.spec.text.optMap(x, x) == optional.of(1)
object.spec.text.optFlatMap(x, optional.of(x)) == optional.of(1)
[?object.spec.text] == []
{?'a': object.spec.text} == {}
optional.unwrap(object.spec.names) == []
object.spec.names.unwrapOpt() == []
optional.unwrap(object.spec.text) == []
url('http://a b/').getHost() == ''
url('http://[::1').getHost() == ''
url('http://a:b').getHost() == ''
url('a').getHost() == ''
url('http://a%41/').getHost() == ''
url('http://%zz/').getHost() == ''
url('http://a/%z').getHost() == ''
url(':').getHost() == ''
url('http://a\u0001/').getHost() == ''
url('http://u ser@h/').getHost() == ''
url('1http://a').getHost() == ''
url('/a\\b"c').getHost() == ''
url('/é%').getHost() == ''
format.named('x').value().validate('a').hasValue()
format.dns1123Label().validate(object.spec.replicas).hasValue()
object.spec.text.validate('a').hasValue()
object.spec.text.family() == 4
object.spec.text.isLoopback()
object.spec.text.masked() == cidr('1.2.3.4/8')
object.spec.text.isGreaterThan(quantity('1'))
quantity('1').isGreaterThan(object.spec.text)
quantity('1').add(object.spec.text) == quantity('1')
semver('1.2.3').isLessThan(object.spec.text)
object.spec.text.major() == 1
object.spec.text.compareTo(quantity('1')) == 1
object.spec.text.getHost() == ''
isIP(object.spec.replicas)
isCIDR(object.spec.none)
isURL(object.spec.replicas)
isQuantity(object.spec.replicas)
isSemver(object.spec.replicas)
isSemver('1', object.spec.text)
quantity(object.spec.replicas).isInteger()
semver(object.spec.replicas).major() == 1
url(object.spec.replicas).getHost() == ''
cidr(object.spec.replicas).prefixLength() == 1
ip(object.spec.replicas).family() == 4
ip.isCanonical(object.spec.replicas)
sign(object.spec.text) == 1
authorizer.path(object.spec.replicas).check('get').allowed()
authorizer.path(object.spec.empty).check('get').allowed()
authorizer.group('').resource(object.spec.empty).check('get').allowed()
authorizer.serviceAccount('a', 'B').path('/a').check('get').allowed()
authorizer.serviceAccount('a', '').path('/a').check('get').allowed()
""".strip("\n")

COSTS: Final = r"""
[1, 2, 3].all(k, !(k in [300, 301, 302]))
object.spec.names.all(x, !(x in ['x', 'y', 'z']))
object.spec.pairs.all(k, k in ['x', 'y'])
object.spec.replicas in [1, 2, 3]
object.spec.ratio in [1, 2, 3]
object.spec.replicas in [1, object.spec.replicas]
'dev' in request.userInfo.groups
object.spec.names.map(x, 'a').size() == 4
object.spec.names.map(x, x == 'a', 'a').size() == 2
object.spec.text + object.spec.text != ''
object.spec.text + 'a' != ''
object.spec.text < object.spec.text
object.spec.text < 'a'
bytes(object.spec.text) != b''
string(bytes(object.spec.text)) == object.spec.text
object.spec.names + object.spec.names == []
object.spec == object.spec
object.spec != oldObject.spec
object.spec.text == 'a very long text that is not equal'
object.spec.text != 'a very long text that is not equal'
object.spec.empty == 'a very long text that is not equal'
object.spec.empty == 'a'
object.spec.replicas == ''
dyn(object.spec.names) == ''
object.spec.none == ''
(object.spec.paused ? object.spec : oldObject.spec).replicas == 2
(object.spec.paused ? object.spec : oldObject).spec.replicas == 2
has((object.spec.paused ? object.spec : oldObject.spec).replicas)
has(dyn(object).spec)
has({'a': 1}.a)
has(object.?spec.replicas)
has(object.?missing.replicas)
object.spec[object.metadata.name + 'x'] == 1 || true
object.spec.pairs[object.spec.names[0] == 'b' ? 'x' : 'y'] == 1
object.spec.pairs[string('x')] == 1
object.spec.containers[object.spec.numbers[1] - 1].image == 'web:1.2'
object.spec.containers[0].limits.cpu.startsWith('500')
object.spec.containers.map(c, c.name)[0] == 'web'
object.spec.containers.filter(c, c.name == 'log')[0].image == 'log:latest'
object.spec.?missing[0].name.hasValue()
object.spec.containers[?5].name.hasValue()
object.spec.containers[?0].?image.orValue('') == 'web:1.2'
optional.of(object).spec.replicas == optional.of(3)
optional.of(1).optMap(x, x + x).value() == 2
optional.of(1).optMap(x, 5).value() == 5
object.?spec.replicas.optMap(x, x + 1).optMap(y, y * 2).orValue(0) == 8
optional.of({'a': 1}).optMap(x, x).a.orValue(0) == 1
true ? has(object.spec) : false
object.spec.paused ? object.spec.replicas == 1 : object.spec.replicas == 3
object.spec.numbers.exists(x, x == 1)
object.spec.numbers.exists(x, x == 2)
object.spec.numbers.all(i, v, v < 3)
object.spec.numbers.exists(i, v, v == 2)
object.spec.pairs.exists(k, v, v == 1)
[1, 2].all(x, x < 2)
[1, 2].all(x, x < 1)
object.spec.names.sortBy(x, x).sortBy(y, y).size() == 4
cidr('10.0.0.0/8').containsIP(object.metadata.name) || true
cidr('10.0.0.0/8').containsCIDR(dyn('10.1.0.0/16'))
[3, 1, 2].sortBy(x, x) == [1, 2, 3]
object.spec.names.distinct().size() == 3
object.spec.names.join(',') == 'b,a,c,a'
object.spec.text.split('').size() == 11
request.userInfo.groups.join() == ''
request.kind.group == 'apps' && request.resource.resource != 'pods' || request.dryRun
'%s is %d'.format([object.metadata.name, object.spec.replicas]) == 'web is 3'
[object.spec.replicas, 1].sum() == 4
{'a': object.spec.replicas}.a == 3
{'a': [1, 2], 'b': [3]}['a'][1] == 2
type(object.spec) == map
[int, string].size() == 2
duration('1s') in [duration('1s'), duration('2s')]
has(object.?spec.a)
has(object.?spec.text)
has(object.?none.a)
has(object.spec.?pairs.a)
has(object.?spec.pairs.a)
has(object.?spec.pairs.x)
has(object.?none.pairs.x)
has(object.?none.a.b)
has(object[?'spec'].a)
has(object[?'none'].a)
has(object.?spec['pairs'].a)
has(object.?spec.numbers.a)
has(object.spec.none.a)
has(object.spec.a.b)
has(optional.of(object.spec).a)
has(optional.none().a)
has(object.?spec.a) || true
[1].exists(x, has(object.?spec.a))
has({'a': {'b': 1}}.?a.c)
[object.spec.text + object.spec.text, object.none.x] == []
{object.none: [1,2,3].all(x, x > 0)} == {}
object.spec.text.substring(object.none, [1,2,3].map(x, x).size()) == ''
object.none.substring(1, [1,2,3].map(x, x).size()) == ''
object.none == [1,2,3].map(x, x)
[1,2,3].map(x, x) == object.none
object.none + [1,2,3].map(x, x).size() == 1
object.none in [1,2,3].map(x, x)
[1,2,3].map(x, x).size() in object.none
object.none < [1,2,3].map(x, x).size()
[1,2,3].map(x, x)[object.none] == 1
object.none[[1,2,3].map(x, x).size()] == 1
object.spec[object.none] == 1
object.spec[object.none].a.b.c == 1
object.none ? [1,2,3].all(x, x > 0) : true
(object.none || [1,2,3].all(x, x > 0)) && false
[1,2,3].map(x, object.none) == []
'%s %s'.format([object.none, [1,2,3].all(x, x > 0)]) == ''
optional.of(object.none).hasValue()
[1,2,3].transformMap(k, v, object.none) == {}
object.spec.numbers.map(x, x / 0) == []
[[1,2,3].all(x, x > 0), 1/0 == 1, [1,2,3].all(x, x > 0)].all(x, x)
[object.none] == []
[object.none, object.spec.text] == []
[object.none, object.spec.text, object.spec.text, object.spec.text, object.spec.text] == []
[object.spec.text, object.none, object.spec.text, object.spec.text, object.spec.text] == []
[object.spec.text, object.spec.text, object.spec.text, object.spec.text, object.none] == []
object.none == object.spec.text
object.spec.text == object.none
{'a': object.none} == {}
{'a': object.none, 'b': object.spec.text, 'c': object.spec.text, 'd': object.spec.text} == {}
{'a': object.spec.text, 'b': object.spec.text, 'c': object.spec.text, 'd': object.none} == {}
object.none.replace(object.spec.text, object.spec.text) == ''
object.none.replace(object.spec.text, object.spec.text, object.spec.replicas) == ''
object.spec.text.replace(object.none, object.spec.text, object.spec.replicas) == ''
object.spec.text.replace(object.spec.text, object.spec.text, object.none) == ''
object.spec.text.substring(object.none, object.spec.replicas) == ''
object.spec.text.substring(object.spec.replicas, object.none) == ''
[object.spec.text, object.none].size() == object.spec.replicas
[object.none, object.spec.text, object.spec.text] == [] || true
[?object.?none, object.none, object.spec.text, object.spec.text] == []
optional.of([object.none, object.spec.text, object.spec.text]).hasValue()
[object.none, object.spec.text, object.spec.text].exists(x, x == 1)
[[object.none, object.spec.text, object.spec.text]].exists(x, x == [1])
lists.range(object.none).size() == object.spec.replicas
quantity(object.none).isLessThan(quantity(object.spec.text))
ip(object.none).family() == object.spec.replicas
object.spec.numbers.slice(object.none, object.spec.replicas) == []
object.spec.numbers.slice(object.spec.replicas, object.none) == []
object.spec.text.indexOf(object.none, object.spec.replicas) == 1
sets.contains([object.none, object.spec.text], [object.spec.text, object.spec.text])
object.none.matches(object.spec.text)
object.spec.text.matches(object.none)
timestamp(object.none).getHours(object.spec.text) == 1
object.none.trim().trim().trim().trim().trim() == ''
object.none.size() == object.spec.replicas
string(string(string(object.none))) == ''
object.none.substring(1).substring(1).substring(1) == ''
object.none.split('a').join('b').split('c').join('a') == ''
object.none.map(x, x).map(x, x).map(x, x).map(x, x).exists_one(x, x == 1)
object.none.all(x, x == 1)
object.none.exists(x, x == 1)
object.none.filter(x, x == 1).filter(x, x == 1) == object.spec.numbers
object.spec.replicas.map(x, x).map(x, x) == object.spec.numbers
object.spec.replicas.all(x, y, x)
object.none.transformMap(x, y, x).transformMap(x, y, x) == {}
object.none.transformList(x, y, x).transformList(x, y, x) == []
object.none.split('a')[0].trim() == ''
object.none.split(object.spec.text, object.spec.replicas)[0].trim() == ''
-(-(-object.none)) == 1
!(!(!object.none))
(object.none + 1 + 1 + 1 + 1) == 1
((object.none == 1) == true) == true
(object.none < 1) == true
object.none.contains('a')
object.none.startsWith('a')
'a'.startsWith(object.none)
object.none.lowerAscii().contains('a')
object.none in [1,2]
object.none in object.spec.numbers
1 in object.none
object.?none.orValue(object.none) == 1
object.none.orValue(1) == 1
object.spec.text.charAt(object.none) == ''
timestamp(object.none).getHours() == object.spec.replicas
isQuantity(object.none)
quantity(object.none).add(1) == quantity(object.none)
url(object.none).getHost() == ''
sets.contains(object.none, object.spec.numbers)
[1].sortBy(x, object.none) == [1]
[object.spec.numbers.all(x, x > object.none)].size() == 1
object.none.optMap(x, x) == optional.of(1)
object.?spec.none.optMap(x, x.a) == optional.of(1)
authorizer.group(object.none).resource('a').check('get').allowed()
authorizer.requestResource.check(object.none).allowed()
authorizer.group('a').resource(object.none).namespace('a').name('b').check('get').allowed()
object.none == 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'
object.none == 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' || true
['', '', '', '', '', ''].map(x, x != 'a', x).exists(x, x != object.none)
""".strip("\n")

EXPRESSIONS: Final = tuple("\n".join((LANGUAGE, LIBRARIES, NAMES_AND_KEYS, ERRORS, COSTS)).splitlines())
