//! Workers over real connections, in this process and as processes of their own.

mod gateway;
mod policies;
mod process;

mod bounds;
mod chains;
mod ending;
mod metrics;
mod parameters;
mod program;
mod readme;
mod replacing;
mod stream;
mod tls;
mod tracing;
mod typed;
mod unary;
mod vectors;
