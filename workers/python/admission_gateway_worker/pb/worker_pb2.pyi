from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListPoliciesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ("name", "description", "mutating", "version", "parameters_schema")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MUTATING_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    mutating: bool
    version: str
    parameters_schema: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., mutating: _Optional[bool] = ..., version: _Optional[str] = ..., parameters_schema: _Optional[str] = ...) -> None: ...

class CheckParametersRequest(_message.Message):
    __slots__ = ("policy", "parameters")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    parameters: bytes
    def __init__(self, policy: _Optional[str] = ..., parameters: _Optional[bytes] = ...) -> None: ...

class CheckParametersResponse(_message.Message):
    __slots__ = ("problem",)
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    problem: str
    def __init__(self, problem: _Optional[str] = ...) -> None: ...

class ReviewRequest(_message.Message):
    __slots__ = ("policy", "admission_request", "namespace_object", "parameters")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_REQUEST_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_OBJECT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    policy: str
    admission_request: bytes
    namespace_object: bytes
    parameters: bytes
    def __init__(self, policy: _Optional[str] = ..., admission_request: _Optional[bytes] = ..., namespace_object: _Optional[bytes] = ..., parameters: _Optional[bytes] = ...) -> None: ...

class ReviewResponse(_message.Message):
    __slots__ = ("allowed", "status", "patch", "audit_annotations", "warnings", "parameters_applied")
    class AuditAnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    AUDIT_ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_APPLIED_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    status: Status
    patch: bytes
    audit_annotations: _containers.ScalarMap[str, str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    parameters_applied: bool
    def __init__(self, allowed: _Optional[bool] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., patch: _Optional[bytes] = ..., audit_annotations: _Optional[_Mapping[str, str]] = ..., warnings: _Optional[_Iterable[str]] = ..., parameters_applied: _Optional[bool] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "reason", "message", "causes", "retry_after_seconds", "name", "group", "kind", "uid")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    causes: _containers.RepeatedCompositeFieldContainer[StatusCause]
    retry_after_seconds: int
    name: str
    group: str
    kind: str
    uid: str
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., causes: _Optional[_Iterable[_Union[StatusCause, _Mapping]]] = ..., retry_after_seconds: _Optional[int] = ..., name: _Optional[str] = ..., group: _Optional[str] = ..., kind: _Optional[str] = ..., uid: _Optional[str] = ...) -> None: ...

class StatusCause(_message.Message):
    __slots__ = ("reason", "message", "field")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    field: str
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., field: _Optional[str] = ...) -> None: ...

class ReviewBatch(_message.Message):
    __slots__ = ("payloads", "calls", "cancelled", "parameters")
    PAYLOADS_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    payloads: _containers.RepeatedCompositeFieldContainer[Payload]
    calls: _containers.RepeatedCompositeFieldContainer[Call]
    cancelled: _containers.RepeatedScalarFieldContainer[int]
    parameters: _containers.RepeatedCompositeFieldContainer[Parameters]
    def __init__(self, payloads: _Optional[_Iterable[_Union[Payload, _Mapping]]] = ..., calls: _Optional[_Iterable[_Union[Call, _Mapping]]] = ..., cancelled: _Optional[_Iterable[int]] = ..., parameters: _Optional[_Iterable[_Union[Parameters, _Mapping]]] = ...) -> None: ...

class Parameters(_message.Message):
    __slots__ = ("id", "json")
    ID_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    id: int
    json: bytes
    def __init__(self, id: _Optional[int] = ..., json: _Optional[bytes] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("admission_request", "namespace_object")
    ADMISSION_REQUEST_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_OBJECT_FIELD_NUMBER: _ClassVar[int]
    admission_request: bytes
    namespace_object: bytes
    def __init__(self, admission_request: _Optional[bytes] = ..., namespace_object: _Optional[bytes] = ...) -> None: ...

class Call(_message.Message):
    __slots__ = ("id", "payload", "policy", "timeout_millis", "after", "traceparent", "parameters")
    ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MILLIS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    id: int
    payload: int
    policy: str
    timeout_millis: int
    after: int
    traceparent: str
    parameters: int
    def __init__(self, id: _Optional[int] = ..., payload: _Optional[int] = ..., policy: _Optional[str] = ..., timeout_millis: _Optional[int] = ..., after: _Optional[int] = ..., traceparent: _Optional[str] = ..., parameters: _Optional[int] = ...) -> None: ...

class VerdictBatch(_message.Message):
    __slots__ = ("verdicts", "draining")
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    draining: bool
    def __init__(self, verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., draining: _Optional[bool] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("id", "response", "error", "chained")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CHAINED_FIELD_NUMBER: _ClassVar[int]
    id: int
    response: ReviewResponse
    error: Error
    chained: bool
    def __init__(self, id: _Optional[int] = ..., response: _Optional[_Union[ReviewResponse, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., chained: _Optional[bool] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...
