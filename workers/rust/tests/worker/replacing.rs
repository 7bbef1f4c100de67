//! Policies that are replaced while they are served.

use std::sync::Arc;

use admission_gateway_worker::{Policy, Result, Review, Server, Value, json, serde_json};
use tokio::sync::Semaphore;

use crate::gateway::{Conversation, ask, batch, call, call_after, client_to, error_of, response_of};
use crate::policies::{LONG, labels, request, serve, waits};

fn warns(name: &str, text: &'static str) -> Policy {
    Policy::new(name, "", move |review: &mut Review| review.warn(text))
}

#[tokio::test]
async fn an_open_stream_calls_the_policies_of_now() {
    let go = Arc::new(Semaphore::new(0));
    let server = Server::new().register(waits(&go)).register(warns("old", "old"));
    let replacer = server.replacer();
    let serving = serve(server).await;
    let mut client = client_to(&serving).await;
    let mut stream = Conversation::open(&mut client).await;
    let about = json!({"operation": "CREATE"});
    stream.send(batch(&about, vec![call(1, "waits", LONG), call(2, "old", LONG)]));
    assert_eq!(response_of(&stream.verdicts(1).await[0]).warnings, ["old"]);
    replacer.replace([warns("old", "new")]).expect("good names");
    stream.send(batch(&about, vec![call(3, "old", LONG), call(4, "waits", LONG)]));
    let found = stream.verdicts(2).await;
    assert_eq!(response_of(&found[0]).warnings, ["new"]);
    assert_eq!(error_of(&found[1]).0, 5);
    let problem = replacer.replace([warns("a", ""), warns("a", "")]).expect_err("twice");
    assert_eq!(problem.to_string(), "policy \"a\" is registered twice");
    // What was in flight ends with the policy that it began with.
    go.add_permits(1);
    assert!(response_of(&stream.verdicts(1).await[0]).allowed);
    assert_eq!(ask(&mut client, "old", &about).await.expect("an answer").warnings, ["new"]);
}

#[tokio::test]
async fn what_is_replaced_before_the_start_is_served() {
    let server = Server::new().policy("registered", "", |_: &mut Review| ());
    server.replacer().replace([warns("replaced", "yes")]).expect("good names");
    let serving = serve(server).await;
    let mut client = client_to(&serving).await;
    assert_eq!(ask(&mut client, "replaced", &json!({})).await.expect("an answer").warnings, ["yes"]);
    assert!(ask(&mut client, "registered", &json!({})).await.is_err());
}

#[tokio::test]
async fn the_json_of_the_request_has_the_changes_of_earlier_webhooks_only() {
    fn shows(review: &mut Review) -> Result {
        let sent = String::from_utf8_lossy(&review.request_json()?).into_owned();
        review.warn(sent);
        review.object_mut()?["a"] = 2.into();
        assert!(!String::from_utf8_lossy(&review.request_json()?).contains(":2"));
        Ok(())
    }
    let server = Server::new().mutating_policy("labels", "", labels).mutating_policy("shows", "", shows);
    let serving = serve(server).await;
    let mut client = client_to(&serving).await;
    let mut stream = Conversation::open(&mut client).await;
    stream.send(batch(&request(), vec![call(1, "labels", LONG), call_after(1, 2, "shows")]));
    let found = stream.verdicts(2).await;
    let mut wanted = request();
    wanted["object"]["metadata"]["labels"]["seen"] = "yes".into();
    let sent: Value = serde_json::from_str(&response_of(&found[1]).warnings[0]).expect("JSON");
    assert_eq!(sent, wanted);
}
