//! The policies of the load tests; package `loadtest.policies` describes them.

use admission_gateway_worker::{Denied, Result, Review, Server, Value, json};

const LABELS: [&str; 7] = ["app", "owner", "env", "cost", "component", "version", "part-of"];

fn require_label(label: &'static str) -> impl Fn(&mut Review) -> Result + Copy + Send + Sync + 'static {
    move |review: &mut Review| {
        let found = review.object()?["metadata"]["labels"][label].as_str();
        if found.is_none_or(str::is_empty) {
            let denied = Denied::new(format!("label {label} is required"));
            return Err(denied.field("metadata.labels").into());
        }
        Ok(())
    }
}

fn containers(object: &Value) -> impl Iterator<Item = &Value> {
    object["spec"]["containers"].as_array().into_iter().flatten()
}

fn containers_mut(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let found = object.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    found.into_iter().flatten()
}

/// Denies the first container for which `is_denied` holds.
fn check(review: &Review, problem: &str, is_denied: impl Fn(&Value) -> bool) -> Result {
    match containers(review.object()?).find(|container| is_denied(container)) {
        Some(container) => {
            let name = container["name"].as_str().unwrap_or("");
            Err(Denied::new(format!("container {name} {problem}")).into())
        }
        None => Ok(()),
    }
}

fn deny_privileged(review: &mut Review) -> Result {
    check(review, "is privileged", |container| container["securityContext"]["privileged"] == true)
}

fn deny_latest(review: &mut Review) -> Result {
    check(review, "has the tag latest", |container| {
        container["image"].as_str().is_some_and(|image| image.ends_with(":latest"))
    })
}

fn require_limits(review: &mut Review) -> Result {
    check(review, "has no limits", |container| {
        let limits = &container["resources"]["limits"];
        limits["cpu"].is_null() || limits["memory"].is_null()
    })
}

fn always_pull(review: &mut Review) -> Result {
    for container in containers_mut(review.object_mut()?) {
        container["imagePullPolicy"] = "Always".into();
    }
    Ok(())
}

fn add_label(review: &mut Review) -> Result {
    review.object_mut()?["metadata"]["labels"]["managed"] = "true".into();
    Ok(())
}

fn add_toleration(review: &mut Review) -> Result {
    let wanted = json!({"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"});
    let found = &mut review.object_mut()?["spec"]["tolerations"];
    match found {
        Value::Array(tolerations) if tolerations.contains(&wanted) => {}
        Value::Array(tolerations) => tolerations.push(wanted),
        _ => *found = json!([wanted]),
    }
    Ok(())
}

fn default_requests(review: &mut Review) -> Result {
    for container in containers_mut(review.object_mut()?) {
        let requests = &mut container["resources"]["requests"];
        if requests.is_null() {
            *requests = json!({"cpu": "100m", "memory": "128Mi"});
        }
    }
    Ok(())
}

fn main() {
    let mut server = Server::new();
    for label in LABELS {
        server = server.policy(&format!("require-{label}"), "", require_label(label));
    }
    server
        .policy("deny-privileged", "", deny_privileged)
        .policy("deny-latest", "", deny_latest)
        .policy("require-limits", "", require_limits)
        .mutating_policy("always-pull", "", always_pull)
        .mutating_policy("add-label", "", add_label)
        .mutating_policy("add-toleration", "", add_toleration)
        .mutating_policy("default-requests", "", default_requests)
        .main()
}
