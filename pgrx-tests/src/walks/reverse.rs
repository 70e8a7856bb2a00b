//! Splits that their operator reverses after the cutover.

use super::calls::{CallResult, Refusal, words};
use super::model::{Phase, SplitView, Status};
use super::walk::Walk;
use crate::Result;

impl Walk {
    pub(super) fn go_back(&mut self) -> Result<String> {
        let all = self.look()?;
        let completed: Vec<i64> = all.iter().filter(|split| is_open(split)).map(|split| split.id).collect();
        let any: Vec<i64> = all.iter().map(|split| split.id).collect();
        let from = if self.random.percent(10) { &any } else { &completed };
        if from.is_empty() {
            return self.run_to(&["completed"]);
        }
        let id = *self.random.one_of(from);
        let may_be_refused = self.may_be_refused(id);
        let query = format!("SELECT shard_split_reverse({id}, copy_again => true)");
        let told: CallResult = self.master()?.query_one(&query, &[]).map(drop).map_err(Refusal::of);
        self.judge(&query, &told)?;
        self.look()?;
        match &told {
            Err(refusal) if refusal.is_lost() => {}
            Err(refusal) if refusal.code == "55000" && (may_be_refused || self.may_be_refused(id)) => {}
            Err(refusal) => return Err(format!("{query}: {}", refusal.text).into()),
            Ok(()) => {}
        }
        Ok(format!("{query}: {}", words(&told)))
    }

    /// Whether the call may be refused. That is so if the split is not completed, or is ending, or its
    /// reverse split does not exist or was tried before, or one of the shards takes no keys.
    fn may_be_refused(&self, id: i64) -> bool {
        let Some(split) = self.model.split(id) else { return true };
        let statuses = [split.source, split.target].map(|shard| self.model.statuses[shard]);
        !is_open(&split.seen)
            || self.model.has_gone_back(id)
            || statuses.iter().any(|status| *status != Status::Active)
            // The state of a new master may be from before the reverse split.
            || self.is_restored
    }
}

fn is_open(split: &SplitView) -> bool {
    split.phase == Phase::Completed && !split.is_finished && split.goal == "completed"
}
