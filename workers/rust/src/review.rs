//! The interface of policies: [`Review`].
//!
//! The request is parsed on first use, once for all calls of a batch that share it. A policy that changes
//! the object gets a separate copy, so that other policies do not see the changes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::client::Room;
use crate::denied::{Malformed, PolicyError, Result};
use crate::diff::{diff, text_of};
use crate::json;
use crate::parameters::Shared;
use crate::payload::{Payload, Which};
use crate::traceparent::Traceparent;
use crate::turns::Turn;
use crate::typed::carry_over;

/// Group, version and kind of an object, or group, version and resource of a request; empty where absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// Such as `v1`.
    pub version: &'a str,
    /// Such as `Pod`; `pods` for a resource.
    pub kind: &'a str,
}

/// One admission request for one policy.
#[derive(Debug)]
pub struct Review {
    payload: Arc<Payload>,
    object: Option<Value>,
    patch: Option<Vec<Value>>,
    mutating: bool,
    deadline: Option<Instant>,
    traceparent: Option<Traceparent>,
    /// Those of the call; empty: none.
    parameters_json: Bytes,
    parameters: Option<Shared>,
    // Locked rather than borrowed, so that a policy can warn while it holds on to a part of the object.
    said: Mutex<Said>,
    /// What the evaluation counts with. The last member: it is dropped after all that is parsed.
    room: Option<Room>,
}

/// What identifies a review in the log.
pub(crate) struct Subject {
    pub(crate) payload: Arc<Payload>,
    pub(crate) traceparent: Option<Traceparent>,
}

/// What a policy changes in the object.
#[derive(Debug)]
pub(crate) enum Change {
    Object(Value),
    Patch(Vec<Value>),
}

/// Warnings and audit annotations of a policy.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) warnings: Vec<String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Said {
    pub(crate) fn is_empty(&self) -> bool {
        self.warnings.is_empty() && self.annotations.is_empty()
    }
}

impl Review {
    pub(crate) fn new(payload: Arc<Payload>, deadline: Option<Instant>, mutating: bool) -> Self {
        Self {
            payload,
            object: None,
            patch: None,
            mutating,
            deadline,
            traceparent: None,
            parameters_json: Bytes::new(),
            parameters: None,
            said: Mutex::default(),
            room: None,
        }
    }

    /// The same review, for the evaluation of which there is room; for the server.
    pub(crate) fn with_room(mut self, room: Option<Room>) -> Self {
        self.room = room;
        self
    }

    /// The same review with the JSON of the parameters of its call; for the server.
    pub(crate) fn with_parameters_json(mut self, json: Bytes) -> Self {
        self.parameters_json = json;
        self
    }

    pub(crate) fn take_large(&mut self) -> Option<Turn> {
        self.room.as_mut()?.large.take()
    }

    pub(crate) fn parameters_json(&self) -> Bytes {
        self.parameters_json.clone()
    }

    pub(crate) fn has_parameters(&self) -> bool {
        !self.parameters_json.is_empty()
    }

    pub(crate) fn set_parameters(&mut self, prepared: Shared) {
        self.parameters = Some(prepared);
    }

