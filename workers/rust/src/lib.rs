//! SDK for policy workers in Rust: a policy is a function, and [`Server`] serves it.
//!
//! ```no_run
//! use admission_gateway_worker::{Denied, Result, Review, Server};
//!
//! fn require_team_label(review: &mut Review) -> Result {
//!     let object = review.object()?;
//!     if object.is_object() && object["metadata"]["labels"]["team"].is_null() {
//!         let message = "metadata.labels[team]: every workload names its team: add the label";
//!         return Err(Denied::new(message).field("metadata.labels[team]").into());
//!     }
//!     Ok(())
//! }
//!
//! fn main() {
//!     Server::new()
//!         .policy("require-team-label", "Every workload names its team.", require_team_label)
//!         .main()
//! }
//! ```
//!
//! # Concurrency
//!
//! A plain function runs on the thread that read its request, and so does an async function until it first
//! waits: calls of a message that take less than 4 ms together are then answered in one message. An async
//! policy that waits becomes a task. A plain policy that blocks should run in a separate thread
//! ([`Policy::blocking`]); a policy that was slow repeatedly runs there from then on, which is logged.
//!
//! At its deadline, and after a cancellation, the future of an async policy is dropped. A thread cannot be
//! stopped; its result is discarded.
//!
//! A panic is the failure of one call, unless the program has `panic = "abort"`.

#![warn(missing_docs)]

mod answer;
mod client;
mod codec;
mod denied;
mod diff;
mod evaluation;
mod health;
mod json;
mod listen;
mod log;
mod meter;
mod metrics;
mod options;
mod parameters;
mod patch;
mod payload;
mod policy;
mod program;
mod replacer;
mod review;
mod server;
mod service;
mod serving;
mod store;
mod stream;
mod tls;
mod traceparent;
mod turns;
mod typed;

/// Generated from the contract.
#[allow(missing_docs, clippy::all)]
mod pb {
    include!(concat!(env!("OUT_DIR"), "/admissiongateway.worker.v1.rs"));
}

pub use denied::{Cause, Denied, Malformed, PolicyError, Result};
pub use policy::{Answer, BoxFuture, Handler, Policy};
pub use replacer::Replacer;
pub use review::{Kind, Review};
pub use serde_json::{self, Value, json};
pub use server::Server;
pub use serving::{Serving, StartError};
pub use tls::Tls;
