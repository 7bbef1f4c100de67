//! Parameters of policies: prepared once for each value, and shared by the calls that have it.
//!
//! See protos/README.md, section Parameters.

use std::any::Any;
use std::collections::HashMap;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use prost::bytes::Bytes;
use serde_json::{Map, Value};

use crate::client::Rpc;
use crate::log::InPolicy;
use crate::payload::decode;
use crate::pb;
use crate::policy::Policy;
use crate::review::Review;

/// Highest id of parameters of a stream.
pub(crate) const MAX_ID: u32 = 256;

/// Limit of the JSON of one value.
const MAX_BYTES: usize = 64 * 1024;

/// Prepared values of a policy that are kept: those that were used last.
const MAX_PREPARED: usize = 1024;

/// Of their JSON together: the prepared values take several times as much, and a namespace can change its own.
const MAX_PREPARED_BYTES: usize = 4 * 1024 * 1024;

/// Prepared parameters, which calls share.
pub(crate) type Shared = Arc<dyn Any + Send + Sync>;

type Prepare = Box<dyn Fn(Value) -> Result<Shared, String> + Send + Sync>;

/// What a policy declares about its parameters, and the values that it has prepared.
pub(crate) struct Parameters {
    pub(crate) schema: Value,
    prepare: Prepare,
    prepared: Mutex<Prepared>,
}

#[derive(Default)]
struct Prepared {
    /// By the JSON.
    values: HashMap<Bytes, Made>,
    uses: u64,
    /// The length of the JSON of all.
    bytes: usize,
}

/// What a policy has made of a value.
struct Made {
    /// Or why there is none.
    value: Result<Shared, String>,
    /// The error of the policy, until the first call with the value has logged it.
    failure: Option<String>,
    /// When it was used last.
    used: u64,
}

impl Parameters {
    pub(crate) fn new<T, E>(
        schema: Value,
        prepare: impl Fn(Value) -> Result<T, E> + Send + Sync + 'static,
    ) -> Self
    where
        T: Send + Sync + 'static,
        E: Display,
    {
        let prepare = move |given: Value| match prepare(given) {
            Ok(value) => Ok(Arc::new(value) as Shared),
            Err(problem) => Err(problem.to_string()),
        };
        Self { schema, prepare: Box::new(prepare), prepared: Mutex::default() }
    }

    /// Returns what the policy makes of this JSON, empty for `{}`; or why it cannot be used.
    fn get(&self, policy: &Policy, review: &Review, json: &Bytes) -> Result<Shared, String> {
        let (value, failure) =
            self.made(&policy.name, json, |made| (made.value.clone(), made.failure.take()));
        if let Some(failure) = failure {
            policy.failures.show(&policy.name, Some(&review.subject()), &failure, None);
        }
        value
    }

    /// Prepares the value, unless it is there, and reads what was made.
    fn made<T>(&self, policy: &str, json: &Bytes, read: impl FnOnce(&mut Made) -> T) -> T {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        prepared.uses += 1;
        let now = prepared.uses;
        if let Some(made) = prepared.values.get_mut(json) {
            made.used = now;
            return read(made);
        }
        let (value, failure) = self.make(policy, json);
        prepared.bytes += json.len();
        while prepared.values.len() >= MAX_PREPARED || prepared.bytes > MAX_PREPARED_BYTES {
            let oldest = prepared.values.iter().min_by_key(|(_, made)| made.used);
            let Some(oldest) = oldest.map(|(json, _)| json.clone()) else { break };
            prepared.values.remove(&oldest);
            prepared.bytes -= oldest.len();
        }
        // A copy: the value is a part of the message that brought it, which would be kept.
        let json = Bytes::copy_from_slice(json);
        read(prepared.values.entry(json).or_insert(Made { value, failure, used: now }))
    }

    /// Returns the prepared value, and with an error of the policy that error.
    fn make(&self, policy: &str, json: &Bytes) -> (Result<Shared, String>, Option<String>) {
        let given = if json.is_empty() {
            Value::Object(Map::new())
        } else {
            match decode("parameters", json) {
                Ok(given) => given,
                Err(malformed) => return (Err(malformed.0), None),
            }
        };
        let _marked = InPolicy::enter();
        let made = catch_unwind(AssertUnwindSafe(|| (self.prepare)(given)));
        let made = made.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(text.unwrap_or_else(|| "the policy panicked".to_owned()))
        });
        match made {
            Ok(value) => (Ok(value), None),
            Err(problem) => {
                let text = format!("the parameters of policy \"{policy}\" cannot be used: {problem}");
                (Err(text), Some(problem))
            }
        }
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.schema, f)
    }
}

/// Gives the review the parameters of its call; returns why that is not possible.
pub(crate) fn take(policy: &Policy, review: &mut Review) -> Result<(), String> {
    let json = review.parameters_json();
    match &policy.parameters {
        Some(declared) => review.set_parameters(declared.get(policy, review, &json)?),
        None if json.is_empty() => {}
        None => return Err(takes_none(policy)),
    }
    Ok(())
}

