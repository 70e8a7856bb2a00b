//! Idle reverse splits: the right to act for them, whether they are indeed idle, and the size of their queues.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::state::epoch::{self, Tenure};
use crate::agent::state::queue;
use crate::agent::state::side::{self, Installed, SideState};
use crate::catalog::auto_finish;
use crate::catalog::reverse_split::{self, WayBack};
use crate::catalog::split::{self, Plan};
use crate::catalog::split_state::request;
use crate::remote::Connection;
use crate::server::txn::{transaction, try_transaction};
use crate::server::wake;
use crate::split::plan::take_up_way_back;
use crate::split::{install, record, redirect};

/// Takes the worker's right to act for a plan other than its own.
pub fn take(id: i64, identity: &str) -> Result<Tenure> {
    try_transaction(|| {
        let generation = record::take(id)?;
        Ok(Tenure { plan: split::load(id)?, generation, identity: identity.to_owned() })
    })
}

/// Returns the split's reverse split, if it is idle.
pub fn armed(there: i64) -> Result<Option<WayBack>> {
    Ok(try_transaction(|| reverse_split::of(there))?.filter(WayBack::rests))
}

/// Whether the split is being reversed, which a restored master may have forgotten. Its target knows it, by its side
/// or by its redirect once that has ended: the reverse split is then continued.
pub fn look(there: i64, identity: &str) -> Result<bool> {
    let Some(back) = armed(there)? else { return Ok(false) };
    let plan = try_transaction(|| split::load(back.id))?;
    let mut source = epoch::open(&plan, identity, Side::Source, "reverse split")?;
    let is_under_way = match side::installed(&mut source, &plan, Side::Source)? {
        Installed::Ours => side::state(&mut source, plan.id, Side::Source)? != Some(SideState::Capture),
        Installed::No => redirect::known_version(&mut source, &plan)?.is_some(),
        Installed::Foreign => false,
    };
    if !is_under_way {
        return Ok(false);
    }
    try_transaction(|| {
        take_up_way_back(there, plan.id)?;
        request::begin_reverse(plan.id);
        split::event(
            plan.id,
            None,
            None,
            "the shards know of this reverse split, which this master had lost",
        );
        wake::split_on_commit(plan.id);
        Ok(true)
    })
}

/// Measures the queue of an idle reverse split, if its operator has configured a size for the automatic finish. An
/// unreachable shard is asked next time.
pub fn measure(there: i64, identity: &str) -> Result<()> {
    if transaction(|| auto_finish::queue_bytes(there)).is_none() {
        return Ok(());
    }
    let Some(back) = armed(there)? else { return Ok(()) };
    let plan = try_transaction(|| split::load(back.id))?;
    match queue_size(&plan, identity) {
        Ok(Some(bytes)) => transaction(|| auto_finish::measured(there, bytes)),
        Ok(None) => {}
        Err(error) if error.is_transient() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Returns None if the target was restored to a time before the start, and has no reverse split.
fn queue_size(plan: &Plan, identity: &str) -> Result<Option<Option<i64>>> {
    let mut source = epoch::open(plan, identity, Side::Source, "reverse split")?;
    match side::installed(&mut source, plan, Side::Source)? {
        Installed::Ours => queue::bytes(&mut source, plan).map(Some),
        Installed::No | Installed::Foreign => Ok(None),
    }
}

/// Drops idle reverse splits of the same split on its target that this master does not know: it was restored to a time
/// before it had planned them. They will never be requested. One that has begun is no longer idle, and is found
/// otherwise. What this master knows by the same secret stays: if both shards are schemas of one database, a reverse
/// split that is about to begin is found by its own secret.
pub fn drop_forgotten(target: &mut Connection, plan: &Plan) -> Result<()> {
    let known = transaction(|| reverse_split::known_by(&plan.token));
    for id in side::resting(target, &plan.token)? {
        if !known.contains(&id) {
            install::drop_side(target, id, Side::Source)?;
        }
    }
    Ok(())
}
