//! The injection points of the reference-table worker, where it can be held, fail or die.

use crate::server::injection::points;

points! {
    "reference":
    ATTACHED = "reference_attached", "the agent knows the set on a shard, its tables have no trigger yet";
    INSTALLED = "reference_installed", "a table has its triggers, the next has not yet";
    BEGIN = "reference_begin", "before a step takes its snapshot";
    SNAPSHOT = "reference_snapshot", "the step has its snapshot, nothing has been copied";
    APPLIED = "reference_applied", "the rows are on the shard, which has not committed";
    DURABLE = "reference_durable", "the snapshot is durable on the origin, the shard has not committed";
    COMMITTED = "reference_committed", "the shard has committed, the master does not know";
    CONSUMED = "reference_consumed", "the queue is consumed";
    FULL = "reference_full", "a queue was full, and has not been opened again";
    DROPPED = "reference_dropped", "a shard has nothing left of a table, the master does not know";
}
