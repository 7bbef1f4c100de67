//! Finding the pod in an object: a Pod itself, or the template in a workload.
//!
//! One function, so that a policy written for containers holds for Deployments and CronJobs too, where its
//! message reaches the person who made them rather than a controller's event log.

use admission_gateway_worker::{Result, Review, Value};

/// The lists of a pod spec that hold containers.
pub const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Where a pod's spec stands in the object.
#[derive(Clone, Copy)]
pub struct Pod {
    /// Prefix of field paths, such as `spec` or `spec.template.spec`.
    pub path: &'static str,
    /// The same as a JSON Pointer.
    pub pointer: &'static str,
    /// Whether the object is a Pod, whose spec is mostly immutable.
    pub is_pod: bool,
}

const POD: Pod = Pod { path: "spec", pointer: "/spec", is_pod: true };
const TEMPLATE: Pod = Pod { path: "spec.template.spec", pointer: "/spec/template/spec", is_pod: false };
const JOB_TEMPLATE: Pod = Pod {
    path: "spec.jobTemplate.spec.template.spec",
    pointer: "/spec/jobTemplate/spec/template/spec",
    is_pod: false,
};

/// Returns where the pod spec is that a request creates or updates; `None` if it does not.
///
/// `None` too for an object that is on its way out: it still gets updates (its finalizers are taken off),
/// and a policy that denied those would keep it from ever going.
pub fn pod_in(review: &Review) -> Result<Option<Pod>> {
    if !matches!(review.operation()?, "CREATE" | "UPDATE") {
        return Ok(None);
    }
    let kind = review.kind()?;
    let pod = match (kind.group, kind.kind) {
        ("", "Pod") => POD,
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job") => TEMPLATE,
        ("batch", "CronJob") => JOB_TEMPLATE,
        _ => return Ok(None),
    };
    // Other subresources have no spec (status) or other kinds of object (scale, exec).
    if !matches!(review.sub_resource()?, "" | "ephemeralcontainers" | "resize") {
        return Ok(None);
    }
    let object = review.object()?;
    let is_leaving = is_set(&object["metadata"]["deletionTimestamp"]);
    let has_spec = object.pointer(pod.pointer).is_some_and(Value::is_object);
    Ok((has_spec && !is_leaving).then_some(pod))
}

/// One container, and its path.
pub struct Container<'a> {
    pod: Pod,
    list: &'static str,
    index: usize,
    pub value: &'a Value,
}

impl Container<'_> {
    pub fn name(&self) -> &str {
        self.value["name"].as_str().unwrap_or("")
    }

    /// The path of one of its fields: `spec.initContainers[0].image`.
    pub fn path(&self, field: &str) -> String {
        format!("{}.{}[{}].{field}", self.pod.path, self.list, self.index)
    }
}

/// Returns the containers of all three lists.
pub fn containers(pod: Pod, object: &Value) -> impl Iterator<Item = Container<'_>> {
    let spec = object.pointer(pod.pointer).unwrap_or(&Value::Null);
    LISTS.into_iter().flat_map(move |list| {
        let items = spec[list].as_array().into_iter().flatten().enumerate();
        items.map(move |(index, value)| Container { pod, list, index, value })
    })
}

/// Returns the containers of some lists, to be changed.
pub fn containers_mut<'a>(
    pod: Pod,
    object: &'a mut Value,
    lists: &'static [&'static str],
) -> impl Iterator<Item = &'a mut Value> {
    let spec = object.pointer_mut(pod.pointer).and_then(Value::as_object_mut);
    let members = spec.into_iter().flatten().filter(|(key, _)| lists.contains(&key.as_str()));
    members.filter_map(|(_, list)| list.as_array_mut()).flatten()
}

/// Whether a value is there and is more than an empty one.
pub fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(set) => *set,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}
