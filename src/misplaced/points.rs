//! Injection points, in the order in which a call reaches them.

use crate::server::injection::points;

points! {
    "misplaced":
    BEGUN = "misplaced_begun", "its sessions are recorded, and have not been asked anything";
    STAGED = "misplaced_staged", "rows are at the right shard, and not committed there";
    COPIED = "misplaced_copied", "rows are committed at the right shard, and still at the wrong one";
    DELETED = "misplaced_deleted", "rows are gone from the wrong shard, and the master has not counted them";
}
