//! A policy document with its module, as a policy of the SDK; what a module answers becomes an answer to the gateway.
//!
//! Source: github.com/kubewarden/policy-server src/{evaluation/evaluation_environment,api/service}.rs,
//! github.com/kubewarden/policy-evaluator src/admission_response.rs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

use admission_gateway_worker::{Cause, Denied, Policy, PolicyError, Result, Review, json};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::documents::{Mode, PolicyDocument};
use crate::engine::Bounds;
use crate::guest::{Failure, Protocol};
use crate::host::{Reads, Rights};
use crate::modules::Found;

/// The audit annotation of what a policy would have refused.
const VIOLATIONS: &str = "violations";

/// What a webhook says about rejections, in place of the document's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Refuses.
    Deny,
    /// Allows, with a warning.
    Warn,
    /// Allows, with the audit annotation `violations`.
    Audit,
}

/// The parameters of every policy.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// `None`: the document's mode counts.
    #[serde(default)]
    pub action: Option<Action>,
}

/// The answer of a module.
#[derive(Debug, Default, PartialEq, Deserialize)]
struct Verdict {
    accepted: bool,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    code: Option<u16>,
    #[serde(default)]
    mutated_object: Option<Value>,
    #[serde(default)]
    audit_annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Settings {
    valid: bool,
    #[serde(default)]
    message: Option<String>,
}

/// A document with its module.
#[derive(Debug)]
pub struct Ready {
    document: PolicyDocument,
    module: Arc<Found>,
    rights: Arc<Rights>,
    bounds: Bounds,
    /// The JSON of the settings.
    settings: String,
    /// Evaluations at a time: a policy that takes all of its time leaves processors to others.
    seats: Arc<Semaphore>,
}

impl Ready {
    /// Joins what belongs together, and has the module judge protocol and settings.
    pub fn new(
        document: PolicyDocument,
        module: Arc<Found>,
        reads: &Arc<Reads>,
        bounds: &Bounds,
    ) -> std::result::Result<Self, String> {
        let rights = Rights {
            policy: document.name.clone(),
            resources: document.resources.clone(),
            capabilities: module.capabilities.clone(),
            reads: Arc::clone(reads),
        };
        let bounds = Bounds { timeout: document.timeout.unwrap_or(bounds.timeout), ..bounds.clone() };
        let settings = Value::Object(document.settings.clone()).to_string();
        let seats = available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
        let seats = Arc::new(Semaphore::new(seats));
        let ready = Self { document, module, rights: rights.into(), bounds, settings, seats };
        ready.check()?;
        Ok(ready)
    }

    fn call(
        &self,
        operation: &str,
        payload: Vec<u8>,
        deadline: Option<Instant>,
    ) -> std::result::Result<Vec<u8>, Failure> {
        let own = Instant::now() + self.bounds.timeout;
        let deadline = deadline.map_or(own, |deadline| deadline.min(own));
        self.module.guest.call(operation, payload, &self.rights, &self.bounds, deadline)
    }

    fn check(&self) -> std::result::Result<(), String> {
        if self.module.guest.protocol() == Protocol::Wapc {
            let version =
                self.call("protocol_version", Vec::new(), None).map_err(|problem| problem.to_string())?;
            let version: Value = serde_json::from_slice(&version).unwrap_or_default();
            if version != "v1" {
                return Err(format!("protocol_version: found {version}, expected \"v1\""));
            }
        }
        let answer = self.call("validate_settings", self.settings.clone().into_bytes(), None);
        let answer = answer.map_err(|problem| format!("settings: {problem}"))?;
        match serde_json::from_slice::<Settings>(&answer) {
            Ok(found) if found.valid => Ok(()),
            Ok(found) => {
                let message = found.message.unwrap_or_else(|| "the module gives no reason".to_owned());
                Err(format!("spec.settings: the module refuses them: {message}"))
            }
            Err(error) => Err(format!("validate_settings: the answer of the module: {error}")),
        }
    }

    /// Returns the policy for the SDK.
    pub fn into_policy(self) -> Policy {
        let mut hasher = DefaultHasher::new();
        let document = &self.document;
        (self.module.version, &self.settings, document.mutating, &document.message).hash(&mut hasher);
        let version = format!("{:016x}", hasher.finish());
        let (name, is_mutating) = (document.name.clone(), document.mutating);
        let description = match self.module.title.as_str() {
            "" => format!("The module {}.", document.module),
            title => title.to_owned(),
        };
        let ready = Arc::new(self);
        let schema = json!({
            "type": "object",
            "properties": {"action": {"enum": ["deny", "warn", "audit"]}},
            "additionalProperties": false,
        });
        let policy = Policy::boxed(name, description, move |review: &mut Review| {
            let ready = Arc::clone(&ready);
            Box::pin(async move { ready.evaluate(review).await })
        });
        let policy = policy.version(version).parameters(schema, serde_json::from_value::<Parameters>);
        if is_mutating { policy.mutating() } else { policy }
    }

