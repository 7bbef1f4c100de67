//! Sample policies that allow or deny.

use std::collections::HashMap;

use admission_gateway_worker::{Cause, Denied, Result, Review, Value, json};
use serde::Deserialize;

use crate::pods::{containers, is_set, pod_in};

const REQUIRED_LABELS: [&str; 1] = ["team"];

const BUSY_ANNOTATION: &str = "samples.example/busy";
const RETRY_AFTER_SECONDS: i32 = 10;

const DEFAULT_MAX: u64 = 10;

const HOST_NAMESPACES: [&str; 3] = ["hostNetwork", "hostPID", "hostIPC"];

/// The part of an object that is looked at. Reading no more than that is the quickest way to read one.
#[derive(Deserialize)]
struct Labelled {
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    deletion_timestamp: Option<String>,
    labels: Option<HashMap<String, Value>>,
}

#[derive(Deserialize)]
struct Annotated {
    metadata: Option<Identity>,
}

#[derive(Default, Deserialize)]
struct Identity {
    name: Option<String>,
    uid: Option<String>,
    annotations: Option<HashMap<String, String>>,
}

pub fn protect_busy(review: &mut Review) -> Result {
    if review.operation()? != "DELETE" || !review.sub_resource()?.is_empty() {
        return Ok(());
    }
    let metadata =
        review.old_object_as::<Annotated>()?.and_then(|object| object.metadata).unwrap_or_default();
    let annotations = metadata.annotations.unwrap_or_default();
    let Some(work) = annotations.get(BUSY_ANNOTATION).filter(|work| !work.is_empty()) else {
        return Ok(());
    };
    let kind = review.kind()?;
    let field = format!("metadata.annotations[{BUSY_ANNOTATION}]");
    let denied = Denied::new(format!("{field}: busy with {work}: try again when it is done"))
        .code(429)
        .reason("TooManyRequests")
        .retry_after_seconds(RETRY_AFTER_SECONDS)
        .name(metadata.name.unwrap_or_default())
        .group(kind.group)
        .kind(kind.kind)
        .uid(metadata.uid.unwrap_or_default());
    Err(denied.into())
}

pub fn require_labels(review: &mut Review) -> Result {
    if !matches!(review.operation()?, "CREATE" | "UPDATE") || !review.sub_resource()?.is_empty() {
        return Ok(());
    }
    let Some(object) = review.object_as::<Labelled>()? else {
        return Ok(());
    };
    let metadata = object.metadata.unwrap_or_default();
    if metadata.deletion_timestamp.is_some() {
        return Ok(()); // such updates only remove finalizers
    }
    let labels = metadata.labels.unwrap_or_default();
    let missing = REQUIRED_LABELS.iter().filter(|label| !labels.get(**label).is_some_and(is_set));
    denied_for(missing.map(|label| {
        Cause::new(format!("label \"{label}\" is missing: add it"))
            .field(format!("metadata.labels[{label}]"))
            .reason("FieldValueRequired")
    }))
}

pub fn deny_latest_tag(review: &mut Review) -> Result {
    let Some(pod) = pod_in(review)? else {
        return Ok(());
    };
    denied_for(containers(pod, review.object()?).filter_map(|container| {
        let image = container.value["image"].as_str().filter(|image| !image.is_empty())?;
        let problem = tag_problem(image)?;
        Some(
            Cause::new(format!("image \"{image}\" {problem}: name a version")).field(container.path("image")),
        )
    }))
}

/// Returns the problem of the tag.
fn tag_problem(image: &str) -> Option<&'static str> {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    if !digest.is_empty() {
        return None;
    }
    // A colon before the last slash is the registry's port.
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':').map(|(_, tag)| tag) {
        None | Some("") => Some("has no tag, which means latest"),
        Some("latest") => Some("has the tag latest"),
        Some(_) => None,
    }
}

pub fn deny_privileged(review: &mut Review) -> Result {
    let Some(pod) = pod_in(review)? else {
        return Ok(());
    };
    let object = review.object()?;
    let spec = object.pointer(pod.pointer);
    let shared = HOST_NAMESPACES.iter().filter(|field| spec.is_some_and(|spec| is_set(&spec[**field])));
    let shared = shared.map(|field| {
        Cause::new(format!("{field} shares a namespace of the node: set it to false"))
            .field(format!("{}.{field}", pod.path))
    });
    let privileged = containers(pod, object)
        .filter(|container| is_set(&container.value["securityContext"]["privileged"]))
        .map(|container| {
            Cause::new(format!("container \"{}\" is privileged: set it to false", container.name()))
                .field(container.path("securityContext.privileged"))
        });
    denied_for(shared.chain(privileged))
}

pub fn warn_no_memory_limit(review: &mut Review) -> Result {
    let Some(pod) = pod_in(review)? else {
        return Ok(());
    };
    let unlimited: Vec<_> = containers(pod, review.object()?)
        .filter(|container| !is_set(&container.value["resources"]["limits"]["memory"]))
        .map(|container| container.name().to_owned())
        .collect();
    for name in &unlimited {
        review.warn(format!("container \"{name}\" has no memory limit"));
    }
    if !unlimited.is_empty() {
        review.annotate("no-memory-limit", unlimited.join(","));
    }
    Ok(())
}

/// Denies for these causes, if there are any: field, problem and what to do of each.
fn denied_for(causes: impl Iterator<Item = Cause>) -> Result {
    let causes: Vec<_> = causes.collect();
    if causes.is_empty() {
        return Ok(());
    }
    let messages: Vec<_> =
        causes.iter().map(|cause| format!("{}: {}", cause.path(), cause.message())).collect();
    Err(Denied::new(messages.join("; ")).causes(causes).into())
}

/// The parameters of [`limit_replicas`].
pub fn replicas_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"max": {"type": "integer", "minimum": 0}},
        "additionalProperties": false,
    })
}

pub fn max_replicas(parameters: Value) -> std::result::Result<u64, &'static str> {
    match parameters.get("max") {
        None => Ok(DEFAULT_MAX),
        Some(max) => max.as_u64().ok_or("max is to be a whole number of at least 0"),
    }
}

pub fn limit_replicas(review: &mut Review) -> Result {
    let most = *review.parameters::<u64>();
    match review.object()?["spec"]["replicas"].as_u64() {
        Some(replicas) if replicas > most => {
            let text = format!("{replicas} is more than the maximum of {most}: lower it");
            denied_for([Cause::new(text).field("spec.replicas")].into_iter())
        }
        _ => Ok(()),
    }
}
