//! The cutover of a split and what comes after it: reverse splits, rollback, finish.

mod armed_reverse;
mod auto_finish;
mod deadlines;
mod decision;
mod fence_messages;
mod interrupted;
mod locked_tables;
mod reverse;
mod reverse_disrupted;
mod rollback;
mod target_reads;
mod windows;
mod withdrawn;
