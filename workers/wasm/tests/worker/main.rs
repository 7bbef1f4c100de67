//! The worker with modules of its own tests.

mod api;
mod folder;

mod answers;
mod bounds;
mod capabilities;
mod cluster;
mod loading;
mod program;
mod readme;
mod rust;
mod speed;
