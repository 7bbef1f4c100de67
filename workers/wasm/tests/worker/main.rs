//! The worker with modules of its own tests.

mod folder;

mod answers;
mod bounds;
mod capabilities;
mod loading;
mod program;
mod readme;
mod speed;
