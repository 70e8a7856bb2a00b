//! Injection points, in the order in which a call reaches them.

use crate::server::injection::Point;

const fn point(name: &'static str, description: &'static str) -> Point {
    Point { name, phase: "guard", description }
}

pub static BEGUN: Point = point("guard_begun", "it is recorded, and the shard has nothing");
pub static MADE: Point = point("guard_made", "the shard has an empty list, which the master does not know");
pub static LISTED: Point = point("guard_listed", "entries are on the list, which the master does not know");
pub static FITTED: Point = point("guard_fitted", "a table has its triggers, which the master does not know");
pub static REMOVED: Point =
    point("guard_removed", "the shard has nothing of it, which the master does not know");
