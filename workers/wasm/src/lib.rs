//! Runs the policies of Kubewarden, WebAssembly modules, as policies of a worker.
//!
//! The folders of `--policies` have the documents ([`documents`]); modules run within bounds ([`engine`]) and reach nothing
//! but what [`host`] offers.

#![warn(missing_docs)]

pub mod documents;
pub mod engine;
pub mod host;
pub mod objects;
mod selectors;
