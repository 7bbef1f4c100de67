//! A policy that continues the gateway's trace with OpenTelemetry, as in README.md.

use std::collections::HashMap;

use admission_gateway_worker::{Result, Review, json};
use opentelemetry::global;
use opentelemetry::trace::{Span, Tracer};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};

fn known_team(review: &mut Review) -> Result {
    let sent = review.traceparent().unwrap_or_default().to_owned();
    let sent = HashMap::from([("traceparent".to_owned(), sent)]);
    let parent = global::get_text_map_propagator(|propagator| propagator.extract(&sent));
    let mut span = global::tracer("policies").start_with_context("known-team", &parent);
    span.end();
    Ok(())
}

#[test]
fn a_policy_continues_the_trace() {
    const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN_ID: &str = "b7ad6b7169203331";
    let exporter = InMemorySpanExporter::default();
    global::set_text_map_propagator(TraceContextPropagator::new());
    global::set_tracer_provider(SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build());
    for (flags, count) in [("01", 1), ("00", 0)] {
        exporter.reset();
        let review = Review::from_json(&json!({"object": {}}));
        let mut review = review.with_traceparent(format!("00-{TRACE_ID}-{SPAN_ID}-{flags}"));
        known_team(&mut review).expect("allowed");
        let spans = exporter.get_finished_spans().expect("spans");
        assert_eq!(spans.len(), count);
        for span in spans {
            assert_eq!(span.span_context.trace_id().to_string(), TRACE_ID);
            assert_eq!(span.parent_span_id.to_string(), SPAN_ID);
        }
    }
}

#[test]
fn the_readme_has_the_lines() {
    let source = include_str!("tracing.rs");
    let readme = include_str!("../../README.md");
    let lines: Vec<_> =
        source.lines().skip_while(|line| !line.starts_with("fn known_team")).skip(1).take(4).collect();
    for line in lines {
        assert!(readme.contains(&format!("\n{}\n", line.trim())), "{line}");
    }
}
