//! The reasons why a statement does not run on all shards.

use crate::error::{Failure, SqlState};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ExecutionError {
    #[error("cannot run {0} on the shards")]
    Ends(String),
    #[error("cannot run COPY from or to a client on the shards")]
    Copies,
    #[error("no statement is given")]
    Empty,
    #[error("no shard is active")]
    NoShard,
    #[error("split {split} is under way on shard \"{shard}\"")]
    Split { split: i64, shard: String },
    #[error("run {run} of misplaced rows is on shard \"{shard}\"")]
    Run { run: i64, shard: String },
    #[error("execution {id} was started by role \"{role}\"")]
    Others { id: i64, role: String },
    #[error("execution {0} was begun by another master, of which this one is a copy")]
    OtherMaster(i64),
    #[error("another session is running execution {0}")]
    Busy(i64),
    #[error("this session is not running execution {0}")]
    NotHeld(i64),
    #[error("execution {id}: it is not known whether shard \"{shard}\" has done it")]
    Unknown { id: i64, shard: String },
    #[error("shard \"{shard}\": its login cannot use schema \"{namespace}\"")]
    OtherSchema { shard: String, namespace: String },
    #[error("shard \"{0}\": the statement has ended its transaction")]
    OtherTransaction(String),
    #[error("shard \"{0}\" is not the server that ran the statement")]
    OtherServer(String),
    #[error("shard \"{0}\" does not know the outcome of the transaction")]
    Forgotten(String),
    #[error("shard \"{0}\": the master was restored or failed over, and may lack the outcome")]
    Lacking(String),
    #[error(
        "shard \"{shard}\" has \"{gid}\" prepared, and the master, restored or failed over, may lack the decision"
    )]
    Undecided { shard: String, gid: String },
    #[error("shard \"{0}\": the transaction is still in progress")]
    InProgress(String),
    #[error("shard \"{0}\": it was interrupted, and ran outside of a transaction")]
    Interrupted(String),
    #[error("shard \"{0}\": the transaction was rolled back")]
    RolledBack(String),
    #[error(
        "shard \"{shard}\": {free} of its max_prepared_transactions = {most} are free, and {needed} are needed"
    )]
    NotEnough { shard: String, most: i64, free: i64, needed: i64 },
    #[error("shard \"{0}\": the transaction was not prepared")]
    NotPrepared(String),
    #[error("shard \"{0}\": somebody else rolled back its prepared transaction, which was to be committed")]
    EndedElsewhere(String),
    #[error(
        "execution {id} was begun with the logins of role \"{role}\", and the caller has those of \"{has}\""
    )]
    OtherBeginner { id: i64, role: String, has: String },
    #[error("the role whose logins execution {0} was begun with no longer exists")]
    NobodyIsLeft(i64),
    #[error("shard \"{shard}\": it was begun there as \"{was}\", and the login is now \"{now}\"")]
    OtherLogin { shard: String, was: String, now: String },
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Failure {
        use ExecutionError as E;
        let (state, hint) = match &error {
            E::Ends(_) => (
                SqlState::INVALID_VALUE,
                "It runs in a transaction on each shard, which commits when it succeeds.".to_owned(),
            ),
            E::Copies => (
                SqlState::UNSUPPORTED,
                "No client is there to send or receive rows. Use shard_query() to read, and INSERT to write."
                    .to_owned(),
            ),
            E::OtherMaster(id) => (
                SqlState::NOT_IN_STATE,
                format!(
                    "If this master replaces a master that is gone for good, CALL shard_execute_resume({id}, retry => true). To abandon it, SELECT shard_execute_abandon({id}, force => true)."
                ),
            ),
            E::OtherSchema { namespace, .. } => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!(
                    "Names without a schema would mean other tables. GRANT USAGE ON SCHEMA \"{namespace}\" to it there."
                ),
            ),
            E::Empty => (SqlState::INVALID_VALUE, "Give one statement.".to_owned()),
            E::NoShard => (SqlState::NOT_IN_STATE, "shard_set_status() makes one active.".to_owned()),
            E::Split { split, .. } => (
                SqlState::IN_USE,
                format!(
                    "Wait until it ends, or name other shards. SELECT shard_split_to_call({split}) shows what it waits for."
                ),
            ),
            E::Run { run, .. } => (
                SqlState::IN_USE,
                format!(
                    "Wait until it ends, name other shards, or abandon it with shard_misplaced_abandon({run})."
                ),
            ),
            E::OtherBeginner { id, .. } => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!(
                    "A role that has them can resume it. Otherwise abandon it with shard_execute_abandon({id}) and begin again."
                ),
            ),
            E::Others { role, .. } => {
                (SqlState::INSUFFICIENT_PRIVILEGE, format!("Role \"{role}\" can resume or abandon it."))
            }
            E::Busy(_) => (SqlState::IN_USE, "Wait until it ends, or cancel it.".to_owned()),
            E::NotHeld(id) => {
                (SqlState::NOT_IN_STATE, format!("CALL shard_execute_resume({id}) continues it."))
            }
            E::Unknown { id, .. } => (
                SqlState::NOT_IN_STATE,
                format!(
                    "Look at the shard. CALL shard_execute_resume({id}, retry => true) runs it again there; shard_execute_abandon({id}) abandons it."
                ),
            ),
            E::Undecided { .. } => (
                SqlState::NOT_IN_STATE,
                "See on the other shards whether it was committed. If so, COMMIT PREPARED it there, else ROLLBACK PREPARED. Then resume."
                    .to_owned(),
            ),
            E::OtherTransaction(_)
            | E::OtherServer(_)
            | E::Forgotten(_)
            | E::Lacking(_)
            | E::Interrupted(_) => {
                (SqlState::NOT_IN_STATE, "See on the shard whether it was done.".to_owned())
            }
            E::InProgress(_) => {
                (SqlState::IN_USE, "Its pg_stat_activity shows what the session waits for.".to_owned())
            }
            E::RolledBack(_) => (SqlState::SERIALIZATION_FAILURE, String::new()),
            E::NotEnough { most, free, needed, .. } => (
                SqlState::NOT_IN_STATE,
                format!(
                    "Set max_prepared_transactions there to {} or more and restart the server. Its pg_prepared_xacts shows who uses the others.",
                    most - free + needed
                ),
            ),
            E::NotPrepared(_) => (SqlState::SERIALIZATION_FAILURE, String::new()),
            E::EndedElsewhere(_) => (
                SqlState::NOT_IN_STATE,
                "Find out who ends prepared transactions there.".to_owned(),
            ),
            E::NobodyIsLeft(id) => (SqlState::UNDEFINED_OBJECT, by_hand(*id)),
            E::OtherLogin { was, .. } => (
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("Call shard_login_set() with \"{was}\" until it has ended. No other login may end it there."),
            ),
        };
        let failure = Failure::new(state, error.to_string());
        if hint.is_empty() { failure } else { failure.hint(hint) }
    }
}