/// Returns why no call can be evaluated with these parameters, if so. It prepares them as a call does.
pub(crate) fn check(policy: &Policy, json: &Bytes) -> Option<String> {
    too_long(json).or_else(|| match &policy.parameters {
        Some(declared) => declared.made(&policy.name, json, |made| made.value.as_ref().err().cloned()),
        None => (!json.is_empty()).then(|| takes_none(policy)),
    })
}

fn takes_none(policy: &Policy) -> String {
    format!("policy \"{}\" takes no parameters", policy.name)
}

/// Returns why the parameters of a unary call are too long, if they are.
pub(crate) fn too_long(json: &Bytes) -> Option<String> {
    problem_of(json).map(|problem| format!("the parameters have {problem}"))
}

/// Returns what is wrong with the length of parameters, if anything.
fn problem_of(json: &Bytes) -> Option<String> {
    let length = json.len();
    (length > MAX_BYTES).then(|| format!("{length} bytes, expected at most {MAX_BYTES}"))
}

/// The parameters of one stream, by id.
#[derive(Debug, Default)]
pub(crate) struct ById(HashMap<u32, Bytes>);

impl ById {
    /// Takes the parameters of a batch of a stream; returns what is wrong with them.
    pub(crate) fn take(&mut self, sent: Vec<pb::Parameters>, of: &Arc<Rpc>) -> Result<(), String> {
        for pb::Parameters { id, json } in sent {
            if id == 0 || id > MAX_ID {
                return Err(format!("parameters have the id {id}, expected 1 to {MAX_ID}"));
            }
            if let Some(problem) = problem_of(&json) {
                return Err(format!("parameters have {problem}"));
            }
            self.0.insert(id, of.keep_parameters(json));
        }
        Ok(())
    }

    /// Returns the parameters with that id, empty for 0; `None` if there are none.
    pub(crate) fn get(&self, id: u32) -> Option<Bytes> {
        if id == 0 { Some(Bytes::new()) } else { self.0.get(&id).cloned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_values_that_were_used_last_are_kept() {
        let policy = Policy::new("p", "", |_: &mut Review| ())
            .parameters(json!({}), |given: Value| Ok::<_, String>(given.to_string()));
        let declared = policy.parameters.as_ref().expect("parameters");
        let review = Review::from_json(&json!({}));
        let get = |json: String| declared.get(&policy, &review, &json.into()).expect("a value");
        let first = get("{\"first\":1}".to_owned());
        for number in 0..2 * MAX_PREPARED {
            get(format!("{{\"n\":{number}}}"));
            if number < MAX_PREPARED {
                assert!(Arc::ptr_eq(&get("{\"first\":1}".to_owned()), &first));
            }
        }
        assert_eq!(declared.prepared.lock().expect("a lock").values.len(), MAX_PREPARED);
        assert!(!Arc::ptr_eq(&get("{\"first\":1}".to_owned()), &first));
    }

    #[test]
    fn the_bytes_of_prepared_values_are_bounded() {
        let policy = Policy::new("p", "", |_: &mut Review| ())
            .parameters(json!({}), |given: Value| Ok::<_, String>(given.to_string()));
        let declared = policy.parameters.as_ref().expect("parameters");
        let review = Review::from_json(&json!({}));
        let get = |json: String| declared.get(&policy, &review, &json.into()).expect("a value");
        let long = |number: usize| {
            let json = format!("{{\"n\":{number}}}");
            get(json.clone() + &" ".repeat(MAX_BYTES - json.len()))
        };
        let kept = MAX_PREPARED_BYTES / MAX_BYTES;
        let (first, second) = (long(0), long(1));
        for number in 2..kept {
            long(number);
        }
        assert!(Arc::ptr_eq(&long(0), &first));
        get("{}".to_owned());
        assert_eq!(declared.prepared.lock().expect("a lock").values.len(), kept);
        assert!(Arc::ptr_eq(&long(0), &first));
        assert!(!Arc::ptr_eq(&long(1), &second));
    }
    /// Who asks gets the text; a call that fails by it is logged, once for the value.
    #[test]
    fn a_check_leaves_the_failure_to_the_log_of_the_first_call() {
        let policy = Policy::new("p", "", |_: &mut Review| ())
            .parameters(json!({}), |_: Value| Err::<(), _>("no wine".to_owned()));
        let text = "the parameters of policy \"p\" cannot be used: no wine";
        assert_eq!(check(&policy, &Bytes::new()).as_deref(), Some(text));
        let declared = policy.parameters.as_ref().expect("parameters");
        let failure = || declared.made("p", &Bytes::new(), |made| made.failure.clone());
        assert_eq!(failure().as_deref(), Some("no wine"));
        assert_eq!(take(&policy, &mut Review::from_json(&json!({}))), Err(text.to_owned()));
        assert_eq!(failure(), None);
    }
}
