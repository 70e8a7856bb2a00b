//! `shard_adopt()`: a restored master takes its shards over, and the decided cutovers that they know. Shards are asked
//! first; then, in one transaction on the master, each keyspace gets one more routing version.

mod call;
mod fate;
mod keyspace;
mod merge;
mod own;
mod routes;
mod row;

pub use call::AdoptCall;
use call::AskedShards;
pub use row::AdoptRow;

use super::cleanup;
use crate::agent::error::SplitError;
use crate::agent::inquiry::{self, InquiryAnswer};
use crate::agent::session;
use crate::agent::state::{self, master};
use crate::catalog::shard::{self, Shard, TopologyError};
use crate::catalog::shard_decision::{self, Decision};
use crate::catalog::split;
use crate::clean;
use crate::error::{Failure, SqlState};
use crate::server::sql;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The limit for each shard, because an operator waits.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The number of reservations that a master may have forgotten.
const FORGOTTEN: i64 = 1_000_000;

/// Asks one shard, or all, and takes over what they know.
pub fn run(call: AdoptCall<'_>) -> Result<Vec<AdoptRow>, Failure> {
    let AdoptCall { shard_key, dry_run, .. } = call;
    let shards = match shard_key {
        Some(name) => vec![shard_with_rows(name)?],
        None => shard::all().into_iter().filter(|shard| shard.holds_rows() && shard.is_active()).collect(),
    };
    let (mut rows, mut asked) = (Vec::new(), Vec::new());
    for shard in shards {
        match ask(&shard, dry_run) {
            Ok((answer, was)) => {
                rows.extend(was.map(|text| AdoptRow::of_shard(&shard.shard_key, text)));
                asked.push((shard.shard_key, answer));
            }
            Err(error) if shard_key.is_none() => rows.push(unanswered(&shard, error, dry_run)),
            Err(error) => return Err(error.into_failure()),
        }
    }
    rows.extend(take_over(asked, call)?);
    // This is done even if nothing has moved, since the shards do not know reservations.
    if !dry_run {
        pass_reservations();
    }
    Ok(rows)
}

/// Skips reservation numbers: a client with a reservation that this master has forgotten would otherwise act on
/// another client's of the same number. How many were forgotten is unknown.
fn pass_reservations() {
    sql::write(
        &format!(
            "SELECT setval('shardmaster.shard_reservation_id_seq', s.last_value + {FORGOTTEN})
               FROM shardmaster.shard_reservation_id_seq s"
        ),
        &[],
    );
}

fn shard_with_rows(name: &str) -> Result<Shard, Failure> {
    let shard = shard::by_key(name)?;
    if shard.holds_rows() {
        Ok(shard)
    } else {
        Err(TopologyError::NoServer { shard: shard.shard_key, kind: shard.kind }.into())
    }
}

/// Returns the row for a shard that did not answer. What the others know is taken over all the same.
fn unanswered(shard: &Shard, error: SplitError, dry_run: bool) -> AdoptRow {
    let why = clean::printable(&error.into_failure().message);
    if !dry_run {
        shard_decision::asked(&shard.shard_key, Some(&why));
    }
    AdoptRow::of_shard(&shard.shard_key, format!("not asked: {why}"))
}

/// Returns what the shard knows, and the other master that had it, if there was one. Split numbers that it knows are
/// not given out again.
fn ask(shard: &Shard, dry_run: bool) -> Result<(InquiryAnswer, Option<String>), SplitError> {
    let mut connection = session::open_within(shard, "adopt", LONGEST_WAIT)?;
    connection.set_deadline(Some(Instant::now() + LONGEST_WAIT));
    let before = inquiry::of(&mut connection, shard)?;
    let was = before.refused.as_ref().map(|_| "belonged to another master");
    if dry_run {
        return Ok((before, was.map(|_| "belongs to another master: to be adopted".to_owned())));
    }
    if state::has(&mut connection, "master")? {
        cleanup::pass_numbers(&mut connection, shard)?;
        master::adopt(&mut connection, &split::identity())?;
    }
    let answer = inquiry::of(&mut connection, shard)?;
    Ok((answer, was.map(|text| format!("{text}: adopted"))))
}

/// Takes over what the asked shards have reported now, and the others when they were last asked. If one shard is
/// given, only decisions that it takes part in count.
fn take_over(asked: Vec<(String, InquiryAnswer)>, call: AdoptCall<'_>) -> Result<Vec<AdoptRow>, Failure> {
    let names: AskedShards =
        asked.iter().map(|(name, answer)| (name.clone(), answer.last_versions.clone())).collect();
    let stored = shard_decision::lost().into_iter().filter(|(name, _)| !names.contains_key(name));
    let mut said: Vec<(String, Decision)> = stored.collect();
    for (name, answer) in asked {
        if !call.dry_run {
            shard_decision::store(&name, &answer.decisions);
            shard_decision::asked(&name, answer.refused.as_deref());
        }
        said.extend(answer.decisions.into_iter().map(|decision| (name.clone(), decision)));
    }
    let mut merged = merge::merged(said);
    require_lost(&merged, call.keep_routes)?;
    if call.shard_key.is_some() {
        merged.retain(|lost| {
            let Decision { from_shard, to_shard, .. } = &lost.decision;
            lost.said_by.iter().chain([from_shard, to_shard]).any(|name| names.contains_key(name))
        });
    }
    let keyspaces: BTreeSet<String> = merged.iter().map(|lost| lost.decision.keyspace.clone()).collect();
    let mut rows = Vec::new();
    for keyspace in keyspaces {
        let of: Vec<&merge::Lost> = merged.iter().filter(|lost| lost.decision.keyspace == keyspace).collect();
        rows.extend(keyspace::take_over(&keyspace, &of, &names, call)?);
    }
    Ok(rows)
}

/// Requires each split in `keep_routes` to be among those that are shown: the operator decides about what was shown.
fn require_lost(merged: &[merge::Lost], keep_routes: &[i64]) -> Result<(), Failure> {
    let is_lost = |id: &i64| merged.iter().any(|lost| lost.decision.split_id == *id);
    let Some(id) = keep_routes.iter().find(|id| !is_lost(id)) else { return Ok(()) };
    let text = format!("no shard knows a cutover of split {id} that this master does not know");
    let hint = "SELECT * FROM shard_adopt(dry_run => true) shows what the shards record.";
    Err(Failure::new(SqlState::UNDEFINED_OBJECT, text).hint(hint))
}
