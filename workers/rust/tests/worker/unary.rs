//! Review, ListPolicies and health over a real connection.

use std::sync::Arc;
use std::time::Duration;

use crate::gateway::{ask, channel_to, client_to, request};
use admission_gateway_worker::{Policy, PolicyError, Result, Review, Server, Serving, Value, json};
use tokio::sync::Semaphore;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

async fn serve(server: Server) -> Serving {
    server.listen("127.0.0.1:0").start().await.expect("it starts")
}

fn allows(_: &mut Review) {}

async fn forever(_: &mut Review) -> Result {
    std::future::pending().await
}

fn pod() -> Value {
    json!({"uid": "1", "operation": "CREATE", "object": {"spec": {}}})
}

#[tokio::test]
async fn a_policy_that_fails_or_panics_is_an_error_with_its_text_and_nothing_else() {
    let serving = serve(
        Server::new()
            .policy("fails", "", |_: &mut Review| -> Result { Err(PolicyError::failed("no data")) })
            .policy("parses", "", |_: &mut Review| "x".parse::<i32>().map(|_| ()))
            .policy("panics", "", |review: &mut Review| {
                let words: Vec<&str> = Vec::new();
                let _ = review.deadline();
                assert!(!words.is_empty(), "there is no word");
            })
            .policy("panics-later", "", async |_: &mut Review| -> Result {
                tokio::task::yield_now().await;
                panic!("something")
            })
            .mutating_policy("makes-one", "", |review: &mut Review| -> Result {
                *review.object_mut()? = json!({"a": 1});
                Ok(())
            })
            .mutating_policy("makes-a-list", "", |review: &mut Review| -> Result {
                *review.object_mut()? = json!([1]);
                Ok(())
            })
            .mutating_policy("patches", "", |review: &mut Review| {
                review.set_patch(vec![json!({"value": {"b": 1, "a": 1}, "path": "/a", "op": "add"})]);
            }),
    )
    .await;
    let mut client = client_to(&serving).await;
    let nothing = json!({"operation": "DELETE", "object": null});
    for (policy, about, text) in [
        ("fails", &nothing, "no data"),
        ("parses", &nothing, "invalid digit found in string"),
        ("panics", &nothing, "there is no word"),
        ("panics-later", &nothing, "something"),
        ("makes-one", &nothing, "the object was set, but the request has no object to change"),
        ("makes-a-list", &pod(), "the object is to stay a JSON object, found array"),
        ("patches", &nothing, "a patch was set, but the request has no object to patch"),
    ] {
        let status = ask(&mut client, policy, about).await.expect_err(policy);
        assert_eq!((status.code(), status.message()), (Code::Internal, text), "{policy}");
    }
    // It lives on.
    let response = ask(&mut client, "patches", &pod()).await.expect("an answer");
    let patch: Value = serde_json::from_slice(&response.patch).expect("JSON");
    assert_eq!(patch, json!([{"op": "add", "path": "/a", "value": {"a": 1, "b": 1}}]));
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn calls_that_cannot_be_run_are_told_why() {
    let serving = serve(Server::new().policy("b", "", allows).policy("a", "", forever)).await;
    let mut client = client_to(&serving).await;
    let status = ask(&mut client, "x", &pod()).await.expect_err("unknown");
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "policy \"x\" is not served here; served are: a, b");
    let mut late = Request::new(request("a", &pod()));
    // With a digit more than the client here knows: it would keep the deadline by itself.
    late.metadata_mut().insert("grpc-timeout", "000000060m".parse().expect("a header"));
    let status = client.review(late).await.expect_err("late");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.message(), "the deadline passed before the policy answered");
    let mut large = request("b", &pod());
    large.namespace_object = vec![b' '; 8 * 1024 * 1024];
    let status = client.review(large).await.expect_err("large");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let mut fits = request("b", &pod());
    fits.namespace_object = vec![b' '; 8 * 1024 * 1024 - 1024];
    assert!(client.review(fits).await.expect("an answer").get_ref().allowed);
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn what_is_no_review_request_is_the_callers_fault() {
    let serving = serve(Server::new().policy("a", "", allows)).await;
    let mut grpc = tonic::client::Grpc::new(channel_to(&serving.addresses()[0]).await);
    let ask = async |grpc: &mut tonic::client::Grpc<_>, path: &'static str| -> Status {
        grpc.ready().await.expect("connected");
        let codec = tonic_prost::ProstCodec::<NoReview, NoReview>::default();
        let message = Request::new(NoReview { policy: 1 });
        grpc.unary(message, PathAndQuery::from_static(path), codec).await.expect_err("no answer")
    };
    let status = ask(&mut grpc, "/admissiongateway.worker.v1.PolicyWorker/Review").await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().starts_with("not a ReviewRequest: "), "{status}");
    for path in ["/admissiongateway.worker.v1.PolicyWorker/Guess", "/other.Service/Review"] {
        assert_eq!(ask(&mut grpc, path).await.code(), Code::Unimplemented);
    }
    serving.stop(Duration::ZERO).await;
}

