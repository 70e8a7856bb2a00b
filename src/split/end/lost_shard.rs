//! A source that is lost for good after the cutover has decided: the target opens and the split ends without it.
//! Nothing is deleted anywhere; if the source returns, shard_cleanup handles what it has, and its clients are not
//! refused before that.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::side::{self, Installed};
use crate::catalog::split;
use crate::catalog::split_state::{self, CutoverStep};
use crate::server::txn::transaction;
use crate::split::end::finish;
use crate::split::{cutover, install, record, redirect};

/// Finishes without the source, which the operator has declared lost, taking responsibility for the changes that it
/// has not passed on. Each part can be repeated.
pub fn finish_without_source(tenure: &Tenure, version: i64) -> Result<()> {
    let plan = &tenure.plan;
    let mut target = tenure.open(Side::Target, "finish")?;
    // A finish that was running when the source was lost may have left the target already.
    let is_purged = transaction(|| record::finish_request(plan.id)).is_purged;
    if !is_purged || side::installed(&mut target, plan, Side::Target)? == Installed::Ours {
        tenure.take_over(&mut target, Side::Target)?;
        if !side::is_left(&mut target, plan.id)? {
            cutover::open::open_side(&mut target, plan, tenure.generation, version)?;
        }
        install::drop_side(&mut target, plan.id, Side::Target)?;
    }
    redirect::forget_released(&mut target, plan)?;
    transaction(|| {
        split_state::cutover::step(plan.id, CutoverStep::Moved);
        let text = "the source was declared lost; shard_cleanup removes what it has of the split";
        split::event(plan.id, None, None, text);
        finish::record_end(plan.id, finish::FinishEnding::SourceLost);
    });
    Ok(())
}
