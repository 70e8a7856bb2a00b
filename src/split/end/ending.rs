//! How redirects end: by the operator's word, with age, or because what has left was
//! assigned to its old shard again.

use super::redirect::{self, Ending};
use crate::agent::error::{Result, SplitError};
use crate::agent::one_database::is_one_database;
use crate::agent::session;
use crate::agent::state::master;
use crate::catalog::redirect::{self as stored, ToEnd};
use crate::catalog::shard;
use crate::catalog::split::{self, Left};
use crate::error::Failure;
use crate::remote::Connection;
use crate::server::sql;
use crate::server::txn::{transaction, try_transaction};
use crate::split::injection_points::{self, reach};

/// In the session of the operator: of a finished split nothing is left afterwards.
pub fn drop_all(id: i64, source_lost: bool) -> std::result::Result<(), Failure> {
    if source_lost {
        stored::all_ended(id);
        let text = "the source was given up as lost, its redirect with it; shard_cleanup removes what a copy of it refuses";
        split::event(id, None, None, text);
        return Ok(());
    }
    let left = split::left(id)?;
    open(&left, &split::identity())
        .and_then(|mut session| redirect::end(&mut session, &left.token, &Ending::All))
        .map_err(SplitError::into_failure)?;
    stored::all_ended(id);
    split::event(id, None, None, "the source's redirect was dropped");
    Ok(())
}

/// What is due, by the split's worker. A shard that is out of reach is asked again later: a
/// worker that waited for it would keep others waiting.
pub fn run(id: i64) -> Result<()> {
    let (left, identity) = try_transaction(|| Ok::<_, SplitError>((split::left(id)?, split::identity())))?;
    let unknown = ask(id, &left)?;
    reach(injection_points::REDIRECT_BEGIN)?;
    // The source may answer late, and another word may have been said on a key meanwhile: what
    // is to end is read once the session is there.
    let mut to_end = transaction(|| stored::to_end(id));
    let ended = match &to_end {
        ToEnd::Nothing => Ok(()),
        ToEnd::All | ToEnd::Named(_) => open(&left, &identity).and_then(|mut session| {
            to_end = transaction(|| stored::to_end(id));
            match &to_end {
                ToEnd::Nothing => Ok(()),
                ToEnd::All => redirect::end(&mut session, &left.token, &Ending::All),
                ToEnd::Named(names) => {
                    redirect::end(&mut session, &left.token, &Ending::Named(names, left.key_type))
                }
            }
        }),
    };
    match ended {
        Ok(()) => {
            reach(injection_points::REDIRECT_ENDED)?;
            transaction(|| record(id, &to_end));
        }
        Err(error) if error.is_transient() => transaction(|| postpone(id, &error.to_string())),
        Err(error) => return Err(error),
    }
    if let Some(reason) = unknown {
        transaction(|| postpone(id, &reason));
    }
    Ok(())
}

/// Whether what was assigned to shards of another address came back, is for the servers to
/// say. Why one of them could not be asked; it is asked again.
fn ask(id: i64, left: &Left) -> Result<Option<String>> {
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
            let text = match is_there {
                true => format!(
                    "shards \"{}\" and \"{shard_key}\" are one database by two addresses",
                    left.source.shard_key
                ),
                false => format!(
                    "shard \"{shard_key}\" is not where shard \"{}\" is: the redirect stays",
                    left.source.shard_key
                ),
            };
            split::event(id, None, None, &text);
        });
    }
    Ok(unknown)
}

/// A session on the source that belongs to this master.
fn open(left: &Left, identity: &str) -> Result<Connection> {
    let mut session = session::open(&left.source, "redirect")?;
    master::check(&mut session, identity)?;
    Ok(session)
}

fn record(id: i64, ended: &ToEnd) {
    sql::write("UPDATE shardmaster.split_plan SET waiting_for = NULL WHERE id = $1", &[id.into()]);
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

fn postpone(id: i64, reason: &str) {
    sql::write(
        "UPDATE shardmaster.split_plan SET watched_at = clock_timestamp(), waiting_for = $2 WHERE id = $1",
        &[id.into(), reason.into()],
    );
}
