//! How redirects end: by the operator's word, with age, or because what has left was
//! assigned to its old shard again.

use super::redirect::{self, Ending};
use crate::agent::error::{Result, SplitError};
use crate::agent::session;
use crate::agent::state::master;
use crate::catalog::redirect::{self as stored, ToEnd};
use crate::catalog::split::{self, Left};
use crate::error::Failure;
use crate::server::sql;
use crate::server::txn::{transaction, try_transaction};
use crate::split::points::{self, reach};

/// In the session of the operator: of a finished split nothing is left afterwards.
pub fn drop_all(id: i64) -> std::result::Result<(), Failure> {
    let left = split::left(id)?;
    end(&left, &split::identity(), &Ending::All).map_err(SplitError::into_failure)?;
    stored::all_ended(id);
    split::event(id, None, None, "the source's redirect was dropped");
    Ok(())
}

/// What is due, by the split's worker. A shard that is out of reach is asked again later: a
/// worker that waited for it would keep others waiting.
pub fn run(id: i64) -> Result<()> {
    let (left, to_end, identity) =
        try_transaction(|| Ok::<_, SplitError>((split::left(id)?, stored::to_end(id), split::identity())))?;
    reach(points::REDIRECT_BEGIN)?;
    let ended = match &to_end {
        ToEnd::Nothing => Ok(()),
        ToEnd::All => end(&left, &identity, &Ending::All),
        ToEnd::Named(names) => end(&left, &identity, &Ending::Named(names, left.key_type)),
    };
    match ended {
        Ok(()) => {
            reach(points::REDIRECT_ENDED)?;
            transaction(|| record(id, &to_end));
        }
        Err(error) if error.may_pass() => transaction(|| postpone(id, &error.to_string())),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn end(left: &Left, identity: &str, ending: &Ending<'_>) -> Result<()> {
    let mut session = session::open(&left.source, "redirect")?;
    master::check(&mut session, identity)?;
    redirect::end(&mut session, &left.token, ending)
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