    /// Answers a review, whose parameters are [`Parameters`].
    pub async fn evaluate(self: &Arc<Self>, review: &mut Review) -> Result {
        // Dropped at the deadline: what waits here costs nothing.
        let seat = Arc::clone(&self.seats).acquire_owned().await?;
        let payload = self.payload(&review.request_json()?)?;
        let (deadline, called) = (review.deadline(), Arc::clone(self));
        let answer = spawn_blocking(move || {
            let _seat = seat;
            called.call("validate", payload, deadline)
        });
        let answer = answer.await?;
        let action = review.parameters::<Parameters>().action;
        self.answer(review, action, answer)
    }

    /// Returns what the module gets. As with Kubewarden, members of the request that are null are absent: its libraries do
    /// not read all of them as null.
    fn payload(&self, request: &[u8]) -> serde_json::Result<Vec<u8>> {
        let mut members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_slice(request)?;
        members.retain(|_, value| value.get() != "null");
        let request = serde_json::to_vec(&members)?;
        Ok([b"{\"request\":", request.as_slice(), b",\"settings\":", self.settings.as_bytes(), b"}"].concat())
    }

    /// Turns what the module answered into the answer of the policy.
    fn answer(
        &self,
        review: &mut Review,
        action: Option<Action>,
        answer: std::result::Result<Vec<u8>, Failure>,
    ) -> Result {
        let verdict = self.verdict(answer);
        let mutated = verdict.mutated_object.filter(|object| !object.is_null());
        let object = review.object()?;
        let is_changed = mutated.as_ref().is_some_and(|mutated| mutated != object);
        let denied = if mutated.is_some() && object.is_null() {
            let text = "Incoming object is null, which happens only with DELETE operations, but the policy is attempting a \
                        mutation. This is not allowed";
            Some(self.denied(text.to_owned(), None))
        } else {
            for warning in verdict.warnings.into_iter().flatten() {
                review.warn(warning);
            }
            for (key, value) in verdict.audit_annotations.into_iter().flatten() {
                review.annotate(key, value);
            }
            let message = verdict.message.unwrap_or_default();
            (!verdict.accepted).then(|| self.denied(message, verdict.code))
        };
        let action = action.unwrap_or(match self.document.mode {
            Mode::Protect => Action::Deny,
            Mode::Monitor => Action::Audit,
        });
        match (action, denied) {
            (Action::Deny, _) if is_changed && !self.document.mutating && !review.object()?.is_null() => {
                let name = &self.document.name;
                Err(Denied::new(format!(
                    "Request rejected by policy {name}. The policy attempted to mutate the request, but it is currently \
                     configured to not allow mutations."
                ))
                .code(400)
                .into())
            }
            (Action::Deny, Some((denied, _))) => Err(denied.into()),
            (Action::Warn, Some((_, message))) => {
                review.warn(message);
                Ok(())
            }
            (Action::Audit, Some((_, message))) => {
                review.annotate(VIOLATIONS, message);
                Ok(())
            }
            (Action::Deny, None) if is_changed => match mutated {
                Some(mutated) if mutated.is_object() => {
                    *review.object_mut()? = mutated;
                    Ok(())
                }
                _ => Err(PolicyError::failed("the module's mutated_object is no JSON object")),
            },
            (_, None) => Ok(()),
        }
    }

    fn verdict(&self, answer: std::result::Result<Vec<u8>, Failure>) -> Verdict {
        let failed = |message: String| {
            eprintln!("worker: policy={:?} ERROR {message:?}", self.document.name);
            Verdict { message: Some(message), code: Some(500), ..Verdict::default() }
        };
        match answer {
            Ok(answer) => serde_json::from_slice(&answer).unwrap_or_else(|error| {
                failed(format!("internal server error: the module's answer cannot be read: {error}"))
            }),
            Err(late @ Failure::TimedOut) => failed(late.to_string()),
            Err(broken) => failed(format!("internal server error: {broken}")),
        }
    }

    /// Returns the denial, and its message.
    fn denied(&self, message: String, code: Option<u16>) -> (Denied, String) {
        // kube-apiserver's own code for a denial without one.
        let code = code.map_or(400, i32::from);
        match &self.document.message {
            Some(custom) => {
                let cause = Cause::new(message).reason("");
                (Denied::new(custom.clone()).code(code).cause(cause), custom.clone())
            }
            None => {
                let told = match message.as_str() {
                    "" => format!("rejected by the policy {}", self.document.name),
                    _ => message.clone(),
                };
                (Denied::new(message).code(code), told)
            }
        }
    }
}
