//! Metrics, and the trace context that policies get.

use std::sync::Arc;
use std::time::Instant;

use admission_gateway_worker::{Denied, Result, Review, Server, Serving, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::gateway::{
    Conversation, PATIENCE, ask, batch, call, cancel, client_to, pb::Call, request as review_request,
    response_of,
};
use crate::policies::{LONG, policies, request, waits};

async fn measured(server: Server) -> Serving {
    server.listen("127.0.0.1:0").metrics_listen("127.0.0.1:0").start().await.expect("it starts")
}

/// Sends a request to the port of the metrics; returns the answer with its head.
async fn http(serving: &Serving, line: &str) -> String {
    let address = serving.metrics_address().expect("metrics");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("UTF-8");
    answer
}

/// Waits until the metrics have these lines.
async fn expect_lines(serving: &Serving, lines: &[String]) {
    let end = Instant::now() + PATIENCE;
    loop {
        let text = http(serving, "GET /metrics").await;
        if lines.iter().all(|line| text.contains(&format!("\n{line}\n"))) {
            return;
        }
        assert!(Instant::now() < end, "{lines:?} are not all in {text}");
        tokio::task::yield_now().await;
    }
}

fn count(policy: &str, outcome: &str, count: u32) -> String {
    format!(
        r#"admission_gateway_worker_policy_reviews_total{{policy="{policy}",outcome="{outcome}"}} {count}"#
    )
}

fn in_flight(policy: &str, count: u32) -> String {
    format!(r#"admission_gateway_worker_policy_in_flight{{policy="{policy}"}} {count}"#)
}

#[tokio::test]
async fn metrics_count_reviews_by_outcome() {
    let serving =
        measured(policies().policy("fails", "", |_: &mut Review| -> Result { panic!("bang") })).await;
    expect_lines(&serving, &[count("allows", "allowed", 0), in_flight("forever", 0)]).await;
    let mut client = client_to(&serving).await;
    let mut stream = Conversation::open(&mut client).await;
    let called = ["allows", "denies", "fails", "labels", "unknown"].into_iter().zip(1..);
    stream.send(batch(&request(), called.map(|(policy, id)| call(id, policy, LONG)).collect()));
    stream.verdicts(5).await;
    for policy in ["allows", "denies", "fails"] {
        let _ = ask(&mut client, policy, &request()).await;
    }
    let duration = "admission_gateway_worker_policy_duration_seconds";
    let lines = [
        count("allows", "allowed", 2),
        count("allows", "error", 0),
        count("labels", "allowed", 1),
        count("denies", "denied", 2),
        count("fails", "error", 2),
        in_flight("fails", 0),
        format!("{duration}_bucket{{policy=\"allows\",le=\"+Inf\"}} 2"),
        format!("{duration}_count{{policy=\"denies\"}} 2"),
        "# TYPE process_start_time_seconds gauge".to_owned(),
    ];
    expect_lines(&serving, &lines).await;
    let text = http(&serving, "GET /metrics").await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4"), "{text}");
    let version = env!("CARGO_PKG_VERSION");
    let build = format!("build_info{{sdk=\"rust\",version=\"{version}\",runtime=\"1.");
    assert!(text.contains(&build), "{text}");
    assert!(!text.contains("unknown"));
    assert!(text.contains(&format!("{duration}_bucket{{policy=\"allows\",le=\"0.0001\"}}")), "{text}");
}

#[tokio::test]
async fn metrics_count_calls_in_flight() {
    let go = Arc::new(Semaphore::new(0));
    let serving = measured(policies().register(waits(&go))).await;
    let mut client = client_to(&serving).await;
    let mut stream = Conversation::open(&mut client).await;
    let calls = vec![call(1, "forever", LONG), call(2, "waits", LONG), call(3, "forever", 1)];
    stream.send(batch(&request(), calls));
    stream.verdicts(1).await;
    let lines = [in_flight("forever", 1), in_flight("waits", 1), count("forever", "error", 1)];
    expect_lines(&serving, &lines).await;
    stream.send(cancel(&[1]));
    go.add_permits(1);
    let lines = [
        in_flight("forever", 0),
        in_flight("waits", 0),
        count("waits", "allowed", 1),
        count("forever", "error", 1),
    ];
    expect_lines(&serving, &lines).await;
}

#[tokio::test]
async fn only_the_metrics_are_served() {
    let serving = measured(policies()).await;
    assert!(http(&serving, "GET /").await.starts_with("HTTP/1.1 404 "));
    assert!(http(&serving, "POST /metrics").await.starts_with("HTTP/1.1 405 "));
    assert!(http(&serving, "HEAD /metrics").await.starts_with("HTTP/1.1 200 "));
    assert!(http(&serving, &format!("GET /{}", "x".repeat(10_000))).await.starts_with("HTTP/1.1 4"));
    let address = serving.metrics_address().expect("metrics");
    let taken = policies().listen("127.0.0.1:0").metrics_listen(address).start().await;
    let text = taken.expect_err("the port is taken").to_string();
    assert_eq!(text, format!("--metrics-listen: {address}: Address already in use"));
}

fn traces(review: &mut Review) -> Result {
    Err(Denied::new(format!("[{}]", review.traceparent().unwrap_or_default())).into())
}

#[tokio::test]
async fn policies_get_the_traceparent_by_both_methods() {
    const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let serving = crate::policies::serve(Server::new().policy("traces", "", traces)).await;
    let mut client = client_to(&serving).await;
    let mut stream = Conversation::open(&mut client).await;
    for (id, sent) in [TRACEPARENT, "garbage", ""].into_iter().enumerate() {
        let expected = if sent == TRACEPARENT { format!("[{sent}]") } else { "[]".to_owned() };
        let traced = Call { traceparent: sent.to_owned(), ..call(id as u64, "traces", LONG) };
        stream.send(batch(&request(), vec![traced]));
        let verdict = stream.verdicts(1).await.remove(0);
        assert_eq!(response_of(&verdict).status.as_ref().expect("a denial").message, expected);
        let mut unary = tonic::Request::new(review_request("traces", &json!({})));
        unary.metadata_mut().insert("traceparent", sent.parse().expect("ASCII"));
        let answer = client.review(unary).await.expect("an answer").into_inner();
        assert_eq!(answer.status.expect("a denial").message, expected);
    }
}
