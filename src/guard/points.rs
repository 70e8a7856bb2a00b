//! Injection points, in the order in which a call reaches them.

use crate::server::injection::points;

points! {
    "guard":
    BEGUN = "guard_begun", "it is recorded, and the shard has nothing";
    MADE = "guard_made", "the shard has an empty list, which the master does not know";
    LISTED = "guard_listed", "entries are on the list, which the master does not know";
    FITTED = "guard_fitted", "a table has its triggers, which the master does not know";
    REMOVED = "guard_removed", "the shard has nothing of it, which the master does not know";
}
