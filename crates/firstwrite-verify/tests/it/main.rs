//! The checker, and the test bed that it is let loose on.

mod bed;
mod means;
mod named;
mod papers;
mod reports;
