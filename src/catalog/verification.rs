//! The tables `split_verification` and `split_difference`: what the comparison of both sides of a split has found.
//! Rows are inserted by a request and deleted with the split's installation.

use crate::clean;
use crate::named_enum::named_enum;
use crate::server::sql;

/// The greatest number of keys that are kept of one table; further ones are only counted.
pub const MOST_DIFFERENCES: i64 = 10_000;

named_enum! {
    pub enum VerificationStatus {
        Pending = "pending",
        Running = "running",
        Passed = "passed",
        Differs = "differs",
    }
}

/// The progress of the comparison of one table.
#[derive(Clone, Debug)]
pub struct Verification {
    pub ordinal: i32,
    /// The number of the request that it serves.
    pub request: i64,
    pub status: VerificationStatus,
    pub position: String,
    pub rows: i64,
    pub bytes: i64,
    pub differing: i64,
    pub example: Option<RowDifference>,
}

/// A row that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowDifference {
    /// The values of the row's key, as text.
    pub key: Vec<String>,
    pub what: String,
}

impl RowDifference {
    /// Returns the key as people read it.
    pub fn text(&self) -> String {
        clean::printable(&format!("({})", self.key.join(",")))
    }
}

/// SQL condition: a plan `p` has tables that are to be compared.
pub const IS_WANTED: &str = "EXISTS (SELECT 1 FROM shardmaster.split_verification v
                                      WHERE v.split_id = p.id AND v.status IN ('pending', 'running'))";

/// Each table has a row, which says how far it is compared.
fn list_tables(id: i64) {
    sql::write(
        "INSERT INTO shardmaster.split_verification (split_id, ordinal)
         SELECT split_id, ordinal FROM shardmaster.split_table_progress WHERE split_id = $1
         ON CONFLICT DO NOTHING",
        &[id.into()],
    );
}

/// Requests that every table is compared, from its beginning.
pub fn ask(id: i64) {
    list_tables(id);
    begin_again(id, None);
}

/// Requests a comparison of those tables that were not shown to be equal since the cutover, so that the split may be
/// finished. A running comparison continues.
pub fn ask_unproven(id: i64) {
    list_tables(id);
    let unproven = sql::read_column::<i32>(
        "SELECT v.ordinal FROM shardmaster.split_verification v JOIN shardmaster.split_plan p ON p.id = v.split_id
          WHERE v.split_id = $1 AND p.undo_ended_at IS NULL
            AND (v.status IN ('failed', 'differs') OR v.status = 'passed' AND NOT coalesce(v.verified_at > p.cutover_at, false))",
        &[id.into()]);
    unproven.into_iter().for_each(|ordinal| begin_again(id, Some(ordinal)));
}

/// Restarts running comparisons, since the cutover has decided: the rows that they have passed were changed and copied
/// since.
pub fn cut_over(id: i64) {
    let running = sql::read_column::<i32>(
        "SELECT ordinal FROM shardmaster.split_verification WHERE split_id = $1 AND status = 'running'",
        &[id.into()],
    );
    running.into_iter().for_each(|ordinal| begin_again(id, Some(ordinal)));
}

/// A table that was not shown to be equal.
pub struct Unproven {
    pub ordinal: i32,
    /// The number of rows that differ by this comparison, or by an earlier one that was not shown to be wrong.
    pub differing: i64,
    /// The key of a row that differs. `None` if an earlier comparison has reported it.
    pub example: Option<String>,
    /// What differs, or why the table could not be compared.
    pub what: String,
}

/// Returns the tables whose comparison has ended without success.
pub fn unproven(id: i64) -> Vec<Unproven> {
    sql::read(
        "SELECT ordinal, greatest(differing, differed), example_key, coalesce(what, '') FROM shardmaster.split_verification
          WHERE split_id = $1 AND status IN ('failed', 'differs') ORDER BY ordinal",
        &[id.into()],
        |row| Unproven {
            ordinal: row.value(1),
            differing: row.value(2),
            example: row.get(3),
            what: row.value(4),
        },
    )
}

/// Restarts the comparison of one table, or of all tables that were to be compared. Known differences stay known until
/// a comparison has passed.
pub fn begin_again(id: i64, ordinal: Option<i32>) {
    sql::write(
        "DELETE FROM shardmaster.split_difference WHERE split_id = $1 AND ordinal = coalesce($2, ordinal)",
        &[id.into(), ordinal.into()],
    );
    sql::write(
        "UPDATE shardmaster.split_verification
            SET status = 'pending', \"position\" = '', rows_compared = 0, bytes = 0, differing = 0,
                differed = greatest(differed, differing), example_key = NULL, what = NULL, verified_at = NULL,
                request = request + 1
          WHERE split_id = $1 AND ordinal = coalesce($2, ordinal)",
        &[id.into(), ordinal.into()],
    );
}

/// Returns the tables that are still to be compared, in their order.
pub fn outstanding(id: i64) -> Vec<Verification> {
    sql::read(
        "SELECT ordinal, request, status = 'running', \"position\", rows_compared, bytes, differing
           FROM shardmaster.split_verification
          WHERE split_id = $1 AND status IN ('pending', 'running') ORDER BY ordinal",
        &[id.into()],
        |row| Verification {
            ordinal: row.value(1),
            request: row.value(2),
            status: if row.value(3) { VerificationStatus::Running } else { VerificationStatus::Pending },
            position: row.value(4),
            rows: row.value(5),
            bytes: row.value(6),
            differing: row.value(7),
            example: None,
        },
    )
}

