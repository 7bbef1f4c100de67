//! Runs the policies of Kubewarden, WebAssembly modules, as policies of a worker.
//!
//! The folders of `--policies`, or a cluster ([`following`]), have the documents ([`documents`]). Each policy's module
//! ([`modules`]) is a waPC guest or a program for WASI ([`guest`]), runs within bounds ([`engine`]) and reaches nothing but
//! what [`host`] offers.

#![warn(missing_docs)]

pub mod cluster;
pub mod connection;
pub mod documents;
pub mod engine;
pub mod following;
pub mod guest;
pub mod host;
pub mod loading;
pub mod modules;
pub mod objects;
pub mod policy;
mod selectors;
mod wapc;
mod wasi;
