//! Verification: both sides of a split compared row by row, while clients write. A slice of a table is compared within
//! a step, when the target is exactly at the step's snapshot of the source: so a difference is an error, and nothing
//! is locked longer than a step.

pub mod changes;
pub mod concurrent;
pub mod key;
pub mod position;
mod ranges;
pub mod repair;
pub mod row_slices;
pub mod rows;
pub mod sequences;
mod slice;
mod slices;
mod small_batch;
pub mod walk;
mod whole;
