//! Parameters of policies: on the stream and by Review.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use admission_gateway_worker::{Policy, Result, Review, Server, Serving, Value, json};
use tonic::Code;

use crate::gateway::pb::{Call, CheckParametersRequest, Parameters, Payload, ReviewBatch, ReviewRequest};
use crate::gateway::{Conversation, call, client_to, error_of, response_of};
use crate::policies::LONG;

fn show(review: &mut Review) -> Result {
    review.warn(review.parameters::<Value>().to_string());
    Ok(())
}

async fn show_later(review: &mut Review) -> Result {
    tokio::task::yield_now().await;
    show(review)
}

async fn serve() -> (Serving, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let prepare = move |given: Value| {
        counted.fetch_add(1, Ordering::SeqCst);
        match given["bad"].as_str() {
            Some("panic") => panic!("bang"),
            Some(bad) => Err(format!("no {bad}")),
            None => Ok(given),
        }
    };
    let schema = || json!({"type": "object"});
    let server = Server::new()
        .register(Policy::new("shows", "", show).parameters(schema(), prepare))
        .register(Policy::new("shows later", "", show_later).parameters(schema(), Ok::<Value, String>))
        .register(Policy::new("allows", "", |_: &mut Review| ()).parameters(schema(), Ok::<Value, String>))
        .policy("takes none", "", |_: &mut Review| ());
    (server.listen("127.0.0.1:0").start().await.expect("a server"), count)
}

fn asked(id: u64, policy: &str, parameters: u32) -> Call {
    Call { parameters, ..call(id, policy, LONG) }
}

fn batch(calls: Vec<Call>, parameters: &[(u32, &str)]) -> ReviewBatch {
    let payload = Payload { admission_request: b"{}".to_vec(), ..Default::default() };
    let sent = |(id, json): &(u32, &str)| Parameters { id: *id, json: json.as_bytes().to_vec() };
    let parameters = parameters.iter().map(sent).collect();
    ReviewBatch { payloads: vec![payload], calls, parameters, ..Default::default() }
}

#[tokio::test]
async fn calls_get_the_parameters_that_their_stream_had_for_the_id() {
    let (serving, count) = serve().await;
    let mut stream = Conversation::open(&mut client_to(&serving).await).await;
    let calls = vec![asked(0, "shows", 1), asked(1, "shows later", 256), asked(2, "shows", 0)];
    stream.send(batch(calls, &[(1, "{\"a\":1}"), (256, "{}")]));
    let mut verdicts = stream.verdicts(3).await;
    stream.send(batch(vec![asked(3, "shows", 1)], &[]));
    stream.send(batch(vec![asked(4, "shows", 1), asked(5, "allows", 1)], &[(1, "{\"a\":2}")]));
    verdicts.extend(stream.verdicts(3).await);
    verdicts.sort_by_key(|verdict| verdict.id);
    let shown: Vec<_> = verdicts.iter().map(|verdict| response_of(verdict).warnings.concat()).collect();
    assert_eq!(shown, ["{\"a\":1}", "{}", "{}", "{\"a\":1}", "{\"a\":2}", ""]);
    let applied: Vec<_> = verdicts.iter().map(|verdict| response_of(verdict).parameters_applied).collect();
    assert_eq!(applied, [true, true, false, true, true, true]);
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn parameters_that_cannot_be_used_are_an_error_of_their_calls() {
    let (serving, count) = serve().await;
    let mut client = client_to(&serving).await;
    let mut stream = Conversation::open(&mut client).await;
    let cannot = "the parameters of policy \"shows\" cannot be used:";
    let cases = [
        ("shows", "[]", "parameters is to be a JSON object, found array".to_owned()),
        ("shows", "{\"bad\":\"wine\"}", format!("{cannot} no wine")),
        ("shows", "{\"bad\":\"wine\"}", format!("{cannot} no wine")),
        ("shows", "{\"bad\":\"panic\"}", format!("{cannot} bang")),
        ("takes none", "{}", "policy \"takes none\" takes no parameters".to_owned()),
    ];
    for (policy, json, text) in &cases {
        stream.send(batch(vec![asked(1, policy, 1)], &[(1, json)]));
        let verdict = stream.verdicts(1).await.remove(0);
        assert_eq!(error_of(&verdict), (Code::InvalidArgument as i32, text.as_str()));
        let request = ReviewRequest {
            policy: (*policy).to_owned(),
            admission_request: b"{}".to_vec(),
            parameters: json.as_bytes().to_vec(),
            ..Default::default()
        };
        let status = client.review(request).await.expect_err("a failure");
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, text.as_str()));
    }
    assert_eq!(count.load(Ordering::SeqCst), 2);
    stream.send(batch(vec![asked(1, "shows", 9)], &[]));
    let text = "the call has an id of parameters that this stream has not had";
    let verdict = stream.verdicts(1).await.remove(0);
    assert_eq!(error_of(&verdict), (Code::InvalidArgument as i32, text));
    let parameters = vec![b' '; 65_537];
    let request = ReviewRequest { policy: "shows".to_owned(), parameters, ..Default::default() };
    let status = client.review(request).await.expect_err("a failure");
    assert_eq!(status.message(), "the parameters have 65537 bytes, expected at most 65536");
}

