//! The reverse split of a split: a plan of its own in `split_plan`, with the shards exchanged. It is created before
//! the split may be cut over, and stays idle until it is requested.

use crate::catalog::split::{self, Plan};
use crate::catalog::split_ledger;
use crate::catalog::split_state::{self, CutoverStep, Goal, Phase};
use crate::error::Failure;
use crate::server::sql;

/// The reverse split of a split, as the master records it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WayBack {
    pub id: i64,
    pub phase: Phase,
    pub goal: Goal,
    pub cutover_step: CutoverStep,
}

impl WayBack {
    /// Whether it was not requested yet.
    pub fn rests(&self) -> bool {
        (self.phase, self.goal) == (Phase::Planning, Goal::Planning)
    }

    /// Whether its cutover has decided, so that the split is reversed.
    pub fn is_decided(&self) -> bool {
        self.phase == Phase::Completed
    }
}

/// Returns the reverse split of a split. Returns None if the split never had one, or no longer has it.
pub fn of(split: i64) -> Result<Option<WayBack>, Failure> {
    sql::read_one_again(
        "SELECT id, phase, goal, cutover_step FROM shardmaster.split_plan
          WHERE reverse_of = $1 AND phase <> 'rolled_back' ORDER BY id DESC LIMIT 1",
        &[split.into()],
        |row| {
            Ok(WayBack {
                id: row.value(1),
                phase: Phase::parse(&row.value::<String>(2))?,
                goal: Goal::parse(&row.value::<String>(3))?,
                cutover_step: CutoverStep::parse(&row.value::<String>(4))?,
            })
        },
    )
    .transpose()
}

/// Returns the splits that shards know by one secret and that have not ended: a split, its reverse split, and the
/// reverse split of that once it has begun.
pub fn known_by(token: &str) -> Vec<i64> {
    sql::read_column(
        "SELECT id FROM shardmaster.split_plan
          WHERE token = $1 AND finished_at IS NULL AND phase <> 'rolled_back'",
        &[token.into()],
    )
}

/// Plans the reverse split of a split. The split holds its keys until the reverse split is requested.
pub fn create(there: &Plan) -> i64 {
    let id = split_state::plan::create_reverse(there.id);
    split_ledger::write(id, &[("source", there.target.shard_key.as_str())]);
    split::event(id, None, Some(Phase::Planning), &format!("the reverse split of split {}", there.id));
    id
}

/// Returns the structure of its source's tables, as JSON.
pub fn baseline(id: i64) -> Option<String> {
    sql::read_one("SELECT baseline::text FROM shardmaster.split_plan WHERE id = $1", &[id.into()], |row| {
        row.get::<String>(1)
    })
    .flatten()
}

/// Passes the keys between a split and its reverse split: only one of them holds the keys, so that no other split
/// moves them.
pub fn pass_keys(from: i64, to: i64) {
    split_state::plan::hold_keys(from, false);
    split_state::plan::hold_keys(to, true);
}

/// Returns the split that this one reverses, if it is a reverse split.
pub fn there(id: i64) -> Option<i64> {
    sql::read_one("SELECT reverse_of FROM shardmaster.split_plan WHERE id = $1", &[id.into()], |row| {
        row.get::<i64>(1)
    })
    .flatten()
}

/// Whether rows that were not compared since the cutover may be replaced.
pub fn may_copy(id: i64) -> bool {
    sql::read_one("SELECT copy_again FROM shardmaster.split_plan WHERE id = $1", &[id.into()], |row| {
        row.value(1)
    })
    .unwrap_or_default()
}

/// Records that the split is reversed, in the commit that decides the reverse split.
pub fn decided(there: i64, back: i64) {
    split_state::end::taken_back(there);
    split::event(there, None, None, &format!("taken back by split {back}"));
}
