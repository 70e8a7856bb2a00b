//! How redirects end: by the operator's call, by age, or because the keys were assigned to their old shard again.

use crate::agent::error::{Result, SplitError};
use crate::agent::one_database::is_one_database;
use crate::agent::session;
use crate::agent::state::{master, moved_keys as entries};
use crate::catalog::redirect::{self as stored, ToEnd};
use crate::catalog::split::{self, FinishedSplit};
use crate::catalog::{keyspace, shard, split_state};
use crate::error::Failure;
use crate::remote::Connection;
use crate::server::txn::{transaction, try_transaction, with_lock_timeout};
use crate::split::cutover::on_master;
use crate::split::injection_points::{self, reach};
use crate::split::redirect::{self, RedirectEnding};
use std::time::{Duration, Instant};

/// Ends the redirect in the session of the operator: nothing of a finished split is left afterwards.
pub fn drop_all(id: i64, source_lost: bool) -> std::result::Result<(), Failure> {
    if source_lost {
        stored::all_ended(id);
        let text = "the source was declared lost, and its redirect with it; shard_cleanup removes what a copy of it refuses";
        split::event(id, None, None, text);
        return Ok(());
    }
    let left = split::left(id)?;
    open(&left, &split::identity())
        .and_then(|mut session| {
            redirect::end(&mut session, left.by(), &RedirectEnding::All, &mut redirect::commit)
        })
        .map_err(SplitError::into_failure)?;
    stored::all_ended(id);
    split::event(id, None, None, "the source's redirect was dropped");
    Ok(())
}

/// Ends what is due, in the split's worker. An unreachable shard is asked again later: a worker that waited for it
/// would keep others waiting.
pub fn run(id: i64) -> Result<()> {
    let (left, identity) = try_transaction(|| Ok::<_, SplitError>((split::left(id)?, split::identity())))?;
    let unknown = ask(id, &left)?;
    reach(injection_points::REDIRECT_BEGIN)?;
    let ended = open(&left, &identity).and_then(|mut session| {
        forget_what_has_ended(id, &left, &mut session)?;
        end_what_is_due(id, &left, &mut session)
    });
    match ended {
        Ok(ended) => {
            reach(injection_points::REDIRECT_ENDED)?;
            transaction(|| record(id, &ended));
        }
        Err(error) if error.is_transient() => {
            transaction(|| split_state::work::watched(id, Some(&error.to_string())))
        }
        Err(error) => return Err(error),
    }
    if let Some(reason) = unknown {
        transaction(|| split_state::work::watched(id, Some(&reason)));
    }
    Ok(())
}

/// Ends the part that is due, and returns it.
fn end_what_is_due(id: i64, left: &FinishedSplit, session: &mut Connection) -> Result<ToEnd> {
    // The source may answer late, and a key may have been assigned differently meanwhile: what is to end is read once
    // the session exists.
    let to_end = transaction(|| stored::to_end(id));
    let ending = match &to_end {
        ToEnd::Nothing => return Ok(to_end),
        ToEnd::All => RedirectEnding::All,
        ToEnd::Named(names) => RedirectEnding::Named(names, left.key_type),
    };
    let mut commit = |session: &mut Connection| commit_if_still(id, left, &to_end, session);
    if redirect::end(session, left.by(), &ending, &mut commit)? {
        Ok(to_end)
    } else {
        Err(SplitError::Retry("the part of the redirect to be ended, which has just changed".into()))
    }
}

/// How long, at most, no key of the keyspace can be assigned meanwhile.
const COMMIT_LIMIT: Duration = Duration::from_secs(2);

/// Commits on the shard with the keyspace locked, if what is to end is still the same: no other assignment is made
/// before the shard has confirmed. A commit whose answer does not come in time may have been made or not: the next
/// attempt asks. By then no late commit can be made any more, since the shard has ended its transaction.
fn commit_if_still(id: i64, left: &FinishedSplit, to_end: &ToEnd, session: &mut Connection) -> Result<bool> {
    let limit = (COMMIT_LIMIT * 2).as_millis();
    session.run(&format!("SET LOCAL idle_in_transaction_session_timeout = {limit}"))?;
    let said = with_lock_timeout(|| {
        keyspace::lock(&left.keyspace).map_err(Failure::from)?;
        if stored::to_end(id) != *to_end {
            return Ok(false);
        }
        session.set_deadline(Some(Instant::now() + COMMIT_LIMIT));
        session.run("COMMIT")?;
        session.set_deadline(None);
        Ok(true)
    });
    said.unwrap_or_else(|| {
        let who = transaction(on_master::holders);
        Err(SplitError::Retry(format!("a lock on the master, held perhaps by {who}")))
    })
}

/// Forgets entries that the shard no longer refuses. An earlier worker's commit may have been made without its answer,
/// and the keys may have been assigned differently since.
fn forget_what_has_ended(id: i64, left: &FinishedSplit, session: &mut Connection) -> Result<()> {
    let there = entries::all_of(session, left.by())?;
    if there.is_none() {
        redirect::tidy_all(session)?;
    }
    let forgotten = transaction(|| stored::forget_all_but(id, there.as_ref()));
    if forgotten > 0 {
        let text = format!(
            "the source's redirect has ended for {forgotten} before they were assigned elsewhere again: its answer had not arrived"
        );
        transaction(|| split::event(id, None, None, &text));
    }
    Ok(())
}

/// Asks the servers whether what was assigned to shards of another address returned to the redirect's place. Returns
/// why one of them could not be asked; it is asked again.
fn ask(id: i64, left: &FinishedSplit) -> Result<Option<String>> {
    let mut unknown = None;
    for shard_key in transaction(|| stored::asked(id)) {
        let other = transaction(|| shard::by_key(&shard_key).ok());
        let is_there = match &other {
            None => false,
            Some(other) => match is_one_database(&left.source, other) {
                Ok(is_there) => is_there,
                Err(error) => {
                    unknown = Some(format!(
                        "whether shard \"{shard_key}\" is where shard \"{}\" is: {error}",
                        left.source.shard_key
                    ));
                    continue;
                }
            },
        };
        transaction(|| {
            stored::answered(id, &shard_key, is_there);
            let text = if is_there {
                format!(
                    "shards \"{}\" and \"{shard_key}\" are the same database at two addresses",
                    left.source.shard_key
                )
            } else {
                format!(
                    "shard \"{shard_key}\" is not where shard \"{}\" is: the redirect stays",
                    left.source.shard_key
                )
            };
            split::event(id, None, None, &text);
        });
    }
    Ok(unknown)
}

/// Opens a session on the source that belongs to this master.
fn open(left: &FinishedSplit, identity: &str) -> Result<Connection> {
    let mut session = session::open(&left.source, "redirect")?;
    master::check(&mut session, identity)?;
    Ok(session)
}

fn record(id: i64, ended: &ToEnd) {
    split_state::end::redirect_served(id);
    match ended {
        ToEnd::Nothing => stored::ended(id, &[]),
        ToEnd::All => {
            stored::all_ended(id);
            split::event(
                id,
                None,
                None,
                "the source's redirect has ended: it is older than shardmaster.redirect_retention",
            );
        }
        ToEnd::Named(names) => {
            stored::ended(id, names);
            let text =
                format!("the source's redirect has ended for {} that came back by assignment", names.len());
            split::event(id, None, None, &text);
        }
    }
}
