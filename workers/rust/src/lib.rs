//! SDK for policy workers in Rust: a policy is a function, and [`Server`] serves it.
//!
//! ```no_run
//! use admission_gateway_worker::{Denied, Result, Review, Server};
//!
//! fn require_team_label(review: &mut Review) -> Result {
//!     let object = review.object()?;
//!     if object.is_object() && object["metadata"]["labels"]["team"].is_null() {
//!         return Err(Denied::new("every workload names its team").field("metadata.labels").into());
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
//! # What runs where
//!
//! A plain function runs at once, on the thread that read its request, and so does an async one as far as
//! it gets without waiting: that is the fast path, on which all calls of a message are answered by one
//! message. An async policy that waits becomes a task. A plain one that blocks belongs on a thread
//! ([`Policy::blocking`]); one that was slow too often moves there by itself, and the log says so.
//!
//! When the gateway no longer wants an answer, or at its deadline, the future of an async policy is
//! dropped. A thread cannot be stopped: its answer is.
//!
//! A panic is the failure of that one call, so a program with `panic = "abort"` gives that up.

#![warn(missing_docs)]

mod answer;
mod codec;
mod denied;
mod diff;
mod evaluation;
mod health;
mod json;
mod listen;
mod log;
mod options;
mod payload;
mod policy;
mod program;
mod review;
mod server;
mod service;
mod serving;
mod stream;
mod tls;
mod typed;

/// Generated from the contract.
#[allow(missing_docs, clippy::all)]
mod pb {
    include!(concat!(env!("OUT_DIR"), "/admissiongateway.worker.v1.rs"));
}

pub use denied::{Cause, Denied, Malformed, PolicyError, Result};
pub use policy::{Answer, BoxFuture, Handler, Policy};
pub use review::{Kind, Review};
pub use serde_json::{self, Value, json};
pub use server::Server;
pub use serving::{Serving, StartError};
pub use tls::Tls;
