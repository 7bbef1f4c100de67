//! Sample policies that change the object.
//!
//! Each leaves alone what it finds as it would have it, so that applying one twice is applying it once: the
//! API server may call a policy again after others have changed the object.

use std::collections::HashSet;

use admission_gateway_worker::{Result, Review, Value, json};

use crate::pods::{LISTS, Pod, containers, containers_mut, is_set, pod_in};

const DEFAULT_REQUESTS: [(&str, &str); 2] = [("cpu", "100m"), ("memory", "128Mi")];

const SIDECAR_NAME: &str = "log-shipper";
const SIDECAR_IMAGE: &str = "registry.example/log-shipper:1.4.2";

pub async fn always_pull_images(review: &mut Review) -> Result {
    let Some(pod) = pod_in(review)? else {
        return Ok(());
    };
    // The containers of a Pod that exists keep their pull policy: it cannot be set any more.
    let mut known = HashSet::new();
    if pod.is_pod && review.operation()? == "UPDATE" {
        known.extend(containers(pod, review.old_object()?).map(|old| old.value["name"].clone()));
    }
    for container in containers_mut(pod, review.object_mut()?, &LISTS) {
        if !known.contains(&container["name"]) {
            container["imagePullPolicy"] = "Always".into();
        }
    }
    Ok(())
}

pub fn inject_sidecar(review: &mut Review) -> Result {
    let Some(pod) = pod_in(review)? else {
        return Ok(());
    };
    if is_running(pod, review)? || containers(pod, review.object()?).any(|one| one.name() == SIDECAR_NAME) {
        return Ok(());
    }
    let list = format!("{}/containers", pod.pointer);
    // One without any containers is left to the API server to refuse.
    let Some(Value::Array(found)) = review.object_mut()?.pointer_mut(&list).filter(|list| is_set(list))
    else {
        return Ok(());
    };
    found.push(json!({
        "name": SIDECAR_NAME,
        "image": SIDECAR_IMAGE,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
    }));
    review.annotate("sidecar", SIDECAR_NAME);
    Ok(())
}

pub fn default_resources(review: &mut Review) -> Result {
    let Some(pod) = pod_in(review)? else {
        return Ok(());
    };
    if is_running(pod, review)? {
        return Ok(());
    }
    for container in containers_mut(pod, review.object_mut()?, &["containers", "initContainers"]) {
        for (name, quantity) in DEFAULT_REQUESTS {
            let found = &container["resources"];
            // For a limit without a request the API server sets the request to the limit.
            if found["requests"].get(name).is_none() && found["limits"].get(name).is_none() {
                container["resources"]["requests"][name] = quantity.into();
            }
        }
    }
    Ok(())
}

pub fn team_from_namespace(review: &mut Review) -> Result {
    let metadata = &review.object()?["metadata"];
    let team = &review.namespace_object()?["metadata"]["labels"]["team"];
    let is_new = review.operation()? == "CREATE" && review.sub_resource()?.is_empty();
    if !is_new || !metadata.is_object() || !is_set(team) || is_set(&metadata["labels"]["team"]) {
        return Ok(());
    }
    // An explicit patch as an example; setting the label in the object has the same effect.
    let operation = if metadata["labels"].is_null() {
        json!({"op": "add", "path": "/metadata/labels", "value": {"team": team}})
    } else {
        json!({"op": "add", "path": "/metadata/labels/team", "value": team})
    };
    review.set_patch(vec![operation]);
    Ok(())
}

/// Whether it is a Pod that exists, which takes no further containers and keeps its requests.
fn is_running(pod: Pod, review: &Review) -> Result<bool> {
    Ok(pod.is_pod && review.operation()? != "CREATE")
}