    /// The same review with parameters as the policy prepares them; for unit tests.
    #[must_use]
    pub fn with_parameters<T: Send + Sync + 'static>(mut self, prepared: T) -> Self {
        self.parameters = Some(Arc::new(prepared));
        self
    }

    /// The parameters of the webhook, as the policy prepared them; calls share them.
    ///
    /// # Panics
    ///
    /// If the policy takes none, or prepares another type.
    pub fn parameters<T: 'static>(&self) -> &T {
        let found = self.parameters.as_ref().and_then(|prepared| prepared.downcast_ref());
        found.unwrap_or_else(|| {
            panic!("the policy has no parameters of the type {}", std::any::type_name::<T>())
        })
    }

    /// The same review with the trace context that was sent, if it is one; for the server, and for unit tests.
    #[must_use]
    pub fn with_traceparent(mut self, traceparent: impl AsRef<[u8]>) -> Self {
        self.traceparent = Traceparent::parse(traceparent.as_ref());
        self
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject { payload: Arc::clone(&self.payload), traceparent: self.traceparent }
    }

    /// A review for a unit test, from an AdmissionReview or the AdmissionRequest in it.
    ///
    /// It keeps track of changes, so [`changes`](Self::changes) answers for mutating policies.
    pub fn from_json(review: &Value) -> Self {
        let request = review.get("request").filter(|inner| inner.is_object()).unwrap_or(review);
        Self::new(Payload::new(request.to_string().into(), Bytes::new()), None, true)
    }

    /// The same review with the Namespace of the request; for unit tests.
    #[must_use]
    pub fn with_namespace_object(mut self, namespace: &Value) -> Self {
        self.payload = Payload::new(self.payload.admission_request().clone(), namespace.to_string().into());
        self
    }

    /// The same review with so much time until the gateway stops waiting; for unit tests.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.deadline = Instant::now().checked_add(timeout);
        self
    }

    /// The unchanged AdmissionRequest. Its `object` is the one that came, also once it was
    /// changed.
    pub fn request(&self) -> Result<&Map<String, Value>, Malformed> {
        self.payload.request()
    }

    /// The JSON of the AdmissionRequest; `object` has the changes of earlier webhooks, but not those of this policy.
    pub fn request_json(&self) -> Result<Cow<'_, [u8]>> {
        if !self.payload.is_changed() {
            return Ok(Cow::Borrowed(self.payload.admission_request()));
        }
        Ok(Cow::Owned(serde_json::to_vec(self.payload.request()?)?))
    }

    /// The object of the request, with what the policy changed so far; `Value::Null` where there is none
    /// (DELETE). For CONNECT it is an options object such as PodExecOptions.
    pub fn object(&self) -> Result<&Value, Malformed> {
        match &self.object {
            Some(object) => Ok(object),
            None => self.payload.object(Which::New),
        }
    }

    /// The object, to be changed by a mutating policy: the JSON Patch is derived from what it then is.
    ///
    /// It is a copy; changes of a policy that is not mutating have no effect.
    pub fn object_mut(&mut self) -> Result<&mut Value, Malformed> {
        let object = match self.object.take() {
            Some(object) => object,
            None => self.payload.object(Which::New)?.clone(),
        };
        Ok(self.object.insert(object))
    }

    /// The object as a Kubernetes type, or any other that can be deserialized; `None` where there is none.
    ///
    /// A type with no more than the members that a policy looks at is the quickest way to read an object.
    pub fn object_as<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let typed = match &self.object {
            Some(changed) => Option::deserialize(changed),
            None => self.payload.object_as(Which::New)?,
        };
        typed.map_err(|error| misfit::<T>(&error))
    }

    /// The stored object as a type; `None` where there is none.
    pub fn old_object_as<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        self.payload.object_as(Which::Old)?.map_err(|error| misfit::<T>(&error))
    }

    /// Writes back an object that came from [`object_as`](Self::object_as) and was changed.
    ///
    /// What changed in it is changed in the object: members that the type does not know stay, and those
    /// that it merely adds (`status: {}`) do not come in.
    pub fn set_object_as<T: DeserializeOwned + Serialize>(&mut self, changed: &T) -> Result {
        let object = self.object_mut()?;
        let before = T::deserialize(&*object).map_err(|error| misfit::<T>(&error))?;
        carry_over(&serde_json::to_value(before)?, &serde_json::to_value(changed)?, object);
        Ok(())
    }

    /// Answers with these RFC 6902 operations, which then count instead of changes of the object.
    pub fn set_patch(&mut self, operations: Vec<Value>) {
        self.patch = Some(operations);
    }

    /// The stored object, for UPDATE and DELETE; otherwise `Value::Null`.
    pub fn old_object(&self) -> Result<&Value, Malformed> {
        self.payload.object(Which::Old)
    }

    /// The Namespace of the request; `Value::Null` if cluster-scoped or unknown to the gateway.
    pub fn namespace_object(&self) -> Result<&Value, Malformed> {
        self.payload.namespace()
    }

    /// CREATE, UPDATE, DELETE or CONNECT.
    pub fn operation(&self) -> Result<&str, Malformed> {
        self.text("operation")
    }

    /// Name of the object; empty for a CREATE with a generated name.
    pub fn name(&self) -> Result<&str, Malformed> {
        self.text("name")
    }

    /// Namespace of the request; empty for cluster-scoped resources.
    pub fn namespace(&self) -> Result<&str, Malformed> {
        self.text("namespace")
    }

    /// Group, version and kind of the object.
    pub fn kind(&self) -> Result<Kind<'_>, Malformed> {
        self.three("kind", "kind")
    }

    /// Group, version and resource of the request.
    pub fn resource(&self) -> Result<Kind<'_>, Malformed> {
        self.three("resource", "resource")
    }

    /// `status`, `scale` or another; empty for the resource itself.
    pub fn sub_resource(&self) -> Result<&str, Malformed> {
        self.text("subResource")
    }

    /// The user of the request: an object with `username`, `uid`, `groups`, `extra`.
    pub fn user_info(&self) -> Result<&Value, Malformed> {
        self.member("userInfo")
    }

    /// Whether the request will not be stored; a policy must have no side effects then.
    pub fn dry_run(&self) -> Result<bool, Malformed> {
        Ok(self.member("dryRun")? == &Value::Bool(true))
    }

    /// Unique id of this review; a repetition or reinvocation has another one.
    pub fn uid(&self) -> Result<&str, Malformed> {
        self.text("uid")
    }

    /// The deadline; `None` if unknown.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Time until the deadline, zero after it; `None` if unknown.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The W3C Trace Context of the gateway's span for this call, with which a policy that traces continues the
    /// trace.
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_ref().map(Traceparent::as_str)
    }

    /// Adds a warning for the user, also sent with denials; the gateway cuts it to 256 characters.
    pub fn warn(&self, text: impl Into<String>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.warnings.push(text.into());
    }

    /// Adds an audit annotation; it becomes `WEBHOOK.key`. A later value replaces an earlier one.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.annotations.insert(key.into(), value.into());
    }

    /// The warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).warnings.clone()
    }

    /// The audit annotations so far.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).annotations.clone()
    }

    /// The JSON Patch that would be sent: the explicit patch if set, otherwise the changes of the object.
    ///
    /// Fails where the request has no object to change, or the object is not one any more.
    pub fn changes(&self) -> Result<Vec<Value>> {
        let text = self.patch_text()?;
        Ok(if text.is_empty() { Vec::new() } else { serde_json::from_slice(&text)? })
    }

    /// The JSON Patch as it is sent, empty for none.
    pub(crate) fn patch_text(&self) -> Result<Vec<u8>> {
        if !self.mutating {
            return Ok(Vec::new());
        }
        if let Some(operations) = &self.patch {
            if operations.is_empty() {
                return Ok(Vec::new());
            }
            if self.object()?.is_null() {
                return Err(PolicyError::failed("a patch was set, but the request has no object to patch"));
            }
            return Ok(text_of(operations));
        }
        let Some(after) = &self.object else {
            return Ok(Vec::new());
        };
        let before = self.payload.object(Which::New)?;
        if before.is_null() && !after.is_null() {
            return Err(PolicyError::failed("the object was set, but the request has no object to change"));
        }
        if !after.is_object() && before != after {
            let found = json::kind(after);
            return Err(PolicyError::failed(format!("the object is to stay a JSON object, found {found}")));
        }
        Ok(text_of(&diff(before, after)))
    }

    /// The change that the patch describes.
    pub(crate) fn into_change(self) -> Option<Change> {
        self.patch.map(Change::Patch).or(self.object.map(Change::Object))
    }

    pub(crate) fn said(&mut self) -> Said {
        std::mem::take(self.said.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn size(&self) -> usize {
        self.payload.size()
    }

    fn member(&self, key: &str) -> Result<&Value, Malformed> {
        self.payload.member(key)
    }

    fn text(&self, key: &str) -> Result<&str, Malformed> {
        Ok(self.member(key)?.as_str().unwrap_or(""))
    }

    fn three(&self, key: &str, last: &str) -> Result<Kind<'_>, Malformed> {
        let found = self.member(key)?;
        let text = |name: &str| found[name].as_str().unwrap_or("");
        Ok(Kind { group: text("group"), version: text("version"), kind: text(last) })
    }
}

fn misfit<T>(error: &serde_json::Error) -> PolicyError {
    let name = std::any::type_name::<T>();
    let short = name.rsplit("::").next().unwrap_or(name);
    PolicyError::failed(format!("the object is no {short}: {error}"))
}

#[cfg(test)]
#[path = "review_tests.rs"]
mod tests;
