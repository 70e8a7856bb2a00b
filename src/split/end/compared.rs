//! Verification after the cutover. The source's rows are frozen, and the target notes which of them its clients
//! change: each other row must be there as it was, at any time.

use crate::agent::error::Result;
use crate::agent::session::Side;
use crate::agent::state::epoch::Tenure;
use crate::agent::state::progress;
use crate::split::copy::step;
use crate::split::end::before;
use crate::split::engine::verification::When;
use crate::split::engine::{Engine, locks, stream_sessions};
use crate::split::untrusted_code;
use crate::split::verify::walk::{self, Ended};
use crate::split::verify::{key, sequences};

/// Compares as much as fits into a step.
pub fn run(engine: &mut Engine, version: i64, failures: &mut u32) -> Result<()> {
    before::require_told(&engine.tenure.plan, &mut engine.sessions, version)?;
    walk::begin(engine)?;
    stream_sessions::open_wished(&engine.tenure, &mut engine.sessions)?;
    let ended = look(engine);
    walk::record(
        engine.tenure.plan.id,
        engine.verification.as_mut(),
        ended.is_ok().then_some(Ended::Committed),
        failures,
    );
    ended
}

fn look(engine: &mut Engine) -> Result<()> {
    let Engine { tenure: Tenure { plan, .. }, sessions, tables, .. } = &mut *engine;
    let stray = before::stray(plan, sessions, tables)?;
    let uncompared = || before::uncompared(plan, &mut sessions.target, tables);
    if let Some(text) = stray.map_or_else(uncompared, |text| Ok(Some(text)))? {
        walk::give_up(engine.verification.as_mut(), text);
        return Ok(());
    }
    locks::lock_source(&mut sessions.reader, tables)?;
    step::observe_source(engine)?;
    let Engine { tenure, sessions, tables, .. } = &mut *engine;
    let plan = &tenure.plan;
    sessions.target.run("BEGIN")?;
    let names: Vec<&str> = tables.iter().map(|table| table.target.name.as_str()).collect();
    sessions.target.run(&format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", names.join(", ")))?;
    let code = untrusted_code::code_now(&mut sessions.target, plan, Side::Target)?;
    untrusted_code::look_through(&mut sessions.target, plan, Side::Target, &code)?;
    key::require_all_as_noted(&mut sessions.target, plan, tables)?;
    let progress = progress::stored(&mut sessions.target, plan)?.unwrap_or_default();
    stream_sessions::hold_open(tenure, sessions, tables)?;
    walk::slices(engine, &progress, When::AfterCutover)?;
    sequences::look_at(engine)?;
    stream_sessions::let_go(&mut engine.sessions.streams)?;
    engine.sessions.target.run("ROLLBACK")?;
    engine.sessions.reader.run("ROLLBACK")?;
    if let Some(run) = engine.verification.as_mut() {
        run.prepared = None;
    }
    engine.sessions.streams.open.iter_mut().for_each(|stream| stream.prepared = None);
    Ok(())
}
