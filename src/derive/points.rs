//! Injection points, in the order in which a worker reaches them.

use crate::server::injection::points;

points! {
    "derive":
    COLUMN = "derive_column", "the table has the column, nothing fills it";
    TRIGGERS = "derive_triggers", "new rows get a value, the master does not know";
    BATCH = "derive_batch", "a batch of rows has its values, the master may not know";
    ROWS = "derive_rows", "a pass over all rows has ended, nothing is concluded";
    NOT_NULL = "derive_not_null", "the column refuses NULL, the master does not know";
    INDEX = "derive_index", "the index is there, the master does not know";
}