/// Stores what was compared since the last call. It stores nothing if a new comparison was requested meanwhile.
pub fn store(id: i64, table: &Verification, found: &[RowDifference]) {
    let is_done = matches!(table.status, VerificationStatus::Passed | VerificationStatus::Differs);
    let stored = sql::write(
        "UPDATE shardmaster.split_verification
            SET status = $4, \"position\" = $5, rows_compared = $6, bytes = $7, differing = $8,
                example_key = coalesce(example_key, $9), what = coalesce(what, $10),
                verified_at = CASE WHEN $11 THEN clock_timestamp() END,
                differed = CASE WHEN $4 = 'passed' THEN 0 ELSE differed END
          WHERE split_id = $1 AND ordinal = $2 AND request = $3",
        &[
            id.into(),
            table.ordinal.into(),
            table.request.into(),
            table.status.as_str().into(),
            table.position.as_str().into(),
            table.rows.into(),
            table.bytes.into(),
            table.differing.into(),
            table.example.as_ref().map(RowDifference::text).into(),
            table.example.as_ref().map(|example| clean::printable(&example.what)).into(),
            is_done.into(),
        ],
    );
    if stored == 0 {
        return;
    }
    for difference in found {
        sql::write(
            "INSERT INTO shardmaster.split_difference (split_id, ordinal, key, what)
             SELECT $1, $2, $3, $4
              WHERE (SELECT count(*) FROM shardmaster.split_difference WHERE split_id = $1 AND ordinal = $2) < $5",
            &[
                id.into(),
                table.ordinal.into(),
                difference.key.clone().into(),
                clean::printable(&difference.what).into(),
                MOST_DIFFERENCES.into(),
            ],
        );
    }
}

/// Records that the comparison of a table cannot continue.
pub fn fail(id: i64, ordinal: i32, message: &str) {
    sql::write(
        "UPDATE shardmaster.split_verification SET status = 'failed', what = $3 WHERE split_id = $1 AND ordinal = $2",
        &[id.into(), ordinal.into(), clean::printable(message).into()],
    );
}

/// The number of rows that are known to differ, and the names of their tables.
pub struct DifferingRows {
    pub rows: i64,
    pub tables: String,
}

pub fn differing(id: i64) -> Option<DifferingRows> {
    differing_among(id, None)
}

/// Returns those of some tables.
pub fn differing_among(id: i64, ordinals: Option<&[i32]>) -> Option<DifferingRows> {
    sql::read_one(
        "SELECT sum(greatest(v.differing, v.differed))::bigint, string_agg(t.table_name, ', ' ORDER BY t.ordinal)
           FROM shardmaster.split_verification v
           JOIN shardmaster.split_table t ON t.split_id = v.split_id AND t.ordinal = v.ordinal
          WHERE v.split_id = $1 AND (v.differing > 0 OR v.differed > 0) AND ($2::int[] IS NULL OR v.ordinal = ANY ($2))
         HAVING count(*) > 0",
        &[id.into(), ordinals.map(<[i32]>::to_vec).into()],
        |row| DifferingRows { rows: row.value(1), tables: row.value(2) },
    )
}

/// Returns the names of those tables that were not shown to be equal since the cutover, or None if all were.
pub fn not_compared(id: i64, ordinals: &[i32]) -> Option<String> {
    sql::read_optional::<String>(
        "SELECT string_agg(t.table_name, ', ' ORDER BY t.ordinal)
           FROM shardmaster.split_table t JOIN shardmaster.split_plan p ON p.id = t.split_id
           LEFT JOIN shardmaster.split_verification v ON v.split_id = t.split_id AND v.ordinal = t.ordinal
          WHERE t.split_id = $1 AND t.ordinal = ANY ($2)
            AND NOT coalesce(v.status = 'passed' AND v.verified_at > p.cutover_at, false)",
        &[id.into(), ordinals.to_vec().into()],
    )
}

/// Requests that known differences are copied again, and returns the number of keys.
pub fn ask_repair(id: i64) -> i64 {
    let asked = sql::write(
        "UPDATE shardmaster.split_difference SET to_repair = true WHERE split_id = $1",
        &[id.into()],
    );
    i64::try_from(asked).unwrap_or(i64::MAX)
}

/// Keys of one table that are to be copied again.
pub struct Repair {
    pub ordinal: i32,
    pub ids: Vec<i64>,
    pub keys: Vec<Vec<String>>,
}

/// Returns some of the keys that are left to be copied again.
pub fn to_repair(id: i64, most: i64) -> Option<Repair> {
    let ordinal = sql::read_one(
        "SELECT min(ordinal) FROM shardmaster.split_difference WHERE split_id = $1 AND to_repair HAVING count(*) > 0",
        &[id.into()],
        |row| row.value::<i32>(1),
    )?;
    let (ids, keys) = sql::read(
        "SELECT id, key FROM shardmaster.split_difference
          WHERE split_id = $1 AND ordinal = $2 AND to_repair ORDER BY id LIMIT $3",
        &[id.into(), ordinal.into(), most.into()],
        |row| (row.value::<i64>(1), row.value::<Vec<String>>(2)),
    )
    .into_iter()
    .unzip();
    Some(Repair { ordinal, ids, keys })
}

/// Records that these keys are being copied again. With the last key of a table, its comparison restarts.
pub fn repaired(id: i64, repair: &Repair) {
    sql::write("DELETE FROM shardmaster.split_difference WHERE id = ANY ($1)", &[repair.ids.clone().into()]);
    let is_left = sql::exists(
        "SELECT 1 FROM shardmaster.split_difference WHERE split_id = $1 AND ordinal = $2 AND to_repair LIMIT 1",
        &[id.into(), repair.ordinal.into()],
    );
    if !is_left {
        begin_again(id, Some(repair.ordinal));
    }
}
