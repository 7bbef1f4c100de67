use admission_gateway_worker::{Denied, Result, Review, Server, Value};

fn require_team_label(review: &mut Review) -> Result {
    let object = review.object()?;
    if object.is_object() && object["metadata"]["labels"]["team"].is_null() {
        let message = "metadata.labels[team]: every workload names its team: add the label";
        return Err(Denied::new(message).field("metadata.labels[team]").into());
    }
    Ok(())
}

async fn always_pull_images(review: &mut Review) -> Result {
    let containers = review.object_mut()?.pointer_mut("/spec/containers");
    for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
        container["imagePullPolicy"] = "Always".into();
    }
    Ok(())
}

fn main() {
    Server::new()
        .policy("require-team-label", "Every workload names its team.", require_team_label)
        .mutating_policy("always-pull-images", "Images are pulled at every start.", always_pull_images)
        .main()
}

#[cfg(test)]
mod tests {
    use super::*;
    use admission_gateway_worker::json;

    fn pod() -> Review {
        let containers = json!([{"name": "app", "image": "app:1"}]);
        Review::from_json(&json!({"operation": "CREATE", "object": {"spec": {"containers": containers}}}))
    }

    #[test]
    fn a_pod_without_a_team_is_denied() {
        let problem = require_team_label(&mut pod()).unwrap_err();
        assert!(problem.denied().is_some());
    }

    #[tokio::test]
    async fn images_are_always_pulled() -> Result {
        let mut review = pod();
        always_pull_images(&mut review).await?;
        let added = json!({"op": "add", "path": "/spec/containers/0/imagePullPolicy", "value": "Always"});
        assert_eq!(review.changes()?, [added]);
        Ok(())
    }
}