fn by_hand(id: i64) -> String {
    format!(
        "Look in pg_prepared_xacts of the shards for the gid of shard_executions({id}). End it there by hand, then call shard_execute_abandon({id}, force => true)."
    )
}

/// The error for an execution in two phases on a shard where it cannot be ended yet.
pub fn not_settled(why: Failure, is_decided: bool) -> Failure {
    let what = if is_decided {
        "It is to be committed. The worker does that as soon as the shard allows it."
    } else {
        "It is to be rolled back. The worker does that as soon as the shard allows it."
    };
    let hint = why.hint.as_deref().map_or(what.to_owned(), |hint| format!("{hint} {what}"));
    why.hint(hint)
}

/// The error for an abandonment that would leave something on a shard.
pub fn not_abandoned(id: i64, mut why: Failure) -> Failure {
    why.message = format!("execution {id}: {}", why.message);
    let more = format!("force => true abandons it nevertheless. {}", by_hand(id));
    why.hint = Some(why.hint.map_or(more.clone(), |hint| format!("{hint} {more}")));
    why
}

/// Adds the execution's number, because what is stored of it stays, and its reader needs to know which one it is.
pub fn of_execution(id: i64, mut why: Failure) -> Failure {
    let whose = format!("execution {id}: ");
    if !why.message.starts_with(&whose) {
        why.message.insert_str(0, &whose);
    }
    let goes_on =
        format!("CALL shard_execute_resume({id}) continues it; shard_executions({id}) shows its progress.");
    why.hint = Some(why.hint.map_or(goes_on.clone(), |hint| format!("{hint} {goes_on}")));
    why
}
