//! The reverse split of a split: a plan of its own in `split_plan`, with the shards exchanged. It is
//! made before the split may be cut over, and rests until somebody asks for it.

use super::split::{self, Plan};
use super::split_state::{CutoverStep, Goal, Phase};
use crate::error::Failure;
use crate::server::sql;

/// The reverse split of a split as the master knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WayBack {
    pub id: i64,
    pub phase: Phase,
    pub goal: Goal,
    pub cutover_step: CutoverStep,
}

impl WayBack {
    /// Nobody has asked for it.
    pub fn rests(&self) -> bool {
        (self.phase, self.goal) == (Phase::Planning, Goal::Planning)
    }

    /// Its cutover has decided: the split is undone.
    pub fn is_decided(&self) -> bool {
        self.phase == Phase::Completed
    }
}

/// The reverse split that a split has; None: it never had one, or not any more.
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

/// The splits that shards know by one secret and that have not ended: a split, its reverse split, and the
/// reverse split of that once it has begun.
pub fn known_by(token: &str) -> Vec<i64> {
    sql::read(
        "SELECT id FROM shardmaster.split_plan
          WHERE token = $1 AND finished_at IS NULL AND phase <> 'rolled_back'",
        &[token.into()],
        |row| row.value(1),
    )
}

/// Plans the reverse split of a split: shards know it by the same secret, so that whoever moves the
/// rows of one is not kept out by the other. Its keys are the split's until it is asked for.
pub fn create(there: &Plan) -> i64 {
    let ids = sql::write_returning(
        "INSERT INTO shardmaster.split_plan
                (keyspace, source_shard, target_shard, description, scope_kind, tenants, secret, token, reverse_of)
         SELECT keyspace, target_shard, source_shard, 'the reverse split of split ' || id, scope_kind, tenants, secret, token, id
           FROM shardmaster.split_plan WHERE id = $1 RETURNING id",
        &[there.id.into()],
        |row| row.value::<i64>(1),
    );
    let id = ids.first().copied().unwrap_or_default();
    sql::write(
        "INSERT INTO shardmaster.split_key (split_id, keyspace, key, active)
         SELECT $1, keyspace, key, false FROM shardmaster.split_key WHERE split_id = $2",
        &[id.into(), there.id.into()],
    );
    sql::write(
        "INSERT INTO shardmaster.split_table (split_id, ordinal, table_name, shard_by)
         SELECT $1, ordinal, table_name, shard_by FROM shardmaster.split_table WHERE split_id = $2",
        &[id.into(), there.id.into()],
    );
    sql::write(
        "INSERT INTO shardmaster.split_ledger (split_id, side, shard_key) VALUES ($1, 'source', $2)",
        &[id.into(), there.target.shard_key.as_str().into()],
    );
    split::event(id, None, Some(Phase::Planning), &format!("the reverse split of split {}", there.id));
    id
}

/// What the tables of its source look like, as JSON.
pub fn set_baseline(id: i64, json: &str) {
    sql::write(
        "UPDATE shardmaster.split_plan SET baseline = $2::text::jsonb WHERE id = $1",
        &[id.into(), json.into()],
    );
}

pub fn baseline(id: i64) -> Option<String> {
    sql::read_one("SELECT baseline::text FROM shardmaster.split_plan WHERE id = $1", &[id.into()], |row| {
        row.get::<String>(1)
    })
    .flatten()
}

/// Of a split and its reverse split one has the keys: nobody else moves them.
pub fn pass_keys(from: i64, to: i64) {
    for (split, active) in [(from, false), (to, true)] {
        sql::write(
            "UPDATE shardmaster.split_key SET active = $2 WHERE split_id = $1",
            &[split.into(), active.into()],
        );
    }
}

/// The split whose reverse split it is, if it is one.
pub fn there(id: i64) -> Option<i64> {
    sql::read_one("SELECT reverse_of FROM shardmaster.split_plan WHERE id = $1", &[id.into()], |row| {
        row.get::<i64>(1)
    })
    .flatten()
}

/// Rows that were not compared since the cutover may be replaced: the operator has said so.
pub fn allow_copy(id: i64) {
    sql::write("UPDATE shardmaster.split_plan SET copy_again = true WHERE id = $1", &[id.into()]);
}

pub fn may_copy(id: i64) -> bool {
    sql::read_one("SELECT copy_again FROM shardmaster.split_plan WHERE id = $1", &[id.into()], |row| {
        row.value(1)
    })
    .unwrap_or_default()
}

/// It rests no more: somebody has asked for it.
pub fn begin(id: i64) {
    sql::write(
        "UPDATE shardmaster.split_plan SET goal = 'backfill', started_at = coalesce(started_at, clock_timestamp())
          WHERE id = $1",
        &[id.into()],
    );
}

/// It rests no more: its split ends in another way.
pub fn give_up(id: i64) {
    sql::write("UPDATE shardmaster.split_plan SET goal = 'rolled_back' WHERE id = $1", &[id.into()]);
}

/// A split that is to be taken back is to be finished no more: nothing has been taken away for that.
pub fn forget_finish(there: i64) {
    sql::write(
        "UPDATE shardmaster.split_plan
            SET goal = 'completed', activity = 'idle', waiting_for = NULL, attempts = 0, error_code = NULL,
                error_message = NULL, error_detail = NULL, error_hint = NULL, updated_at = clock_timestamp()
          WHERE id = $1 AND goal = 'finished'",
        &[there.into()],
    );
}

/// From here on a split that is being finished cannot be taken back.
pub fn end_undo(there: i64) {
    sql::write(
        "UPDATE shardmaster.split_plan SET undo_ended_at = clock_timestamp() WHERE id = $1",
        &[there.into()],
    );
}

/// In the commit that decides the reverse split: of the split nothing is left to do but to leave
/// both shards. A master that was restored may have forgotten that it was decided: it is undone.
pub fn decided(there: i64, back: i64) {
    sql::write(
        "UPDATE shardmaster.split_plan
            SET goal = CASE phase WHEN 'completed' THEN 'finished' ELSE 'rolled_back' END, undo_ended_at = clock_timestamp(), activity = 'idle', waiting_for = NULL, error_code = NULL, error_message = NULL,
                error_detail = NULL, error_hint = NULL, updated_at = clock_timestamp()
          WHERE id = $1 AND finished_at IS NULL",
        &[there.into()],
    );
    split::event(there, None, None, &format!("taken back by split {back}"));
}

/// Objects stay on a shard that is gone for good: shard_cleanup removes them.
pub fn reopen_ledger(id: i64, side: &str) {
    sql::write(
        "UPDATE shardmaster.split_ledger SET removed_at = NULL WHERE split_id = $1 AND side = $2",
        &[id.into(), side.into()],
    );
}
