//! How rows are copied: a step takes a snapshot, applies the window of what has changed since the last one, copies a
//! chunk, and commits both with its progress.

mod apart;
pub mod apply_ddl;
mod bound;
mod by_keys;
pub mod change_effect;
pub mod chunk;
pub mod collision;
pub mod commit;
pub mod compare;
pub mod compatible_ddl;
pub mod foreign_keys;
pub mod key_identity;
pub mod leaves;
pub mod outcome;
pub mod partition_layout;
mod queue_overflow;
pub mod scope_filter;
pub mod small_batch;
pub mod step;
pub mod streams;
mod text_rows;
pub mod window;