/// A message whose first field is of another type than that of a ReviewRequest.
#[derive(Clone, PartialEq, prost::Message)]
struct NoReview {
    #[prost(uint32, tag = "1")]
    policy: u32,
}

/// Lets go of a permit when it is dropped.
struct Leaves(Arc<Semaphore>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_lost_is_dropped() {
    let (entered, left) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (enter, leave) = (entered.clone(), left.clone());
    let watched = Policy::boxed("watched", "", move |_| {
        let leaves = Leaves(leave.clone());
        enter.add_permits(1);
        Box::pin(async move {
            let _leaves = leaves;
            std::future::pending().await
        })
    });
    let serving = serve(Server::new().register(watched)).await;
    for keeps_connection in [true, false] {
        let mut client = client_to(&serving).await;
        let mut asking = client.clone();
        let asked = tokio::spawn(async move { asking.review(request("watched", &pod())).await });
        entered.acquire().await.expect("open").forget();
        assert_eq!(left.available_permits(), 0);
        asked.abort();
        if !keeps_connection {
            drop(asked);
            client = client_to(&serving).await;
        }
        let left = tokio::time::timeout(crate::gateway::PATIENCE, left.acquire()).await;
        left.expect("dropped in time").expect("open").forget();
        drop(client);
    }
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn policies_are_listed_as_registered() {
    let server = Server::new()
        .policy("b", "Says yes.", allows)
        .register(Policy::new("a", "Waits.", forever).mutating().version("7"));
    let serving = serve(server).await;
    let mut client = client_to(&serving).await;
    let found =
        client.list_policies(crate::gateway::pb::ListPoliciesRequest {}).await.expect("a list").into_inner();
    let found: Vec<_> = found
        .policies
        .iter()
        .map(|one| (one.name.as_str(), one.description.as_str(), one.mutating, one.version.as_str()))
        .collect();
    assert_eq!(found, [("b", "Says yes.", false, ""), ("a", "Waits.", true, "7")]);
    serving.stop(Duration::ZERO).await;
}

#[tokio::test]
async fn health_is_served_and_says_goodbye() {
    let serving = serve(Server::new().policy("a", "", forever)).await;
    let mut health = HealthClient::new(channel_to(&serving.addresses()[0]).await);
    for service in ["", "admissiongateway.worker.v1.PolicyWorker"] {
        let asked = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(asked).await.expect("an answer").into_inner();
        assert_eq!(answer.status, ServingStatus::Serving as i32);
    }
    let unknown = HealthCheckRequest { service: "x".to_owned() };
    assert_eq!(health.check(unknown).await.expect_err("unknown").code(), Code::NotFound);
    let unknown = HealthCheckRequest { service: "x".to_owned() };
    let mut watch = health.watch(unknown).await.expect("a watch").into_inner();
    let first = watch.message().await.expect("a message").expect("one");
    assert_eq!(first.status, ServingStatus::ServiceUnknown as i32);
    let watched = HealthCheckRequest { service: String::new() };
    let mut watch = health.watch(watched).await.expect("a watch").into_inner();
    let first = watch.message().await.expect("a message").expect("one");
    assert_eq!(first.status, ServingStatus::Serving as i32);
    // A call in flight keeps the worker until the grace is over.
    let mut client = client_to(&serving).await;
    let asked = tokio::spawn(async move { ask(&mut client, "a", &pod()).await });
    let stopping = tokio::spawn(serving.stop(Duration::from_millis(300)));
    let second = watch.message().await.expect("a message").expect("one");
    assert_eq!(second.status, ServingStatus::NotServing as i32);
    assert_eq!(stopping.await.expect("no panic"), 0);
    asked.await.expect("no panic").expect_err("cut off");
}

#[tokio::test]
async fn a_server_that_cannot_serve_says_why() {
    let problem = async |server: Server| server.start().await.expect_err("no start").to_string();
    assert_eq!(problem(Server::new()).await, "no policy is registered: add one with .policy(...)");
    let twice = Server::new().policy("a", "", allows).policy("a", "", forever);
    assert_eq!(problem(twice).await, "policy \"a\" is registered twice");
    for odd in ["", " ", "a\nb"] {
        let text = problem(Server::new().policy(odd, "", allows)).await;
        assert!(text.starts_with("the name of a policy is some printable text"), "{text}");
    }
    let odd = Server::new().policy("a", "", allows).listen("here");
    assert!(problem(odd).await.contains("is not an address"));
    let serving = serve(Server::new().policy("a", "", allows)).await;
    let taken = Server::new().policy("a", "", allows).listen(&serving.addresses()[0]);
    assert_eq!(problem(taken).await, format!("{}: Address already in use", serving.addresses()[0]));
    serving.stop(Duration::ZERO).await;
}
