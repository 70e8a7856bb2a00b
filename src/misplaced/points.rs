//! Injection points, in the order in which a call reaches them.

use crate::server::injection::Point;

const fn point(name: &'static str, description: &'static str) -> Point {
    Point { name, phase: "misplaced", description }
}

pub static BEGUN: Point =
    point("misplaced_begun", "its sessions are recorded, and have not been asked anything");
pub static STAGED: Point = point("misplaced_staged", "rows are at the right shard, and not committed there");
pub static COPIED: Point =
    point("misplaced_copied", "rows are committed at the right shard, and still at the wrong one");
pub static DELETED: Point =
    point("misplaced_deleted", "rows are gone from the wrong shard, and the master has not counted them");