#[tokio::test]
async fn parameters_beyond_the_bounds_end_the_stream() {
    let (serving, _) = serve().await;
    let mut client = client_to(&serving).await;
    let long = " ".repeat(65_537);
    for (id, json, text) in [
        (0, "{}", "parameters have the id 0, expected 1 to 256"),
        (257, "{}", "parameters have the id 257, expected 1 to 256"),
        (1, long.as_str(), "parameters have 65537 bytes, expected at most 65536"),
    ] {
        let mut stream = Conversation::open(&mut client).await;
        stream.send(batch(Vec::new(), &[(id, json)]));
        let status = stream.next().await.expect_err("a failure");
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, text));
    }
}

#[tokio::test]
async fn check_parameters_says_why_calls_would_fail() {
    let (serving, count) = serve().await;
    let mut client = client_to(&serving).await;
    let (long, wordy) = (" ".repeat(65_537), format!("{{\"bad\":\"{}\"}}", "wine ".repeat(1000)));
    for (policy, json) in [
        ("shows", ""),
        ("shows", "{\"a\":1}"),
        ("shows", "[]"),
        ("shows", "{"),
        ("shows", "{\"bad\":\"wine\"}"),
        ("shows", "{\"bad\":\"panic\"}"),
        ("shows", wordy.as_str()),
        ("shows", long.as_str()),
        ("takes none", ""),
        ("takes none", "{}"),
    ] {
        let (policy, parameters) = (policy.to_owned(), json.as_bytes().to_vec());
        let request = CheckParametersRequest { policy: policy.clone(), parameters: parameters.clone() };
        let checked = client.check_parameters(request).await.expect("an answer").into_inner();
        let admission_request = b"{}".to_vec();
        let request = ReviewRequest { policy, admission_request, parameters, ..Default::default() };
        let problem = client.review(request).await.err();
        let expected = problem.as_ref().map_or("", |status| status.message());
        assert_eq!(checked.problem, expected, "{json:.20}");
        assert!(problem.is_none_or(|status| status.code() == Code::InvalidArgument));
    }
    // Calls use what was prepared for the check.
    assert_eq!(count.load(Ordering::SeqCst), 5);
    let request = CheckParametersRequest { policy: "x".to_owned(), ..Default::default() };
    let status = client.check_parameters(request).await.expect_err("a failure");
    let request = ReviewRequest { policy: "x".to_owned(), ..Default::default() };
    let expected = client.review(request).await.expect_err("a failure");
    assert_eq!((status.code(), status.message()), (Code::NotFound, expected.message()));
}

#[test]
fn a_unit_test_gives_the_parameters_itself() {
    assert_eq!(Review::from_json(&json!({})).with_parameters(7_u64).parameters::<u64>(), &7);
}
